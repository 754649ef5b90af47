//! Groups findings of one cause for the screen, and makes one command of many alike. Pure.

use std::time::Duration;

use super::finding::Finding;
use crate::ops::screen::{format_age, pluralize};

/// Findings of one cause.
#[derive(Debug, PartialEq, Eq)]
pub struct Group<'a> {
    /// The first finding.
    pub first: &'a Finding,
    /// The others.
    others: Vec<&'a Finding>,
}

/// Groups sorted findings. A finding without a cause stands alone.
pub fn group(findings: &[Finding]) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for finding in findings {
        let fits = |group: &&mut Group<'_>| {
            let key = |f: &Finding| (f.severity, f.kind, f.cause);
            !finding.cause.is_empty() && key(group.first) == key(finding)
        };
        match groups.last_mut().filter(fits) {
            Some(group) => group.others.push(finding),
            None => groups.push(Group {
                first: finding,
                others: Vec::new(),
            }),
        }
    }
    groups
}

impl Group<'_> {
    /// All findings of the group.
    fn all(&self) -> impl Iterator<Item = &Finding> {
        let others = self.others.iter().copied();
        std::iter::once(self.first).chain(others)
    }

    /// The number of findings.
    pub fn len(&self) -> usize {
        1 + self.others.len()
    }

    /// The evidence that all findings of the group have.
    fn shared_evidence(&self) -> Vec<&str> {
        let is_shared = |line: &&String| self.others.iter().all(|f| f.evidence.contains(line));
        let shared = self.first.evidence.iter().filter(is_shared);
        shared.map(String::as_str).collect()
    }

    /// The commands of all findings, each once; commands that differ in one word become a loop.
    fn commands(&self) -> Vec<String> {
        let mut all: Vec<&str> = Vec::new();
        for command in self.all().flat_map(|finding| &finding.commands) {
            if !all.contains(&command.as_str()) {
                all.push(command);
            }
        }
        match merge(&all) {
            Some(merged) => vec![merged],
            None => all.into_iter().map(str::to_owned).collect(),
        }
    }
}

/// A group in words, to be laid out.
#[derive(Debug)]
pub struct Description {
    /// The address, file or server, or how many.
    pub subject: String,
    /// What is the matter.
    pub text: String,
    /// The members of the group, and the evidence.
    pub evidence: Vec<String>,
    /// What to do.
    pub remedy: String,
    /// The commands to type, in lines of at most 80 columns together with their indentation.
    pub commands: Vec<String>,
}

/// The most lines of evidence of a finding.
const MOST_EVIDENCE: usize = 6;

impl Group<'_> {
    /// Describes the group, with at most this many of its members one by one. `indent` is that of commands.
    pub fn describe(&self, most_members: usize, indent: usize, program: &str) -> Description {
        let first = self.first;
        let is_one = self.len() == 1;
        let mut evidence: Vec<String> = Vec::new();
        if !is_one {
            evidence.extend(self.all().take(most_members).map(describe_member));
            if let Some(more) = self.len().checked_sub(most_members).filter(|n| *n > 0) {
                evidence.push(format!(
                    "and {more} more: `{program} check -o json` lists all"
                ));
            }
        }
        let shared = self.shared_evidence();
        evidence.extend(shared.iter().take(MOST_EVIDENCE).map(|e| (*e).to_owned()));
        let commands = self.commands();
        let lines = commands
            .iter()
            .flat_map(|command| wrap_command(command, 80 - indent));
        Description {
            subject: match is_one {
                true => first.subject.clone(),
                false => pluralize(self.len(), "address", "addresses"),
            },
            text: if is_one {
                first.text.clone()
            } else {
                first.cause.to_owned()
            },
            evidence,
            remedy: first.remedy.clone(),
            commands: lines.collect(),
        }
    }
}

/// One finding of a group, in a line.
fn describe_member(finding: &Finding) -> String {
    match &finding.holder {
        Some(lease) => {
            let age = format_age(Duration::from_secs(lease.age_seconds));
            let holder = lease.describe_holder();
            format!("{}: {holder}, {age}", finding.subject)
        }
        None => finding.subject.clone(),
    }
}

/// The most words that a loop goes through. What is left comes with the next report.
const MOST: usize = 60;
/// The width of a line of words.
const WIDTH: usize = 72;

/// Makes a loop of three or more commands that differ in one word.
fn merge(commands: &[&str]) -> Option<String> {
    let words: Vec<Vec<&str>> = commands.iter().map(|c| c.split(' ').collect()).collect();
    let (first, others) = words.split_first().filter(|(_, others)| others.len() > 1)?;
    let differs = |at: usize| others.iter().any(|w| w.get(at) != first.get(at));
    let mut differing = (0..first.len()).filter(|at| differs(*at));
    let (at, None) = (differing.next()?, differing.next()) else {
        return None;
    };
    if words.iter().any(|w| w.len() != first.len()) || commands.iter().any(|c| c.contains('\n')) {
        return None;
    }
    let mut line = "for it in".to_owned();
    let mut text = String::new();
    for word in words.iter().filter_map(|w| w.get(at)).take(MOST) {
        if line.len() + word.len() + 3 > WIDTH {
            text.push_str(&format!("{line} \\\n"));
            line = "   ".to_owned();
        }
        line.push(' ');
        line.push_str(word);
    }
    let mut body = first.clone();
    if let Some(word) = body.get_mut(at) {
        *word = "$it";
    }
    Some(format!("{text}{line}; do\n    {}\ndone", body.join(" ")))
}

/// Breaks a long command between words, so that it can still be pasted. Words in quotes stay together.
fn wrap_command(command: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for whole in command.lines() {
        let mut line = String::new();
        for word in quoted_words(whole) {
            if !line.trim().is_empty() && line.len() + 1 + word.len() + 2 > width {
                lines.push(format!("{line} \\"));
                line = format!("   {word}");
            } else {
                if !line.is_empty() {
                    line.push(' ');
                }
                line.push_str(&word);
            }
        }
        lines.push(line);
    }
    lines
}

/// The words of a shell command, each with its quotes. Blanks at the start belong to the first.
fn quoted_words(line: &str) -> Vec<String> {
    let start = line.len() - line.trim_start().len();
    let (indent, rest) = line.split_at(start);
    let mut words = vec![indent.to_owned()];
    let mut quote = None;
    for c in rest.chars() {
        match (quote, c) {
            (None, ' ') => words.push(String::new()),
            (None, '"' | '\'') => quote = Some(c),
            (Some(open), c) if c == open => quote = None,
            _ => {}
        }
        if (quote.is_some() || c != ' ')
            && let Some(word) = words.last_mut()
        {
            word.push(c);
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::super::finding::FindingKind;
    use super::*;

    fn leak(address: &str, evidence: &[&str], command: &str) -> Finding {
        Finding {
            cause: "dead",
            ..Finding::warning(FindingKind::Leak, &"", &"free it")
                .about(address)
                .with_evidence(evidence.iter().map(|e| (*e).to_owned()).collect())
                .with_commands([command.to_owned()])
        }
    }

    #[test]
    fn findings_of_one_cause_are_one_group() {
        let alone = Finding::error(FindingKind::Disk, &"", &"");
        let findings = [
            alone.clone(),
            alone,
            leak("10.1.0.5", &["gone", "of 5"], "reclaim"),
            leak("10.1.0.6", &["gone", "of 6"], "reclaim"),
        ];
        let groups = group(&findings);
        assert_eq!(
            groups.iter().map(|g| g.len()).collect::<Vec<_>>(),
            [1, 1, 2]
        );
        assert_eq!(groups[2].shared_evidence(), ["gone"]);
        assert_eq!(groups[2].commands(), ["reclaim"]);
    }

    #[test]
    fn commands_that_differ_in_one_word_become_a_loop() {
        let command = |n: usize| format!("sudo ip address del 10.1.0.{n}/16 dev eth0");
        let findings: Vec<_> = (5..33).map(|n| leak("", &[], &command(n))).collect();
        let commands = group(&findings)[0].commands();
        let [only] = &commands[..] else {
            panic!("{commands:?}");
        };
        assert!(
            only.starts_with("for it in 10.1.0.5/16 10.1.0.6/16 "),
            "{only}"
        );
        assert!(
            only.ends_with("; do\n    sudo ip address del $it dev eth0\ndone"),
            "{only}"
        );
        assert!(only.lines().all(|line| line.len() <= WIDTH + 2), "{only}");
        assert_eq!(only.matches("10.1.0.").count(), 28);
        let two = [leak("", &[], &command(5)), leak("", &[], &command(6))];
        assert_eq!(group(&two)[0].commands(), [command(5), command(6)]);
        let other = ["a b c", "a x y", "a z z"].map(|c| leak("", &[], c));
        assert_eq!(group(&other)[0].commands().len(), 3);
    }

    #[test]
    fn a_long_command_is_broken_between_words() {
        let command = "sudo /a/long/path release 10.224.0.6 --container 3f2a91c04d7e";
        let lines = wrap_command(command, 40);
        assert_eq!(
            lines,
            [
                "sudo /a/long/path release 10.224.0.6 \\",
                "   --container 3f2a91c04d7e"
            ]
        );
        let quoted = "mount -o remount \"$(findmnt -n -o TARGET -T /run)\"";
        assert_eq!(wrap_command(quoted, 200), [quoted]);
        assert_eq!(wrap_command(quoted, 20).len(), 2);
        assert_eq!(wrap_command("for x; do\n    y\ndone", 20)[1], "    y");
    }
}
