//! Folders in which nothing can be installed. The command reports why and what to do, and the plugin stays unchanged.

use std::fs;

use super::folder::{KEPT, PluginFolder, V4, original};
use crate::harness::{Outcome, binary, sh_with};
use crate::privileged::{in_private_namespaces, only_in};

/// Checks that the command failed with these words and changed nothing.
#[track_caller]
fn assert_failed(folder: &PluginFolder, outcome: &Outcome, words: &[&str]) {
    assert_eq!(
        (outcome.exit, outcome.stdout.as_str()),
        (Some(2), ""),
        "{outcome:?}"
    );
    for word in words {
        assert!(outcome.stderr.contains(word), "{word}: {outcome:?}");
    }
    assert_eq!(folder.read(V4), original("x"));
    assert_eq!(folder.names(), [V4], "nothing is left");
}

fn with_original(name: &str) -> PluginFolder {
    let folder = PluginFolder::new(name);
    folder.put(V4, &original("x"));
    folder
}

#[test]
fn wrong_folders_are_named() {
    let folder = with_original("wrong");
    let file = folder.file(V4).display().to_string();
    for command in ["install", "uninstall"] {
        for (path, words) in [
            (
                "/no/such/folder",
                &["no such file or directory", "--dir must name the folder"][..],
            ),
            (&file, &["--dir must name the folder"]),
        ] {
            let failed = folder.node.run_line(&format!("{command} --dir {path}"));
            assert_failed(&folder, &failed, words);
        }
    }
    fs::create_dir(folder.file("azure-vnet-ipamv6")).unwrap();
    let line = "install --force --name azure-vnet-ipamv6";
    let refused = folder.node.run_line(line);
    assert_eq!(refused.exit, Some(1), "{refused:?}");
    assert!(refused.stdout.contains("a folder or a device; remove it"));
    fs::remove_dir(folder.file("azure-vnet-ipamv6")).unwrap();
    for name in [KEPT, ".azure-vnet-ipam.installing"] {
        fs::create_dir(folder.file(name)).unwrap();
        let failed = folder.node.run_line("install");
        fs::remove_dir(folder.file(name)).unwrap();
        let words = ["is a directory", "ls -la"];
        assert_failed(&folder, &failed, &words);
    }
    for line in [
        "install --name other",
        "install --verify --force",
        "uninstall --verify",
    ] {
        assert_eq!(folder.node.run_line(line).exit, Some(2), "{line}");
    }
}

/// Runs `install` while a system call fails. `inject` describes it for strace.
fn install_with(folder: &PluginFolder, inject: &str) -> Outcome {
    let install = folder.node.command(["install"]);
    install.strace(&[&format!("inject={inject}")]).run()
}

#[test]
#[ignore = "needs strace"]
fn refused_system_calls_change_nothing() {
    let folder = with_original("system");
    for (inject, word) in [
        (
            "fchmod:error=EPERM",
            "failed to write the new file: operation not ",
        ),
        ("fsync:error=EIO", "failed to write the new file"),
        ("fsync:error=EIO:when=2", "failed to keep the original"),
        ("fsync:error=EIO:when=3", "failed to keep the original"),
        ("rename,?renameat,?renameat2:error=EBUSY:when=2", "findmnt"),
    ] {
        let outcome = install_with(&folder, inject);
        let _ = fs::remove_file(folder.file(KEPT));
        assert_failed(&folder, &outcome, &[word, "The plugin there is unchanged"]);
    }
    let late = install_with(&folder, "fsync:error=EIO:when=4");
    assert_eq!(late.exit, Some(2), "{late:?}");
    assert!(late.stderr.contains("is replaced, but"), "{late:?}");
    assert!(folder.is_ours(V4));
    // The new executable is the first program that `install` runs.
    for (inject, word) in [
        ("execve:error=ENOEXEC:when=1", "uname -m"),
        (
            "execve:error=EACCES:when=1",
            "a security module may forbid it",
        ),
    ] {
        let folder = PluginFolder::new("execve");
        let outcome = install_with(&folder, inject);
        assert_eq!(outcome.exit, Some(2), "{inject}: {outcome:?}");
        let words = "the new executable cannot be executed: ";
        assert!(
            outcome.stderr.contains(words) && outcome.stderr.contains(word),
            "{outcome:?}"
        );
        assert_eq!(folder.names(), [""; 0], "{inject}");
    }
}

/// Mounts a file system on the plugin folder, and installs the original there.
fn mounted(name: &str, options: &str) -> PluginFolder {
    let folder = PluginFolder::new(name);
    sh_with(
        &format!("mount -t tmpfs -o {options} none \"$1\""),
        &[&folder.path],
    );
    folder.put(V4, &original("x"));
    folder
}

#[test]
#[ignore = "needs root and unshare"]
fn disks_that_cannot_hold_it_change_nothing() {
    only_in!(in_private_namespaces);
    for (name, options, words) in [
        ("full", "rw,size=64k", &["no space left", "df -h"]),
        ("readonly", "ro", &["read-only file system", "findmnt"]),
    ] {
        let folder = mounted(name, if name == "full" { options } else { "size=1g" });
        let remount = format!("mount -o remount,{options} \"$1\"");
        sh_with(&remount, &[&folder.path]);
        assert_failed(&folder, &folder.node.run_line("install"), words);
        let nothing = folder.node.run_line("uninstall");
        assert!(nothing.success().stdout.contains("Nothing to do"));
        sh_with("umount \"$1\"", &[&folder.path]);
    }
    let folder = mounted("noexec", "size=1g,noexec");
    fs::remove_file(folder.file(V4)).unwrap();
    let failed = folder.node.run_line("install");
    assert_eq!(failed.exit, Some(2), "{failed:?}");
    assert!(failed.stderr.contains("mounted with noexec"), "{failed:?}");
    assert_eq!(folder.names(), [""; 0]);
    sh_with("umount \"$1\"", &[&folder.path]);
    // An installed plugin stays installed when the folder becomes read-only.
    let folder = mounted("keeps", "size=1g");
    folder.node.run_line("install").success();
    sh_with("mount -o remount,ro \"$1\"", &[&folder.path]);
    assert_eq!(folder.node.run_line("uninstall").exit, Some(2));
    assert!(folder.is_ours(V4));
    for line in ["install", "install --verify"] {
        folder.node.run_line(line).success();
    }
    sh_with("umount \"$1\"", &[&folder.path]);
}

#[test]
#[ignore = "needs root, unshare and setpriv"]
fn other_users_get_the_advice_to_use_sudo() {
    only_in!(in_private_namespaces);
    let folder = with_original("user");
    // Other users may not reach the folder of the build.
    let plugin = folder.node.path("/plugin");
    sh_with("install -m 755 \"$1\" \"$2\"", &[&binary(), &plugin]);
    let user = "setpriv --reuid 54321 --regid 54321 --clear-groups";
    let install = folder.node.command(["install"]).with_program(plugin);
    let install = install.under(user.split(' '));
    let done = install.run();
    assert_eq!(done.exit, Some(2), "{done:?}");
    assert!(
        done.stderr.contains("permission denied; run it with sudo"),
        "{done:?}"
    );
    assert_eq!(folder.names(), [V4]);
}
