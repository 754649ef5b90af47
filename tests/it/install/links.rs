//! Originals that are links, and originals that do not work: none is lost, and each is named.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use super::folder::{MODULE, PluginFolder, V4, V6, go_executable};

const SAVED: &str = "azure-vnet-ipam.orig";
const SAVED_V6: &str = "azure-vnet-ipamv6.orig";

#[track_caller]
fn assert_link(folder: &PluginFolder, name: &str, target: &str) {
    let found = fs::read_link(folder.file(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
    assert_eq!(found, Path::new(target), "{name}");
}

#[test]
fn link_whose_target_is_away_is_kept() {
    for target in ["current/azure-vnet-ipam", V4, "file/x"] {
        let folder = PluginFolder::new("away");
        fs::write(folder.file("file"), "").unwrap();
        symlink(target, folder.file(V4)).unwrap();
        folder.node.run_line("install").success();
        assert!(folder.is_ours(V4));
        assert_link(&folder, SAVED, target);
    }
    // With its target, it comes back.
    let folder = PluginFolder::new("comes-back");
    symlink("current/azure-vnet-ipam", folder.file(V4)).unwrap();
    folder.node.run_line("install").success();
    let refused = folder.node.run_line("uninstall");
    assert_eq!(refused.exit, Some(1), "{refused:?}");
    let why = "azure-vnet-ipam.orig is a link that leads nowhere, so that nothing would stand";
    assert!(contains(&refused.stdout, why), "{refused:?}");
    fs::create_dir(folder.file("current")).unwrap();
    folder.put("current/azure-vnet-ipam", &go_executable(MODULE, "x"));
    folder.node.run_line("uninstall").success();
    assert_link(&folder, V4, "current/azure-vnet-ipam");
}

#[test]
fn link_to_nothing_drives_no_original_out() {
    let folder = PluginFolder::new("drives");
    let original = go_executable(MODULE, "x");
    folder.put(V4, &original);
    folder.node.run_line("install").success();
    fs::remove_file(folder.file(V4)).unwrap();
    symlink("gone", folder.file(V4)).unwrap();
    folder.node.run_line("install").success();
    assert_eq!(folder.read(SAVED), original);
    assert_eq!(folder.names(), [V4, SAVED]);
}

#[test]
fn saved_link_to_the_other_name_is_kept_when_a_newer_original_comes() {
    let folder = PluginFolder::new("other-name");
    folder.put(V4, &go_executable(MODULE, "x"));
    symlink(V4, folder.file(V6)).unwrap();
    for line in ["install --name azure-vnet-ipamv6", "install"] {
        folder.node.run_line(line).success();
    }
    // Now the saved link leads to this program.
    assert_link(&folder, SAVED_V6, V4);
    let refused = folder.node.run_line("uninstall --name azure-vnet-ipamv6");
    assert_eq!(refused.exit, Some(1), "{refused:?}");
    let why = "azure-vnet-ipamv6.orig is a link to azure-vnet-ipam (this program, version ";
    assert!(contains(&refused.stdout, why), "{refused:?}");
    let newer = go_executable(MODULE, "newer");
    folder.put(V6, &newer);
    folder
        .node
        .run_line("install --name azure-vnet-ipamv6")
        .success();
    assert_eq!(folder.read(SAVED_V6), newer);
    assert_link(&folder, "azure-vnet-ipamv6.orig.1", V4);
    folder.node.run_line("uninstall").success();
    assert_eq!(folder.read(V4), go_executable(MODULE, "x"));
    assert_eq!(folder.read(V6), newer);
}

#[test]
fn original_that_may_not_be_executed_is_named() {
    let folder = PluginFolder::new("mode");
    folder.put(V4, &go_executable(MODULE, "x"));
    fs::set_permissions(folder.file(V4), Permissions::from_mode(0o644)).unwrap();
    folder.node.run_line("install").success();
    let refused = folder.node.run_line("uninstall");
    assert_eq!(refused.exit, Some(1), "{refused:?}");
    let why = "is the original, v1.4.59 built with go1.23.2 that may not be executed, so that";
    assert!(contains(&refused.stdout, why), "{refused:?}");
    assert!(folder.is_ours(V4));
}

#[test]
fn folder_in_the_way_is_named() {
    for (name, first) in [
        (
            "azure-vnet-ipam.orig.1",
            Some(go_executable(MODULE, "first")),
        ),
        (".azure-vnet-ipam.installing", None),
    ] {
        let folder = PluginFolder::new("in-the-way");
        if let Some(first) = first {
            folder.put(SAVED, &first);
        }
        let original = go_executable(MODULE, "x");
        folder.put(V4, &original);
        fs::create_dir(folder.file(name)).unwrap();
        let refused = folder.node.run_line("install");
        assert_eq!(refused.exit, Some(2), "{refused:?}");
        let remedy = "shows a folder where a file belongs; remove it";
        assert!(contains(&refused.stderr, remedy), "{refused:?}");
        assert_eq!(folder.read(V4), original);
        fs::remove_dir(folder.file(name)).unwrap();
        folder.node.run_line("install").success();
        assert_eq!(folder.read(SAVED), original);
    }
}

#[test]
fn what_was_uninstalled_is_told_when_the_other_name_fails() {
    let folder = PluginFolder::new("other-fails");
    for (name, line) in [(V4, "install"), (V6, "install --name azure-vnet-ipamv6")] {
        folder.put(name, &go_executable(MODULE, name));
        folder.node.run_line(line).success();
    }
    let in_the_way = folder.file(".azure-vnet-ipamv6.installing");
    fs::create_dir(&in_the_way).unwrap();
    let half = folder.node.run_line("uninstall");
    assert_eq!(half.exit, Some(1), "{half:?}");
    assert_eq!(folder.read(V4), go_executable(MODULE, V4));
    assert!(folder.is_ours(V6));
    for words in [
        "azure-vnet-ipam is the original, v1.4.59",
        "Warning: failed to uninstall",
        "azure-vnet-ipamv6: failed to remove the rest",
    ] {
        assert!(contains(&half.stdout, words), "{words}: {half:?}");
    }
    let nothing_done = folder.node.run_line("uninstall");
    assert_eq!(nothing_done.exit, Some(2), "{nothing_done:?}");
    fs::remove_dir(in_the_way).unwrap();
    folder.node.run_line("uninstall").success();
    assert_eq!(folder.read(V6), go_executable(MODULE, V6));
}

/// Returns whether a text says this, wherever its lines are broken.
fn contains(text: &str, words: &str) -> bool {
    let text: Vec<_> = text.split_whitespace().collect();
    text.join(" ").contains(words)
}
