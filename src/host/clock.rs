//! Reads the clocks: the boot clock for everything that is compared, the wall clock for people.

use std::fmt::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};
use tz::{LocalTimeType, TimeZone, TimeZoneSettings, UtcDateTime};

use super::{Paths, read_bounded, read_text};
use crate::ipam::Moment;

/// The file that shifts the boot clock of this process. Unset unless [`shift_boot_clock`] found
/// one.
static OFFSET_FILE: OnceLock<PathBuf> = OnceLock::new();

/// How often a wait reads a shifted clock, which may jump during the wait.
const SHIFTED_CLOCK_POLL: Duration = Duration::from_millis(10);

/// Shifts the boot clock of this process by the seconds in [`Paths::boot_clock_offset`], if that
/// file exists. It can exist only below `AZURE_VNET_IPAM_ROOT`. Tests let hours pass with it, even
/// while a call waits.
pub fn shift_boot_clock(paths: &Paths) {
    if let Some(file) = paths.boot_clock_offset().filter(|file| file.exists()) {
        // Fails only when it is set already.
        let _ = OFFSET_FILE.set(file);
    }
}

/// Returns the time on the boot clock.
pub fn boot_now() -> Moment {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(tv_sec).unwrap_or(0);
    let nanoseconds = u64::try_from(tv_nsec).unwrap_or(0);
    let offset = OFFSET_FILE.get().map_or(0, |file| read_offset(file));
    Moment(
        seconds
            .saturating_add(offset)
            .saturating_mul(1_000_000_000)
            .saturating_add(nanoseconds),
    )
}

/// Reads the whole seconds in the offset file; 0 when it has none.
fn read_offset(file: &Path) -> u64 {
    let text = read_text(file).unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

/// Returns how long a wait may block at once when `left` of boot time remains. That is all of it,
/// unless the clock is shifted.
pub fn block_at_most(left: Duration) -> Duration {
    match OFFSET_FILE.get() {
        None => left,
        Some(_) => left.min(SHIFTED_CLOCK_POLL),
    }
}

/// Sleeps until the boot clock shows this time.
pub fn sleep_until(time: Moment) {
    loop {
        let left = time.since(boot_now());
        if left.is_zero() {
            return;
        }
        std::thread::sleep(block_at_most(left));
    }
}

/// Returns the ID of this boot; `None` where /proc does not have it.
pub fn boot_id(paths: &Paths) -> Option<String> {
    const LONGEST: usize = 64;
    let text = read_text(&paths.boot_id()).ok()?;
    Some(text.trim().to_owned()).filter(|id| (1..=LONGEST).contains(&id.len()))
}

/// Returns the time on the wall clock.
pub fn wall_now() -> Timestamp {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(ClockId::Realtime);
    Timestamp {
        seconds: tv_sec,
        nanoseconds: u32::try_from(tv_nsec).unwrap_or(0),
    }
}

/// A time on the wall clock, for people: seconds since 1970, and nanoseconds. It is displayed in
/// the local time zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp {
    /// The seconds since 1970.
    pub seconds: i64,
    nanoseconds: u32,
}

impl Timestamp {
    /// Parses `2026-11-20T21:09:39.123+01:00`.
    pub fn parse(text: &str) -> Option<Timestamp> {
        let (date, time_and_zone) = text.split_once(['T', 't', ' '])?;
        let (year, month_and_day) = date.split_once('-')?;
        let (month, day) = month_and_day.split_once('-')?;

        let (time, zone) = time_and_zone.split_at(time_and_zone.find(['Z', 'z', '+', '-'])?);
        let (clock, fraction) = time.split_once('.').unwrap_or((time, ""));
        let (hour_and_minute, second) = clock.rsplit_once(':')?;
        let (hour, minute) = two_numbers(hour_and_minute)?;
        let nanoseconds = format!("{fraction:0<9.9}").parse().ok()?;

        let local = UtcDateTime::new(
            year.parse().ok()?,
            month.parse().ok()?,
            day.parse().ok()?,
            hour,
            minute,
            second.parse().ok()?,
            nanoseconds,
        )
        .ok()?;
        Some(Timestamp {
            seconds: local.unix_time().checked_sub(parse_offset(zone)?)?,
            nanoseconds,
        })
    }

    /// Creates a timestamp from whole seconds since 1970.
    pub const fn from_seconds(seconds: i64) -> Timestamp {
        Timestamp {
            seconds,
            nanoseconds: 0,
        }
    }

    /// Returns the offset of the local time zone at this time, in seconds east of UTC. It is from `TZ`
    /// or /etc/localtime, and 0 if neither can be read.
    pub fn local_offset(self) -> i32 {
        static ZONE: OnceLock<Option<TimeZone>> = OnceLock::new();
        let zone = ZONE.get_or_init(|| match std::env::var("TZ") {
            Ok(tz) => ZONES.parse_posix_tz(&tz).ok(),
            // Most nodes run on UTC. They have no such file, or a link to UTC. Reading a link is
            // faster than reading a zone file.
            Err(_) if local_time_is_utc(Path::new("/etc/localtime")) => None,
            Err(_) => ZONES.parse_local().ok(),
        });
        zone.as_ref()
            .and_then(|rules| rules.find_local_time_type(self.seconds).ok())
            .map_or(0, LocalTimeType::ut_offset)
    }

    /// Formats it as RFC 3339, `offset` seconds east of UTC, like the original's TimeStamp
    /// (contract section 5): with up to nine decimals, and without trailing zeros.
    pub fn format(self, offset: i32) -> String {
        let seconds = self.seconds.saturating_add(i64::from(offset));
        // Fails only for years that do not fit into 32 bits.
        let local = UtcDateTime::from_timespec(seconds, 0).unwrap_or(UtcDateTime::UNIX_EPOCH);
        let (year, month, day) = (local.year(), local.month(), local.month_day());
        let (hour, minute, second) = (local.hour(), local.minute(), local.second());
        let mut text = format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}");
        if self.nanoseconds != 0 {
            let decimals = format!(".{:09}", self.nanoseconds);
            text.push_str(decimals.trim_end_matches('0'));
        }
        if offset == 0 {
            text.push('Z');
        } else {
            let sign = if offset < 0 { '-' } else { '+' };
            let minutes = offset.unsigned_abs() / 60;
            let _ = write!(text, "{sign}{:02}:{:02}", minutes / 60, minutes % 60);
        }
        text
    }

    /// Formats it for the log, in the local time zone: `2026/11/20 21:09:39`.
    pub fn format_for_log(self) -> String {
        let mut text = self.to_string().replace('-', "/").replace('T', " ");
        text.truncate("2026/11/20 21:09:39".len());
        text
    }

    /// Formats it for syslog (RFC 3164), in the local time zone: `Nov 20 21:09:39`.
    pub fn format_for_syslog(self) -> String {
        const MONTHS: [&str; 12] = [
            "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
        ];
        let text = self.format_for_log();
        let [_, month, day, time] = text.split(['/', ' ']).collect::<Vec<_>>()[..] else {
            return text;
        };
        let number: usize = month.parse().unwrap_or_default();
        let name = MONTHS.get(number.wrapping_sub(1)).unwrap_or(&"Jan");
        format!("{name} {:>2} {time}", day.trim_start_matches('0'))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.format(self.local_offset()))
    }
}

/// Parses `Z` or `+01:00` to seconds.
fn parse_offset(zone: &str) -> Option<i64> {
    let (sign, (hours, minutes)) = match zone.split_at_checked(1)? {
        ("Z" | "z", "") => return Some(0),
        ("+", offset) => (1, two_numbers(offset)?),
        ("-", offset) => (-1, two_numbers(offset)?),
        _ => return None,
    };
    Some(sign * (i64::from(hours) * 3600 + i64::from(minutes) * 60))
}

fn two_numbers(text: &str) -> Option<(u8, u8)> {
    let (first, second) = text.split_once(':')?;
    Some((first.parse().ok()?, second.parse().ok()?))
}

/// The folders of time zones, and how their files are read.
const ZONES: TimeZoneSettings<'static> =
    TimeZoneSettings::new(TimeZoneSettings::DEFAULT_DIRECTORIES, |path| {
        /// The largest zone file takes a few KiB.
        const LIMIT: usize = 1 << 20;
        Ok(read_bounded(Path::new(path), LIMIT)?.required()?)
    });

fn local_time_is_utc(file: &Path) -> bool {
    match std::fs::read_link(file) {
        Ok(target) => {
            target.ends_with("UTC") || target.ends_with("UCT") || target.ends_with("Universal")
        }
        Err(e) => e.kind() == std::io::ErrorKind::NotFound,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_the_original_writes_them() {
        // `date -u -d @1795208979` is 2026-11-20 21:09:39.
        for (nanoseconds, offset, text) in [
            (380_892_147, 0, "2026-11-20T21:09:39.380892147Z"),
            (679_310_040, 0, "2026-11-20T21:09:39.67931004Z"),
            (0, 3600, "2026-11-20T22:09:39+01:00"),
            (500_000_000, -12_600, "2026-11-20T17:39:39.5-03:30"),
        ] {
            let time = Timestamp {
                seconds: 1_795_208_979,
                nanoseconds,
            };
            assert_eq!(time.format(offset), text);
        }
    }

    #[test]
    fn timestamps_of_every_zone_are_parsed() {
        for (text, utc) in [
            ("2026-11-20T21:09:39Z", "2026-11-20T21:09:39Z"),
            ("2026-11-20T22:09:39+01:00", "2026-11-20T21:09:39Z"),
            ("2026-11-20T17:39:39.5-03:30", "2026-11-20T21:09:39.5Z"),
            (
                "2026-12-31T23:30:00.123456789-01:00",
                "2027-01-01T00:30:00.123456789Z",
            ),
            (
                "2026-11-20 21:09:39.1234567891z",
                "2026-11-20T21:09:39.123456789Z",
            ),
        ] {
            let time = Timestamp::parse(text).unwrap();
            assert_eq!(time.format(0), utc);
            assert_eq!(Timestamp::parse(&time.format(0)), Some(time));
        }
        for bad in [
            "",
            "x",
            "2026-11-20",
            "2026-11-20T21:09:39",
            "2026-13-20T21:09:39Z",
            "2026-11-20T21:09:39+1",
            "2026-11-20T21:09:39.5",
            "2026-11-20T21:09:39*01:00",
            "\u{20ac}026-11-20T21:09:39Z",
            "2026-11-20T21:09:39+\u{20ac}:00",
        ] {
            assert_eq!(Timestamp::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn boot_clock_goes_forward() {
        let first = boot_now();
        assert!(boot_now() >= first && first > Moment(0));
    }
}
