//! Checks that the README and the reference page show what the program does.

use std::fs;
use std::process::Command;

use azure_vnet_ipam::cni::{NETWORK_CONFIG_KEYS, ipam_keys};
use serde_json::Value;

use crate::callers::examples;
use crate::harness::wait::output;
use crate::harness::{Node, Reply, binary, package, rust_files, xml};

fn readme() -> String {
    fs::read_to_string(package().join("README.md")).unwrap()
}

/// The page that documents every key, argument, error, JSON document and metric.
fn reference() -> String {
    fs::read_to_string(package().join(".github/REFERENCE.md")).unwrap()
}

/// The section of a page with this heading, up to the next heading of the same level.
pub fn section(page: &str, heading: &str) -> String {
    let mark = format!("\n{heading}\n");
    let (_, after) = page
        .split_once(&mark)
        .unwrap_or_else(|| panic!("no {heading}"));
    let level = heading.split(' ').next().unwrap();
    after
        .split(&format!("\n{level} "))
        .next()
        .unwrap()
        .to_owned()
}

/// The first fenced block after this text.
fn block_after(mark: &str) -> String {
    let readme = readme();
    let (_, after) = readme
        .split_once(mark)
        .unwrap_or_else(|| panic!("no {mark}"));
    let mut parts = after.split("```");
    let block = parts.nth(1).unwrap();
    block.split_once('\n').unwrap().1.to_owned()
}

/// Replaces numbers that vary between runs.
fn without_volatile_numbers(text: &str) -> String {
    let words = text.split_inclusive([' ', '\n']).map(|word| {
        let age = word.trim_end();
        let seconds = age.strip_suffix('s').unwrap_or("");
        let is_age = !seconds.is_empty() && seconds.chars().all(|c| c.is_ascii_digit());
        if is_age {
            word.replace(age, "AGE")
        } else {
            word.to_owned()
        }
    });
    words.collect()
}

#[test]
fn try_script_prints_what_the_readme_shows() {
    let mut command = Command::new("sh");
    let command = command.arg(package().join("tests/try.sh"));
    let output = output(command.env("BIN", binary()));
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(
        without_volatile_numbers(&printed),
        without_volatile_numbers(&block_after("<!-- printed by tests/try.sh -->"))
    );
}

#[test]
fn conflist_in_readme_is_the_shipped_one() {
    let shown: Value =
        serde_json::from_str(&block_after("<!-- conflist-examples/ptp.conflist -->")).unwrap();
    let shipped = examples()
        .into_iter()
        .find(|(name, _)| name == "ptp")
        .unwrap()
        .1;
    assert_eq!(shown, shipped);
    let listed = fs::read_to_string(package().join("conflist-examples/README.md")).unwrap();
    for (name, _) in examples() {
        assert!(
            listed.contains(&format!("`{name}.conflist`")),
            "{name} is not listed"
        );
    }
}

#[test]
fn every_difference_of_a_case_is_explained() {
    let page = package().join("testdata/recorded/differences.md");
    let differences = fs::read_to_string(page).unwrap();
    let listed = fs::read_to_string(package().join("testdata/recorded/deviations.txt")).unwrap();
    for line in listed
        .lines()
        .filter(|l| !l.starts_with('#') && !l.is_empty())
    {
        let code = line.split_whitespace().nth(1).unwrap();
        assert!(
            differences.contains(&format!("**{code}** ")),
            "{code} is not explained"
        );
    }
}

#[test]
fn every_configuration_key_is_documented() {
    let reference = reference();
    let keys = NETWORK_CONFIG_KEYS.iter().copied().chain(ipam_keys());
    let keys: Vec<_> = keys.collect();
    assert!(keys.len() > 20, "{keys:?}");
    for key in keys {
        let documented = [
            format!("`{key}`"),
            format!("`ipam.{key}`"),
            format!("`{key}."),
        ];
        assert!(
            documented.iter().any(|d| reference.contains(d)),
            "{key} is not documented"
        );
    }
}

#[test]
fn every_command_and_metric_is_documented() {
    let (node, _wire) = Node::with_wire("figures", Reply::Xml(xml([5])));
    node.add("c1").success();
    node.call("BAD", "c1").run().error();
    let printed = |arg: &str| {
        let call = node.call("", "").without("CNI_COMMAND").arg(arg);
        call.run().success().stdout.clone()
    };
    let listing = section(&readme(), "## Commands");
    let described = section(&reference(), "### Metrics");
    let help = printed("--help");
    let commands = help.split("\nCommands:\n").nth(1).unwrap().lines();
    let commands = commands.take_while(|line| !line.is_empty());
    let commands = commands.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    for name in commands.filter(|name| !name.is_empty()) {
        let listed = [" ", "`"].map(|end| format!("`{name}{end}"));
        assert!(listed.iter().any(|l| listing.contains(l)), "{name}");
    }
    let metrics = printed("metrics");
    let figures = metrics
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE azure_vnet_ipam_"));
    let figures: Vec<_> = figures.filter_map(|line| line.split_once(' ')).collect();
    assert!(figures.len() > 10, "{metrics}");
    for (name, kind) in figures {
        assert!(
            described.contains(&format!("| `{name}` | {kind} |")),
            "{name}"
        );
    }
}

#[test]
fn documented_search_words_are_logged() {
    let page = fs::read_to_string(package().join(".github/BEHAVIOR.md")).unwrap();
    let (_, rest) = page
        .split_once("grep -E '")
        .expect("a command that searches the log");
    let words: Vec<_> = rest.split('\'').next().unwrap().split('|').collect();
    assert!(words.len() > 3, "{words:?}");
    let files = rust_files(&package().join("src"));
    let texts = files.iter().map(|file| fs::read_to_string(file).unwrap());
    let logging: String = texts
        .filter(|text| text.contains("target: \"ipam\""))
        .collect();
    let messages: Vec<_> = logging.split('"').skip(1).step_by(2).collect();
    for word in words {
        assert!(
            messages.iter().any(|message| message.contains(word)),
            "{word}"
        );
    }
}
