//! Sandboxes that fail again and again, and sandboxes that cannot be removed.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::churn::{Churn, Row, watch};
use super::faults::{unwrap, wrap};
use super::lab::Lab;
use crate::apiserver::As;
use crate::callers::later;
use crate::harness::sh_with;
use crate::harness::wait::{output, wait_until};

/// The plugin behind the main plugin. For the pod `bad`, the calls that are listed in a file fail, like those of
/// portmap when it waits for iptables. For other pods it passes the result on.
const LATER_PLUGIN: &str = r#"#!/usr/bin/env perl
use JSON::PP;
my $command = $ENV{CNI_COMMAND};
if ($command eq "VERSION") {
    print '{"cniVersion": "1.0.0", "supportedVersions": ["0.4.0", "1.0.0", "1.1.0"]}';
    exit;
}
my $conf = decode_json(join "", <STDIN>);
open(my $names, "<", "/var/lib/later-fails");
my $fails = <$names> // "";
if ("$ENV{CNI_ARGS};" =~ /K8S_POD_NAME=bad;/ and $fails =~ /$command/) {
    open(my $file, ">>", "/var/lib/later-failed");
    print $file "$command\n";
    print '{"cniVersion": "1.0.0", "code": 999, "msg": "iptables is busy"}';
    exit 1;
}
print encode_json($conf->{prevResult}) if $command eq "ADD";
"#;
const FAILS: &str = "/var/lib/later-fails";
const FAILED: &str = "/var/lib/later-failed";
const CONFLIST: &str = "/etc/cni/net.d/bridge.conflist";

/// The main plugin. For the pod `bad` it releases nothing, as if it had lost its own state.
const FORGETFUL: &str = r#"
case "$CNI_COMMAND;$CNI_ARGS;" in
'DEL;'*'K8S_POD_NAME=bad;'*) exit 0 ;;
esac
exec "$plugin"
"#;

/// The number of times that a verb of the plugin failed.
fn failed(command: &str) -> usize {
    let text = fs::read_to_string(FAILED).unwrap_or_default();
    text.lines().filter(|line| *line == command).count()
}

/// Makes kubelet retry a pod at once.
fn touch(lab: &Lab, pod: &str, n: usize) {
    let path = format!("/api/v1/namespaces/default/pods/{pod}");
    let (_, mut object) = lab.api.ask(As::Admin, "GET", &path, None);
    object["metadata"]["annotations"] = json!({ "tried": n.to_string() });
    // If another client has changed the object, this request fails, and the next one will do.
    let _ = lab.api.ask(As::Admin, "PUT", &path, Some(&object));
}

/// Lets kubelet retry the pod `bad` until this many calls have failed, while other pods are replaced.
fn try_again(lab: &Lab, churn: &mut Churn, tries: usize, count: impl Fn() -> usize) {
    let (start, before) = (Instant::now(), count());
    let mut n = 0;
    while count() < before + tries {
        let made = count() - before;
        assert!(
            start.elapsed() < Duration::from_secs(300),
            "{made} failures"
        );
        n += 1;
        touch(lab, "bad", n);
        if n % 4 == 0 {
            churn.replace(lab, 1);
        }
        thread::sleep(Duration::from_millis(500));
    }
}

/// The sandbox of a pod fails again and again, on a node with 28 addresses, while other pods are replaced.
///
/// When ADD and DEL fail, containerd keeps the sandbox. kubelet creates no new one before the old one is gone, so the
/// pod has one address. When only the ADD fails, and the DEL releases nothing, each retry is a new sandbox with its
/// own address.
pub fn retried() -> Row {
    const TRIES: usize = 40;
    let lab = &mut Lab::start(28);
    fs::write("/opt/cni/bin/later", LATER_PLUGIN).unwrap();
    sh_with("chmod 755 \"$1\"", &["/opt/cni/bin/later".as_ref()]);
    let mut conflist: Value = serde_json::from_slice(&fs::read(CONFLIST).unwrap()).unwrap();
    let plugins = conflist["plugins"].as_array_mut().unwrap();
    plugins.push(json!({ "type": "later" }));
    fs::write(CONFLIST, conflist.to_string()).unwrap();
    let mut churn = Churn::start(lab, 5);
    fs::write(FAILS, "ADD DEL").unwrap();
    lab.create_pod("bad");
    wait_until("a failure of the plugin", || failed("ADD") > 0);
    let ((kept, left), seen) = watch(|| {
        try_again(lab, &mut churn, TRIES, || failed("ADD") + failed("DEL"));
        let kept = failed("ADD");
        wrap("bridge", FORGETFUL);
        fs::write(FAILS, "ADD").unwrap();
        try_again(lab, &mut churn, TRIES, || failed("ADD"));
        (kept, lab.observe().lost().len())
    });
    assert!(kept <= 2, "{kept} sandboxes whose DEL failed");
    assert!(left > 5, "each retry takes an address");
    assert_eq!(lab.refusals(), [""; 0]);
    // Both plugins work again.
    fs::remove_file(FAILS).unwrap();
    unwrap("bridge");
    touch(lab, "bad", 0);
    churn.wanted.insert("bad".to_owned());
    let pods = churn.created + 1;
    let took = lab.wait_for_pods_only(&churn.wanted);
    // The sandboxes that were replaced count as dead at once.
    let mut reclaim = Command::new("/opt/cni/bin/azure-vnet-ipam");
    let reclaim = output(reclaim.args(["reclaim", "--yes"]));
    assert!(reclaim.status.success(), "{reclaim:?}");
    lab.wait_for_pods(&churn.wanted);
    churn.end(lab);
    assert_eq!(lab.observe().held, Some([].into()));
    Row {
        scenario: "the sandbox of a pod fails again and again".to_owned(),
        pods,
        took,
        refused: lab.refusals().len(),
        seen,
        to_reclaim: left,
        lost: 0,
        remark: format!(
            "{} failures of ADD, {} of DEL; containerd keeps a sandbox whose DEL fails",
            failed("ADD"),
            failed("DEL")
        ),
    }
}

/// Releases the address of a pod called `stuck`, and then fails before it removes the pod's link.
const STUCK_DEL: &str = r#"
case "$CNI_COMMAND;$CNI_ARGS" in
'DEL;'*K8S_POD_NAME=stuck*)
    if [[ -e /var/lib/is-stuck ]]; then
        /opt/cni/bin/azure-vnet-ipam >/dev/null
        echo '{"cniVersion": "1.0.0", "code": 999, "msg": "the device is busy"}'
        exit 1
    fi
    ;;
esac
exec "$plugin"
"#;
const IS_STUCK: &str = "/var/lib/is-stuck";

/// Two sandboxes cannot be removed after their addresses were released. All other addresses are used again and again.
pub fn stuck() -> Row {
    let lab = &mut Lab::start(28);
    wrap("bridge", STUCK_DEL);
    fs::write(IS_STUCK, "").unwrap();
    for pod in ["stuck-1", "stuck-2"] {
        lab.create_pod(pod);
    }
    wait_until("two pods", || lab.observe().sandboxes.len() == 2);
    let mut churn = Churn::start_beside(lab, 5, &["stuck-1", "stuck-2"]);
    let stuck: Vec<(String, String)> = {
        let seen = lab.observe();
        let is_stuck = |id: &String| seen.sandboxes[id].pod.starts_with("stuck");
        let held = seen.held.clone().unwrap().into_iter();
        held.filter(|(_, id)| is_stuck(id)).collect()
    };
    assert_eq!(stuck.len(), 2);
    for pod in ["stuck-1", "stuck-2"] {
        lab.delete_pod(pod);
    }
    let is_free = || {
        let held = lab.observe().held.unwrap_or_default();
        stuck.iter().all(|(address, _)| !held.contains_key(address))
    };
    wait_until("the release of both addresses", is_free);
    // This is longer than the cooldown, so addresses are used again.
    let ((), seen) = watch(|| churn.run(lab, Duration::from_secs(66), |_| ()));
    for (address, _) in &stuck {
        let held = lab.observe().held.unwrap();
        assert!(!held.contains_key(address), "{address} was allocated again");
    }
    let mut check = later(0, "/opt/cni/bin/azure-vnet-ipam".as_ref());
    let check = output(check.args(["check", "-o", "json"]));
    let report: Value = serde_json::from_slice(&check.stdout).unwrap();
    let findings = report["findings"].as_array().unwrap().iter();
    let mut named: Vec<_> = findings
        .filter(|finding| finding["kind"] == "withheld")
        .map(|finding| finding["commands"][0].as_str().unwrap().to_owned())
        .collect();
    named.sort();
    let mut expected: Vec<_> = stuck
        .iter()
        .map(|(_, id)| format!("crictl rmp {id}"))
        .collect();
    expected.sort();
    assert_eq!(named, expected, "{report:#}");
    let refused = lab.refusals().len();
    assert_eq!(refused, 0);
    fs::remove_file(IS_STUCK).unwrap();
    let took = lab.wait_for_pods(&churn.wanted);
    unwrap("bridge");
    let pods = churn.created + 2;
    churn.end(lab);
    assert_eq!(lab.observe().held, Some([].into()));
    Row {
        scenario: "two sandboxes that cannot be removed, 66 s".to_owned(),
        pods,
        took,
        refused,
        seen,
        to_reclaim: 0,
        lost: 0,
        remark: "their addresses are withheld".to_owned(),
    }
}
