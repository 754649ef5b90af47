//! A real node: kubelet with etcd, kube-apiserver, containerd, runc and the plugin bridge, in namespaces of its own.
//!
//! `.ci/run kubelet` builds what is needed and runs these tests one after another; `tests/kubelet/README.md` has their results.
//! There is no scheduler and no controller: the tests bind each pod to the node, and replace the pods themselves.

mod churn;
mod config;
mod controllers;
mod daemonset;
mod faults;
mod lab;
mod observe;

use std::process::Command;
use std::time::{Duration, Instant};

use crate::harness::package;
use crate::privileged::run_again;

use churn::{Churn, Row, Seen, report, watch};
use lab::Lab;

/// Runs a test again in namespaces of a node. Returns true in the second run.
#[track_caller]
fn on_a_node(test: &str, options: &[&str]) -> bool {
    // The lab ends with this program, even when that is killed.
    let mut lab = Command::new("setpriv");
    lab.args(["--pdeathsig", "KILL"]);
    lab.arg(package().join("tests/kubelet/lab")).args(options);
    run_again(&format!("kubelet::{test}"), &mut lab)
}

/// KUBELET_LONG=1 gives every scenario its full length.
fn is_long() -> bool {
    std::env::var_os("KUBELET_LONG").is_some_and(|value| value == "1")
}

/// Replaces pods for some time on a node on which nothing goes wrong.
fn churn(test: &str, scenario: &str, options: &[&str], seconds: u64) {
    if !on_a_node(test, options) {
        return;
    }
    let lab = &mut Lab::start(200);
    let seconds = if is_long() { 180 } else { seconds };
    let ((created, took), seen) = watch(|| {
        let mut churn = Churn::start(lab, 30);
        churn.run(lab, Duration::from_secs(seconds), |_| ());
        let took = lab.wait_for_pods(&churn.wanted);
        let created = churn.created;
        println!("all gone after {:.1} s", churn.end(lab).as_secs_f64());
        (created, took)
    });
    report_all_well(lab, format!("{scenario}, {seconds} s"), created, took, seen);
}

/// Reports a scenario in which no ADD was refused, and after which nothing is left.
fn report_all_well(lab: &Lab, scenario: String, pods: usize, took: Duration, seen: Seen) {
    let observation = lab.observe();
    let refused = lab.refusals().len();
    report(&[Row {
        scenario,
        pods,
        took,
        refused,
        seen,
        to_reclaim: 0,
        lost: observation.lost().len(),
        remark: String::new(),
    }]);
    assert_eq!(refused, 0);
    assert_eq!(observation.held, Some([].into()));
    assert_eq!(observation.forgotten(), [""; 0]);
}

#[test]
#[ignore = "needs root, etcd, kube-apiserver, kubelet, containerd, runc and the plugin bridge"]
fn churn_keeps_every_promise() {
    churn("churn_keeps_every_promise", "churn of 30 pods", &[], 30);
}

#[test]
#[ignore = "needs root, etcd, kube-apiserver, kubelet, containerd, runc and the plugin bridge"]
fn churn_in_a_pid_namespace_keeps_every_promise() {
    let test = "churn_in_a_pid_namespace_keeps_every_promise";
    churn(
        test,
        "churn of 30 pods in a PID namespace",
        &["--own-pids"],
        9,
    );
}

#[test]
#[ignore = "needs root, etcd, kube-apiserver, kubelet, containerd, runc and the plugin bridge"]
fn faults_during_churn_break_no_promise() {
    if !on_a_node("faults_during_churn_break_no_promise", &[]) {
        return;
    }
    let mut lab = Lab::start(200);
    let mut churn = Churn::start(&lab, 30);
    let mut rows = Vec::new();
    let mut refused_in_vain = Vec::new();
    let only = std::env::var("KUBELET_FAULT").unwrap_or_default();
    for fault in faults::faults(is_long()) {
        if !fault.name.contains(&only) {
            continue;
        }
        let row = faults::run(&fault, &mut lab, &mut churn);
        if fault.refuses_nothing && row.refused > 0 {
            refused_in_vain.push(fault.name);
        }
        rows.push(row);
    }
    assert!(!rows.is_empty(), "no fault is named {only}");
    churn.end(&lab);
    report(&rows);
    assert_eq!(refused_in_vain, [""; 0]);
    assert_eq!(lab.observe().held, Some([].into()));
}

#[test]
#[ignore = "needs root, etcd, kube-apiserver, kubelet, containerd, runc and the plugin bridge"]
fn many_pods_start_at_once() {
    if !on_a_node("many_pods_start_at_once", &[]) {
        return;
    }
    const PODS: usize = 110;
    let lab = Lab::start(120);
    let (took, seen) = watch(|| {
        let start = Instant::now();
        let churn = Churn::start(&lab, PODS);
        let took = start.elapsed();
        println!("all gone after {:.1} s", churn.end(&lab).as_secs_f64());
        took
    });
    report_all_well(&lab, format!("{PODS} pods at once"), PODS, took, seen);
}

#[test]
#[ignore = "needs root, the programs of a cluster, containerd, runc, the plugin bridge, python3 and a static executable"]
fn daemonset_installs_watches_and_removes_the_plugin() {
    if on_a_node("daemonset_installs_watches_and_removes_the_plugin", &[]) {
        report(&[daemonset::run()]);
    }
}
