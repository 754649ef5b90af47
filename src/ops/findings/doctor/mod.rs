//! `doctor`: examines everything that the plugin needs on this node.
//!
//! [`Inspection::gather`] collects the data once, so that `check` and `export` can use it too. For each subject, an `examine`
//! function turns it into diagnostics.

mod conflists;
pub mod diagnostic;
mod files;
mod host;
mod inspection;
mod other_ipam;
mod pools;
mod source;
mod state;

use serde::Serialize;

use crate::cni::CniVersion;
use crate::host::utc;
use crate::ops::cli::{CheckSettingsArgs, ReportArgs};
use crate::ops::node::Node;
use crate::ops::outcome::{CommandError, CommandOutput, json};
use crate::ops::screen::{Screen, Tint, pluralize};
use crate::plugin::settings;
use crate::state::FORMAT;
use crate::stdio;

pub use diagnostic::{Diagnostic, Status, Subject};
pub use inspection::Inspection;

use diagnostic::Visibility;

/// Makes all diagnostics, ordered by subject.
pub fn examine(node: &Node, inspection: &Inspection) -> Vec<Diagnostic> {
    let mut visibility = Visibility::of_process();
    let paths = node.paths();
    let pools = pools::known_pools(inspection.state.ipam(), inspection.matched());
    let mut lines = vec![versions(node)];
    lines.extend(state::examine(node, &inspection.state, &mut visibility));
    lines.extend(files::examine(node, &inspection.config, &mut visibility));
    lines.extend(source::examine(paths, inspection, &visibility));
    lines.extend(pools::examine(
        inspection.state.ipam(),
        inspection.matched(),
        &inspection.config.conf,
        node.now.boot,
        paths.name(),
    ));
    lines.extend(conflists::examine(
        paths,
        &inspection.config,
        &mut visibility,
    ));
    lines.extend(other_ipam::examine(
        paths,
        &inspection.config,
        &pools,
        &mut visibility,
    ));
    lines.extend(host::examine(
        &pools,
        &inspection.evidence.kernel,
        paths.is_this_host(),
        &mut visibility,
    ));
    lines.extend(visibility.line());
    lines
}

/// Runs the command. Its status is 1 where something is wrong.
///
/// # Errors
/// The report cannot be printed as JSON.
pub fn run(node: &Node, args: &ReportArgs) -> Result<CommandOutput, CommandError> {
    let lines = examine(node, &Inspection::gather(node));
    let wrong = lines.iter().any(|line| line.status == Status::Wrong);
    let text = match args.format.is_json() {
        true => json(&Report {
            time: utc(node.now.wall),
            version: env!("CARGO_PKG_VERSION"),
            lines: &lines,
        })?,
        false => print(&lines, &node.screen),
    };
    Ok(CommandOutput {
        text,
        status: u8::from(wrong),
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
    match settings::check_settings(&path) {
        Ok(()) => Ok(CommandOutput::success(format!(
            "{} is valid\n",
            path.display()
        ))),
        Err(wrong) => {
            stdio::eprint(&wrong);
            Ok(CommandOutput {
                text: String::new(),
                status: 1,
            })
        }
    }
}

/// The report for programs.
#[derive(Serialize)]
struct Report<'a> {
    /// The time, in UTC.
    time: String,
    /// The version of this program.
    version: &'a str,
    lines: &'a [Diagnostic],
}

/// The versions of the program, of CNI and of the state format.
fn versions(node: &Node) -> Diagnostic {
    let text = format_args!(
        "{} {}, for CNI {}; state format {FORMAT}",
        node.paths().name(),
        env!("CARGO_PKG_VERSION"),
        CniVersion::texts().join(", ")
    );
    Diagnostic::ok(Subject::Version, &text)
}

/// Prints the diagnostics, and the count of each status.
pub fn print(lines: &[Diagnostic], screen: &Screen) -> String {
    let mut text: String = lines.iter().map(|line| line.print(screen)).collect();
    let count = |status| lines.iter().filter(|line| line.status == status).count();
    let (wrong, warnings) = (count(Status::Wrong), count(Status::Warning));
    let tint = match (wrong, warnings) {
        (0, 0) => Tint::Good,
        (0, _) => Tint::Doubtful,
        _ => Tint::Bad,
    };
    let total = format!(
        "{wrong} wrong, {}, {} ok",
        pluralize(warnings, "warning", "warnings"),
        count(Status::Ok)
    );
    text.push('\n');
    text.push_str(&screen.tint(tint, &total));
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_counts_the_others() {
        let lines = [
            Diagnostic::ok(Subject::State, &"fine"),
            Diagnostic::warning(Subject::Pool, &"full", &"do this"),
            Diagnostic::wrong(Subject::Lock, &"held", &"do this"),
        ];
        let total = |lines: &[Diagnostic]| {
            let text = print(lines, &Screen::PLAIN);
            text.lines().last().unwrap().to_owned()
        };
        assert_eq!(total(&lines), "1 wrong, 1 warning, 1 ok");
        assert_eq!(total(&[]), "0 wrong, 0 warnings, 0 ok");
    }

    #[test]
    fn a_report_has_its_shape() {
        let lines = [Diagnostic::wrong(Subject::Lock, &"held", &"wait")];
        let report = Report {
            time: "2026-11-20T21:09:39Z".to_owned(),
            version: "0.1.0",
            lines: &lines,
        };
        assert_eq!(
            serde_json::to_value(report).unwrap(),
            serde_json::json!({
                "time": "2026-11-20T21:09:39Z",
                "version": "0.1.0",
                "lines": [{"status": "wrong", "subject": "lock", "text": "held", "remedy": "wait"}],
            })
        );
    }
}
