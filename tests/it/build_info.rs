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
        r#"build_info{{version="{version}",commit="{commit}",target="{target}",features="{features}"}} 1"#
    );
    assert!(metrics.contains(&labels), "{metrics}");
    assert!(!node.path("/var").exists(), "no state, lock or log");
}

/// A package with the build script, in whose folder a repository can be made.
struct Package {
    folder: PathBuf,
}

impl Package {
    fn new(name: &str) -> Package {
        let folder = format!("azure-vnet-ipam-build-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        Package { folder }
    }

    fn put(&self, path: &str, content: &str) {
        let path = self.folder.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// The compiled build script.
    fn script(&self) -> PathBuf {
        let script = self.folder.join("script");
        if !script.exists() {
            let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or("rustc".into()));
            rustc.args(["--edition=2024", "-o"]).arg(&script);
            let built = output(rustc.arg(package().join("src/build.rs")));
            assert!(built.status.success(), "{built:?}");
        }
        script
    }

    /// Runs the script as cargo does, for the package in `folder`. Returns whether it succeeded, and its lines.
    fn run(&self, folder: &Path, commit: Option<&str>) -> (bool, Vec<String>) {
        let mut script = Command::new(self.script());
        script.env_clear().env("CARGO_MANIFEST_DIR", folder);
        script.env("TARGET", "some-linux-target");
        if let Some(commit) = commit {
            script.env("AZURE_VNET_IPAM_COMMIT", commit);
        }
        let output = output(&mut script);
        let text = String::from_utf8(output.stdout).unwrap();
        let lines = text.lines().map(str::to_owned).collect();
        (output.status.success(), lines)
    }
}

impl Drop for Package {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The commit among the lines of the script.
fn commit_in(lines: &[String]) -> &str {
    let mut commits = lines
        .iter()
        .filter_map(|line| line.strip_prefix("cargo::rustc-env=AZURE_VNET_IPAM_BUILD_COMMIT="));
    commits.next().unwrap()
}

/// The files for whose changes the script runs again.
fn watched(lines: &[String]) -> Vec<&str> {
    let files = lines
        .iter()
        .filter_map(|line| line.strip_prefix("cargo::rerun-if-changed="));
    files.filter(|file| *file != "src/build.rs").collect()
}

#[test]
#[ignore = "needs rustc"]
fn commit_comes_from_the_environment_or_the_repository() {
    const ONE: &str = "1111111111111111111111111111111111111111";
    const TWO: &str = "2222222222222222222222222222222222222222";
    let package = Package::new("commit");
    let folder = package.folder.as_path();
    let commit = |folder: &Path, given: Option<&str>| {
        let (is_success, lines) = package.run(folder, given);
        assert!(is_success, "{lines:?}");
        commit_in(&lines).to_owned()
    };
    assert_eq!(commit(folder, None), "unknown", "no repository");
    assert_eq!(commit(folder, Some("")), "unknown");
    assert_eq!(commit(folder, Some("abcdef0123")), "abcdef0");
    for wrong in ["abc", "abcdefg", "1234567\nrustc-link-arg=x"] {
        let (is_success, lines) = package.run(folder, Some(wrong));
        assert!(!is_success, "{wrong}: {lines:?}");
    }

    package.put(".git/HEAD", "ref: refs/heads/main\n");
    assert_eq!(commit(folder, None), "unknown", "no commit yet");
    package.put(
        ".git/packed-refs",
        &format!("# pack-refs\n{TWO} refs/heads/mainly\n{ONE} refs/heads/main\n^{TWO}\n"),
    );
    assert_eq!(commit(folder, None), "1111111");
    package.put(".git/refs/heads/main", &format!("{TWO}\n"));
    assert_eq!(commit(folder, None), "2222222", "newer than packed");
    assert_eq!(commit(folder, Some("abcdef0123")), "abcdef0");
    package.put(".git/worktrees/w/HEAD", "ref: refs/heads/side\n");
    package.put(".git/worktrees/w/commondir", "../..\n");
    package.put(".git/refs/heads/side", &format!("{ONE}\n"));
    let of_worktree = format!("gitdir: {}/.git/worktrees/w\n", folder.display());
    package.put("w/.git", &of_worktree);
    assert_eq!(commit(&folder.join("w"), None), "1111111", "a worktree");
    package.put(".git/HEAD", &format!("{ONE}\n"));
    assert_eq!(commit(folder, None), "1111111", "no branch");
    package.put(".git/HEAD", "nonsense\n");
    assert_eq!(commit(folder, None), "unknown");
}

#[test]
#[ignore = "needs rustc"]
fn build_script_watches_only_files_that_exist() {
    let package = Package::new("watch");
    let watched_now = |folder: &Path| {
        let (_, lines) = package.run(folder, None);
        let files = watched(&lines).into_iter();
        let files = files.map(|file| {
            assert!(
                Path::new(file).exists(),
                "{file}: cargo would run it every time"
            );
            let file = Path::new(file).strip_prefix(folder).unwrap();
            file.display().to_string()
        });
        files.collect::<Vec<_>>()
    };
    let folder = package.folder.as_path();
    assert_eq!(watched_now(folder), [""; 0]);
    package.put(".git/HEAD", "ref: refs/heads/topic/a\n");
    package.put(".git/refs/heads/main", "x");
    // The folder in which the file of the branch will appear.
    assert_eq!(watched_now(folder), [".git/HEAD", ".git/refs/heads"]);
    package.put(".git/packed-refs", "x");
    package.put(".git/refs/heads/topic/a", "x");
    assert_eq!(
        watched_now(folder),
        [".git/HEAD", ".git/packed-refs", ".git/refs/heads/topic/a"]
    );
}
