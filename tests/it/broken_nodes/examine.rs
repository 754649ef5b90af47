//! What is examined on a broken node: the report, its screen, the predicted ADD, and the commands that `check` printed.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Output};
use std::sync::OnceLock;

use serde_json::{Value, json};

use super::{Add, Row};
use crate::harness::package;
use crate::harness::wait::output;

/// The name of the plugin that this process looks at: it examines one row.
static PROGRAM: OnceLock<&str> = OnceLock::new();

/// Runs a command as an operator would. `azure-vnet-ipam` is always ours, whatever stands in the folder of plugins.
pub fn run_command(line: &str) -> Output {
    let ours = "azure-vnet-ipam() { $OURS \"$@\"; }; export -f azure-vnet-ipam; ";
    let mut bash = Command::new("bash");
    let program = PROGRAM.get().copied().unwrap_or("azure-vnet-ipam");
    bash.env("OURS", format!("/run/broken-node/bin/{program}"));
    bash.env("PLUGIN", program);
    bash.env("REPOSITORY", package());
    output(bash.args(["-c", &format!("{ours}{line}")]))
}

/// Runs a command whose exit status does not matter, and returns its stdout.
pub fn stdout_of(line: &str) -> String {
    String::from_utf8_lossy(&run_command(line).stdout).into_owned()
}

/// Pod to address, as the kernel has them.
fn running_pods() -> BTreeMap<String, String> {
    let line = "for pod in $(ip netns list | cut -d ' ' -f 1); do ip -n $pod -o -4 address show dev eth0 | sed \"s|.*inet \\([^/]*\\)/.*|$pod \\1|\"; done";
    let text = stdout_of(line);
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    lines.map(|(p, a)| (p.to_owned(), a.to_owned())).collect()
}

/// The own address of the host, the state of its link, its default route, and the way to the wire server. The kernel marks the
/// routes of a bridge without ports a moment later.
fn host_network() -> String {
    stdout_of(
        "ip -o -4 address show dev eth0 | grep -ow 10.224.0.4/16; ip -o link show dev eth0 | grep -ow UP; ip route show default | sed -n 's/ linkdown//; / dev /p'; ip route show 168.63.129.16 dev wire0; ip rule",
    )
}

/// Runs `check` this much later. Returns its report for programs.
pub fn check(later: u32) -> (Value, Option<i32>) {
    let output = run_command(&format!("later {later} $OURS check --json"));
    let stdout = String::from_utf8_lossy(&output.stdout);
    let report = serde_json::from_str(&stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    (
        report.unwrap_or_else(|e| panic!("{e}: {stdout}{errors}")),
        output.status.code(),
    )
}

/// Runs a command that must succeed.
pub fn try_command(line: &str) -> Result<(), String> {
    let done = run_command(line);
    let errors = String::from_utf8_lossy(&done.stderr);
    let why = || format!("{line}: {errors}");
    done.status.success().then_some(()).ok_or_else(why)
}

/// A command that is ended after some seconds.
fn within(seconds: u32, line: &str) -> String {
    let quoted = line.replace('\'', "'\\''");
    format!("timeout {seconds} bash -ec '{quoted}'")
}

/// Breaks the node in each of these ways. Fails where one of them cannot be made beside those before.
pub fn break_node(rows: &[&Row]) -> Result<(), String> {
    let names = rows.iter().map(|row| row.program);
    // The second name, if a row is about that.
    PROGRAM.set(names.max().unwrap()).unwrap();
    // A copy that no row takes away.
    try_command("cp /opt/cni/bin/azure-vnet-ipam $OURS")?;
    // A busy machine needs more than a minute for some. What one row makes can keep that of another one waiting.
    let seconds = if rows.len() == 1 { 120 } else { 60 };
    rows.iter()
        .try_for_each(|row| try_command(&within(seconds, row.broken_by)))
}

pub fn examine(row: &Row) {
    break_node(&[row]).unwrap();
    let before = running_pods();
    let (report, status) = check(row.later);
    assert_findings(row, &report);
    let is_all_seen = report["notSeen"] == json!([]);
    let expected = match (row.findings, is_all_seen) {
        ([], true) => 0,
        ([], false) => 2,
        _ => 1,
    };
    assert_eq!(status, Some(expected), "{report:#}");
    if row.screen {
        assert_screen(row);
    }
    assert_eq!(assert_prediction(row.later, &report), row.add, "{report:#}");
    let host = host_network();
    run_printed_commands(row.later, &report);
    assert_host_keeps(&host, &report);
    try_command(row.by_hand).unwrap();
    // What the next ADD heals by itself.
    let wait = row.later + row.heals_after;
    let healed = run_command(&format!("later {wait} add last"));
    let text = String::from_utf8_lossy(&healed.stdout);
    assert!(healed.status.success(), "{text}");
    let (report, status) = check(wait);
    assert_eq!(status, Some(0), "{report:#}");
    let after = running_pods();
    let is_gone = |pod: &str| matches!(pod, "other" | "web-27" | "web-28");
    for (pod, address) in before.iter().filter(|(pod, _)| !is_gone(pod)) {
        assert_eq!(after.get(pod), Some(address), "pod {pod} was harmed");
    }
    let mut addresses: Vec<_> = after.values().collect();
    addresses.sort();
    addresses.dedup();
    assert_eq!(addresses.len(), after.len(), "one address twice: {after:?}");
}

/// Checks that the findings that are errors or warnings are those of the row.
fn assert_findings(row: &Row, report: &Value) {
    let mut kinds: Vec<&str> = Vec::new();
    let mut last = ("", "");
    for finding in report["findings"].as_array().unwrap() {
        let text = |key: &str| finding[key].as_str().unwrap();
        let group = (text("kind"), text("cause"));
        if text("severity") != "note" && (group != last || group.1.is_empty()) {
            kinds.push(group.0);
            last = group;
        }
        assert_commands(finding);
        // What was not seen may be a pod that needs its route.
        let names_route = finding["commands"].to_string().contains("ip route del");
        assert!(!names_route || report["notSeen"] == json!([]), "{report:#}");
    }
    assert_eq!(kinds, row.findings, "{report:#}");
}

/// Checks that the commands of a finding can be pasted: no placeholder, no pod is deleted or restarted.
fn assert_commands(finding: &Value) {
    for command in finding["commands"].as_array().unwrap() {
        let command = command.as_str().unwrap();
        let mut words = command.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
        let is_placeholder = |word: &str| {
            [
                "INTERFACE",
                "ADDRESS",
                "HOST",
                "PORT",
                "FILE",
                "NAME",
                "ID",
                "IF",
            ]
            .contains(&word)
        };
        assert!(!words.any(is_placeholder), "{command}");
        // A sandbox that was released, or replaced by a newer one of its pod.
        let ends_sandboxes = ["withheld", "replaced"].map(Value::from);
        let may_end = ends_sandboxes.contains(&finding["kind"]);
        assert!(may_end || !command.contains("crictl rm"), "{command}");
        for harm in [
            "kubectl delete",
            "crictl stop",
            "reboot",
            "systemctl restart",
        ] {
            assert!(!command.contains(harm), "{command}");
        }
    }
}

/// Checks that the screen fits, and compares it with its fixture.
fn assert_screen(row: &Row) {
    let screen = stdout_of(&format!(
        "export COLUMNS=80; later {} $OURS check",
        row.later
    ));
    assert!(screen.is_ascii(), "{screen}");
    assert!(screen.lines().count() <= 60, "{screen}");
    // URLs and commands are not broken.
    let is_wide =
        |line: &&str| line.len() > 80 && !line.contains("://") && !line.starts_with("       ");
    let wide: Vec<_> = screen.lines().filter(is_wide).collect();
    assert_eq!(wide, [""; 0], "{screen}");
    let screen = without_volatile_parts(&screen);
    let path = package().join(format!("tests/fixtures/broken/{}.txt", row.name));
    if std::env::var_os("ACCEPT").is_some() {
        fs::write(path, screen).unwrap();
        return;
    }
    let known = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(known, screen, "where that is meant: ACCEPT=1");
}

/// The screen with placeholders for process IDs, ages and sizes.
fn without_volatile_parts(screen: &str) -> String {
    let is_number = |word: &str| word.chars().all(|c| c.is_ascii_digit()) && !word.is_empty();
    let mut lines = Vec::new();
    for line in screen.lines() {
        let mut words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        for n in 1..words.len() {
            let before = words[n - 1].clone();
            let after = words.get(n + 1).cloned().unwrap_or_default();
            let is_volatile = ["process", "-KILL", "-fp"].contains(&&*before)
                || ["KiB", "s", "inodes", "bytes"].contains(&&*after);
            // The bridge of the pods has another address on each node.
            if before == "azbr0" {
                words[n] = "MAC".to_owned();
            }
            if is_volatile && is_number(&words[n]) {
                words[n] = "N".to_owned();
            }
            let is_age = words[n].len() > 1
                && words[n].starts_with(|c: char| c.is_ascii_digit())
                && words[n].trim_end_matches([',', '.']).ends_with(['s', 'm'])
                && words[n]
                    .chars()
                    .all(|c| c.is_ascii_digit() || "smhd,.".contains(c));
            if is_age {
                words[n] = "AGE".to_owned();
            }
        }
        lines.push(words.join(" "));
    }
    // The time is part of the name of a state that was set aside.
    let mut text = lines.join("\n") + "\n";
    while let Some(at) = text.find(".json.corrupt-2") {
        let start = at + ".json.corrupt-".len();
        let end = text[start..]
            .find([' ', '\n'])
            .map_or(text.len(), |end| start + end);
        text.replace_range(start..end, "TIME");
    }
    text
}

/// Makes an ADD at the same moment, and compares it with what `check` predicted. Returns what it came to.
pub fn assert_prediction(later: u32, report: &Value) -> Add {
    let adds = report["adds"].as_array().unwrap();
    // Where no conflist names the plugin, none is predicted. Of several, the runtime uses the first.
    let add = adds.first().unwrap_or(&Value::Null);
    if !add.is_null() && add["succeeds"].is_null() {
        assert!(add["unknown"].is_string(), "{add:#}");
        return Add::Unknown;
    }
    let made = run_command(&format!("later {later} add new"));
    let (text, is_made) = (String::from_utf8_lossy(&made.stdout), made.status.success());
    assert_eq!(is_made, add["succeeds"] == true, "{text} {add:#}");
    if is_made {
        let address = add["addresses"][0].as_str().unwrap();
        let is_same = address.starts_with(&format!("{}/", text.trim_end()));
        assert!(is_same, "{text} {add:#}");
        stdout_of(&format!("later {later} del new"));
        return Add::Succeeds;
    }
    // A runtime that calls nothing prints no code. Behind that of the ADD may be that of its DEL.
    if let Some((_, code)) = text.split_once("\"code\": ")
        && add["code"].is_number()
    {
        let is_same = code.starts_with(&format!("{},", add["code"]));
        assert!(is_same, "{text} {add:#}");
    }
    if add["waits"] == true {
        Add::Waits
    } else {
        Add::Fails
    }
}

/// Checks that the host has all of its network that it had before.
fn assert_host_keeps(before: &str, report: &Value) {
    let now = host_network();
    let is_kept = |line: &str| now.lines().any(|found| found == line);
    assert!(before.lines().all(is_kept), "{before}{now}{report:#}");
}

/// Runs the printed commands, and checks that the host has its network and the pods their addresses as before.
pub fn assert_commands_are_harmless(later: u32, report: &Value) {
    let pods = || {
        let mut pods = running_pods();
        // The others are sandboxes that the runtime could not remove.
        pods.retain(|pod, _| pod.starts_with("web-"));
        pods
    };
    let before = (host_network(), pods());
    run_printed_commands(later, report);
    // The commands may bring back what the host has lost.
    assert_host_keeps(&before.0, report);
    assert_eq!(pods(), before.1, "{report:#}");
}

/// Runs every command that `check` printed, as it stands, each for a while. One that waits for a lock may be one of many.
fn run_printed_commands(later: u32, report: &Value) {
    let findings = report["findings"].as_array().unwrap().iter();
    let commands: Vec<&str> = findings
        .flat_map(|finding| finding["commands"].as_array().unwrap())
        .map(|command| command.as_str().unwrap())
        .collect();
    for (n, command) in commands.iter().enumerate() {
        // The screen has each command once. What several findings end with runs after all that is before it.
        if commands[n + 1..].contains(command) {
            continue;
        }
        let on_copy = command.replace("azure-vnet-ipam reclaim", "$OURS reclaim");
        let line = match later {
            0 => on_copy,
            later => format!("later {later} {on_copy}"),
        };
        run_command(&within(20, &line));
    }
}
