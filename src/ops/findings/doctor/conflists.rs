//! The network configurations that name this plugin, and its executable.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::diagnostic::{Diagnostic, Subject, Visibility};
use crate::cni::Defaults;
use crate::host::Paths;
use crate::ops::node_config::{ConfFile, NodeConfig, Plugin};
use crate::plugin::settings;

const SUBJECT: Subject = Subject::Conflist;

/// The default plugin folder of runtimes.
const FOLDER: &str = "/opt/cni/bin";

/// Examines them.
pub fn examine(paths: &Paths, config: &NodeConfig, visibility: &mut Visibility) -> Vec<Diagnostic> {
    let (defaults, _) = settings::read(&paths.settings());
    let mut lines = conflists(
        config,
        paths.name(),
        &paths.conf_folder(),
        &defaults,
        visibility,
    );
    let mut kinds: Vec<&str> = Vec::new();
    for (_, plugin) in config.ours(paths.name()) {
        let kind = our_kind(plugin);
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    for kind in kinds {
        let path = paths.under_root(FOLDER).join(kind);
        let file = fs::metadata(&path).ok().filter(|meta| meta.is_file());
        lines.push(executable(&path, file.map(|m| m.permissions().mode())));
    }
    lines
}

/// The name of the executable: the type of `ipam`, or the plugin's own type.
fn our_kind(plugin: &Plugin) -> &str {
    plugin.ipam_kind.as_deref().unwrap_or(&plugin.kind)
}

fn conflists(
    config: &NodeConfig,
    name: &str,
    folder: &Path,
    defaults: &Defaults,
    visibility: &mut Visibility,
) -> Vec<Diagnostic> {
    let mut lines = Vec::new();
    let broken = config.files.iter().filter_map(|file| {
        let why = file.conflist.as_ref().err()?;
        Some((&*file.path, why))
    });
    let of_folder = config.unreadable.iter().map(|why| (folder, why));
    let mut is_known = true;
    for (path, why) in of_folder.chain(broken) {
        let shown = path.display().to_string();
        if visibility.hides(&shown, why) {
            is_known = false;
            continue;
        }
        let remedy =
            format_args!("correct it or remove it; `python3 -m json.tool {shown}` shows where");
        lines.push(Diagnostic::wrong(
            SUBJECT,
            &format_args!("{shown}: {why}"),
            &remedy,
        ));
    }
    let ours: Vec<_> = config.ours(name).collect();
    for (file, plugin) in &ours {
        lines.extend(ours_in(file, plugin, defaults));
    }
    let is_ours = |file: &ConfFile| ours.iter().any(|(ours, _)| ours.path == file.path);
    match (config.files.first(), ours.first()) {
        (_, None) if is_known => lines.push(Diagnostic::warning(
            SUBJECT,
            &format_args!("none in {} names {name}", folder.display()),
            &format_args!(
                "put one there whose ipam has \"type\": \"{name}\", if this node is to use it"
            ),
        )),
        (Some(first), Some((file, _))) if !is_ours(first) => lines.push(not_first(file, first)),
        _ => {}
    }
    lines
}

/// Examines a plugin that uses this one.
fn ours_in(file: &ConfFile, plugin: &Plugin, defaults: &Defaults) -> Vec<Diagnostic> {
    let shown = file.path.display();
    if let Err(why) = plugin.validate(defaults) {
        let remedy = format_args!("correct {shown}: every ADD fails with this message");
        return vec![Diagnostic::wrong(
            SUBJECT,
            &format_args!("{shown}: {why}"),
            &remedy,
        )];
    }
    let list = file.conflist.as_ref().ok();
    let name = list.and_then(|list| list.name.as_deref());
    let version = list.and_then(|list| list.cni_version.as_deref());
    let kind = match &*plugin.kind {
        "" => "a plugin without type",
        kind => kind,
    };
    let text = format_args!(
        "{shown}: network {}, plugin {kind}",
        name.unwrap_or_default()
    );
    match version.filter(|version| !version.is_empty()) {
        Some(version) => vec![Diagnostic::ok(
            SUBJECT,
            &format_args!("{text}, CNI {version}"),
        )],
        None => vec![Diagnostic::warning(
            SUBJECT,
            &format_args!("{text}, without cniVersion, which means 0.2.0"),
            &format_args!("add \"cniVersion\": \"1.0.0\" to {shown}"),
        )],
    }
}

/// Runtimes such as containerd only use the first configuration.
fn not_first(file: &ConfFile, first: &ConfFile) -> Diagnostic {
    let (shown, first) = (file.path.display(), first.path.display());
    Diagnostic::warning(
        SUBJECT,
        &format_args!("{shown} is not the first by name, {first} is: many runtimes use that alone"),
        &format_args!(
            "unless {first} leads to it, as multus does, remove that or give {shown} a name before it"
        ),
    )
}

fn executable(path: &Path, mode: Option<u32>) -> Diagnostic {
    let shown = path.display();
    match mode {
        None => Diagnostic::warning(
            Subject::Executable,
            &format_args!("{shown} does not exist"),
            &"install it there, unless the runtime looks for plugins elsewhere",
        ),
        Some(mode) if mode & 0o111 == 0 => Diagnostic::wrong(
            Subject::Executable,
            &format_args!("{shown} is not executable, mode {:04o}", mode & 0o7777),
            &format_args!("chmod 755 {shown}"),
        ),
        Some(_) => Diagnostic::ok(Subject::Executable, &format_args!("{shown} is there")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::diagnostic::Status;
    use super::*;
    use crate::ops::node_config::parse;

    const GOOD: &str = r#"{"cniVersion":"1.0.0","name":"azure","plugins":[{"type":"bridge","ipam":{"type":"azure-vnet-ipam"}}]}"#;

    fn lines_of(files: &[(&str, &str)]) -> Vec<Diagnostic> {
        let file = |(path, text): &(&str, &str)| ConfFile {
            path: path.into(),
            conflist: parse(text.as_bytes()),
        };
        let config = NodeConfig {
            files: files.iter().map(file).collect(),
            ..NodeConfig::default()
        };
        conflists(
            &config,
            "azure-vnet-ipam",
            Path::new("/etc/cni/net.d"),
            &Defaults::default(),
            &mut Visibility::new(true),
        )
    }

    #[test]
    fn a_valid_conflist_is_ok() {
        let lines = lines_of(&[("/a.conflist", GOOD)]);
        assert_eq!(lines.len(), 1);
        assert_eq!(lines[0].status, Status::Ok);
        assert_eq!(
            lines[0].text,
            "/a.conflist: network azure, plugin bridge, CNI 1.0.0"
        );
    }

    #[test]
    fn an_invalid_conflist_is_reported_as_an_add_would_fail() {
        let noname = GOOD.replace("\"name\":\"azure\",", "");
        let norest = GOOD.replace(
            "{\"type\":\"azure-vnet-ipam\"",
            "{\"rest\":\"x\",\"type\":\"azure-vnet-ipam\"",
        );
        let noversion = GOOD.replace("\"cniVersion\":\"1.0.0\",", "");
        let old = GOOD.replace("1.0.0", "9.9.9");
        for (text, status, words, remedy) in [
            (
                &*noname,
                Status::Wrong,
                "missing network name",
                "correct /a",
            ),
            (&*norest, Status::Wrong, "rest", "correct /a"),
            (
                &*old,
                Status::Wrong,
                "incompatible CNI versions",
                "correct /a",
            ),
            (&*noversion, Status::Warning, "without cniVersion", "add"),
            ("{", Status::Wrong, "EOF", "json.tool /a"),
            ("{}", Status::Warning, "none in /etc/cni/net.d", "put one"),
        ] {
            let lines = lines_of(&[("/a", text)]);
            let found = lines
                .iter()
                .find(|line| line.text.contains(words))
                .unwrap_or_else(|| panic!("{text}: {lines:?}"));
            assert_eq!(found.status, status, "{found:?}");
            assert!(found.remedy.as_ref().unwrap().contains(remedy), "{found:?}");
        }
    }

    #[test]
    fn a_conflist_that_comes_first_is_named() {
        let other = r#"{"cniVersion":"1.0.0","name":"x","type":"ptp"}"#;
        let lines = lines_of(&[("/05-x.conf", other), ("/10-a.conflist", GOOD)]);
        let line = lines.last().unwrap();
        assert_eq!(line.status, Status::Warning);
        assert!(line.text.contains("/05-x.conf is"), "{line:?}");
        let lines = lines_of(&[("/05.conflist", GOOD), ("/10.conf", other)]);
        assert!(lines.iter().all(|line| line.status == Status::Ok));
    }

    #[test]
    fn the_executable_must_be_executable() {
        let path = Path::new("/opt/cni/bin/azure-vnet-ipam");
        let status = |mode| executable(path, mode).status;
        assert_eq!(status(None), Status::Warning);
        assert_eq!(status(Some(0o100_644)), Status::Wrong);
        assert_eq!(status(Some(0o100_755)), Status::Ok);
    }
}
