//! Special files and links in place of our files. No call blocks on them, and no link to a foreign file is followed.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::wait::wait_until_within;
use crate::harness::{Node, Outcome, Running, SUBNET, conf, sh_with, xml};

/// The limit is far longer than any of these calls takes on a busy machine, and shorter than any limit of the
/// program.
const SOON: Duration = Duration::from_secs(20);

/// All files that the program opens, relative to the root.
const OPENED: [&str; 19] = [
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
    "/var/run/.azure-vnet-ipam.backup",
    "/var/run/.azure-vnet-ipam.backup.new",
    "/var/run/azure-vnet-ipam.json",
    "/var/run/azure-vnet-ipam.json.new",
    "/var/run/azure-vnet.json",
    "/var/run/azure-vnet/azure-vnet-ipam.events",
    "/var/run/azure-vnet/azure-vnet-ipam.events.1",
    "/var/run/azure-vnet/azure-vnet-ipam.fetch",
    "/var/run/azure-vnet/azure-vnet-ipam.lock",
];

/// A node with one held address and a file as source.
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

/// Waits for a call that must not block.
#[track_caller]
fn finish_without_blocking(what: &str, mut call: Running) -> Outcome {
    wait_until_within(SOON, what, || !call.is_running());
    call.finish()
}

/// Runs every verb and command of the program.
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
        let outcome = finish_without_blocking(&format!("{verb} with {what}"), call);
        if !outcome.stdout.is_empty() {
            outcome.json();
        }
    }
    for words in [
        &["show"][..],
        &["events"],
        &["show", "--json"],
        &["check", "--all"],
        &["show", "10.224.0.5"],
        &["export"],
        &["metrics"],
        &["reclaim", "--yes"],
        &["release", "10.224.0.5", "--container", "c1", "--force"],
    ] {
        let call = node.call("", "").without("CNI_COMMAND");
        let call = words.iter().fold(call, |call, word| call.arg(word));
        finish_without_blocking(&format!("{words:?} with {what}"), call.start());
    }
}

fn make_parent_folders(path: &Path) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let _ = fs::remove_file(path);
}

/// Runs everything with a strange file in place of each file.
fn run_all_with_each(what: &str, put: impl Fn(&Path) -> Option<File>) {
    for path in OPENED {
        let node = node();
        make_parent_folders(&node.path(path));
        let _open = put(&node.path(path));
        run_all(&node, &format!("{what} at {path}"));
    }
}

fn make_pipe(path: &Path) {
    sh_with("mkfifo \"$1\"", &[path]);
}

#[test]
fn pipe_in_place_of_any_file_does_not_block() {
    run_all_with_each("a pipe", |path| {
        make_pipe(path);
        None
    });
}

#[test]
fn open_pipe_in_place_of_any_file_does_not_block() {
    run_all_with_each("an open pipe", |path| {
        make_pipe(path);
        File::options().read(true).write(true).open(path).ok()
    });
}

#[test]
fn link_to_an_endless_device_does_not_block() {
    run_all_with_each("/dev/zero", |path| {
        symlink("/dev/zero", path).unwrap();
        None
    });
}

#[test]
fn pipe_in_place_of_the_state_is_set_aside() {
    let node = node();
    fs::remove_file(node.state_path()).unwrap();
    make_pipe(&node.state_path());
    assert_eq!(node.add("c2").address(), "10.224.0.6");
    assert_eq!(node.add("c1").address(), "10.224.0.5");
    assert!(node.state_path().is_file());
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

/// Every file below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push(path);
        }
    }
    found
}

#[test]
fn every_file_is_private_whatever_the_umask() {
    let node = node();
    let run = |verb: &str, id: &str| {
        let call = node.call(verb, id);
        match verb {
            "" => call
                .without("CNI_COMMAND")
                .run_in_shell(&format!("umask 0; \"$0\" {id}")),
            _ => call.run_in_shell("umask 0; \"$0\""),
        }
    };
    // Remove everything that the first call created.
    let own = ["/var/run", "/var/log"].map(|folder| node.path(folder));
    for folder in &own {
        fs::remove_dir_all(folder).unwrap();
    }
    node.put("/var/run/netns/pod", "");
    let given = node.path("/var/run/netns/pod");
    let out = node.path("/out");
    fs::create_dir_all(&out).unwrap();
    let mut seen = BTreeSet::new();
    let mut check = || {
        for file in own.iter().chain([&out]).flat_map(|folder| files(folder)) {
            let name = file.file_name().unwrap().to_str().unwrap().to_owned();
            let expected = match name.as_str() {
                "metrics.prom" => 0o644,
                _ => 0o600,
            };
            assert!(
                file == given || mode(&file) == expected,
                "{name}: {:o}",
                mode(&file)
            );
            seen.insert(name);
        }
        for folder in ["/var/run/azure-vnet", "/var/log"] {
            assert_eq!(mode(&node.path(folder)), 0o755, "{folder}");
        }
    };
    run("ADD", "c1").success();
    run("ADD", "c2").success();
    run("DEL", "c1").success();
    check();
    fs::write(node.state_path(), "{").unwrap();
    fs::set_permissions(node.state_path(), PermissionsExt::from_mode(0o666)).unwrap();
    run("ADD", "c3").success();
    check();
    for command in ["metrics --output", "export --output"] {
        let name = command.split(' ').next().unwrap();
        let file = out.join(format!("{name}.prom"));
        run("", &format!("{command} {}", file.display())).success();
    }
    check();
    let made = [
        ".azure-vnet-ipam.backup",
        "azure-vnet-ipam.events",
        "azure-vnet-ipam.fetch",
        "azure-vnet-ipam.json",
        "azure-vnet-ipam.lock",
        "azure-vnet-ipam.log",
        "export.prom",
        "metrics.prom",
    ];
    let missing: Vec<_> = made.iter().filter(|name| !seen.contains(**name)).collect();
    assert!(missing.is_empty(), "not seen: {missing:?}");
    assert!(seen.iter().any(|name| name.contains(".json.corrupt-")));
}

#[test]
fn readable_lock_files_become_private() {
    let node = node();
    for path in [node.lock_path(), node.fetch_lock_path()] {
        fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
    }
    node.add("c2").success();
    for path in [node.lock_path(), node.fetch_lock_path()] {
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
}

#[test]
fn links_to_foreign_files_are_not_followed() {
    for name in [
        "/var/log/azure-vnet-ipam.log",
        "/var/run/azure-vnet/azure-vnet-ipam.events",
        "/var/run/.azure-vnet-ipam.backup",
        "/var/run/.azure-vnet-ipam.backup.new",
    ] {
        let node = node();
        node.put("/victim", "secret");
        make_parent_folders(&node.path(name));
        symlink(node.path("/victim"), node.path(name)).unwrap();
        run_all(&node, name);
        let victim = fs::read_to_string(node.path("/victim")).unwrap();
        assert_eq!(victim, "secret", "{name}");
        let export = node.run_command(["export"]);
        assert!(!export.success().stdout.contains("secret"), "{name}");
    }
}

#[test]
fn linked_log_folder_is_followed() {
    let node = node();
    fs::rename(node.path("/var/log"), node.path("/data")).unwrap();
    symlink(node.path("/data"), node.path("/var/log")).unwrap();
    fs::remove_file(node.path("/data/azure-vnet-ipam.log")).unwrap();
    node.add("c2").success();
    assert!(node.log().contains("ADD done in"));
    let report = node.run_command(["check", "--all"]).stdout;
    assert!(!report.contains("is a link"), "{report}");
    // A link in place of the file itself is not followed: any user who may write to the folder could have created it.
    fs::rename(
        node.path("/data/azure-vnet-ipam.log"),
        node.path("/data/other.log"),
    )
    .unwrap();
    symlink("other.log", node.path("/data/azure-vnet-ipam.log")).unwrap();
    node.add("c3").success();
    assert!(!node.log().contains("c3"));
    let report = node.run_command(["check", "--all"]).stdout;
    assert!(
        report.contains("is a link, which is not followed"),
        "{report}"
    );
}
