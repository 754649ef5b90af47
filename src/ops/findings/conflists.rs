//! The network configurations that name this plugin.

use super::finding::{Finding, FindingKind};
use super::visibility::Visibility;
use crate::cni::IPAM_KEYS;
use crate::codec::is;
use crate::failure::Failure;
use crate::host::Paths;
use crate::ops::node_config::{ConfFile, NodeConfig, Plugin};
use crate::ops::tree::Tree;

const KIND: FindingKind = FindingKind::Conflist;

/// Examines them.
pub fn examine(paths: &Paths, config: &NodeConfig, visibility: &mut Visibility) -> Vec<Finding> {
    let (name, folder) = (paths.name(), paths.conf_folder());
    let mut lines = Vec::new();
    let broken = config.files.iter().filter_map(|file| {
        let why = file.conflist.as_ref().err()?;
        Some((&*file.path, why))
    });
    let of_folder = config.unreadable.iter().map(|why| (&*folder, why));
    let mut is_known = true;
    for (path, why) in of_folder.chain(broken) {
        let shown = path.display().to_string();
        // It may be the one that names this plugin.
        is_known = false;
        if visibility.hides(&shown, why) {
            continue;
        }
        let remedy = format_args!("runtimes cannot read it either: correct it or remove it");
        lines.push(Finding::error(KIND, &format_args!("{why}"), &remedy).about(shown));
    }
    let ours: Vec<_> = config.ours(name).collect();
    for (file, plugin) in &ours {
        lines.extend(ours_in(file, plugin, config, paths));
    }
    let is_ours = |file: &ConfFile| ours.iter().any(|(ours, _)| ours.path == file.path);
    match (config.files.first(), ours.first()) {
        (_, None) if is_known => lines.push(
            Finding::warning(
                KIND,
                &format_args!("none in {} names {name}", folder.display()),
                &format_args!(
                    "put one there whose ipam has \"type\": \"{name}\", if this node is to use it"
                ),
            )
            .about(folder.display()),
        ),
        (Some(first), Some((file, _))) if !is_ours(first) => lines.push(not_first(file, first)),
        _ => {}
    }
    lines
}

/// Examines a plugin that uses this one.
fn ours_in(file: &ConfFile, plugin: &Plugin, config: &NodeConfig, paths: &Paths) -> Vec<Finding> {
    let shown = file.path.display();
    if let Err(error) = plugin.parse_call(&config.defaults) {
        let error = Failure::from(error).to_cni(paths.name());
        let text = format_args!("every ADD fails: {}", error.msg);
        let remedy = format_args!("correct {shown}: {}", error.details);
        return vec![Finding::error(KIND, &text, &remedy).about(&shown)];
    }
    let mut lines = misspelt_keys(plugin, &shown.to_string());
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
        Some(version) => lines.push(Finding::ok(KIND, &format_args!("{text}, CNI {version}"))),
        None => lines.push(Finding::note(
            KIND,
            &format_args!("{text}, without cniVersion, which means 0.2.0"),
            &format_args!("add \"cniVersion\": \"1.0.0\" to {shown}"),
        )),
    }
    lines
}

/// Runtimes such as containerd only use the first configuration.
fn not_first(file: &ConfFile, first: &ConfFile) -> Finding {
    let (shown, first) = (file.path.display(), first.path.display());
    Finding::warning(
        KIND,
        &format_args!("{shown} is not the first by name, {first} is: many runtimes use that alone"),
        &format_args!(
            "unless {first} leads to it, as multus does, remove that or give {shown} a name before it"
        ),
    )
    .about(&shown)
}

/// Keys of `ipam` that nobody reads, and that are spelt almost like one that this plugin reads.
fn misspelt_keys(plugin: &Plugin, shown: &str) -> Vec<Finding> {
    let Some(Tree::Object(members)) = plugin.netconf.get("ipam") else {
        return Vec::new();
    };
    let is_known = |key: &str| IPAM_KEYS.iter().any(|known| is(key, known));
    let unknown = members
        .iter()
        .map(|(key, _)| key)
        .filter(|key| !is_known(key));
    let findings = unknown.filter_map(|key| {
        let known = IPAM_KEYS.iter().find(|known| is_near(key, known))?;
        let text = format!("ipam.{key} is not a key of this plugin, so it has no effect");
        let remedy = format!("if ipam.{known} is meant, correct it in {shown}");
        Some(Finding::warning(KIND, &text, &remedy).about(shown))
    });
    findings.collect()
}

/// Whether a word is probably a misspelling of another.
fn is_near(word: &str, known: &str) -> bool {
    let distance = strsim::damerau_levenshtein(&word.to_lowercase(), &known.to_lowercase());
    distance <= (known.len() / 3).min(2)
}

#[cfg(test)]
mod tests {
    use super::super::finding::Severity;
    use super::*;
    use crate::ops::node_config::parse;

    const GOOD: &str = r#"{"cniVersion":"1.0.0","name":"azure","plugins":[{"type":"bridge","ipam":{"type":"azure-vnet-ipam"}}]}"#;

    fn lines_of(files: &[(&str, &str)]) -> Vec<Finding> {
        let file = |(path, text): &(&str, &str)| ConfFile {
            path: path.into(),
            conflist: parse(text.as_bytes()),
        };
        let config = NodeConfig {
            files: files.iter().map(file).collect(),
            ..NodeConfig::default()
        };
        let paths = Paths::new(None, "azure-vnet-ipam");
        examine(&paths, &config, &mut Visibility::new(true))
    }

    #[test]
    fn a_valid_conflist_is_ok() {
        let lines = lines_of(&[("/a.conflist", GOOD)]);
        assert_eq!(lines.len(), 1);
        assert_eq!(lines[0].severity, Severity::Ok);
        assert_eq!(
            lines[0].text,
            "/a.conflist: network azure, plugin bridge, CNI 1.0.0"
        );
    }

    #[test]
    fn an_invalid_conflist_is_reported_as_an_add_would_fail() {
        let noname = GOOD.replace("\"name\":\"azure\",", "");
        let nocooldown = GOOD.replace(
            "{\"type\":\"azure-vnet-ipam\"",
            "{\"cooldown\":\"x\",\"type\":\"azure-vnet-ipam\"",
        );
        let noversion = GOOD.replace("\"cniVersion\":\"1.0.0\",", "");
        let old = GOOD.replace("1.0.0", "9.9.9");
        for (text, status, words, remedy) in [
            (
                &*noname,
                Severity::Error,
                "missing network name",
                "correct /a",
            ),
            (&*nocooldown, Severity::Error, "cooldown", "correct /a"),
            (
                &*old,
                Severity::Error,
                "incompatible CNI versions",
                "correct /a",
            ),
            (&*noversion, Severity::Note, "without cniVersion", "add"),
            ("{", Severity::Error, "EOF", "correct it"),
            ("{}", Severity::Warning, "none in /etc/cni/net.d", "put one"),
        ] {
            let lines = lines_of(&[("/a", text)]);
            let found = lines
                .iter()
                .find(|line| line.text.contains(words))
                .unwrap_or_else(|| panic!("{text}: {lines:?}"));
            assert_eq!(found.severity, status, "{found:?}");
            assert!(found.remedy.contains(remedy), "{found:?}");
        }
    }

    #[test]
    fn a_conflist_that_comes_first_is_named() {
        let other = r#"{"cniVersion":"1.0.0","name":"x","type":"ptp"}"#;
        let lines = lines_of(&[("/05-x.conf", other), ("/10-a.conflist", GOOD)]);
        let line = lines.last().unwrap();
        assert_eq!(line.severity, Severity::Warning);
        assert!(line.text.contains("/05-x.conf is"), "{line:?}");
        let lines = lines_of(&[("/05.conflist", GOOD), ("/10.conf", other)]);
        assert!(lines.iter().all(|line| line.severity == Severity::Ok));
    }

    #[test]
    fn a_misspelt_key_is_reported_with_the_right_one() {
        let lines = |key: &str| {
            let ipam = format!("{{\"{key}\":[],\"type\":\"azure-vnet-ipam\"");
            let text = GOOD.replace("{\"type\":\"azure-vnet-ipam\"", &ipam);
            lines_of(&[("/a", &text)])
        };
        let found = lines("exlude");
        assert_eq!(found[0].severity, Severity::Warning);
        assert!(found[0].remedy.contains("ipam.exclude"), "{found:?}");
        for key in ["exclude", "Exclude", "mode", "podCIDR"] {
            assert_eq!(lines(key).len(), 1, "{key}");
        }
    }
}
