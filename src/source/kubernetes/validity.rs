//! Until when a certificate is valid: the one field of X.509 that is read here, as rustls does not tell it of our own.

use tz::UtcDateTime;

const INTEGER: u8 = 0x02;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;

/// `notAfter` of a certificate in DER, in seconds since 1970; `None` where it is none.
pub fn not_after(certificate: &[u8]) -> Option<i64> {
    let (certificate, _) = inside(certificate, SEQUENCE)?;
    let (mut fields, _) = inside(certificate, SEQUENCE)?;
    if fields.first() == Some(&VERSION) {
        (_, fields) = inside(fields, VERSION)?;
    }
    for before in [INTEGER, SEQUENCE, SEQUENCE] {
        (_, fields) = inside(fields, before)?;
    }
    let (validity, _) = inside(fields, SEQUENCE)?;
    let (_, _, after) = element(validity)?;
    let (tag, text, _) = element(after)?;
    seconds(tag, str::from_utf8(text).ok()?)
}

/// The content of the first element, which must have this tag, and what follows it.
fn inside(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (found, content, rest) = element(der)?;
    (found == tag).then_some((content, rest))
}

/// Tag and content of the first element, and what follows it.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (tag, rest) = der.split_first()?;
    let (first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        ..=0x7f => (usize::from(*first), rest),
        0x81..=0x83 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(first - 0x80))?;
            let length = bytes.iter().fold(0, |n, b| n << 8 | usize::from(*b));
            (length, rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((*tag, content, rest))
}

/// `YYMMDDhhmmssZ`, of which years from 50 are of 1900, or `YYYYMMDDhhmmssZ`.
fn seconds(tag: u8, text: &str) -> Option<i64> {
    let digits = text.strip_suffix('Z')?;
    let long = match tag {
        UTC_TIME if digits.len() == 12 => {
            let century = if digits < "5" { "20" } else { "19" };
            format!("{century}{digits}")
        }
        GENERALIZED_TIME if digits.len() == 14 => digits.to_owned(),
        _ => return None,
    };
    if !long.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let two = |at: usize| long.get(at..at + 2)?.parse::<u8>().ok();
    let year = long.get(..4)?.parse().ok()?;
    let time = UtcDateTime::new(year, two(4)?, two(6)?, two(8)?, two(10)?, two(12)?, 0);
    time.ok().map(|time| time.unix_time())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_validity_is_read() {
        for (year, month, day, seconds) in [
            (2031, 2, 28, 1_930_003_200),
            (1999, 12, 31, 946_598_400),
            (2050, 1, 1, 2_524_608_000),
            (9999, 12, 31, 253_402_214_400),
        ] {
            let key = rcgen::KeyPair::generate().unwrap();
            let mut wanted = rcgen::CertificateParams::new(["a.example".to_owned()]).unwrap();
            wanted.not_before = rcgen::date_time_ymd(1990, 1, 1);
            wanted.not_after = rcgen::date_time_ymd(year, month, day);
            let certificate = wanted.self_signed(&key).unwrap();
            assert_eq!(not_after(certificate.der()), Some(seconds), "{year}");
            // No beginning of it is mistaken for a whole.
            for end in 0..certificate.der().len() {
                assert_eq!(not_after(&certificate.der()[..end]), None, "{end}");
            }
        }
    }

    #[test]
    fn what_is_no_time_is_none() {
        for (tag, text) in [
            (UTC_TIME, "20310228000000Z"),
            (GENERALIZED_TIME, "310228000000Z"),
            (UTC_TIME, "310229000000Z"),
            (UTC_TIME, "3102280000Z"),
            (UTC_TIME, "310228000000"),
            (UTC_TIME, "310228000000+0100"),
            (UTC_TIME, "-10228000000Z"),
            (INTEGER, "310228000000Z"),
        ] {
            assert_eq!(seconds(tag, text), None, "{text}");
        }
    }
}
