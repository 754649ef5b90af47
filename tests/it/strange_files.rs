//! What somebody else puts in the place of files: nothing there keeps a call waiting, and no link leads it to other files.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::wait::wait_until_within;
use crate::harness::{Node, Outcome, Running, SUBNET, conf, sh_with, xml};

/// Far more than any of these calls takes on a busy machine, and less than any limit of the program.
const SOON: Duration = Duration::from_secs(20);

/// Everything that the program opens, from a root.
const OPENED: [&str; 23] = [
    "/answer.xml",
    "/boottime-offset",
    "/etc/azure-vnet-ipam.json",
    "/etc/cni/net.d/10-azure.conflist",
    "/proc/locks",
    "/proc/sys/kernel/random/boot_id",
    "/sys/class/net/eth0/address",
    "/sys/class/net/eth0/flags",
    "/var/lib/cni/results/azure-c9-eth0",
    "/var/log/azure-vnet-ipam.log",
    "/var/run/.azure-vnet-ipam.boot",
    "/var/run/azure-vnet-ipam.json",
    "/var/run/azure-vnet-ipam.json.new",
    "/var/run/azure-vnet.json",
    "/var/run/azure-vnet/azure-vnet-ipam.events",
    "/var/run/azure-vnet/azure-vnet-ipam.events.1",
    "/var/run/azure-vnet/azure-vnet-ipam.fetch",
    "/var/run/azure-vnet/azure-vnet-ipam.journal",
    "/var/run/azure-vnet/azure-vnet-ipam.journal.new",
    "/var/run/azure-vnet/azure-vnet-ipam.lock",
    "/var/run/azure-vnet/azure-vnet-ipam.other",
    "/var/run/azure-vnet/azure-vnet-ipam.rebuild",
    "/var/run/azure-vnet/azure-vnet-ipam.used",
];

/// A node on which one address is held, with a source that is a file.
fn node() -> Node {
    let node = Node::new("strange");
    let url = format!("file:{}", node.path("/answer.xml").display());
    let node = node.env("AZURE_VNET_IPAM_QUERY_URL", &url);
    node.put("/answer.xml", xml(5..30));
    node.put("/etc/azure-vnet-ipam.json", "{}");
    node.put("/etc/cni/net.d/10-azure.conflist", conf("1.0.0", json!({})));
    node.put("/var/run/netns/pod", "");
    node.add("c1").success();
    node
}

/// Waits for the end of a call that has nothing to wait for.
#[track_caller]
fn finish(what: &str, mut call: Running) -> Outcome {
    wait_until_within(SOON, what, || !call.is_running());
    call.finish()
}

/// Does everything that the program can do.
fn run_all(node: &Node, what: &str) {
    let previous = json!({ "cniVersion": "1.1.0", "ips": [{ "address": "10.224.0.5/16" }] });
    for (verb, id, more) in [
        ("STATUS", "", json!({})),
        ("ADD", "c2", json!({})),
        ("CHECK", "c1", json!({ "prevResult": previous })),
        ("GC", "", json!({ "cni.dev/valid-attachments": [] })),
        ("DEL", "c2", json!({})),
        ("DEL", "c3", json!({})),
        ("VERSION", "", json!({})),
    ] {
        let mut stdin: Value =
            serde_json::from_str(&conf("1.1.0", json!({ "subnet": SUBNET }))).unwrap();
        stdin
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        let call = node.call(verb, id).stdin(stdin.to_string()).start();
        let outcome = finish(&format!("{verb} with {what}"), call);
        if !outcome.stdout.is_empty() {
            outcome.json();
        }
    }
    for words in [
        &["show"][..],
        &["show", "--events"],
        &["show", "--json"],
        &["check"],
        &["doctor"],
        &["explain", "10.224.0.5"],
        &["export"],
        &["metrics"],
        &["check-settings"],
        &["reclaim", "--yes"],
        &["release", "10.224.0.5", "--container", "c1", "--force"],
    ] {
        let call = node.call("", "").without("CNI_COMMAND");
        let call = words.iter().fold(call, |call, word| call.arg(word));
        finish(&format!("{words:?} with {what}"), call.start());
    }
}

fn make_way(path: &Path) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let _ = fs::remove_file(path);
}

#[test]
fn a_pipe_in_the_place_of_any_file_keeps_nobody_waiting() {
    for path in OPENED {
        let node = node();
        make_way(&node.path(path));
        sh_with("mkfifo \"$1\"", &[&node.path(path)]);
        run_all(&node, &format!("a pipe at {path}"));
    }
}

#[test]
fn a_pipe_that_somebody_has_open_keeps_nobody_waiting() {
    for path in OPENED {
        let node = node();
        let pipe = node.path(path);
        make_way(&pipe);
        sh_with("mkfifo \"$1\"", &[&pipe]);
        let other_end = File::options().read(true).write(true).open(&pipe).unwrap();
        run_all(&node, &format!("an open pipe at {path}"));
        drop(other_end);
    }
}

#[test]
fn a_link_to_a_device_without_end_in_the_place_of_any_file_keeps_nobody_waiting() {
    for path in OPENED {
        let node = node();
        make_way(&node.path(path));
        symlink("/dev/zero", node.path(path)).unwrap();
        run_all(&node, &format!("/dev/zero at {path}"));
    }
}
