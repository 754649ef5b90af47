//! Creates and deletes pods, observes the node at the same time, and prints the table of results.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::lab::Lab;
use super::observe::Observation;
use crate::harness::wait::SetOnDrop;

/// The pods that must run. The set changes with every round.
pub struct Churn {
    pub wanted: BTreeSet<String>,
    /// The number of pods created so far.
    pub created: usize,
    random: u64,
}

/// The number of pods that a round replaces.
const ROUND: usize = 5;
/// The number of pods that are replaced at once.
const BURST: usize = 10;

impl Churn {
    /// Creates this many pods and waits until they run. The pods that later rounds replace are the same in every run.
    pub fn start(lab: &Lab, pods: usize) -> Churn {
        Churn::start_from(1, lab, pods)
    }

    /// Creates pods like [`Churn::start`]. Later rounds replace other pods in every run, unless KUBELET_SEED is set.
    pub fn start_at_random(lab: &Lab, pods: usize) -> Churn {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let seed = match std::env::var("KUBELET_SEED") {
            Ok(seed) => seed.parse().unwrap(),
            Err(_) => u64::from(since_1970.subsec_nanos()),
        };
        println!("KUBELET_SEED={seed} replaces the same pods again");
        Churn::start_from(seed, lab, pods)
    }

    /// Creates pods beside other pods, which stay.
    pub fn start_beside(lab: &Lab, pods: usize, others: &[&str]) -> Churn {
        let mut churn = Churn::new(1);
        churn.create(lab, pods);
        let mut all = churn.wanted.clone();
        all.extend(others.iter().map(|pod| (*pod).to_owned()));
        lab.wait_for_pods_only(&all);
        churn
    }

    fn start_from(seed: u64, lab: &Lab, pods: usize) -> Churn {
        let mut churn = Churn::new(seed);
        churn.create(lab, pods);
        lab.wait_for_pods(&churn.wanted);
        churn
    }

    fn new(seed: u64) -> Churn {
        Churn {
            wanted: BTreeSet::new(),
            created: 0,
            random: seed,
        }
    }

    pub fn create(&mut self, lab: &Lab, pods: usize) {
        for _ in 0..pods {
            self.created += 1;
            let name = format!("pod-{}", self.created);
            lab.create_pod(&name);
            self.wanted.insert(name);
        }
    }

    /// Deletes some of the pods, and creates as many.
    pub fn replace(&mut self, lab: &Lab, pods: usize) {
        for _ in 0..pods {
            // This is Knuth's MMIX generator.
            self.random = self.random.wrapping_mul(6_364_136_223_846_793_005);
            self.random = self.random.wrapping_add(1_442_695_040_888_963_407);
            let n = usize::try_from(self.random >> 33).unwrap() % self.wanted.len();
            let name = self.wanted.iter().nth(n).unwrap().clone();
            lab.delete_pod(&name);
            self.wanted.remove(&name);
        }
        self.create(lab, pods);
    }

    /// Replaces many pods, and does not wait until they run.
    pub fn burst(&mut self, lab: &Lab) {
        self.replace(lab, BURST);
    }

    /// Replaces pods for this time, and calls a function before each round.
    pub fn run(&mut self, lab: &mut Lab, time: Duration, mut before_round: impl FnMut(&mut Lab)) {
        const TIME: Duration = Duration::from_secs(2);
        let rounds = time.as_secs().div_ceil(TIME.as_secs());
        for round in 0..rounds {
            let start = Instant::now();
            before_round(lab);
            self.replace(lab, ROUND);
            if round + 1 < rounds {
                thread::sleep(TIME.saturating_sub(start.elapsed()));
            }
        }
    }

    /// Deletes all pods, and waits until none of them and no address is left.
    pub fn end(mut self, lab: &Lab) -> Duration {
        let start = Instant::now();
        for name in std::mem::take(&mut self.wanted) {
            lab.delete_pod(&name);
        }
        lab.wait_for_pods(&self.wanted);
        start.elapsed()
    }
}

/// The results of the observations.
#[derive(Default)]
pub struct Seen {
    /// The number of observations.
    pub observations: usize,
    pub duplicates: BTreeSet<String>,
}

/// Observes the node repeatedly while `work` runs.
pub fn watch<T>(work: impl FnOnce() -> T) -> (T, Seen) {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let watching = scope.spawn(|| {
            let mut seen = Seen::default();
            while !is_over.load(Ordering::SeqCst) {
                let observation = Observation::capture(Vec::new());
                seen.duplicates.extend(observation.duplicates());
                seen.observations += 1;
                thread::sleep(Duration::from_millis(100));
            }
            seen
        });
        let result = {
            let _over = SetOnDrop(&is_over);
            work()
        };
        (result, watching.join().unwrap())
    })
}

/// One line of the table of results.
pub struct Row {
    pub scenario: String,
    /// The number of pods that the scenario created.
    pub pods: usize,
    /// The time until exactly the wanted pods ran.
    pub took: Duration,
    /// The number of ADDs that the plugin refused.
    pub refused: usize,
    pub seen: Seen,
    /// The number of orphaned addresses in the state at that time.
    pub to_reclaim: usize,
    /// The number of orphaned addresses that remained after a reclaim one hour later.
    pub lost: usize,
    pub remark: String,
}

const HEAD: &str = "\
| scenario | pods created | seconds | ADDs refused | duplicates | to reclaim | lost | scans | remark |
|---|---|---|---|---|---|---|---|---|
";

/// Prints the rows as a table, and adds them to the file that AZURE_VNET_IPAM_RESULTS names. Fails when a row has a
/// duplicate or a lost address.
#[track_caller]
pub fn report(rows: &[Row]) {
    let mut text = String::new();
    for row in rows {
        writeln!(
            text,
            "| {} | {} | {:.1} | {} | {} | {} | {} | {} | {} |",
            row.scenario,
            row.pods,
            row.took.as_secs_f64(),
            row.refused,
            row.seen.duplicates.len(),
            row.to_reclaim,
            row.lost,
            row.seen.observations,
            row.remark
        )
        .unwrap();
    }
    println!("{HEAD}{text}");
    if let Some(path) = std::env::var_os("AZURE_VNET_IPAM_RESULTS") {
        let is_new = !fs::exists(&path).unwrap();
        let file = fs::File::options().create(true).append(true).open(path);
        let head = if is_new { HEAD } else { "" };
        file.unwrap()
            .write_all(format!("{head}{text}").as_bytes())
            .unwrap();
    }
    for row in rows {
        assert!(
            row.seen.observations > 0,
            "{}: no observation",
            row.scenario
        );
        let duplicates = &row.seen.duplicates;
        assert!(duplicates.is_empty(), "{}: {duplicates:#?}", row.scenario);
        assert_eq!(row.lost, 0, "{}", row.scenario);
    }
}
