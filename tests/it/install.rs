//! `install` and `uninstall`: what they do to the plugin folder.

pub mod folder;
mod kills;
mod links;
mod refused;
mod turns;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use folder::{MODULE, Original, PluginFolder, V4, V6, build_lines, go_executable};

use crate::harness::wait::{Process, output};
use crate::harness::{Node, Reply, binary, xml};

#[test]
fn original_is_kept_and_comes_back() {
    let folder = PluginFolder::new("install");
    let (first, second) = (
        go_executable(MODULE, "first"),
        go_executable(MODULE, "second"),
    );
    folder.put(V4, &first);
    let run = |line: &str| folder.node.run_line(line);
    let installed = run("install").success().stdout.clone();
    assert!(installed.contains(" is installed as "), "{installed}");
    assert!(
        installed.contains("the original, v1.4.59 built with go1.23.2, kept as "),
        "{installed}"
    );
    assert!(folder.is_ours(V4));
    let mode = fs::metadata(folder.file(V4)).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o755);
    assert_eq!(folder.read("azure-vnet-ipam.orig"), first);
    assert_eq!(folder.names(), [V4, "azure-vnet-ipam.orig"]);

    for _ in 0..2 {
        let again = run("install").success().stdout.clone();
        assert!(again.contains(" is installed already as "), "{again}");
        assert_eq!(folder.read("azure-vnet-ipam.orig"), first);
    }
    run("install --verify").success();

    // A node upgrade brings another one, and the next one the same again.
    for _ in 0..2 {
        folder.put(V4, &second);
        let found = run("install --verify");
        assert_eq!(found.exit, Some(1), "{found:?}");
        assert!(
            found.stdout.contains("there is the original, v1.4.59"),
            "{found:?}"
        );
        run("install").success();
        assert!(folder.is_ours(V4));
        assert_eq!(folder.read("azure-vnet-ipam.orig"), second);
        assert_eq!(folder.read("azure-vnet-ipam.orig.1"), first);
    }

    let back = run("uninstall").success().stdout.clone();
    assert!(back.contains(" is the original, v1.4.59 "), "{back}");
    assert_eq!(folder.read(V4), second);
    assert_eq!(folder.names(), [V4, "azure-vnet-ipam.orig.1"]);
    let nothing = run("uninstall").success().stdout.clone();
    assert!(nothing.contains("Nothing to do at "), "{nothing}");
    assert_eq!(folder.read(V4), second);
    run("install").success();
    assert_eq!(folder.read("azure-vnet-ipam.orig"), second);
    assert_eq!(folder.read("azure-vnet-ipam.orig.1"), first);
    let log = folder.node.log();
    for fact in [" was installed as ", " was uninstalled from ", " by uid "] {
        assert!(log.contains(fact), "{log}");
    }
}

#[test]
fn foreign_file_is_replaced_only_by_force() {
    let folder = PluginFolder::new("foreign");
    let ours = fs::read(binary()).unwrap();
    for foreign in [
        b"#!/bin/sh\nexit 1\n".to_vec(),
        go_executable("github.com/containernetworking/plugins", "x"),
        // Our executable in an archive is not ours.
        [&b"archive"[..], &ours].concat(),
        Vec::new(),
    ] {
        let _ = fs::remove_file(folder.file("azure-vnet-ipam.orig"));
        folder.put(V4, &foreign);
        let refused = folder.node.run_line("install");
        assert_eq!(refused.exit, Some(1), "{refused:?}");
        assert!(
            refused.stdout.starts_with("Not installed: at "),
            "{refused:?}"
        );
        assert!(refused.stdout.contains("add --force"), "{refused:?}");
        assert!(folder.read(V4) == foreign);
        assert_eq!(folder.names(), [V4]);
        folder.node.run_line("install --force").success();
        assert!(folder.is_ours(V4));
        assert!(folder.read("azure-vnet-ipam.orig") == foreign);
    }
}

#[test]
fn uninstall_leaves_nothing_only_by_force() {
    let folder = PluginFolder::new("nothing");
    let run = |line: &str| folder.node.run_line(line);
    let fresh = run("install").success().stdout.clone();
    assert!(fresh.contains("Before: nothing."), "{fresh}");
    folder.put(V6, &go_executable(MODULE, "v6"));
    run("install --name azure-vnet-ipamv6").success();
    let refused = run("uninstall");
    assert_eq!(refused.exit, Some(1), "{refused:?}");
    assert!(
        refused.stdout.contains("no original is kept"),
        "{refused:?}"
    );
    assert!(folder.is_ours(V4));
    assert_eq!(
        folder.read(V6),
        go_executable(MODULE, "v6"),
        "the other came back"
    );
    let removed = run("uninstall --force").success().stdout.clone();
    assert!(
        removed.contains("is removed; nothing stands there now"),
        "{removed}"
    );
    assert_eq!(folder.names(), [V6]);
    run("uninstall").success();
}

#[test]
fn removed_plugin_comes_back_from_the_saved_original() {
    let folder = PluginFolder::new("gone");
    folder.put(V4, &go_executable(MODULE, "x"));
    folder.node.run_line("install").success();
    fs::remove_file(folder.file(V4)).unwrap();
    let found = folder.node.run_line("install --verify");
    assert_eq!(found.exit, Some(1));
    assert!(found.stdout.contains("there is nothing"), "{found:?}");
    folder.node.run_line("uninstall").success();
    assert_eq!(folder.read(V4), go_executable(MODULE, "x"));
}

#[test]
fn link_is_replaced_and_comes_back_as_a_link() {
    let folder = PluginFolder::new("link");
    let original = go_executable(MODULE, "x");
    folder.put("azure-vnet-ipam-v1.4.59", &original);
    symlink("azure-vnet-ipam-v1.4.59", folder.file(V4)).unwrap();
    symlink(V4, folder.file(V6)).unwrap();
    for line in ["install --name azure-vnet-ipamv6", "install"] {
        folder.node.run_line(line).success();
    }
    assert!(folder.is_ours(V4) && folder.is_ours(V6));
    assert!(!folder.file(V4).is_symlink());
    assert_eq!(
        folder.read("azure-vnet-ipam-v1.4.59"),
        original,
        "not written through the link"
    );
    folder.node.run_line("uninstall").success();
    for (name, target) in [(V4, "azure-vnet-ipam-v1.4.59"), (V6, V4)] {
        assert_eq!(fs::read_link(folder.file(name)).unwrap(), Path::new(target));
    }
    // A link to ours is ours, and one that leads nowhere is nothing.
    folder.node.run_line("install").success();
    folder
        .node
        .run_line("install --verify --name azure-vnet-ipamv6")
        .success();
    let again = folder.node.run_line("install --name azure-vnet-ipamv6");
    assert!(
        again.success().stdout.contains("installed already"),
        "{again:?}"
    );
    fs::remove_file(folder.file(V6)).unwrap();
    symlink("gone", folder.file(V6)).unwrap();
    let fresh = folder.node.run_line("install --name azure-vnet-ipamv6");
    let text = fresh.success().stdout.clone();
    assert!(
        text.contains("Before: a link that leads nowhere, kept as "),
        "{text}"
    );
}

#[test]
fn installed_plugin_serves_calls_under_both_names() {
    let (node, _wire) = Node::with_wire("serves", Reply::Xml(xml(5..10)));
    let folder = PluginFolder::on(node);
    for line in ["install", "install --name azure-vnet-ipamv6"] {
        folder.node.run_line(line).success();
    }
    let call = folder.node.call("ADD", "c1");
    let stdin = folder.node.path("/conf.json");
    fs::write(&stdin, crate::harness::conf("1.0.0", serde_json::json!({}))).unwrap();
    let mut add = Command::new(folder.file(V4));
    add.env_clear()
        .envs(&call.env)
        .stdin(fs::File::open(stdin).unwrap());
    let added = Process::start(add.stdout(std::process::Stdio::piped())).output();
    assert!(added.status.success(), "{added:?}");
    assert_eq!(folder.node.held().len(), 1);
    // It may be installed by itself, over itself.
    for (name, other) in [(V4, V6), (V6, V4)] {
        let mut install = Command::new(folder.file(name));
        install.env_clear().envs(&folder.node.env);
        let done = output(install.args(["install", "--name", other]));
        assert!(done.status.success(), "{done:?}");
        let text = String::from_utf8(done.stdout).unwrap();
        assert!(text.contains("is installed already"), "{text}");
    }
}

#[test]
fn simultaneous_installs_do_not_harm_each_other() {
    let folder = PluginFolder::new("at-once");
    let original = go_executable(MODULE, "x");
    folder.put(V4, &original);
    // Of two killed installs.
    folder.put(".azure-vnet-ipam.installing", b"half");
    folder.put(".azure-vnet-ipam.saving", b"half");
    let calls: Vec<_> = (0..6)
        .map(|_| {
            let call = folder.node.call("", "").without("CNI_COMMAND");
            ["install", "-o", "json"]
                .iter()
                .fold(call, |call, word| call.arg(word))
                .start()
        })
        .collect();
    let reports: Vec<_> = calls
        .into_iter()
        .map(|call| call.finish().success().json())
        .collect();
    let changed = reports.iter().filter(|report| report["changed"] == true);
    assert_eq!(changed.count(), 1, "{reports:?}");
    assert!(folder.is_ours(V4));
    assert_eq!(folder.read("azure-vnet-ipam.orig"), original);
    assert_eq!(folder.names(), [V4, "azure-vnet-ipam.orig"]);
}

#[test]
#[ignore = "needs go"]
fn executable_of_the_originals_go_module_is_recognised() {
    let folder = PluginFolder::new("go");
    let package = folder.node.path("/module");
    fs::create_dir_all(package.join("cni")).unwrap();
    fs::write(
        package.join("go.mod"),
        format!("module {MODULE}\n\ngo 1.21\n"),
    )
    .unwrap();
    fs::write(
        package.join("cni/main.go"),
        "package main\n\nfunc main() {}\n",
    )
    .unwrap();
    for (flags, strips) in [("", false), ("-s -w", true)] {
        let mut build = Command::new("go");
        build
            .current_dir(&package)
            .env("CGO_ENABLED", "0")
            .env("GOFLAGS", "-mod=mod");
        build.args(["build", "-ldflags", flags, "-o", "plugin", "./cni"]);
        let built = output(&mut build);
        assert!(built.status.success(), "{built:?}");
        folder.put_executable(V4, &package.join("plugin"));
        let found = folder.node.run_line("install --verify -o json").json();
        assert_eq!(
            found["found"]["kind"], "original",
            "stripped: {strips}: {found}"
        );
        let version = found["found"]["version"].as_str().unwrap();
        assert!(version.contains(" built with go1."), "{version}");
    }
}

#[test]
#[ignore = "needs tests/original/build, or objcopy"]
fn the_original_is_recognised_kept_and_comes_back() {
    let folder = PluginFolder::new("original");
    let original = Original::new(&folder.node);
    for line in build_lines(MODULE) {
        let is_there = |bytes: &[u8]| bytes.windows(line.len()).any(|w| w == line.as_bytes());
        assert!(
            is_there(&original.bytes),
            "the stand-in does not have {line:?} from it"
        );
    }
    folder.put_executable(V4, &original.path);
    let inode = |name: &str| fs::metadata(folder.file(name)).unwrap().ino();
    let before = inode(V4);
    let installed = folder.node.run_line("install").success().stdout.clone();
    let kept = "Before: the original, v1.4.59 built with go1.";
    assert!(installed.contains(kept), "{installed}");
    assert!(folder.is_ours(V4));
    assert!(folder.read("azure-vnet-ipam.orig") == original.bytes);
    let back = folder.node.run_line("uninstall").success().stdout.clone();
    assert!(
        back.contains(" is the original, v1.4.59 built with go1."),
        "{back}"
    );
    assert!(folder.read(V4) == original.bytes);
    assert_eq!((inode(V4), folder.names()), (before, vec![V4.to_owned()]));
}
