//! The build script: puts the commit and the target into the executable, for `--version` and the
//! metrics, and names the linker script of the static executable.
//!
//! The commit is AZURE_VNET_IPAM_COMMIT or that of the repository; without both it is "unknown".
//! Nothing else about the machine or the time goes into the executable, so that builds are
//! reproducible. Cargo runs the script again only when it, the linker script, the variable or the
//! checked out commit changes. No git is needed.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The variable that names the commit where there is no repository, such as in an unpacked archive.
const VARIABLE: &str = "AZURE_VNET_IPAM_COMMIT";

const UNKNOWN: &str = "unknown";

/// The length of a short commit: as many digits as git shows by default.
const DIGITS: usize = 7;

fn main() -> ExitCode {
    // Without a line like this one, cargo runs the script after every change in the package.
    tell_cargo("rerun-if-changed=src/build.rs");
    tell_cargo(&format!("rerun-if-env-changed={VARIABLE}"));
    tell_cargo("rerun-if-changed=src/static.ld");
    if env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|libc| libc == "musl") {
        tell_cargo("rustc-link-arg-bins=-Wl,-T,src/static.ld");
    }
    let from_variable = env::var(VARIABLE).unwrap_or_default();
    let commit = if from_variable.is_empty() {
        let package = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
        let (checked_out, watched) = commit_of_repository(&package.join(".git"));
        for path in watched.iter().filter(|path| path.exists()) {
            tell_cargo(&format!("rerun-if-changed={}", path.display()));
        }
        checked_out.unwrap_or_else(|| UNKNOWN.to_owned())
    } else if is_commit(&from_variable) {
        from_variable
    } else {
        tell_cargo(&format!(
            "error={VARIABLE} is not a valid commit: {from_variable:?}; it must have 7 to 64 hexadecimal digits"
        ));
        return ExitCode::FAILURE;
    };
    let short = commit.get(..DIGITS).unwrap_or(&commit);
    let target = env::var("TARGET").unwrap_or_else(|_| UNKNOWN.to_owned());
    let tls = env::var("CARGO_FEATURE_TLS").map_or("", |_| ", tls");
    let version = env!("CARGO_PKG_VERSION");
    let line = format!("{version} (commit {short}, {target}{tls})");
    for (name, value) in [("COMMIT", short), ("TARGET", &target), ("LINE", &line)] {
        tell_cargo(&format!("rustc-env=AZURE_VNET_IPAM_BUILD_{name}={value}"));
    }
    ExitCode::SUCCESS
}

#[allow(
    clippy::print_stdout,
    reason = "it is how a build script speaks to cargo"
)]
fn tell_cargo(line: &str) {
    println!("cargo::{line}");
}

fn is_commit(text: &str) -> bool {
    (DIGITS..=64).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit())
}

/// Returns the commit that is checked out, and the files that change when another one is. `git` is
/// the folder `.git`, or the file that names the folder of a worktree.
fn commit_of_repository(git: &Path) -> (Option<String>, Vec<PathBuf>) {
    // Only a worktree has a file here. Where `.git` is a folder, reading it fails.
    let first_line = read_line(git).unwrap_or_default();
    let folder = match first_line.strip_prefix("gitdir: ") {
        Some(folder_of_worktree) => git.with_file_name("").join(folder_of_worktree),
        None => git.to_owned(),
    };
    let head = folder.join("HEAD");
    let Some(content) = read_line(&head) else {
        return (None, Vec::new());
    };
    let Some(name) = content.strip_prefix("ref: ") else {
        return (Some(content).filter(|text| is_commit(text)), vec![head]);
    };
    // A worktree shares the branches with the repository.
    let common = match read_line(&folder.join("commondir")) {
        Some(common) => folder.join(common),
        None => folder,
    };
    let branch = common.join(name);
    let packed = common.join("packed-refs");
    let commit = read_line(&branch).or_else(|| packed_commit(&packed, name));
    // A branch that is only in packed-refs gets its own file with the next commit. Until then,
    // the nearest folder is watched.
    let nearest = branch.ancestors().find(|path| path.exists());
    let watched = vec![head, packed, nearest.unwrap_or(&common).to_owned()];
    (commit.filter(|text| is_commit(text)), watched)
}

/// Returns the commit of a branch in `packed-refs`. Its lines have the form `COMMIT NAME`.
fn packed_commit(packed: &Path, name: &str) -> Option<String> {
    let text = fs::read_to_string(packed).ok()?;
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    let (commit, _) = lines.find(|(_, branch)| *branch == name)?;
    Some(commit.to_owned())
}

/// Returns the first line of a file.
fn read_line(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    text.lines().next().map(|line| line.trim().to_owned())
}
