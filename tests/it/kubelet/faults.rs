//! Faults on a node while pods are created and deleted.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::churn::{Churn, Row, watch};
use super::lab::Lab;
use super::observe::Observation;
use crate::genuine_azure_vnet::host::{ENDPOINTS, original_folder, version};
use crate::harness::wait::output;
use crate::harness::{Node, Reply, binary, sh, sh_with};
use crate::install::folder::working_original;

pub const IPAM: &str = "azure-vnet-ipam";
const KILLED_CALLS: &str = "every third plugin call killed";
const AZURE_VNET: &str = "azure-vnet";
const PLUGIN: &str = "/opt/cni/bin/azure-vnet-ipam";
/// The lock on the state of azure-vnet.
const LOCK_OF_AZURE_VNET: &str = "/var/run/azure-vnet/azure-vnet.lock";
const KILLS: &str = "/var/lib/killed-calls";
const STATE: &str = "/run/azure-vnet-ipam.json";
const BACKUP: &str = "/run/.azure-vnet-ipam.backup";
/// The folder of the lock file. The text of the lock file is the record.
const LOCK_FOLDER: &str = "/run/azure-vnet";
const OLD_STATE: &str = "/run/old-state.json";

/// A fault, and how long pods are replaced under it.
pub struct Fault {
    pub name: &'static str,
    pub time: Duration,
    start: fn(&mut Lab),
    /// Runs before each round of the churn.
    before_round: fn(&mut Lab),
    end: fn(&mut Lab),
    /// Returns the remark for the table of results.
    remark: fn() -> String,
    /// How long the plugin may refuse ADDs. `None` when its callers are killed, or lose the lock.
    refuses_for: Option<Duration>,
    /// Whether the short run includes the fault under other main plugins too.
    pub under_others: bool,
    /// Whether some addresses need a reclaim to become free. A caller that was killed, or got no answer, forgets its
    /// pod.
    pub needs_reclaim: bool,
}

const NOT_AT_ALL: Option<Duration> = Some(Duration::ZERO);
/// How long ADDs may be delayed when no copy of the state is left: the quarantine, rounded up.
const QUARANTINE: Option<Duration> = Some(Duration::from_secs(31));

const NOTHING: Fault = Fault {
    name: "",
    time: Duration::from_secs(12),
    start: |_| (),
    before_round: |_| (),
    end: |_| (),
    remark: String::new,
    refuses_for: None,
    under_others: false,
    needs_reclaim: false,
};

/// All faults, in the order in which they run.
pub fn faults(is_long: bool) -> Vec<Fault> {
    let time = Duration::from_secs(if is_long { 60 } else { 6 });
    let basis = || Fault { time, ..NOTHING };
    vec![
        Fault {
            name: "kubelet killed every 2 s",
            before_round: |lab| {
                lab.kill_kubelet();
                lab.start_kubelet();
            },
            ..basis()
        },
        Fault {
            name: "containerd killed every 2 s",
            needs_reclaim: true,
            before_round: |lab| {
                lab.kill_containerd();
                lab.start_containerd();
            },
            ..basis()
        },
        Fault {
            name: KILLED_CALLS,
            start: |_| wrap(IPAM, KILL_SOME),
            end: |_| unwrap(IPAM),
            remark: count_kills,
            under_others: true,
            ..basis()
        },
        Fault {
            name: "state deleted every 2 s",
            before_round: |_| fs::remove_file(STATE).unwrap_or_default(),
            refuses_for: NOT_AT_ALL,
            under_others: true,
            ..basis()
        },
        Fault {
            name: "state and the CNI cache deleted every 2 s",
            before_round: |_| {
                fs::remove_file(STATE).unwrap_or_default();
                sh("rm -rf /var/lib/cni/results");
            },
            refuses_for: NOT_AT_ALL,
            ..basis()
        },
        Fault {
            name: "kubelet and containerd killed, state deleted every 2 s",
            needs_reclaim: true,
            under_others: true,
            before_round: |lab| {
                lab.kill_kubelet();
                lab.kill_containerd();
                fs::remove_file(STATE).unwrap_or_default();
                lab.start_containerd();
                lab.start_kubelet();
            },
            ..basis()
        },
        Fault {
            name: "state cut in half every 2 s",
            before_round: |_| cut_state(|length| length / 2),
            refuses_for: NOT_AT_ALL,
            ..basis()
        },
        Fault {
            name: "state emptied every 2 s",
            before_round: |_| cut_state(|_| 0),
            refuses_for: NOT_AT_ALL,
            ..basis()
        },
        Fault {
            name: "old state put back every 2 s",
            before_round: |_| put_old_state_back(),
            refuses_for: NOT_AT_ALL,
            ..basis()
        },
        Fault {
            name: "source stopped, state deleted every 2 s",
            start: |lab| lab.host.wire.stop(),
            before_round: |_| fs::remove_file(STATE).unwrap_or_default(),
            end: |lab| lab.host.wire.start(),
            refuses_for: NOT_AT_ALL,
            ..basis()
        },
        Fault {
            name: "lock folder removed every 2 s",
            before_round: |_| drop(fs::remove_dir_all(LOCK_FOLDER)),
            ..basis()
        },
        Fault {
            name: "backup removed every 2 s",
            before_round: |_| fs::remove_file(BACKUP).unwrap_or_default(),
            refuses_for: NOT_AT_ALL,
            ..basis()
        },
        Fault {
            name: "state and backup removed once",
            start: |_| {
                remove_whole(&[STATE, BACKUP]);
            },
            refuses_for: QUARANTINE,
            ..basis()
        },
        Fault {
            name: "state and lock folder removed once",
            start: |_| {
                remove_whole(&[STATE, LOCK_FOLDER]);
            },
            refuses_for: QUARANTINE,
            ..basis()
        },
        Fault {
            name: "state, backup and lock folder removed once",
            start: |_| {
                remove_whole(&[STATE, BACKUP, LOCK_FOLDER]);
            },
            refuses_for: QUARANTINE,
            ..basis()
        },
        Fault {
            name: "source stopped",
            time: Duration::from_secs(if is_long { 60 } else { 20 }),
            start: |lab| lab.host.wire.stop(),
            end: |lab| lab.host.wire.start(),
            refuses_for: NOT_AT_ALL,
            ..basis()
        },
        Fault {
            name: "source 5 s slow",
            start: |lab| {
                let answer = Box::new(Reply::Xml(lab.answer.clone()));
                lab.host
                    .wire
                    .set(Reply::After(Duration::from_secs(5), answer));
            },
            end: |lab| lab.host.wire.set(Reply::Xml(lab.answer.clone())),
            refuses_for: NOT_AT_ALL,
            ..basis()
        },
        Fault {
            name: "install and uninstall every 2 s",
            start: |_| put_original(),
            before_round: |_| {
                change_plugin();
            },
            end: |_| while !change_plugin() {},
            refuses_for: NOT_AT_ALL,
            ..basis()
        },
    ]
}

/// The faults of the genuine azure-vnet.
pub fn faults_of_azure_vnet(is_long: bool) -> Vec<Fault> {
    let time = Duration::from_secs(if is_long { 60 } else { 6 });
    let own = [
        Fault {
            name: "every third call of azure-vnet killed",
            time,
            // A call of azure-vnet takes ten times as long as one of the plugin, so the kill comes later.
            start: |_| wrap(AZURE_VNET, &KILL_SOME.replace("0.00", "0.0")),
            end: |_| unwrap(AZURE_VNET),
            remark: count_kills,
            needs_reclaim: true,
            ..NOTHING
        },
        // Without azure-vnet's own state, its DEL releases nothing.
        Fault {
            name: "state and lock of azure-vnet deleted every 2 s",
            time,
            start: |_| {
                for file in [ENDPOINTS, LOCK_OF_AZURE_VNET] {
                    assert!(Path::new(file).exists(), "{file}");
                }
            },
            before_round: |_| {
                for file in [ENDPOINTS, LOCK_OF_AZURE_VNET] {
                    fs::remove_file(file).unwrap_or_default();
                }
            },
            refuses_for: NOT_AT_ALL,
            needs_reclaim: true,
            ..NOTHING
        },
        Fault {
            name: "the original and this plugin swapped every 2 s",
            time,
            before_round: |_| {
                swap_with_original();
            },
            end: |_| while !swap_with_original() {},
            refuses_for: NOT_AT_ALL,
            ..NOTHING
        },
    ];
    let mut all = faults_of_others(is_long);
    all.extend(own);
    all
}

/// The faults that are tested under every main plugin.
fn faults_of_others(is_long: bool) -> Vec<Fault> {
    let mut all = faults(is_long);
    all.retain(|fault| is_long || fault.under_others);
    all
}

/// The faults under Calico. When Calico's ADD gets no answer from ours, its DEL does not call ours.
pub fn faults_of_calico(is_long: bool) -> Vec<Fault> {
    let mut all = faults_of_others(is_long);
    for fault in &mut all {
        fault.needs_reclaim |= fault.name == KILLED_CALLS;
    }
    all
}

/// Replaces pods under a fault, and waits until exactly the wanted ones run. Returns the row, and whether the plugin
/// refused ADDs for too long.
pub fn run(fault: &Fault, lab: &mut Lab, churn: &mut Churn) -> (Row, bool) {
    println!("fault: {}", fault.name);
    let (created, refused) = (churn.created, lab.refusals().len());
    churn.burst(lab);
    (fault.start)(lab);
    let (took, seen) = watch(|| {
        churn.run(lab, fault.time, fault.before_round);
        (fault.end)(lab);
        lab.wait_for_pods_only(&churn.wanted)
    });
    let mut remark = (fault.remark)();
    let refusals = lab.refusals().split_off(refused);
    let refused_for = duration_of(&refusals);
    if let Some(first) = refusals.first() {
        println!("{refusals:#?}");
        let reason = first.split(" with ").nth(1).unwrap_or(first);
        let seconds = refused_for.as_secs();
        remark += &format!(
            "refused for {seconds} s, first: {}",
            reason.split(" (").next().unwrap()
        );
    }
    // The last DEL may not have arrived yet, and kubelet repeats a killed one within a minute. If containerd forgot the pod,
    // no DEL arrives.
    let patience = Duration::from_secs(if fault.needs_reclaim { 15 } else { 120 });
    let is_clean = |seen: &Observation| seen.forgotten().is_empty() && seen.lost().is_empty();
    let left = lab.observe_until(patience, is_clean);
    assert!(
        fault.needs_reclaim || is_clean(&left),
        "{}: {left:#?}",
        fault.name
    );
    let (forgotten, to_reclaim) = (left.forgotten().len(), left.lost().len());
    if forgotten > 0 {
        remark += &format!("containerd forgot {forgotten} network namespaces");
    }
    let lost = if is_clean(&left) { 0 } else { lab.reclaim() };
    let row = Row {
        scenario: format!("{}, {} s", fault.name, fault.time.as_secs()),
        pods: churn.created - created,
        took,
        refused: refusals.len(),
        seen,
        to_reclaim,
        lost,
        remark,
    };
    (
        row,
        fault.refuses_for.is_some_and(|most| refused_for > most),
    )
}

/// The time from the first to the last of these log lines, rounded up to the next second.
fn duration_of(lines: &[String]) -> Duration {
    const DAY: u64 = 24 * 60 * 60;
    let second_of_day = |line: &String| {
        let time = line.split(' ').nth(1).unwrap();
        time.split(':').fold(0, |seconds, part| {
            seconds * 60 + part.parse::<u64>().unwrap()
        })
    };
    let (Some(first), Some(last)) = (lines.first(), lines.last()) else {
        return Duration::ZERO;
    };
    let seconds = (DAY + second_of_day(last) - second_of_day(first)) % DAY;
    Duration::from_secs(seconds + 1)
}

/// Removes files and folders while no call of the plugin runs. So each of them exists, and no call loses its lock.
fn remove_whole(paths: &[&str]) {
    let lock = fs::File::open(format!("{LOCK_FOLDER}/azure-vnet-ipam.lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    for path in paths {
        assert!(Path::new(path).exists(), "{path}");
        sh_with("rm -r \"$1\"", &[Path::new(path)]);
    }
}

/// Truncates the state.
fn cut_state(length: fn(u64) -> u64) {
    // The plugin may be replacing the state, or setting it aside.
    if let Ok(file) = fs::File::options().write(true).open(STATE) {
        let now = file.metadata().unwrap().len();
        file.set_len(length(now)).unwrap();
    }
}

/// Replaces the state by the state of the round before.
fn put_old_state_back() {
    let now = fs::read(STATE).unwrap();
    if Path::new(OLD_STATE).exists() {
        fs::rename(OLD_STATE, STATE).unwrap();
    }
    fs::write(OLD_STATE, now).unwrap();
}

/// Replaces the plugin by a stand-in for the original. The original could allocate an address right after its
/// release, which this fault is not about.
fn put_original() {
    let files = Node::new("fault");
    replace_plugin(&working_original(&files));
}

/// Replaces the plugin by an executable in one step, as an upgrade of a node does.
pub fn replace_plugin(executable: &Path) {
    let place = Path::new(PLUGIN);
    sh_with(
        "cp \"$1\" \"$2.new\" && mv \"$2.new\" \"$2\"",
        &[executable, place],
    );
}

/// Replaces the plugin by the genuine original, or the original by the plugin. Returns whether the plugin is
/// installed afterwards.
fn swap_with_original() -> bool {
    let is_ours = fs::read(PLUGIN).unwrap() == fs::read(binary()).unwrap();
    replace_plugin(&if is_ours {
        original_folder(&version()).join(IPAM)
    } else {
        binary()
    });
    !is_ours
}

/// Installs the plugin if the original is installed, and uninstalls it otherwise. Returns whether it is installed
/// afterwards.
fn change_plugin() -> bool {
    let ours = fs::read(binary()).unwrap();
    let installs = fs::read(PLUGIN).unwrap() != ours;
    let mut command = if installs {
        Command::new(binary())
    } else {
        Command::new(PLUGIN)
    };
    let name = if installs { "install" } else { "uninstall" };
    let done = output(command.arg(name));
    assert!(done.status.success(), "{done:?}");
    assert_eq!(fs::read(PLUGIN).unwrap() == ours, installs);
    installs
}

/// Kills one call of three, at a random moment in its first 9 ms.
const KILL_SOME: &str = r#"
if ((RANDOM % 3)); then exec "$plugin"; fi
status=0
timeout -s KILL "0.00$((RANDOM % 80 + 10))" "$plugin" || status=$?
((status != 137)) || echo "$CNI_COMMAND $CNI_CONTAINERID" >>/var/lib/killed-calls
exit $status
"#;

/// Returns the same address for every pod, and releases none.
pub const BROKEN: &str = r#"
case $CNI_COMMAND in
ADD) "$plugin" | sed 's|198\.18\.\([0-9]*\)\.[0-9]*/24|198.18.\1.99/24|' ;;
DEL) exit 0 ;;
*) exec "$plugin" ;;
esac
"#;

/// The path of a plugin, and its path while a wrapper has replaced it.
fn places(plugin: &str) -> [PathBuf; 2] {
    ["bin", "wrapped"].map(|folder| Path::new("/opt/cni").join(folder).join(plugin))
}

/// Replaces a plugin by a script. In the script, `$plugin` is the plugin.
pub fn wrap(plugin: &str, script: &str) {
    let [place, wrapped] = places(plugin);
    let text = format!("#!/bin/bash\nplugin={}\n{script}", wrapped.display());
    fs::create_dir_all(wrapped.parent().unwrap()).unwrap();
    let _ = fs::remove_file(KILLS);
    let new = place.with_extension("new");
    fs::write(&new, text).unwrap();
    sh_with(
        "chmod 755 \"$1\" && cp \"$2\" \"$3\" && mv \"$1\" \"$2\"",
        &[&new, &place, &wrapped],
    );
}

/// Restores a plugin that a script replaced.
pub fn unwrap(plugin: &str) {
    let [place, wrapped] = places(plugin);
    fs::rename(wrapped, place).unwrap();
}

fn count_kills() -> String {
    let kills = fs::read_to_string(KILLS).unwrap_or_default();
    format!("{} calls killed. ", kills.lines().count())
}
