//! `events`: the last operations.

use std::collections::BTreeSet;
use std::iter;
use std::net::IpAddr;
use std::time::Duration;

use super::cli::EventsArgs;
use super::held::{find_pods, shorten_container_id};
use super::node::Node;
use super::outcome::{CommandError, CommandOutput, needs_root, parse_address};
use super::screen::{Screen, Tint, replace_control, screen_offset, split_time};
use crate::events::{History, OperationRecord};
use crate::host::{BLOCK, Timestamp, check_room, io_reason};
use crate::ipam::Holder;
use crate::stdio;

/// Runs the command.
pub fn run(node: &Node, args: &EventsArgs) -> Result<CommandOutput, CommandError> {
    let (since, address) = parse_options(args, node.now.wall)?;
    let History {
        records: all,
        damage,
        ..
    } = node.history()?;
    let (was_empty, is_damaged) = (all.is_empty(), !damage.is_empty());
    let events = select(all, args, since, address);
    // Each line of stdout is an operation, also as JSON.
    for what in damage {
        stdio::eprint(&format!("{what}\n"));
    }
    let folder = node.paths().lock_folder();
    if let Err(error) = check_room(&folder, BLOCK)
        && folder.exists()
        && !needs_root(&error)
    {
        let (folder, why) = (folder.display(), io_reason(&error));
        stdio::eprint(&format!(
            "new operations cannot be recorded in {folder}: {why}\n"
        ));
    }
    args.format.output(0, &events, || match &*events {
        [] if !was_empty => "No operation matches.\n".to_owned(),
        [] if is_damaged => "No operation can be read.\n".to_owned(),
        events => print_events(events, &args.format.screen(node.screen.bounded())),
    })
}

/// Parses the time of `--since` and the address of `--address`. `now` is in seconds since 1970.
///
/// # Errors
/// One of them has an invalid value.
fn parse_options(
    args: &EventsArgs,
    now: i64,
) -> Result<(Option<Timestamp>, Option<IpAddr>), CommandError> {
    let since = args.since.as_deref().map(|text| {
        parse_since(text, now).ok_or_else(|| {
            CommandError(format!(
                "--since {text:?} is neither a duration such as 90s, 15m or 2h30m, nor a time such as 21:00, \"2026-11-20 21:00\" or 2026-11-20T21:00:00Z"
            ))
        })
    });
    let address = args.address.as_deref().map(parse_address);
    Ok((since.transpose()?, address.transpose()?))
}

/// The operations that the options ask for, of all in the order of their time.
fn select(
    mut events: Vec<OperationRecord>,
    args: &EventsArgs,
    since: Option<Timestamp>,
    address: Option<IpAddr>,
) -> Vec<OperationRecord> {
    let wanted = args.pod.as_deref();
    let pods = wanted.map(|wanted| find_pods(wanted, events.iter().flat_map(pods_of)));
    // An operation whose time cannot be read may be wanted.
    let is_early = |event: &OperationRecord| {
        let time = Timestamp::parse(&event.time);
        time.zip(since).is_some_and(|(at, since)| at < since)
    };
    events.retain(|event| {
        let has_one = |pods: &BTreeSet<String>| pods_of(event).any(|pod| pods.contains(pod));
        !is_early(event)
            && address.is_none_or(|address| event.touches(address))
            && pods.as_ref().is_none_or(has_one)
    });
    let surplus = args.tail.map_or(0, |n| events.len().saturating_sub(n));
    events.drain(..surplus);
    events
}

/// The pods that the operation was for, or whose addresses it freed.
fn pods_of(event: &OperationRecord) -> impl Iterator<Item = &str> {
    let freed = event.freed.iter().map(|freed| &freed.holder);
    let holders = iter::once(&event.holder).chain(freed);
    holders.filter_map(|holder| holder.pod.as_deref())
}

/// Parses a duration before now, or a time.
fn parse_since(text: &str, now: i64) -> Option<Timestamp> {
    if let Some(ago) = parse_duration(text) {
        let ago = i64::try_from(ago.as_secs()).ok()?;
        return Some(Timestamp::from_seconds(now.saturating_sub(ago)));
    }
    Timestamp::parse(text).or_else(|| parse_local(text, now))
}

/// Parses `2h30m`, in days, hours, minutes and seconds.
fn parse_duration(text: &str) -> Option<Duration> {
    let mut seconds: u64 = 0;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let (number, tail) = rest.split_at(digits);
        let mut units = tail.chars();
        let unit = match units.next()? {
            'd' => 86_400,
            'h' => 3600,
            'm' => 60,
            's' => 1,
            _ => return None,
        };
        seconds = seconds.checked_add(number.parse::<u64>().ok()?.checked_mul(unit)?)?;
        rest = units.as_str();
    }
    (!text.is_empty()).then(|| Duration::from_secs(seconds))
}

/// Parses a time without a zone, which is a local one: `21:00` of today, or `2026-11-20 21:00`, both also with seconds, or a date.
fn parse_local(text: &str, now: i64) -> Option<Timestamp> {
    let now = Timestamp::from_seconds(now);
    let [today, ..] = split_time(now, screen_offset(now));
    let (date, clock) = match text.split_once([' ', 'T']) {
        Some((date, clock)) => (date, clock),
        None if text.contains(':') => (today.as_str(), text),
        None => (text, "00:00"),
    };
    let seconds = if clock.len() == "00:00".len() {
        ":00"
    } else {
        ""
    };
    let as_utc = Timestamp::parse(&format!("{date}T{clock}{seconds}Z"))?;
    let offset = i64::from(screen_offset(as_utc));
    Some(Timestamp::from_seconds(
        as_utc.seconds.saturating_sub(offset),
    ))
}

/// Prints the operations, the newest last.
pub fn print_events(events: &[OperationRecord], screen: &Screen) -> String {
    let Some(newest) = events.last() else {
        return "No operations are recorded since the node started.\n".to_owned();
    };
    // One offset for all: the clock may have changed between two operations.
    let newest = Timestamp::parse(&newest.time).unwrap_or(Timestamp::from_seconds(0));
    let offset = screen_offset(newest);
    let [_, _, zone] = split_time(newest, offset);
    let time = format!("TIME ({zone})");
    let headings = [&time, "VERB", "RESULT", "MS", "ADDRESS", "WHO"].map(str::to_owned);
    let rows = events.iter().map(|event| cells(event, offset));
    let rows = iter::once(headings).chain(rows).map(Vec::from).collect();
    let mut lines = screen.table(rows, 0);
    for (line, event) in lines.iter_mut().skip(1).zip(events) {
        let message = describe_rest(event);
        if !message.is_empty() {
            *line += &format!("  {}", screen.tint(Tint::Faint, &message));
        }
    }
    lines.join("\n") + "\n"
}

/// The message of an operation and who ran it, in one line, so that `grep` prints the whole operation. It may be longer than the screen is
/// wide.
fn describe_rest(event: &OperationRecord) -> String {
    let by = event.by.as_ref().map(|by| format!("by {by}"));
    let parts = [Some(event.msg.clone()), by];
    let words = parts
        .iter()
        .flatten()
        .flat_map(|part| part.split_whitespace());
    let words: Vec<&str> = words.collect();
    replace_control(&words.join(" "))
}

fn cells(event: &OperationRecord, offset: i32) -> [String; 6] {
    let result = match event.code {
        0 => "ok".to_owned(),
        code => format!("error {code}"),
    };
    let address = match event.all_addresses().as_slice() {
        [] => "-".to_owned(),
        [one] => one.to_string(),
        [first, others @ ..] => format!("{first} +{}", others.len()),
    };
    [
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
    let Holder {
        attachment, pod, ..
    } = &event.holder;
    match pod {
        Some(pod) => pod.clone(),
        None if !attachment.container_id.is_empty() => {
            shorten_container_id(&attachment.container_id)
        }
        None if !attachment.network.is_empty() => attachment.network.to_string(),
        None => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::FreedAddress;

    /// 2026-11-20T21:09:39Z.
    const NOW: i64 = 1_795_208_979;

    #[test]
    fn since_is_a_duration_or_a_time() {
        for (text, utc) in [
            ("39s", "2026-11-20T21:09:00Z"),
            ("9m39s", "2026-11-20T21:00:00Z"),
            ("1d21h9m39s", "2026-11-19T00:00:00Z"),
            ("0s", "2026-11-20T21:09:39Z"),
            ("2026-11-20T20:00:00+01:00", "2026-11-20T19:00:00Z"),
            ("2026-11-20T20:00:00.5Z", "2026-11-20T20:00:00.5Z"),
            ("20:00", "2026-11-20T20:00:00Z"),
            ("20:00:07", "2026-11-20T20:00:07Z"),
            ("2026-11-19 20:00", "2026-11-19T20:00:00Z"),
            ("2026-11-19T20:00:07", "2026-11-19T20:00:07Z"),
            ("2026-11-19", "2026-11-19T00:00:00Z"),
        ] {
            let since = parse_since(text, NOW).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(since.format(0), utc, "{text}");
        }
        for bad in [
            "",
            "7",
            "s",
            "7w",
            "7m3",
            "-7m",
            "1.5h",
            "yesterday",
            "25:00",
            "2026-13-01",
            "20",
            "99999999999999999999s",
            "999999999999999999d",
            "20:0",
            "\u{20ac}",
        ] {
            assert_eq!(parse_since(bad, NOW), None, "{bad}");
        }
    }

    fn of_pod(pod: &str) -> Holder {
        Holder {
            pod: Some(pod.to_owned()),
            ..Holder::default()
        }
    }

    fn event(time: &str, pod: &str, address: u8) -> OperationRecord {
        OperationRecord {
            time: time.into(),
            verb: "ADD".into(),
            holder: of_pod(pod),
            addresses: vec![[10, 224, 0, address].into()],
            ..OperationRecord::default()
        }
    }

    #[test]
    fn filters_apply_before_the_tail() {
        let mut reclaim = event("2026-11-20T21:00:04Z", "", 9);
        reclaim.holder = Holder::default();
        reclaim.freed = vec![FreedAddress {
            address: Some([10, 224, 0, 8].into()),
            holder: of_pod("default/web-1"),
        }];
        let events = vec![
            event("2026-11-20T21:00:01Z", "default/web-1", 5),
            // The local offset of another day.
            event("2026-11-20T22:00:02+01:00", "default/web-2", 6),
            event("no time", "kube-system/dns", 7),
            reclaim,
        ];
        let shown = |args: EventsArgs| {
            let (since, address) = parse_options(&args, NOW).unwrap();
            let found = select(events.clone(), &args, since, address);
            let found = found
                .iter()
                .map(|event| events.iter().position(|e| e == event));
            found.map(Option::unwrap).collect::<Vec<_>>()
        };
        let args = EventsArgs::default;
        let text = |text: &str| Some(text.to_owned());
        let since = text("2026-11-20T21:00:02Z");
        assert_eq!(shown(EventsArgs { since, ..args() }), [1, 2, 3]);
        assert_eq!(
            shown(EventsArgs {
                pod: text("web-1"),
                ..args()
            }),
            [0, 3]
        );
        let address = text("10.224.0.8");
        assert_eq!(shown(EventsArgs { address, ..args() }), [3]);
        let both = EventsArgs {
            pod: text("web"),
            tail: Some(2),
            ..args()
        };
        assert_eq!(shown(both), [1, 3]);
    }

    #[test]
    fn the_address_is_cut_before_the_pod() {
        let screen = Screen {
            width: Some(80),
            colours: false,
        };
        let event = OperationRecord {
            time: "2026-11-20T21:09:39Z".into(),
            verb: "ADD".into(),
            addresses: vec!["2001:db8:1234:1234:1234:1234:1234:1234".parse().unwrap()],
            holder: of_pod("default/web-7db6d8ff4d-x2x5z"),
            ..OperationRecord::default()
        };
        let text = print_events(&[event], &screen);
        assert!(text.contains("  2001:db.."), "{text}");
        assert!(text.ends_with("  default/web-7db6d8ff4d-x2x5z\n"), "{text}");
    }
}
