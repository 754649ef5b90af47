//! `install` and `uninstall`, and how they change the plugin folder.

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

/// A link to a file of this kind beside it.
fn link_to(put: Put) -> Put {
    Box::new(move |folder, name| {
        put(folder, "target");
        let _ = fs::remove_file(folder.file(name));
        symlink("target", folder.file(name)).unwrap();
    })
}

/// Broken files in place of a plugin, and a link to each.
fn accidents() -> Vec<(String, Put)> {
    // Enough for the kernel to recognise the format, and too little to run.
    let copy = unmarked()[..64 << 10].to_vec();
    let mut of_another_machine = copy.clone();
    // The machine field in the header of an ELF file. No machine has this number.
    of_another_machine[18..20].copy_from_slice(&[0xfe, 0xca]);
    let kinds = [
        ("empty file", Vec::new()),
        ("broken copy", copy),
        ("executable of another machine", of_another_machine),
        ("script", b"#!/bin/sh\nexit 0\n".to_vec()),
    ];
    let with_link = |(kind, content): (&str, Vec<u8>)| {
        let link = link_to(put_content(content.clone()));
        [
            (format!("link to {kind}"), link),
            (kind.to_owned(), put_content(content)),
        ]
    };
    kinds.into_iter().flat_map(with_link).collect()
}

/// Each kind of file that does not answer VERSION as a CNI plugin.
fn silent() -> Vec<(String, Put)> {
    let archive = [b"archive", &fs::read(binary()).unwrap()[..]].concat();
    let failing = b"#!/bin/sh\necho '{\"supportedVersions\":[\"0.4.0\"]}'; exit 1\n";
    let link_to_nothing = |folder: &PluginFolder, name: &str| {
        let _ = fs::remove_file(folder.file(name));
        symlink("gone", folder.file(name)).unwrap();
    };
    let others: [(&str, Put); 4] = [
        ("archive with this program", put_content(archive)),
        ("script that fails", put_content(failing.to_vec())),
        ("link to nothing", Box::new(link_to_nothing)),
        ("not to be executed", put_with_mode(0o644)),
    ];
    let others = others.map(|(kind, put)| (kind.to_owned(), put));
    accidents().into_iter().chain(others).collect()
}

/// The original with this file mode.
fn put_with_mode(mode: u32) -> Put {
    Box::new(move |folder, name| {
        folder.put(name, &original("mode"));
        fs::set_permissions(folder.file(name), Permissions::from_mode(mode)).unwrap();
    })
}

/// Each kind of file that answers VERSION as a CNI plugin.
fn answering() -> Vec<(&'static str, Put)> {
    vec![
        ("original", put_content(original("newer"))),
        ("executable", put_content(unmarked())),
        ("link", link_to(put_content(original("target")))),
        ("for root only", put_with_mode(0o700)),
    ]
}

/// Runs a command line. Checks its exit status, and then the files at the plugin's path and at the path of the kept
/// original.
#[track_caller]
fn expect(folder: &PluginFolder, kind: &str, line: &str, status: i32, found: [&Found; 2]) {
    let outcome = folder.node.run_line(line);
    assert_eq!(outcome.exit, Some(status), "{line} {kind}: {outcome:?}");
    let now = [V4, KEPT].map(|name| folder.found(name));
    assert_eq!(now.each_ref(), found, "{line} {kind}");
}

#[test]
fn file_that_does_not_answer_is_never_kept_or_restored() {
    let folder = PluginFolder::new("silent");
    folder.put_executable(V4, &binary());
    let ours = &folder.found(V4);
    folder.put(V4, &original("first"));
    let first = &folder.found(V4);
    let nothing = &Found::Nothing;
    for (kind, put) in silent() {
        let expect = |line: &str, status, found: [&Found; 2]| {
            expect(&folder, &kind, line, status, found);
        };
        // The file is in place of the plugin: `install` refuses, and `install --force` replaces it without keeping
        // it.
        put(&folder, V4);
        let broken = &folder.found(V4);
        expect("install", 1, [broken, nothing]);
        expect("uninstall", 0, [broken, nothing]);
        expect("install --force", 0, [ours, nothing]);
        expect("uninstall", 1, [ours, nothing]);
        // The file is in place of the kept original: `uninstall` refuses it, and the next original replaces it.
        put(&folder, KEPT);
        let broken = &folder.found(KEPT);
        expect("uninstall", 1, [ours, broken]);
        expect("uninstall --force", 0, [nothing, broken]);
        expect("uninstall", 1, [nothing, broken]);
        folder.put(V4, &original("first"));
        expect("install", 0, [ours, first]);
        // The file is in place of the plugin, beside a kept original.
        put(&folder, V4);
        let broken = &folder.found(V4);
        expect("install", 1, [broken, first]);
        expect("uninstall", 1, [broken, first]);
        expect("install --force", 0, [ours, first]);
        expect("uninstall", 0, [first, nothing]);
        folder.put(KEPT, &original("first"));
        put(&folder, V4);
        expect("uninstall --force", 0, [first, nothing]);
        let _ = fs::remove_file(folder.file("target"));
        assert_eq!(folder.names(), [V4], "{kind}");
    }
}

#[test]
fn newest_plugin_that_answers_is_kept_and_restored() {
    let folder = PluginFolder::new("answering");
    folder.put_executable(V4, &binary());
    let ours = &folder.found(V4);
    for (kind, put) in answering() {
        let expect = |line: &str, status, found: [&Found; 2]| {
            expect(&folder, kind, line, status, found);
        };
        for kept in [original("older"), Vec::new()] {
            folder.put(KEPT, &kept);
            let older = &folder.found(KEPT);
            put(&folder, V4);
            let other = &folder.found(V4);
            expect("install --verify", 1, [other, older]);
            for line in ["install", "install --force", "install --verify"] {
                expect(line, 0, [ours, other]);
            }
            // An upgrade of the node installs the original again.
            put(&folder, V4);
            expect("install --verify", 1, [other, other]);
            expect("install", 0, [ours, other]);
            for line in ["uninstall", "uninstall --force"] {
                expect(line, 0, [other, &Found::Nothing]);
            }
        }
    }
}

#[test]
fn reports_say_what_was_there() {
    let folder = PluginFolder::new("reports");
    let says = |line: &str, status: i32, words: &str| {
        let outcome = folder.node.run_line(line);
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
        " is removed; no plugin is installed there now.",
    );
    let older = working_other_version(&folder.node, "0.1.9 (old)");
    folder.put_executable(V4, &older);
    let version = "there is this program, version 0.1.9 (old).";
    says("install --verify", 1, version);
    says("install", 0, " Before: this program, version 0.1.9 (old).");
    // This version cannot be executed.
    fs::set_permissions(folder.file(V4), Permissions::from_mode(0o644)).unwrap();
    says("install --verify", 1, ", with mode 0644.");
    says("install", 0, ", with mode 0644.");
    assert_eq!(folder.names(), [V4], "this program is not kept");
    folder.put(V4, &original("x"));
    says("install", 0, " Before: another file, kept as ");
    folder.put(V4, b"#!/bin/sh\necho 'no state'\nexit 7\n");
    let why = "there is another file, which does not answer VERSION as a CNI plugin does: exit status: 7, output \"no state\"; if it is to be replaced, add --force";
    says("install", 1, why);
    says("uninstall", 1, "add --force to replace it by ");
    says("install --force", 0, "not kept as it does not answer ");
    let conflist = r#"{"cniVersion":"1.1.0","name":"x","plugins":[{"type":"ptp","ipam":{"type":"azure-vnet-ipam"}}]}"#;
    folder.node.put("/etc/cni/net.d/10-x.conflist", conflist);
    folder.node.put("/var/run/azure-vnet-ipam.json", [0; 64]);
    let why = "is damaged, or only the backup has it, so the original would allocate addresses that pods have";
    says("uninstall", 1, why);
    std::fs::remove_file(folder.node.path("/var/run/azure-vnet-ipam.json")).unwrap();
    says(
        "uninstall",
        0,
        "so every ADD fails until cniVersion is lowered in /",
    );
    folder.put(KEPT, b"");
    folder.put_executable(V4, &binary());
    says("uninstall", 1, "exec format error");
    let log = folder.node.log();
    for fact in [" was installed as ", " was uninstalled from ", " by uid "] {
        assert!(log.contains(fact), "{log}");
    }
}

#[test]
fn both_names_are_restored_even_as_links_to_each_other() {
    let folder = PluginFolder::new("names");
    folder.put(V4, &original("x"));
    symlink(V4, folder.file(V6)).unwrap();
    let run =
        |line: &str, status| assert_eq!(folder.node.run_line(line).exit, Some(status), "{line}");
    for line in ["install --name azure-vnet-ipamv6", "install"] {
        run(line, 0);
    }
    assert!(folder.is_ours(V4) && folder.is_ours(V6));
    // Now the kept link leads to this program.
    run("uninstall --name azure-vnet-ipamv6", 1);
    run("uninstall", 0);
    assert_eq!(folder.read(V4), original("x"));
    assert_eq!(folder.found(V6), Found::Link(V4.into()));
    assert_eq!(folder.names(), [V4, V6]);
    // A link to this program counts as this program.
    run("install", 0);
    run("install --verify --name azure-vnet-ipamv6", 0);
    run("install --name azure-vnet-ipamv6", 0);
    assert_eq!(folder.found(V6), Found::Link(V4.into()));
    // One of the two names has no kept original.
    fs::remove_file(folder.file(V6)).unwrap();
    run("install --name azure-vnet-ipamv6", 0);
    run("uninstall", 1);
    assert_eq!(folder.read(V4), original("x"));
    assert!(folder.is_ours(V6));
    // A link to the other name counts as this program. It does not replace the kept file, and `install` replaces it.
    run("install", 0);
    fs::remove_file(folder.file(V4)).unwrap();
    symlink(V6, folder.file(V4)).unwrap();
    for line in ["install", "install --force"] {
        run(line, 0);
        assert_eq!(folder.read(KEPT), original("x"), "{line}");
    }
    run("uninstall --name azure-vnet-ipam", 0);
    assert_eq!(folder.read(V4), original("x"));
    assert!(folder.is_ours(V6));
    // The cleanup of one of the two names fails.
    run("install", 0);
    fs::create_dir(folder.file(".azure-vnet-ipamv6.installing")).unwrap();
    let half = folder.node.run_line("uninstall");
    assert_eq!(half.exit, Some(1), "{half:?}");
    for words in ["The original is back as ", "failed to remove the rest"] {
        assert!(half.stdout.contains(words), "{half:?}");
    }
    run("uninstall", 2);
}

#[test]
fn installed_plugin_serves_calls_under_both_names() {
    let (node, _wire) = Node::with_wire("serves", Reply::Xml(xml(5..10)));
    let folder = PluginFolder::on(node);
    for line in ["install", "install --name azure-vnet-ipamv6"] {
        folder.node.run_line(line).success();
    }
    let add = folder.node.call("ADD", "c1").with_program(folder.file(V4));
    add.run().success();
    assert_eq!(folder.node.held().len(), 1);
    // The installed executable may install itself again, under both names.
    for (name, other) in [(V4, V6), (V6, V4)] {
        let install = folder.node.command(["install", "--name", other]);
        let text = install
            .with_program(folder.file(name))
            .run()
            .success()
            .stdout
            .clone();
        assert!(text.contains("is installed already"), "{text}");
    }
}

#[test]
fn simultaneous_installs_do_not_harm_each_other() {
    let folder = PluginFolder::new("at-once");
    folder.put(V4, &original("x"));
    // Two killed installs left these files behind.
    folder.put(".azure-vnet-ipam.installing", b"half");
    folder.put(".azure-vnet-ipam.saving", b"half");
    let calls = [(); 6].map(|()| folder.node.command(["install", "-o", "json"]).start());
    let reports = calls.map(|call| call.finish().success().json());
    let changed = reports
        .iter()
        .filter(|r| r["plugins"][0]["changed"] == true);
    assert_eq!(changed.count(), 1, "{reports:?}");
    assert!(folder.is_ours(V4));
    assert_eq!(folder.read(KEPT), original("x"));
    assert_eq!(folder.names(), [V4, KEPT]);
}
