//! What the executable says about its own build: in `--version`, in `version` and in the metrics.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::wait::output;
use crate::harness::{Node, package};

/// The four texts that tell builds apart.
fn build(node: &Node) -> [String; 4] {
    let report = node.run_line("version -o json").success().json();
    let text = |key: &str| report[key].as_str().unwrap().to_owned();
    let features = report["features"].as_array().unwrap().iter();
    let features: Vec<_> = features.map(|f| f.as_str().unwrap()).collect();
    [
        text("version"),
        text("commit"),
        text("target"),
        features.join(","),
    ]
}

#[test]
fn version_is_the_same_everywhere() {
    let node = Node::new("build");
    let [version, commit, target, features] = build(&node);
    assert_eq!(version, env!("CARGO_PKG_VERSION"));
    let is_commit = commit.len() == 7 && commit.bytes().all(|b| b.is_ascii_hexdigit());
    assert!(is_commit || commit == "unknown", "{commit}");
    assert!(target.contains("-linux-"), "{target}");
    assert_eq!(features.contains("tls"), cfg!(feature = "tls"));
    let mut inside = format!("commit {commit}, {target}");
    if !features.is_empty() {
        inside += &format!(", {features}");
    }
    let line = format!("azure-vnet-ipam {version} ({inside})\n");
    for option in ["version", "--version", "-V", "version -o text"] {
        let printed = node.run_line(option).success().stdout.clone();
        assert_eq!(printed, line, "{option}");
    }
    let metrics = node.run_line("metrics").success().stdout.clone();
    let labels = format!(
        r#"build_info{{plugin="azure-vnet-ipam",version="{version}",commit="{commit}",target="{target}",features="{features}"}} 1"#
    );
    assert!(metrics.contains(&labels), "{metrics}");
    assert!(!node.path("/var").exists(), "no state, lock or log");
}

/// A package with the build script, in whose folder a repository can be made.
struct Package {
    folder: PathBuf,
}

impl Package {
    fn new() -> Package {
        let folder = format!("azure-vnet-ipam-build-{}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        fs::create_dir_all(&folder).unwrap();
        let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or("rustc".into()));
        rustc
            .args(["--edition=2024", "-o"])
            .arg(folder.join("script"));
        let built = output(rustc.arg(package().join("src/build.rs")));
        assert!(built.status.success(), "{built:?}");
        Package { folder }
    }

    fn put(&self, path: &str, content: &str) {
        let path = self.folder.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// Runs the script as cargo does, for a package in this folder of it. Returns the commit, and the files for whose changes it runs
    /// again; nothing when it fails.
    fn run(&self, folder: &str, commit: Option<&str>) -> Option<(String, Vec<String>)> {
        let folder = self.folder.join(folder);
        let mut script = Command::new(self.folder.join("script"));
        script.env_clear().env("CARGO_MANIFEST_DIR", &folder);
        script.env("TARGET", "some-linux-target");
        if let Some(commit) = commit {
            script.env("AZURE_VNET_IPAM_COMMIT", commit);
        }
        let output = output(&mut script);
        let text = String::from_utf8(output.stdout).unwrap();
        let values = |key: &str| {
            let lines = text.lines().filter_map(|line| line.strip_prefix(key));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        let mut watched = values("cargo::rerun-if-changed=");
        watched.retain(|file| file != "src/build.rs");
        for file in &mut watched {
            // Otherwise cargo would run the script every time.
            assert!(Path::new(file).exists(), "{file}");
            *file = file.replace(&format!("{}/", self.folder.display()), "");
        }
        let commit = values("cargo::rustc-env=AZURE_VNET_IPAM_BUILD_COMMIT=");
        output
            .status
            .success()
            .then(|| (commit[0].clone(), watched))
    }
}

impl Drop for Package {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[test]
#[ignore = "needs rustc"]
fn commit_comes_from_the_environment_or_the_repository() {
    const ONE: &str = "1111111111111111111111111111111111111111";
    const TWO: &str = "2222222222222222222222222222222222222222";
    let package = Package::new();
    let commit = |given: Option<&str>| package.run("", given).unwrap().0;
    let of_repository = || package.run("", None).unwrap();
    let watched = |files: &[&str]| files.iter().map(|f| (*f).to_owned()).collect::<Vec<_>>();
    let found = |commit: &str, files: &[&str]| (commit.to_owned(), watched(files));
    assert_eq!(of_repository(), found("unknown", &[]), "no repository");
    assert_eq!(commit(Some("")), "unknown");
    assert_eq!(commit(Some("abcdef0123")), "abcdef0");
    for wrong in ["abc", "abcdefg", "1234567\nrustc-link-arg=x"] {
        assert_eq!(package.run("", Some(wrong)), None, "{wrong}");
    }

    package.put(".git/HEAD", "ref: refs/heads/topic/a\n");
    package.put(".git/refs/heads/main", "x");
    // The folder in which the file of the branch will appear.
    let files = [".git/HEAD", ".git/refs/heads"];
    assert_eq!(of_repository(), found("unknown", &files), "no commit yet");
    package.put(
        ".git/packed-refs",
        &format!("# pack-refs\n{TWO} refs/heads/topic/ab\n{ONE} refs/heads/topic/a\n^{TWO}\n"),
    );
    let files = [".git/HEAD", ".git/packed-refs", ".git/refs/heads"];
    assert_eq!(of_repository(), found("1111111", &files));
    package.put(".git/refs/heads/topic/a", &format!("{TWO}\n"));
    let files = [".git/HEAD", ".git/packed-refs", ".git/refs/heads/topic/a"];
    assert_eq!(
        of_repository(),
        found("2222222", &files),
        "newer than packed"
    );
    assert_eq!(commit(Some("abcdef0123")), "abcdef0");
    package.put(".git/worktrees/w/HEAD", "ref: refs/heads/side\n");
    package.put(".git/worktrees/w/commondir", "../..\n");
    package.put(".git/refs/heads/side", &format!("{ONE}\n"));
    let of_worktree = format!("gitdir: {}/.git/worktrees/w\n", package.folder.display());
    package.put("w/.git", &of_worktree);
    assert_eq!(package.run("w", None).unwrap().0, "1111111", "a worktree");
    package.put(".git/HEAD", &format!("{ONE}\n"));
    assert_eq!(commit(None), "1111111", "no branch");
    package.put(".git/HEAD", "nonsense\n");
    assert_eq!(commit(None), "unknown");
}
