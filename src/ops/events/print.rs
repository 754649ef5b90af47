//! The operations as text.

use crate::events::OperationRecord;
use crate::host::Timestamp;
use crate::ops::screen::{Screen, Table, Tint, screen_offset, split_time};

/// Where the lines below a row begin.
const INDENT: usize = 16;

/// Prints the operations, the newest last.
pub fn print_events(events: &[OperationRecord], screen: &Screen) -> String {
    /// An IPv4 address is not cut.
    const LEAST_ADDRESS: usize = 15;
    let Some(newest) = events.last() else {
        return "No operations since the node started.\n".to_owned();
    };
    // One offset for all: the clock may have changed between two operations.
    let newest = Timestamp::parse(&newest.time).unwrap_or(Timestamp::from_seconds(0));
    let offset = screen_offset(newest);
    let [_, _, zone] = split_time(newest, offset);
    let time = format!("TIME ({zone})");
    let headings = [&time, "VERB", "RESULT", "MS", "ADDRESS", "WHO"];
    let mut table = Table::new(&headings, &[4, 5]).with_least(4, LEAST_ADDRESS);
    for event in events {
        table.row(cells(event, offset));
    }
    let text = table.print(screen, 0);
    let mut lines = text.lines();
    let mut out = format!("{}\n", lines.next().unwrap_or_default());
    for (line, event) in lines.zip(events) {
        out.push_str(line);
        out.push('\n');
        let by = event.by.as_ref().map(|by| format!("by {by}"));
        for more in [&event.msg, &by.unwrap_or_default()] {
            if !more.is_empty() {
                let more = print_below(more, screen);
                out.push_str(&screen.tint(Tint::Faint, more.trim_end()));
                out.push('\n');
            }
        }
    }
    out
}

/// Prints a text below a row. Words that are longer than a line are broken.
fn print_below(text: &str, screen: &Screen) -> String {
    let Some(width) = screen.width else {
        return screen.paragraph("", INDENT, text);
    };
    let longest = width.saturating_sub(INDENT).max(1);
    let mut broken = String::with_capacity(text.len());
    for word in text.split_whitespace() {
        for (n, c) in word.chars().enumerate() {
            if n > 0 && n % longest == 0 {
                broken.push(' ');
            }
            broken.push(c);
        }
        broken.push(' ');
    }
    screen.paragraph("", INDENT, &broken)
}

fn cells(event: &OperationRecord, offset: i32) -> Vec<String> {
    let result = match event.code {
        0 => "ok".to_owned(),
        code => format!("error {code}"),
    };
    let address = match event.all_addresses().as_slice() {
        [] => "-".to_owned(),
        [one] => one.to_string(),
        [first, others @ ..] => format!("{first} +{}", others.len()),
    };
    vec![
        moment(&event.time, offset),
        event.verb.clone(),
        result,
        milliseconds(event.microseconds),
        address,
        describe_subject(event),
    ]
}

/// `11-20 21:09:39`, without the year: the list is no longer than the node runs, and has 256 operations at most.
fn moment(time: &str, offset: i32) -> String {
    let Some(time) = Timestamp::parse(time) else {
        return "-".to_owned();
    };
    let [date, clock, _] = split_time(time, offset);
    let date = date.get(5..).unwrap_or_default();
    format!("{date} {clock}")
}

fn milliseconds(microseconds: u64) -> String {
    let tenths = microseconds / 100;
    format!("{}.{}", tenths / 10, tenths % 10)
}

/// The pod, or else the container or the network.
fn describe_subject(event: &OperationRecord) -> String {
    const SHORT: usize = 12;
    match &event.pod {
        Some(pod) => pod.clone(),
        None if !event.container_id.is_empty() => event.container_id.chars().take(SHORT).collect(),
        None if !event.network.is_empty() => event.network.clone(),
        None => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_record_fits_80_columns() {
        let screen = Screen {
            width: Some(80),
            colours: false,
        };
        let event = OperationRecord {
            time: "2026-11-20T21:09:39Z".into(),
            verb: "reclaim".into(),
            code: 4_294_967_295,
            microseconds: 60_000_000,
            addresses: vec!["2001:db8:1234:1234:1234:1234:1234:1234".parse().unwrap(); 2],
            pod: Some(format!("{}/{}", "n".repeat(60), "p".repeat(60))),
            msg: "/".repeat(128),
            by: Some("uid 4294967295 through sudo by uid 4294967295 on /dev/pts/12345".into()),
            ..OperationRecord::default()
        };
        let text = print_events(&[event.clone(), event], &screen);
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
        assert!(text.contains("nnn..ppp"), "{text}");
        assert!(
            text.replace([' ', '\n'], "").contains(&"/".repeat(128)),
            "nothing is cut"
        );
    }

    #[test]
    fn the_address_gives_way_before_the_pod() {
        let screen = Screen {
            width: Some(80),
            colours: false,
        };
        let event = OperationRecord {
            time: "2026-11-20T21:09:39Z".into(),
            verb: "ADD".into(),
            addresses: vec!["2001:db8:1234:1234:1234:1234:1234:1234".parse().unwrap()],
            pod: Some("default/web-7db6d8ff4d-x2x5z".into()),
            ..OperationRecord::default()
        };
        let text = print_events(&[event], &screen);
        assert!(text.contains("  2001:db.."), "{text}");
        assert!(text.ends_with("  default/web-7db6d8ff4d-x2x5z\n"), "{text}");
    }
}
