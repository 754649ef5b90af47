//! `doctor`: the long form of `check`, with what is as it should be.

use serde::Serialize;

use super::diagnosis::Diagnosis;
use super::finding::{Finding, FindingKind, Severity};
use super::group::{Group, group};
use crate::ops::cli::{CheckSettingsArgs, ReportArgs};
use crate::ops::node::Node;
use crate::ops::outcome::{CommandError, CommandOutput, json};
use crate::ops::screen::{Screen, Tint, pluralize};
use crate::plugin::settings;
use crate::stdio;

/// The report for programs.
#[derive(Debug, Serialize)]
struct DoctorReport<'a> {
    /// The time, in UTC.
    time: &'a str,
    /// The version of this program.
    version: &'static str,
    /// The first line that `check` prints.
    summary: String,
    lines: Vec<Line<'a>>,
}

/// A finding as `doctor` reports it.
#[derive(Debug, Serialize)]
pub struct Line<'a> {
    /// `ok`, `note`, `warning` or `wrong`.
    status: &'static str,
    /// The kind of the finding.
    subject: FindingKind,
    text: &'a str,
    /// `null` where nothing is wrong.
    remedy: Option<&'a str>,
    /// The address, file or server concerned.
    about: &'a str,
    evidence: &'a [String],
    commands: &'a [String],
}

impl<'a> From<&'a Finding> for Line<'a> {
    fn from(finding: &'a Finding) -> Line<'a> {
        Line {
            status: match finding.severity {
                Severity::Error => "wrong",
                severity => severity.name(),
            },
            subject: finding.kind,
            text: &finding.text,
            remedy: Some(&*finding.remedy).filter(|remedy| !remedy.is_empty()),
            about: &finding.subject,
            evidence: &finding.evidence,
            commands: &finding.commands,
        }
    }
}

/// Runs the command.
///
/// # Errors
/// The report cannot be printed as JSON.
pub fn run(node: &Node, args: &ReportArgs) -> Result<CommandOutput, CommandError> {
    let diagnosis = Diagnosis::make(node);
    let text = match args.format.is_json() {
        true => json(&DoctorReport {
            time: &diagnosis.time,
            version: env!("CARGO_PKG_VERSION"),
            summary: diagnosis.summary(),
            lines: diagnosis.findings.iter().map(Line::from).collect(),
        })?,
        false => print(&diagnosis, &node.screen, &node.program),
    };
    Ok(CommandOutput {
        text,
        status: diagnosis.status(),
    })
}

/// `check-settings`: checks the settings file, or the named file. Errors go to stderr.
///
/// # Errors
/// None.
pub fn check_settings(
    node: &Node,
    args: &CheckSettingsArgs,
) -> Result<CommandOutput, CommandError> {
    let path = args.file.clone();
    let path = path.unwrap_or_else(|| node.paths().settings());
    let wrong = match path.exists() {
        true => settings::read(&path).1,
        false => vec!["it does not exist".to_owned()],
    };
    let path = path.display();
    if wrong.is_empty() {
        return Ok(CommandOutput::success(format!("{path} is valid\n")));
    }
    let lines: String = wrong.iter().map(|why| format!("{path}: {why}\n")).collect();
    stdio::eprint(&lines);
    Ok(CommandOutput {
        text: String::new(),
        status: 1,
    })
}

/// Prints the summary, every finding, and the count of each severity.
pub fn print(diagnosis: &Diagnosis, screen: &Screen, program: &str) -> String {
    let findings = &diagnosis.findings;
    let mut text = screen.paragraph("", 0, &diagnosis.summary());
    text.push('\n');
    for group in group(findings) {
        text.push_str(&print_group(&group, screen, program));
    }
    let count = |severity| findings.iter().filter(|f| f.severity == severity).count();
    let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
    let tint = match (errors, warnings) {
        (0, 0) => Tint::Good,
        (0, _) => Tint::Doubtful,
        _ => Tint::Bad,
    };
    let total = format!(
        "{}, {}, {}, {} ok",
        pluralize(errors, "error", "errors"),
        pluralize(warnings, "warning", "warnings"),
        pluralize(count(Severity::Note), "note", "notes"),
        count(Severity::Ok)
    );
    text.push_str(&format!("\n{}\n", screen.tint(tint, &total)));
    text
}

/// Prints severity, kind and text of findings of one cause, and their evidence, remedy and commands below.
fn print_group(group: &Group<'_>, screen: &Screen, program: &str) -> String {
    const MOST_MEMBERS: usize = 64;
    const SEVERITY: usize = 9;
    const INDENT: usize = 20;
    let (severity, kind) = (group.first.severity, group.first.kind.name());
    let word = severity.name();
    let description = group.describe(MOST_MEMBERS, INDENT + 3, program);
    let (subject, text) = (&description.subject, &description.text);
    let head = format!("{word:SEVERITY$}{kind} ");
    let what = match subject.is_empty() || text.contains(subject) {
        true => text.clone(),
        false => format!("{subject}: {text}"),
    };
    let plain = screen.paragraph(&head, INDENT, &what);
    // Colours are added last, as their codes take no columns.
    let rest = plain.strip_prefix(word).unwrap_or_default();
    let mut text = screen.tint(severity.tint(), word) + rest;
    for line in &description.evidence {
        let head = format!("{:INDENT$}- ", "");
        text.push_str(&screen.paragraph(&head, INDENT + 2, line));
    }
    if !description.remedy.is_empty() {
        let head = format!("{:INDENT$}-> ", "");
        text.push_str(&screen.paragraph(&head, INDENT + 3, &description.remedy));
    }
    for line in &description.commands {
        text.push_str(&format!("{:indent$}{line}\n", "", indent = INDENT + 3));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_fits_its_screen_with_and_without_colours() {
        let finding = Finding::error(
            FindingKind::Interface,
            &"no interface of this node has the hardware address 7c:1e:52:f9:f3:c6",
            &"attach the interface in Azure, or restart the node so that both agree",
        );
        let groups = group(std::slice::from_ref(&finding));
        let narrow = Screen {
            width: Some(60),
            colours: false,
        };
        let text = print_group(&groups[0], &narrow, "");
        assert_eq!(
            text.lines().collect::<Vec<_>>(),
            [
                "error    interface  no interface of this node has the",
                "                    hardware address 7c:1e:52:f9:f3:c6",
                "                    -> attach the interface in Azure, or",
                "                       restart the node so that both agree",
            ]
        );
        let coloured = Screen {
            colours: true,
            ..narrow
        };
        let text = print_group(&groups[0], &coloured, "");
        assert!(text.starts_with("\x1b[31merror\x1b[0m    interface  no"));
        assert_eq!(text.lines().count(), 4, "colours take no columns");
    }

    #[test]
    fn an_error_keeps_its_word_in_json() {
        let error = Finding::error(FindingKind::Lock, &"held", &"wait");
        let ok = Finding::ok(FindingKind::Log, &"fine");
        let lines = [&error, &ok].map(Line::from);
        assert_eq!(
            serde_json::to_value(lines).unwrap(),
            serde_json::json!([
                {"status": "wrong", "subject": "lock", "text": "held", "remedy": "wait",
                 "about": "", "evidence": [], "commands": []},
                {"status": "ok", "subject": "log", "text": "fine", "remedy": null,
                 "about": "", "evidence": [], "commands": []},
            ])
        );
    }
}
