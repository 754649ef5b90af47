//! All histories of a small node, up to a depth: two containers, one of them with two interfaces, and three addresses.
//!
//! Time advances by the plugin's thresholds, and equivalent worlds count as one. A history is not tried again from a
//! world that was already reached with as many events left.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::fmt::Write;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use super::events::Event;
use super::fields::{Field, fields};
use super::world::{MARK, SECOND, World};

/// Ages above this one, in seconds, are equivalent.
const OLDEST: u64 = 3700;

impl World {
    /// The fingerprint of a world. It contains ages instead of times.
    fn fingerprint(&self) -> u64 {
        let mut text = String::with_capacity(8192);
        let World {
            pods,
            containers,
            in_flight,
            cache,
            strangers,
            listed,
            answer,
            doubtful_since,
            blind,
            loss_seen,
            newest_answer,
            leaving,
            withheld,
            ..
        } = self;
        write!(
            text,
            "{pods:?}{containers:?}{in_flight:?}{cache:?}{strangers:?}{listed:?}{answer:?}{doubtful_since:?}{blind:?}{loss_seen:?}{newest_answer:?}{leaving:?}{withheld:?}"
        )
        .unwrap();
        let flags = (
            self.is_boot_id_readable,
            self.original_wrote_last,
            self.disk.removed_locks.min(1),
        );
        write!(text, "{flags:?}{}", self.boot).unwrap();
        if self.rules.releases_are_final {
            write!(text, "{:?}", self.released).unwrap();
        }
        write!(text, "{}", self.truth_fingerprint()).unwrap();
        for file in self.disk.files.values().chain(&self.old_state) {
            text.push('\n');
            text.push_str(&String::from_utf8_lossy(file));
        }
        text.push_str(&String::from_utf8_lossy(&self.disk.lock));
        self.hash_with_ages(text.as_bytes())
    }

    /// Hashes the text with ages instead of times, and ranks instead of generations.
    fn hash_with_ages(&self, text: &[u8]) -> u64 {
        /// Generations are microseconds of the boot clock, which is never near zero. No other number is as large.
        const LEAST_GENERATION: u64 = 1_000_000;
        let number = |word: &[u8]| match word.len() {
            0..7 => None,
            _ => {
                let number = std::str::from_utf8(word).ok()?.parse::<u64>().ok();
                number.filter(|n| *n >= LEAST_GENERATION)
            }
        };
        let is_moment = |n: &u64| n % (SECOND / 10) == MARK;
        let words = text.chunk_by(|a, b| a.is_ascii_hexdigit() == b.is_ascii_hexdigit());
        let words: Vec<_> = words.map(|word| (word, number(word))).collect();
        let numbers = words.iter().filter_map(|(_, number)| *number);
        let generations: BTreeSet<u64> = numbers.filter(|n| !is_moment(n)).collect();
        let mut hasher = DefaultHasher::new();
        for (word, number) in words {
            match number {
                Some(moment) if is_moment(&moment) && moment > self.clock => {
                    b"later".hash(&mut hasher)
                }
                Some(moment) if is_moment(&moment) => {
                    let age = self.clock - moment;
                    // When each event takes a fraction of a second, the fraction shows the order.
                    let parts = if self.rules.is_ticking { 10 } else { 1 };
                    let age = (age / (SECOND / parts)).min(OLDEST * parts);
                    (age, 's').hash(&mut hasher);
                }
                Some(generation) => {
                    let rank = generations.range(..generation).count();
                    (rank, 'n').hash(&mut hasher);
                }
                None => word.hash(&mut hasher),
            }
        }
        hasher.finish()
    }
}

/// One search of a field.
struct Search<'a> {
    field: &'a Field,
    /// The worlds reached so far, with the number of events left.
    reached: HashMap<u64, u8>,
    transitions: u64,
    deadline: Option<Instant>,
    /// The events so far, for the report of a failure.
    history: &'a RefCell<Vec<Event>>,
}

impl Search<'_> {
    /// Tries all histories from this world. Returns whether there was enough time.
    fn explore(&mut self, world: &World, left: u8) -> bool {
        let reached = self.reached.entry(world.fingerprint()).or_default();
        if *reached > left {
            return true;
        }
        *reached = left + 1;
        if left == 0 {
            return true;
        }
        if self
            .deadline
            .is_some_and(|deadline| Instant::now() >= deadline)
        {
            return false;
        }
        for event in &self.field.events {
            self.transitions += 1;
            self.history.borrow_mut().push(event.clone());
            let mut next = world.clone();
            next.step(event);
            let is_through = self.explore(&next, left - 1);
            self.history.borrow_mut().pop();
            if !is_through {
                return false;
            }
        }
        true
    }
}

/// Tries a field with increasing depth. Starts from a depth that was reached before, and ends at `most` or at the
/// deadline. Returns the depth reached.
fn explore(field: &Field, reached: u8, most: u8, deadline: Option<Instant>) -> u8 {
    let history = RefCell::new(Vec::new());
    let mut depth = reached;
    while depth < most {
        let began = Instant::now();
        let mut search = Search {
            field,
            reached: HashMap::new(),
            transitions: 0,
            deadline,
            history: &history,
        };
        let is_through = catch_unwind(AssertUnwindSafe(|| {
            field.beginnings.iter().all(|beginning| {
                history.borrow_mut().clear();
                let mut world = World::new(field.rules);
                for event in beginning {
                    history.borrow_mut().push(event.clone());
                    world.step(event);
                }
                search.explore(&world, depth + 1)
            })
        }));
        let Ok(is_through) = is_through else {
            panic!(
                "{}: this history breaks a promise: {:?}",
                field.name,
                history.borrow()
            );
        };
        if !is_through {
            break;
        }
        depth += 1;
        println!(
            "{}: all histories of {depth} events: {} states, {} transitions, {:.1} s",
            field.name,
            search.reached.len(),
            search.transitions,
            began.elapsed().as_secs_f32()
        );
    }
    depth
}

/// The environment variable with the time for longer histories than the required ones, in seconds.
const SECONDS: &str = "AZURE_VNET_IPAM_HISTORIES_SECONDS";

#[test]
fn no_short_history_of_a_small_node_breaks_a_promise() {
    for field in fields() {
        // Two events fewer take about a fiftieth of the time.
        let depth = field.agreed.saturating_sub(2).max(1);
        assert_eq!(explore(&field, depth - 1, depth, None), depth);
    }
}

#[test]
#[ignore = "takes minutes, and AZURE_VNET_IPAM_HISTORIES_SECONDS more"]
fn no_history_of_a_small_node_breaks_a_promise() {
    let seconds = std::env::var(SECONDS).map_or(0, |text| text.parse().unwrap());
    let fields = fields();
    let share = Duration::from_secs(seconds) / u32::try_from(fields.len()).unwrap();
    for field in fields {
        // The required depth has no deadline, so a slow machine reaches it too.
        let depth = explore(&field, field.agreed - 1, field.agreed, None);
        assert_eq!(depth, field.agreed);
        explore(&field, depth, u8::MAX, Some(Instant::now() + share));
    }
}
