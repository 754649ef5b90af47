//! Which operations `events` shows. Pure, but for the local time zone.

use std::net::IpAddr;
use std::time::Duration;

use crate::codec::named_address;
use crate::events::OperationRecord;
use crate::host::Timestamp;
use crate::ops::cli::EventsArgs;
use crate::ops::lease::matches_pod;
use crate::ops::outcome::CommandError;
use crate::ops::screen::{screen_offset, split_time};

/// The operations that are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Not older than this.
    since: Option<Timestamp>,
    /// For pods with this name or prefix.
    pod: Option<String>,
    /// On this address.
    address: Option<IpAddr>,
    /// The last ones, this many.
    tail: Option<usize>,
}

impl Filter {
    /// Parses the options. `now` is in seconds since 1970.
    ///
    /// # Errors
    /// An option has an invalid value.
    pub fn parse(args: &EventsArgs, now: i64) -> Result<Filter, CommandError> {
        let since = args.since.as_deref().map(|text| {
            parse_since(text, now).ok_or_else(|| {
                CommandError(format!(
                    "--since {text:?} is neither a duration such as 90s, 15m or 2h30m, nor a time such as 21:00, \"2026-11-20 21:00\" or 2026-11-20T21:00:00Z"
                ))
            })
        });
        let address = args.address.as_deref().map(|text| {
            named_address(text).ok_or_else(|| CommandError(format!("{text:?} is not an address")))
        });
        Ok(Filter {
            since: since.transpose()?,
            pod: args.pod.clone(),
            address: address.transpose()?,
            tail: args.tail,
        })
    }

    /// The operations that are wanted, of all in the order of their time.
    pub fn apply(&self, mut events: Vec<OperationRecord>) -> Vec<OperationRecord> {
        events.retain(|event| self.matches(event));
        let surplus = self.tail.map_or(0, |n| events.len().saturating_sub(n));
        events.drain(..surplus);
        events
    }

    fn matches(&self, event: &OperationRecord) -> bool {
        let is_pod = |pod: &Option<String>, wanted: &str| {
            pod.as_deref().is_some_and(|pod| matches_pod(wanted, pod))
        };
        // An operation whose time cannot be read may be wanted.
        let is_early =
            |since: Timestamp| Timestamp::parse(&event.time).is_some_and(|at| at < since);
        !self.since.is_some_and(is_early)
            && self.address.is_none_or(|address| event.touches(address))
            && self.pod.as_deref().is_none_or(|wanted| {
                is_pod(&event.pod, wanted)
                    || event.freed.iter().any(|freed| is_pod(&freed.pod, wanted))
            })
    }
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
        as_utc.seconds().saturating_sub(offset),
    ))
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
            assert_eq!(since.utc(), utc, "{text}");
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

    fn event(time: &str, pod: &str, address: u8) -> OperationRecord {
        OperationRecord {
            time: time.into(),
            verb: "ADD".into(),
            pod: Some(pod.into()),
            addresses: vec![[10, 224, 0, address].into()],
            ..OperationRecord::default()
        }
    }

    #[test]
    fn filters_apply_before_the_tail() {
        let mut reclaim = event("2026-11-20T21:00:04Z", "", 9);
        reclaim.pod = None;
        reclaim.freed = vec![FreedAddress {
            address: Some([10, 224, 0, 8].into()),
            container: String::new(),
            pod: Some("default/web-1".into()),
        }];
        let events = vec![
            event("2026-11-20T21:00:01Z", "default/web-1", 5),
            // The local offset of another day.
            event("2026-11-20T22:00:02+01:00", "default/web-2", 6),
            event("no time", "kube-system/dns", 7),
            reclaim,
        ];
        let shown = |args: EventsArgs| {
            let filter = Filter::parse(&args, NOW).unwrap();
            let found = filter.apply(events.clone());
            let found = found
                .iter()
                .map(|event| events.iter().position(|e| e == event));
            found.map(Option::unwrap).collect::<Vec<_>>()
        };
        let args = EventsArgs::default;
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(shown(args()), [0, 1, 2, 3]);
        assert_eq!(
            shown(EventsArgs {
                tail: Some(0),
                ..args()
            }),
            [0; 0]
        );
        assert_eq!(
            shown(EventsArgs {
                tail: Some(9),
                ..args()
            }),
            [0, 1, 2, 3]
        );
        let since = text("2026-11-20T21:00:02Z");
        assert_eq!(shown(EventsArgs { since, ..args() }), [1, 2, 3]);
        assert_eq!(
            shown(EventsArgs {
                pod: text("web-1"),
                ..args()
            }),
            [0, 3]
        );
        assert_eq!(
            shown(EventsArgs {
                pod: text("default/"),
                ..args()
            }),
            [0, 1, 3]
        );
        let address = text("10.224.0.8");
        assert_eq!(shown(EventsArgs { address, ..args() }), [3]);
        let both = EventsArgs {
            pod: text("web"),
            tail: Some(2),
            ..args()
        };
        assert_eq!(shown(both), [1, 3]);
        let bad = EventsArgs {
            address: text("10.224"),
            ..args()
        };
        assert!(Filter::parse(&bad, NOW).is_err());
    }
}
