//! `install` and `uninstall`: what they do to the plugin folder.

pub mod folder;
mod kills;
mod refused;
mod turns;

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};

use folder::{Found, KEPT, PluginFolder, V4, V6, original, unmarked, working_other_version};

use crate::harness::{Node, Reply, binary, xml};

/// Puts a file of one kind at a path.
type Put = Box<dyn Fn(&PluginFolder, &str)>;

fn put_content(content: Vec<u8>) -> Put {
    Box::new(move |folder, name| folder.put(name, &content))
}

/// A link to a file of this kind, which lies beside it.
fn link_to(put: Put) -> Put {
    Box::new(move |folder, name| {
        put(folder, "target");
        let _ = fs::remove_file(folder.file(name));
        symlink("target", folder.file(name)).unwrap();
    })
}

/// Each kind of file that does not answer VERSION as a CNI plugin.
fn silent() -> Vec<(&'static str, Put)> {
    // Enough for the kernel to see what it is, and too little to run.
    let copy = unmarked()[..64 << 10].to_vec();
    let mut of_another_machine = copy.clone();
    // The machine in the header of an ELF file: none has this number.
    of_another_machine[18..20].copy_from_slice(&[0xfe, 0xca]);
    let script = |text: &str| put_content(format!("#!/bin/sh\n{text}\n").into_bytes());
    vec![
        ("empty file", put_content(Vec::new())),
        ("broken copy", put_content(copy.clone())),
        (
            "executable of another machine",
            put_content(of_another_machine.clone()),
        ),
        ("script", script("exit 0")),
        (
            "script that fails",
            script("echo '{\"supportedVersions\":[\"0.4.0\"]}'; exit 1"),
        ),
        (
            "script without interpreter",
            put_content(b"#!/no/such/shell\n".to_vec()),
        ),
        ("link to an empty file", link_to(put_content(Vec::new()))),
        ("link to a broken copy", link_to(put_content(copy))),
        (
            "link to an executable of another machine",
            link_to(put_content(of_another_machine)),
        ),
        ("link to a script", link_to(script("exit 0"))),
        (
            "link to nothing",
            Box::new(|folder, name| {
                let _ = fs::remove_file(folder.file(name));
                symlink("gone", folder.file(name)).unwrap();
            }),
        ),
        (
            "original that may not be executed",
            Box::new(|folder, name| {
                folder.put(name, &original("mode"));
                fs::set_permissions(folder.file(name), Permissions::from_mode(0o644)).unwrap();
            }),
        ),
        (
            "archive with this program",
            put_content([b"archive", &fs::read(binary()).unwrap()[..]].concat()),
        ),
    ]
}

/// Each kind of file that does.
fn answering() -> Vec<(&'static str, Put)> {
    vec![
        ("original", put_content(original("newer"))),
        ("executable", put_content(unmarked())),
        (
            "link to an original",
            link_to(put_content(original("target"))),
        ),
        (
            "original for root only",
            Box::new(|folder, name| {
                folder.put(name, &original("mode"));
                fs::set_permissions(folder.file(name), Permissions::from_mode(0o700)).unwrap();
            }),
        ),
    ]
}

/// Runs a command line, checks its exit status, and returns what lies at the plugin's path and beside it afterwards.
#[track_caller]
fn run(folder: &PluginFolder, line: &str, status: i32, kind: &str) -> (Found, Found) {
    let outcome = folder.node.run_line(line);
    assert_eq!(
        outcome.exit,
        Some(status),
        "{line} with {kind}: {outcome:?}"
    );
    (folder.found(V4), folder.found(KEPT))
}

#[test]
fn what_does_not_answer_is_never_kept_and_never_comes_back() {
    let folder = PluginFolder::new("silent");
    folder.put_executable(V4, &binary());
    let ours = folder.found(V4);
    folder.put(V4, &original("first"));
    let first = folder.found(V4);
    for (kind, put) in silent() {
        for has_original in [false, true] {
            let clear = || {
                let _ = fs::remove_file(folder.file(V4));
                let _ = fs::remove_file(folder.file(KEPT));
                if has_original {
                    folder.put(KEPT, &original("first"));
                }
            };
            // In place: install refuses; with --force, it is gone for good.
            clear();
            put(&folder, V4);
            let before = (folder.found(V4), folder.found(KEPT));
            assert_eq!(run(&folder, "install", 1, kind), before, "{kind}");
            let uninstalled = if has_original { 1 } else { 0 };
            assert_eq!(
                run(&folder, "uninstall", uninstalled, kind),
                before,
                "{kind}"
            );
            let installed = (ours.clone(), before.1.clone());
            assert_eq!(
                run(&folder, "install --force", 0, kind),
                installed,
                "{kind}"
            );
            if has_original {
                let back = (first.clone(), Found::Nothing);
                assert_eq!(run(&folder, "uninstall", 0, kind), back, "{kind}");
                clear();
                put(&folder, V4);
                assert_eq!(run(&folder, "uninstall --force", 0, kind), back, "{kind}");
                continue;
            }
            assert_eq!(run(&folder, "uninstall", 1, kind), installed, "{kind}");
            // As the kept original: uninstall refuses it, and the next original takes its place.
            put(&folder, KEPT);
            let before = (ours.clone(), folder.found(KEPT));
            assert_eq!(run(&folder, "uninstall", 1, kind), before, "{kind}");
            let removed = (Found::Nothing, before.1.clone());
            assert_eq!(
                run(&folder, "uninstall --force", 0, kind),
                removed,
                "{kind}"
            );
            assert_eq!(run(&folder, "uninstall", 1, kind), removed, "{kind}");
            folder.put(V4, &original("first"));
            let installed = (ours.clone(), first.clone());
            assert_eq!(run(&folder, "install", 0, kind), installed, "{kind}");
        }
        let _ = fs::remove_file(folder.file("target"));
        assert_eq!(folder.names(), [V4], "{kind}");
    }
}

#[test]
fn newest_plugin_that_answers_is_kept_and_comes_back() {
    let folder = PluginFolder::new("answering");
    folder.put_executable(V4, &binary());
    let ours = folder.found(V4);
    for (kind, put) in answering() {
        for (kept, put_kept) in [
            ("another original", put_content(original("older"))),
            ("an empty file", put_content(Vec::new())),
        ] {
            let kinds = format!("{kind} and {kept}");
            put_kept(&folder, KEPT);
            put(&folder, V4);
            let other = folder.found(V4);
            let installed = (ours.clone(), other.clone());
            for line in ["install", "install --force", "install --verify"] {
                assert_eq!(run(&folder, line, 0, &kinds), installed, "{line} {kinds}");
            }
            // As after an upgrade of the node, which brings it again.
            put(&folder, V4);
            assert_eq!(
                run(&folder, "install --verify", 1, &kinds).0,
                other,
                "{kinds}"
            );
            assert_eq!(run(&folder, "install", 0, &kinds), installed, "{kinds}");
            let back = (other.clone(), Found::Nothing);
            for line in ["uninstall", "uninstall --force"] {
                assert_eq!(run(&folder, line, 0, &kinds), back, "{line} {kinds}");
            }
        }
    }
}

#[test]
fn reports_say_what_was_there() {
    let folder = PluginFolder::new("reports");
    let run = |line: &str| folder.node.run_line(line);
    let says = |line: &str, status: i32, words: &str| {
        let outcome = run(line);
        assert_eq!(outcome.exit, Some(status), "{line}: {outcome:?}");
        let text: Vec<_> = outcome.stdout.split_whitespace().collect();
        assert!(text.join(" ").contains(words), "{line}: {outcome:?}");
    };
    says(
        "install --verify",
        1,
        "is not this executable: there is nothing.",
    );
    says("uninstall", 0, "Nothing to do at ");
    says("install", 0, " Before: nothing.");
    says("install", 0, " is installed already as ");
    says(
        "install --verify",
        0,
        "/azure-vnet-ipam is this executable, ",
    );
    says("uninstall", 1, "no original is kept beside ");
    says(
        "uninstall --force",
        0,
        " is removed; nothing stands there now.",
    );
    let older = working_other_version(&folder.node, "0.1.9 (old)");
    folder.put_executable(V4, &older);
    says(
        "install --verify",
        1,
        "there is this program, version 0.1.9 (old).",
    );
    says("install", 0, " Before: this program, version 0.1.9 (old).");
    fs::set_permissions(folder.file(V4), Permissions::from_mode(0o644)).unwrap();
    says("install --verify", 1, ", with mode 0644.");
    says("install", 0, ", with mode 0644.");
    assert_eq!(
        folder.names(),
        [V4],
        "executables of this program are not kept"
    );
    folder.put(V4, &original("x"));
    says("install", 0, " Before: another file, kept as ");
    folder.put(V4, b"#!/bin/sh\necho 'no state'\nexit 7\n");
    says(
        "install",
        1,
        "there is another file, which does not answer VERSION as a CNI plugin does: exit status: 7, output \"no state\"; if it is to be replaced, add --force",
    );
    says("uninstall", 1, "add --force to replace it by ");
    says(
        "install --force",
        0,
        "not kept as it does not answer VERSION",
    );
    says("uninstall", 0, "The original is back as ");
    folder.put(KEPT, b"");
    folder.put_executable(V4, &binary());
    says("uninstall", 1, "exec format error");
    let log = folder.node.log();
    for fact in [" was installed as ", " was uninstalled from ", " by uid "] {
        assert!(log.contains(fact), "{log}");
    }
}

#[test]
fn both_names_come_back_also_as_links_to_each_other() {
    let folder = PluginFolder::new("names");
    folder.put(V4, &original("x"));
    symlink(V4, folder.file(V6)).unwrap();
    let run =
        |line: &str, status| assert_eq!(folder.node.run_line(line).exit, Some(status), "{line}");
    for line in ["install --name azure-vnet-ipamv6", "install"] {
        run(line, 0);
    }
    assert!(folder.is_ours(V4) && folder.is_ours(V6));
    // Now the link that is kept leads to this program.
    run("uninstall --name azure-vnet-ipamv6", 1);
    run("uninstall", 0);
    assert_eq!(folder.read(V4), original("x"));
    assert_eq!(folder.found(V6), Found::Link(V4.into()));
    assert_eq!(folder.names(), [V4, V6]);
    // A link to this program is this program.
    run("install", 0);
    run("install --verify --name azure-vnet-ipamv6", 0);
    run("install --name azure-vnet-ipamv6", 0);
    assert_eq!(folder.found(V6), Found::Link(V4.into()));
    // One of both has no original.
    fs::remove_file(folder.file(V6)).unwrap();
    run("install --name azure-vnet-ipamv6", 0);
    run("uninstall", 1);
    assert_eq!(folder.read(V4), original("x"));
    assert!(folder.is_ours(V6));
    // One of both cannot be looked after.
    run("install", 0);
    fs::create_dir(folder.file(".azure-vnet-ipamv6.installing")).unwrap();
    let half = folder.node.run_line("uninstall");
    assert_eq!(half.exit, Some(1), "{half:?}");
    assert!(half.stdout.contains("The original is back as "), "{half:?}");
    assert!(
        half.stdout.contains("failed to remove the rest"),
        "{half:?}"
    );
    run("uninstall", 2);
}

#[test]
fn installed_plugin_serves_calls_under_both_names() {
    let (node, _wire) = Node::with_wire("serves", Reply::Xml(xml(5..10)));
    let folder = PluginFolder::on(node);
    for line in ["install", "install --name azure-vnet-ipamv6"] {
        folder.node.run_line(line).success();
    }
    let add = folder.node.call("ADD", "c1").of(folder.file(V4));
    add.run().success();
    assert_eq!(folder.node.held().len(), 1);
    // It may be installed by itself, over itself.
    for (name, other) in [(V4, V6), (V6, V4)] {
        let install = folder.node.command(["install", "--name", other]);
        let text = install.of(folder.file(name)).run().success().stdout.clone();
        assert!(text.contains("is installed already"), "{text}");
    }
}

#[test]
fn simultaneous_installs_do_not_harm_each_other() {
    let folder = PluginFolder::new("at-once");
    folder.put(V4, &original("x"));
    // Of two killed installs.
    folder.put(".azure-vnet-ipam.installing", b"half");
    folder.put(".azure-vnet-ipam.saving", b"half");
    let calls: Vec<_> = (0..6)
        .map(|_| folder.node.command(["install", "-o", "json"]).start())
        .collect();
    let reports: Vec<_> = calls
        .into_iter()
        .map(|call| call.finish().success().json())
        .collect();
    let changed = reports
        .iter()
        .filter(|report| report["plugins"][0]["changed"] == true);
    assert_eq!(changed.count(), 1, "{reports:?}");
    assert!(folder.is_ours(V4));
    assert_eq!(folder.read(KEPT), original("x"));
    assert_eq!(folder.names(), [V4, KEPT]);
}
