//! The executables that runtimes call for our networks: whether they are there, and whether ours answers.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::finding::{Finding, FindingKind};
use crate::host::{Paths, io_reason, read_up_to};
use crate::ops::node_config::{NodeConfig, Plugin};

const KIND: FindingKind = FindingKind::Executable;

/// The default plugin folder of runtimes.
const FOLDER: &str = "/opt/cni/bin";

/// The executables of the networks that name this plugin.
#[derive(Debug, Default)]
pub struct Executables {
    folder: PathBuf,
    /// The condition of each, by its name.
    found: BTreeMap<String, Condition>,
    /// The names under which this plugin is called.
    ours: Vec<String>,
}

/// The condition of an executable.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Condition {
    /// It is there, and answers if it is ours.
    Good,
    /// There is no such file.
    Missing,
    /// The mode does not let it be executed.
    NotExecutable(u32),
    /// It was called, and did not answer as a CNI plugin does.
    Silent(String),
}

impl Executables {
    /// Looks at the executables, and calls ours with VERSION, which changes nothing.
    pub fn look(paths: &Paths, config: &NodeConfig) -> Executables {
        let mut executables = Executables {
            folder: paths.under_root(FOLDER),
            ..Executables::default()
        };
        for (file, plugin) in config.ours(paths.name()) {
            let ours = our_kind(plugin).to_owned();
            if !executables.ours.contains(&ours) {
                executables.ours.push(ours.clone());
            }
            let others = file.conflist.iter().flat_map(|list| &list.plugins);
            let kinds = others.map(|plugin| plugin.kind.clone());
            for kind in kinds.chain([ours]).filter(|kind| is_file_name(kind)) {
                let path = executables.folder.join(&kind);
                let is_ours = executables.ours.contains(&kind);
                let condition = || look_at(&path, is_ours);
                executables.found.entry(kind).or_insert_with(condition);
            }
        }
        executables
    }

    /// Whether ours is in the folder. If not, the runtime may look for plugins elsewhere.
    fn is_in_use(&self) -> bool {
        let mut ours = self.ours.iter().filter_map(|name| self.found.get(name));
        ours.any(|condition| *condition != Condition::Missing)
    }

    /// Why an ADD through these plugins fails, if one of their executables makes it fail.
    pub fn failure<'a>(&self, plugins: impl Iterator<Item = &'a Plugin>) -> Option<String> {
        if !self.is_in_use() {
            return None;
        }
        let mut kinds = plugins.flat_map(|plugin| [&*plugin.kind, our_kind(plugin)]);
        kinds.find_map(|kind| {
            let condition = self.found.get(kind)?;
            describe(&self.folder.join(kind), condition)
        })
    }
}

/// The name of the executable: the type of `ipam`, or the plugin's own type.
fn our_kind(plugin: &Plugin) -> &str {
    plugin.ipam_kind.as_deref().unwrap_or(&plugin.kind)
}

fn is_file_name(kind: &str) -> bool {
    !kind.is_empty() && !kind.contains('/')
}

fn look_at(path: &Path, is_ours: bool) -> Condition {
    let Some(meta) = fs::metadata(path).ok().filter(fs::Metadata::is_file) else {
        return Condition::Missing;
    };
    let mode = meta.permissions().mode();
    if mode & 0o111 == 0 {
        return Condition::NotExecutable(mode & 0o7777);
    }
    match is_ours.then(|| ask_version(path)) {
        Some(Err(why)) => Condition::Silent(why),
        Some(Ok(())) | None => Condition::Good,
    }
}

/// Calls a plugin with VERSION.
fn ask_version(path: &Path) -> Result<(), String> {
    /// The most that the answer may take.
    const LIMIT: Duration = Duration::from_secs(2);
    const LONGEST: usize = 64 << 10;
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Answer {
        supported_versions: Vec<String>,
    }
    let mut child = Command::new(path)
        .env_clear()
        .env("CNI_COMMAND", "VERSION")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|e| format!("cannot be executed: {}", io_reason(&e)))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that does not read it may have ended already.
        let _ = stdin.write_all(br#"{"cniVersion":"1.0.0"}"#);
    }
    if !ends_within(&mut child, LIMIT) {
        let _ = child.kill();
        let _ = child.wait();
        return Err(format!(
            "does not answer VERSION within {} s",
            LIMIT.as_secs()
        ));
    }
    let stdout = child.stdout.take();
    let answer = stdout.and_then(|stdout| read_up_to(stdout, 256, LONGEST).ok());
    let answer: Option<Answer> = serde_json::from_slice(&answer.unwrap_or_default()).ok();
    match answer {
        Some(answer) if !answer.supported_versions.is_empty() => Ok(()),
        _ => Err("does not answer VERSION as a CNI plugin does".to_owned()),
    }
}

fn ends_within(child: &mut Child, limit: Duration) -> bool {
    let deadline = Instant::now() + limit;
    while Instant::now() < deadline {
        if !matches!(child.try_wait(), Ok(None)) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    false
}

/// Describes the problem of an executable.
fn describe(path: &Path, condition: &Condition) -> Option<String> {
    let shown = path.display();
    Some(match condition {
        Condition::Good => return None,
        Condition::Missing => format!("{shown} does not exist"),
        Condition::NotExecutable(mode) => format!("{shown} is not executable, mode {mode:04o}"),
        Condition::Silent(why) => format!("{shown} {why}"),
    })
}

/// Makes the findings about them.
pub fn examine(executables: &Executables) -> Vec<Finding> {
    let is_in_use = executables.is_in_use();
    let findings = executables.found.iter().filter_map(|(name, condition)| {
        let path = executables.folder.join(name);
        let is_ours = executables.ours.contains(name);
        match describe(&path, condition) {
            None => Some(Finding::ok(
                KIND,
                &format_args!("{} is there", path.display()),
            )),
            // Elsewhere, all of them may be there.
            Some(_) if !is_in_use && !is_ours => None,
            Some(text) => Some(problem(&path, condition, &text, is_in_use)),
        }
    });
    findings.collect()
}

fn problem(path: &Path, condition: &Condition, text: &str, is_in_use: bool) -> Finding {
    let shown = path.display().to_string();
    let finding = match condition {
        Condition::Missing if !is_in_use => Finding::warning(
            KIND,
            &text,
            &"install it there, unless the runtime looks for plugins elsewhere",
        ),
        Condition::Missing => Finding::error(
            KIND,
            &format_args!("{text}, so every ADD of its network fails"),
            &"install that plugin, or correct the type in the network configuration",
        ),
        Condition::NotExecutable(_) => Finding::error(KIND, &text, &"make it executable:")
            .with_commands([format!("sudo chmod 755 {shown}")]),
        Condition::Good | Condition::Silent(_) => Finding::error(
            KIND,
            &text,
            &"another program stands there, or it is damaged: install this plugin again",
        ),
    };
    finding.about(shown)
}

#[cfg(test)]
mod tests {
    use super::super::finding::Severity;
    use super::*;

    fn with(conditions: &[(&str, Condition)]) -> Executables {
        Executables {
            folder: FOLDER.into(),
            found: conditions
                .iter()
                .map(|(n, c)| ((*n).to_owned(), c.clone()))
                .collect(),
            ours: vec!["azure-vnet-ipam".to_owned()],
        }
    }

    #[test]
    fn a_missing_main_plugin_is_an_error_only_where_ours_is_there() {
        let missing = ("bridge", Condition::Missing);
        let found = examine(&with(&[
            ("azure-vnet-ipam", Condition::Good),
            missing.clone(),
        ]));
        let severities: Vec<_> = found.iter().map(|f| f.severity).collect();
        assert_eq!(severities, [Severity::Ok, Severity::Error]);
        let found = examine(&with(&[("azure-vnet-ipam", Condition::Missing), missing]));
        let severities: Vec<_> = found.iter().map(|f| f.severity).collect();
        assert_eq!(severities, [Severity::Warning]);
    }

    #[test]
    fn a_program_that_is_no_plugin_is_seen_through() {
        assert_eq!(look_at(Path::new("/bin/true"), false), Condition::Good);
        let silent = look_at(Path::new("/bin/true"), true);
        let Condition::Silent(why) = &silent else {
            panic!("{silent:?}");
        };
        assert!(why.contains("does not answer VERSION"), "{why}");
        let found = examine(&with(&[("azure-vnet-ipam", silent)]));
        assert_eq!(found[0].severity, Severity::Error);
        assert_eq!(look_at(Path::new("/nonexistent"), true), Condition::Missing);
        let plain = look_at(Path::new("/etc/passwd"), true);
        assert!(matches!(plain, Condition::NotExecutable(_)), "{plain:?}");
    }

    #[test]
    fn a_program_that_hangs_does_not_stop_the_report() {
        // It fills its pipe and waits for a reader.
        let silent = look_at(Path::new("/usr/bin/yes"), true);
        let Condition::Silent(why) = silent else {
            panic!("{silent:?}");
        };
        assert!(why.contains("within 2 s"), "{why}");
    }
}
