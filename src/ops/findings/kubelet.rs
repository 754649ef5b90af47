//! How many pods kubelet allows on this node.

use std::fs;
use std::path::{Path, PathBuf};

use crate::host::{Paths, read_text};

/// kubelet's own default.
const DEFAULT: usize = 110;

/// Reads the limit of pods from the command line of a running kubelet, or else from its configuration. `None` where no kubelet is to be
/// seen.
pub fn max_pods(paths: &Paths) -> Option<usize> {
    let is_kubelet = |process: &PathBuf| {
        read_text(&process.join("comm")).is_ok_and(|name| name.trim() == "kubelet")
    };
    let kubelet = fs::read_dir(paths.processes())
        .ok()?
        .flatten()
        .map(|entry| entry.path())
        .find(is_kubelet)?;
    let command_line = read_text(&kubelet.join("cmdline")).ok()?;
    let words: Vec<&str> = command_line.split('\0').collect();
    if let Some(given) = option(&words, "--max-pods") {
        return given.parse().ok();
    }
    let on_node = |path: &str| kubelet.join("root").join(path.trim_start_matches('/'));
    // The files in the folder override the file, the last one by name first.
    let mut files: Vec<PathBuf> = Vec::new();
    files.extend(option(&words, "--config").map(on_node));
    if let Some(folder) = option(&words, "--config-dir").map(on_node) {
        files.extend(list(&folder));
    }
    let configured = files
        .iter()
        .rev()
        .find_map(|file| parse_max_pods(&read_text(file).ok()?));
    Some(configured.unwrap_or(DEFAULT))
}

/// Lists the files of a folder that kubelet reads, by name.
fn list(folder: &Path) -> Vec<PathBuf> {
    let is_read = |file: &PathBuf| file.extension().is_some_and(|end| end == "conf");
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_read).collect();
    files.sort_unstable();
    files
}

/// The value of an option, in either form.
fn option<'a>(words: &[&'a str], name: &str) -> Option<&'a str> {
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        match word.strip_prefix(name) {
            Some("") => return rest.next().copied(),
            Some(value) if value.starts_with('=') => return value.get(1..),
            _ => {}
        }
    }
    None
}

/// Finds `maxPods` in a configuration in YAML or JSON: at the beginning of a line, or quoted.
fn parse_max_pods(text: &str) -> Option<usize> {
    let behind_key = |line| {
        let quoted = || str::split_once(line, "\"maxPods\"").map(|(_, behind)| behind);
        str::strip_prefix(line, "maxPods").or_else(quoted)
    };
    let value = text
        .lines()
        .map(str::trim_start)
        .filter(|line| !line.starts_with('#'))
        .find_map(behind_key)?
        .trim_start_matches(['"', '\'', ' ', ':', '\t']);
    let digits = value.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cni::NAME;

    #[test]
    fn the_command_line_goes_before_the_configuration() {
        let root = std::env::temp_dir().join(format!("max-pods-{}", std::process::id()));
        let kubelet = root.join("proc/77");
        fs::create_dir_all(kubelet.join("root/etc/conf.d")).unwrap();
        fs::write(kubelet.join("comm"), "kubelet\n").unwrap();
        fs::write(
            kubelet.join("root/etc/kubelet.yaml"),
            "kind: KubeletConfiguration\n# maxPods: 250\nmaxPods: 30\n",
        )
        .unwrap();
        fs::write(kubelet.join("root/etc/conf.d/90.conf.bak"), "maxPods: 90\n").unwrap();
        fs::write(
            kubelet.join("root/etc/conf.d/10.conf"),
            r#"{"maxPods": 40, "x": 1}"#,
        )
        .unwrap();
        let paths = Paths::new(Some(root.clone()), NAME);
        for (command_line, expected) in [
            ("kubelet\0--max-pods=31\0--config=/etc/kubelet.yaml\0", 31),
            ("kubelet\0--max-pods\x0032\0", 32),
            ("kubelet\0--config=/etc/kubelet.yaml\0", 30),
            (
                "kubelet\0--config\0/etc/kubelet.yaml\0--config-dir=/etc/conf.d\0",
                40,
            ),
            ("kubelet\0", DEFAULT),
        ] {
            fs::write(kubelet.join("cmdline"), command_line).unwrap();
            assert_eq!(max_pods(&paths), Some(expected), "{command_line:?}");
        }
        fs::write(kubelet.join("comm"), "other\n").unwrap();
        assert_eq!(max_pods(&paths), None);
        fs::remove_dir_all(root).unwrap();
    }
}
