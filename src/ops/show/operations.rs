//! `show --events`: the last operations.

use crate::events::OperationRecord;
use crate::ops::screen::{Screen, Table, Tint};

/// Prints the operations, the newest last.
pub fn print(events: &[OperationRecord], screen: &Screen) -> String {
    if events.is_empty() {
        return "No operations since the node started.\n".to_owned();
    }
    let mut table = Table::new(&["TIME", "VERB", "RESULT", "MS", "ADDRESS", "WHO"], &[5]);
    for event in events {
        table.row(cells(event));
    }
    let text = table.print(screen, 0);
    let mut lines = text.lines();
    let mut out = format!("{}\n", lines.next().unwrap_or_default());
    for (line, event) in lines.zip(events) {
        out.push_str(line);
        out.push('\n');
        if !event.msg.is_empty() {
            let msg = screen.paragraph("", 16, &event.msg);
            out.push_str(&screen.tint(Tint::Faint, msg.trim_end()));
            out.push('\n');
        }
    }
    out
}

fn cells(event: &OperationRecord) -> Vec<String> {
    let result = match event.code {
        0 => "ok".to_owned(),
        code => format!("error {code}"),
    };
    let address = match event.addresses.as_slice() {
        [] => "-".to_owned(),
        [one] => one.to_string(),
        [first, others @ ..] => format!("{first} +{}", others.len()),
    };
    vec![
        moment(&event.time),
        event.verb.clone(),
        result,
        milliseconds(event.microseconds),
        address,
        describe_subject(event),
    ]
}

/// `11-20 21:09:39` of `2026-11-20T21:09:39.123Z`.
fn moment(time: &str) -> String {
    let date = time.get(5..10).unwrap_or_default();
    let clock = time.get(11..19).unwrap_or_default();
    format!("{date} {clock}")
}

fn milliseconds(microseconds: u64) -> String {
    let tenths = microseconds / 100;
    format!("{}.{}", tenths / 10, tenths % 10)
}

/// The pod or the container, and the operator who typed a command.
fn describe_subject(event: &OperationRecord) -> String {
    const SHORT: usize = 12;
    match (&event.pod, &event.by) {
        (Some(pod), None) => pod.clone(),
        (Some(pod), Some(by)) => format!("{pod}, by {by}"),
        (None, Some(by)) => format!("by {by}"),
        (None, None) if event.container_id.is_empty() => event.network.clone(),
        (None, None) => event.container_id.chars().take(SHORT).collect(),
    }
}
