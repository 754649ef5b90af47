//! Faults on a node while pods are created and deleted.

use std::fs;
use std::path::Path;
use std::time::Duration;

use super::churn::{Churn, Row, watch};
use super::lab::Lab;
use crate::harness::{Reply, sh_with};

const PLUGIN: &str = "/opt/cni/bin/azure-vnet-ipam";
/// The plugin, where a wrapper has taken its place.
const WRAPPED: &str = "/opt/cni/wrapped/azure-vnet-ipam";
const KILLS: &str = "/var/lib/killed-calls";
const STATE: &str = "/run/azure-vnet-ipam.json";

/// A fault, and how long pods are replaced under it.
pub struct Fault {
    pub name: &'static str,
    pub time: Duration,
    start: fn(&mut Lab),
    /// Runs before each round of the churn.
    before_round: fn(&mut Lab),
    end: fn(&mut Lab),
    /// A remark for the table.
    remark: fn() -> String,
    /// The plugin must refuse no ADD.
    pub refuses_nothing: bool,
    /// Some addresses may return only by a reclaim: containerd forgets a pod that it was setting up when it was killed.
    pub needs_reclaim: bool,
}

const NOTHING: Fault = Fault {
    name: "",
    time: Duration::from_secs(12),
    start: |_| (),
    before_round: |_| (),
    end: |_| (),
    remark: String::new,
    refuses_nothing: false,
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
            name: "every third plugin call killed",
            start: |_| wrap(KILL_SOME),
            end: |_| unwrap(),
            remark: || {
                let kills = fs::read_to_string(KILLS).unwrap_or_default();
                format!("{} calls killed", kills.lines().count())
            },
            ..basis()
        },
        Fault {
            name: "state deleted every 2 s",
            before_round: |_| fs::remove_file(STATE).unwrap_or_default(),
            refuses_nothing: true,
            ..basis()
        },
        Fault {
            name: "source stopped, state deleted every 2 s",
            start: |lab| lab.host.wire.stop(),
            before_round: |_| fs::remove_file(STATE).unwrap_or_default(),
            end: |lab| lab.host.wire.start(),
            refuses_nothing: true,
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
            refuses_nothing: true,
            ..basis()
        },
    ]
}

/// Replaces pods under a fault, and waits until exactly the wanted ones run.
pub fn run(fault: &Fault, lab: &mut Lab, churn: &mut Churn) -> Row {
    println!("fault: {}", fault.name);
    let (created, refused) = (churn.created, lab.refusals().len());
    (fault.start)(lab);
    let (took, seen) = watch(|| {
        churn.run(lab, fault.time, fault.before_round);
        (fault.end)(lab);
        lab.wait_for_pods_only(&churn.wanted)
    });
    let mut remark = (fault.remark)();
    let refusals = lab.refusals().split_off(refused);
    if let Some(first) = refusals.first() {
        println!("{refusals:#?}");
        let reason = first.split(" with ").nth(1).unwrap_or(first);
        remark += &format!("first refusal: {}", reason.split(" (").next().unwrap());
    }
    let (forgotten, to_reclaim) = lab.left_over();
    if fault.needs_reclaim && forgotten > 0 {
        remark += &format!("containerd forgot {forgotten} network namespaces");
    }
    let lost = if (forgotten, to_reclaim) == (0, 0) {
        0
    } else {
        let seen = lab.observe();
        assert!(fault.needs_reclaim, "{}: {seen:#?}", fault.name);
        lab.reclaim()
    };
    Row {
        scenario: format!("{}, {} s", fault.name, fault.time.as_secs()),
        pods: churn.created - created,
        took,
        refused: refusals.len(),
        seen,
        to_reclaim,
        lost,
        remark,
    }
}

/// Puts an executable in the place of the plugin in one step, as an upgrade of a node does.
pub fn replace_plugin(executable: &Path) {
    let place = Path::new(PLUGIN);
    sh_with(
        "cp \"$1\" \"$2.new\" && mv \"$2.new\" \"$2\"",
        &[executable, place],
    );
}

/// Kills one call of three, at a random moment of its first 8 ms.
const KILL_SOME: &str = r#"
if ((RANDOM % 3)); then exec "$plugin"; fi
status=0
timeout -s KILL "0.00$((RANDOM % 80 + 10))" "$plugin" || status=$?
((status != 137)) || echo "$CNI_COMMAND $CNI_CONTAINERID" >>/var/lib/killed-calls
exit $status
"#;

/// Puts a script in the place of the plugin, which is `$plugin` in it.
pub fn wrap(script: &str) {
    let text = format!("#!/bin/bash\nplugin={WRAPPED}\n{script}");
    fs::create_dir_all(Path::new(WRAPPED).parent().unwrap()).unwrap();
    let new = format!("{PLUGIN}.new");
    fs::write(&new, text).unwrap();
    sh_with(
        "chmod 755 \"$1\" && cp \"$2\" \"$3\" && mv \"$1\" \"$2\"",
        &[Path::new(&new), Path::new(PLUGIN), Path::new(WRAPPED)],
    );
}

/// Puts the plugin back in its place.
pub fn unwrap() {
    fs::rename(WRAPPED, PLUGIN).unwrap();
}
