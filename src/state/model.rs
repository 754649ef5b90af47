//! The whole state file: `IPAM`, our own key, and the keys of others, which are kept as they are.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::mem;

use serde_json::value::RawValue;

use super::apply::{Trust, judge_moments};
use super::condition::Condition;
use super::lock::is_same_boot;
use super::origin::{Origin, Save};
use super::original::Original;
use super::ours::{
    FORMAT, KEY, Loss, NEW_BOOT, Ours, PoolFacts, PoolRecords, RawOmitted, free_facts,
};
use crate::codec::{self, Cursor, Layout, Out, ParseError, Print, Read, go_json};
use crate::ipam::{Ipam, Moment, Usage};

/// The layout of the two objects.
const INSIDE: Layout = Layout::Lines(2);

/// The number of bytes by which most calls grow a state at most.
pub(super) const ROOM: usize = 1024;

/// The contents of the state file or of the backup.
#[derive(Debug, Default)]
pub struct Document {
    original: Original,
    /// Which save it is from.
    pub origin: Origin,
    /// The answer of a source that was merged last.
    pub refreshed: Option<Refreshed>,
    /// When it was read, if it was.
    read: Option<Moment>,
    others: BTreeMap<String, Box<RawValue>>,
    /// The buffer that it was read from. It is reused for the text to write, which needs no new pages.
    pub(super) buffer: Vec<u8>,
}

/// An answer of a source that was merged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refreshed {
    /// When it arrived.
    pub at: Moment,
    /// The name of the source.
    pub source: String,
}

/// What is written into a state beside its contents.
#[derive(Clone, Copy, Debug)]
pub struct WriteStamp<'a> {
    /// The version of this program, for a state that has none yet.
    pub version: &'a str,
    /// The present time, in the original's form.
    pub time: &'a str,
    /// The present boot.
    pub boot_id: Option<&'a str>,
}

impl Document {
    /// Reads a document. `null`s, missing keys and missing fields read as empty (difference D10).
    ///
    /// # Errors
    /// The text is not a JSON object, or a value under `IPAM` is not valid (contract section 5).
    pub fn parse(
        json: &[u8],
        boot_id: Option<&str>,
        now: Moment,
    ) -> Result<Box<Document>, codec::Error> {
        let mut document = Box::new(Document {
            read: Some(now),
            ..Document::default()
        });
        let mut own_key = None;
        codec::document(codec::utf8(json)?, |json| {
            json.object(&mut |name, json| document.read_member(name, json, &mut own_key))
        })?;
        let trusted = own_key.and_then(|key| document.judge_own_key(key, boot_id, now));
        let trust = trusted.as_ref().map(|(_, trust)| *trust);
        judge_moments(document.ipam_mut(), now, trust);
        if let Some((facts, trust)) = trusted {
            let is_edited = facts.apply(&mut document.original, trust);
            if let Origin::Ours(save) = &mut document.origin {
                save.is_edited = is_edited;
            }
        }
        document.ipam_mut().share_releases();
        Ok(document)
    }

    /// Reads a member of the top level. The names are case-sensitive.
    fn read_member<'de>(
        &mut self,
        name: &str,
        json: &mut Cursor<'de>,
        own_key: &mut Option<OwnKey<'de>>,
    ) -> Result<(), ParseError> {
        match name {
            IPAM => {
                self.original = Original::default();
                self.original.read(json)?;
                // Reading our key changes the records. A key before `IPAM` must therefore be read again.
                if let Some(key) = own_key {
                    *key = OwnKey::read(&mut Cursor::new(key.text), &mut self.original.ipam)?;
                }
            }
            KEY => *own_key = Some(OwnKey::read(json, &mut self.original.ipam)?),
            _ => {
                self.others.insert(name.to_owned(), json.raw()?);
            }
        }
        Ok(())
    }

    /// Takes the facts about the whole state from our key. Returns the facts about addresses, if they can be used.
    fn judge_own_key<'de>(
        &mut self,
        own_key: OwnKey<'de>,
        boot_id: Option<&str>,
        now: Moment,
    ) -> Option<(Ours<'de, PoolFacts<'de>>, Trust)> {
        let OwnKey {
            facts: mut found,
            read,
            text,
        } = own_key;
        if found.format > FORMAT {
            self.origin = Origin::Newer {
                format: found.format,
                boot_id: found.boot_id.take().map(Cow::into_owned),
                key: text.to_owned(),
            };
            return None;
        }
        let is_same_boot = is_same_boot(found.boot_id.as_deref(), boot_id);
        let trust = Trust {
            same_boot: is_same_boot,
            overtaken: found.time_stamp != self.original.time_stamp,
            now,
        };
        // A key of an older format has the same facts about addresses. Only the node shows whether an address is missing.
        if read.is_ok() && (1..FORMAT).contains(&found.format) {
            let is_in_quarantine = found.quarantine_until.is_some_and(|until| until > now.0);
            let is_whole = is_same_boot && found.loss.is_none() && !is_in_quarantine;
            self.origin = Origin::Older(is_whole.then_some(found.generation));
            return Some((found, trust));
        }
        if let Err(why) = read.and_then(|()| found.check()) {
            self.origin = Origin::Unreadable(why);
            return None;
        }
        let condition = match (found.loss.take(), found.pending.as_deref()) {
            (Some(loss), _) if is_same_boot => Condition::Lost(Loss {
                seen: loss.seen.min(now),
                ..loss
            }),
            (_, None) => Condition::Ready,
            // In an unknown boot nothing is released.
            (_, Some(NEW_BOOT)) if boot_id.is_some() => Condition::NewBoot,
            (_, Some(_)) => Condition::Reconcile,
        };
        let refreshed = found.refreshed.filter(|at| is_same_boot && *at <= now.0);
        self.refreshed = refreshed
            .zip(found.source.take())
            .map(|(at, source)| Refreshed {
                at: Moment(at),
                source: source.into_owned(),
            });
        self.origin = Origin::Ours(Save {
            number: found.generation,
            boot_id: found.boot_id.take().map(Cow::into_owned),
            condition,
            is_overtaken: trust.overtaken,
            is_edited: false,
        });
        Some((found, trust))
    }

    /// Returns whether reading set the moment of a holder or a release. Until the state is saved, each call uses its own moment.
    pub fn has_unsaved_moments(&self) -> bool {
        let is_new = |usage: &Usage| match usage {
            Usage::Held(held) => Some(held.since) == self.read,
            Usage::Free(free) => free.released.is_some() && free.released == self.read,
        };
        let mut records = self.ipam().pools().flat_map(|(_, _, pool)| &pool.records);
        records.any(|record| is_new(&record.usage))
    }

    /// Returns when the last answer of this source was merged, if no other source has answered since.
    pub fn refreshed_by(&self, source: &str) -> Option<Moment> {
        let refreshed = self.refreshed.as_ref();
        Some(refreshed.filter(|refreshed| refreshed.source == source)?.at)
    }

    /// Returns whether it has pools or our key. Otherwise it counts as a missing file.
    pub(super) fn has_content(&self) -> bool {
        matches!(self.origin, Origin::Ours(_) | Origin::Newer { .. }) || !self.is_empty()
    }

    /// Returns whether it has no pools.
    pub fn is_empty(&self) -> bool {
        self.ipam().pools().next().is_none()
    }

    /// Returns the version of the program that created it; empty for a new state.
    pub fn version(&self) -> &str {
        &self.original.version
    }

    /// Returns the addresses.
    pub fn ipam(&self) -> &Ipam {
        &self.original.ipam
    }

    /// Returns the addresses, mutably.
    pub fn ipam_mut(&mut self) -> &mut Ipam {
        &mut self.original.ipam
    }

    /// Prints the text to write, with the work that is pending by the condition. Under `IPAM` it has the original's layout byte for byte.
    /// The top-level keys are sorted by their bytes.
    pub fn print(&mut self, condition: &Condition, stamp: WriteStamp<'_>) -> Vec<u8> {
        if self.original.version.is_empty() {
            stamp.version.clone_into(&mut self.original.version);
        }
        stamp.time.clone_into(&mut self.original.time_stamp);
        let mut out = Out::reusing(mem::take(&mut self.buffer));
        let mut names: Vec<&str> = self.others.keys().map(String::as_str).collect();
        let keys: &[&str] = if condition.may_be_fresh() {
            &[IPAM]
        } else {
            &[IPAM, KEY]
        };
        for ours in keys {
            names.insert(names.partition_point(|name| name < ours), *ours);
        }
        out.byte(b'{');
        for (n, name) in names.into_iter().enumerate() {
            if n > 0 {
                out.byte(b',');
            }
            go_json::line(&mut out, 1);
            go_json::string(&mut out, name);
            out.literal(": ");
            match (name, &self.origin, self.others.get(name)) {
                (IPAM, _, _) => self.original.print(&mut out, INSIDE),
                (KEY, Origin::Newer { key, .. }, _) => go_json::reindented(&mut out, key, 1),
                (KEY, _, _) => self
                    .own_key(condition, stamp.boot_id)
                    .print(&mut out, INSIDE),
                (_, _, Some(raw)) => go_json::reindented(&mut out, raw.get(), 1),
                (_, _, None) => out.literal("null"),
            }
        }
        out.literal("\n}");
        out.into_bytes()
    }

    /// Returns the value to print under our key.
    fn own_key<'a>(
        &'a self,
        condition: &Condition,
        boot_id: Option<&'a str>,
    ) -> Ours<'a, PoolRecords<'a>> {
        let ipam = self.ipam();
        let pending = match condition {
            Condition::Reconcile => Some("reconcile"),
            Condition::NewBoot => Some(NEW_BOOT),
            _ => None,
        };
        let omitted = ipam.omitted.iter().map(|(address, free)| RawOmitted {
            address: Some(*address),
            facts: free_facts(free),
        });
        Ours {
            format: FORMAT,
            boot_id: boot_id.map(Cow::Borrowed),
            time_stamp: Cow::Borrowed(&self.original.time_stamp),
            generation: ipam.generation,
            pending: pending.map(Cow::Borrowed),
            loss: condition.lost().cloned(),
            refreshed: self.refreshed.as_ref().map(|refreshed| refreshed.at.0),
            source: self
                .refreshed
                .as_ref()
                .map(|refreshed| Cow::Borrowed(&*refreshed.source)),
            quarantine_until: ipam.quarantine.map(|until| until.0),
            tombstones: ipam.tombstones.clone(),
            omitted: omitted.collect(),
            pools: PoolRecords(&ipam.spaces),
        }
    }
}

/// The original's key.
const IPAM: &str = "IPAM";

/// Our own key: its contents or why it cannot be read, and its text.
struct OwnKey<'de> {
    facts: Ours<'de, PoolFacts<'de>>,
    read: Result<(), ParseError>,
    text: &'de str,
}

impl<'de> OwnKey<'de> {
    /// Reads our key. Entries that have only a release are put into these records.
    fn read(json: &mut Cursor<'de>, ipam: &mut Ipam) -> Result<Self, ParseError> {
        let start = *json;
        let mut facts = Ours::<PoolFacts<'_>>::default();
        mem::swap(&mut facts.pools.ipam, ipam);
        let read = facts.read(json);
        mem::swap(&mut facts.pools.ipam, ipam);
        if read.is_err() {
            *json = start;
            json.skip()?;
            // A newer format may have other types, but it has a format number.
            let _ = Cursor::new(json.since(start)).object(&mut |key, json| match key {
                "format" => facts.format.read(json),
                _ => json.skip(),
            });
        }
        Ok(OwnKey {
            facts,
            read,
            text: json.since(start),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::ipam::testing::{allocate, attachment, record, wanted, with_pools};
    use crate::ipam::{Free, Hint, Holder, NetNs, Wanted};

    const NOW: Moment = Moment(5_000);
    const BOOT: Option<&str> = Some("boot-1");

    fn parse(json: &[u8]) -> Box<Document> {
        Document::parse(json, BOOT, NOW).unwrap()
    }

    fn print(document: &mut Document) -> Vec<u8> {
        let stamp = WriteStamp {
            version: "v0",
            time: "t",
            boot_id: BOOT,
        };
        document.print(&Condition::Ready, stamp)
    }

    /// Returns a document in which `c1` holds 10.1.0.5, and 10.1.0.6 was released.
    fn used() -> Document {
        let mut ipam = with_pools(&[("10.1.0.0/16", 0, &["10.1.0.5", "10.1.0.6", "10.1.0.7"])]);
        let netns = NetNs {
            path: "/run/netns/a\"b".into(),
            id: Some((4, 4_026_532_198)),
            cookie: None,
        };
        for container_id in ["c1", "c2"] {
            let wanted = Wanted {
                pod: Some("default/p1".to_owned()),
                netns: Some(netns.clone()),
                ..wanted(container_id)
            };
            allocate(&mut ipam, &wanted, Moment(1_000)).unwrap();
        }
        ipam.release(&attachment("c2", "eth0"), Hint::default(), Moment(2_000));
        let mut document = Document::default();
        *document.ipam_mut() = ipam;
        document
    }

    fn printed() -> Value {
        serde_json::from_slice(&print(&mut used())).unwrap()
    }

    #[test]
    fn own_facts_are_equal_after_print_and_parse() {
        let mut document = used();
        let ipam = document.ipam_mut();
        ipam.quarantine = Some(Moment(9_000));
        ipam.note_early_del(&attachment("early", "eth0"), Moment(4_000));
        ipam.note_early_del(&attachment("earlier\"<", "eth0"), Moment(4_500));
        let omitted = Free {
            released: Some(Moment(4_000)),
            ..Free::default()
        };
        ipam.omitted.insert("10.1.0.99".parse().unwrap(), omitted);
        for address in ["10.1.0.5", "10.1.0.6", "10.1.0.7"] {
            match &mut record(ipam, address).usage {
                Usage::Held(held) => {
                    (held.suspect, held.unlisted) = (Some(Moment(3_000)), Some(Moment(2_000)))
                }
                Usage::Free(free) => free.on_host = true,
            }
        }
        let text = print(&mut document);
        let mut again = parse(&text);
        assert_eq!(again.ipam(), document.ipam());
        assert!(again.origin.is_ours());
        assert_eq!(print(&mut again), text, "and is written the same");
    }

    #[test]
    fn releases_are_read_from_readable_key_in_any_position() {
        let text = String::from_utf8(print(&mut used())).unwrap();
        let released = |text: &str| {
            let mut document = parse(text.as_bytes());
            let free = record(document.ipam_mut(), "10.1.0.6").free().cloned();
            free.unwrap().released
        };
        assert_eq!(released(&text), Some(Moment(2_000)));
        let members: BTreeMap<String, Box<RawValue>> = serde_json::from_str(&text).unwrap();
        let (original, ours) = (&members[IPAM], &members[KEY]);
        let first = format!("{{\"{KEY}\":{ours},\"{IPAM}\":{original}}}");
        assert_eq!(released(&first), Some(Moment(2_000)), "before the records");
        let start = text.strip_suffix("\n\t}\n}").unwrap();
        for (format, expected) in [("1", Some(Moment(2_000))), ("true", None)] {
            let other = format!("{start}, \"format\": {format}}}}}");
            assert_eq!(released(&other), expected, "{format}");
        }
        assert_eq!(released(&text.replace("boot-1", "boot-2")), None);
    }

    /// Returns the holder of the address that `c1` holds.
    fn holder(document: &mut Document) -> Holder {
        let held = record(document.ipam_mut(), "10.1.0.5").held();
        Holder::clone(&held.unwrap().holder)
    }

    #[test]
    fn damaged_own_key_leaves_records_intact() {
        for key in [
            json!(7),
            json!(null),
            json!([]),
            json!({ "format": 0 }),
            json!({ "format": 4, "records": { "local": { "10.1.0.0/16": { "x": {} } } } }),
        ] {
            let mut value = printed();
            value[KEY] = key.clone();
            let mut document = parse(value.to_string().as_bytes());
            assert!(matches!(document.origin, Origin::Unreadable(_)), "{key}");
            assert_eq!(document.origin.condition(), Condition::Reconcile, "{key}");
            assert_eq!(
                holder(&mut document),
                Holder::from_container_id("c1"),
                "{key}"
            );
        }
        let mut value = printed();
        let pool = &mut value["IPAM"]["AddressSpaces"]["local"]["Pools"]["10.1.0.0/16"];
        pool["Addresses"]["10.1.0.5"]["ID"] = "c9".into();
        let mut document = parse(value.to_string().as_bytes());
        assert_eq!(holder(&mut document), Holder::from_container_id("c9"));
    }

    #[test]
    fn loss_with_future_moment_counts_as_seen_now() {
        for (seen, expected) in [(NOW.0 - 1, NOW.0 - 1), (NOW.0 + 1, NOW.0)] {
            let mut value = printed();
            value[KEY]["lost"] = json!({ "why": "it is gone", "seen": seen });
            let document = parse(value.to_string().as_bytes());
            assert_eq!(
                document.origin.condition().lost().unwrap().seen,
                Moment(expected)
            );
        }
    }

    #[test]
    fn members_of_former_versions_are_ignored() {
        let mut former = printed();
        former[KEY]["listingDigest"] = 7.into();
        let mut document = parse(former.to_string().as_bytes());
        assert!(document.origin.is_ours());
        let again: Value = serde_json::from_slice(&print(&mut document)).unwrap();
        assert_eq!(again[KEY].get("listingDigest"), None);
    }

    #[test]
    fn nulls_and_missing_fields_read_as_empty() {
        for json in [
            "null",
            "{}",
            r#"{"IPAM":null}"#,
            r#"{"IPAM":{}}"#,
            r#"{"IPAM":{"AddressSpaces":null}}"#,
            r#"{"IPAM":{"AddressSpaces":{"local":null}}}"#,
            r#"{"IPAM":{"AddressSpaces":{"local":{"Pools":null}}}}"#,
            r#"{"IPAM":{"AddressSpaces":{"local":{"Pools":{"10.1.0.0/16":null}}}}}"#,
            r#"{"IPAM":{"AddressSpaces":{"local":{"Pools":{"10.1.0.0/16":{"Addresses":null,"Subnet":null}}}}}}"#,
            r#"{"IPAM":{"AddressSpaces":{"local":{"Pools":{"10.1.0.0/16":{"Addresses":{"10.1.0.5":null}}}}}}}"#,
        ] {
            let mut document = parse(json.as_bytes());
            assert!(matches!(document.origin, Origin::Foreign), "{json}");
            let again = print(&mut document);
            assert!(serde_json::from_slice::<Value>(&again).is_ok(), "{json}");
        }
    }

    #[test]
    fn invalid_state_is_an_error() {
        let pool = |members: &str| {
            format!(r#"{{"IPAM":{{"AddressSpaces":{{"local":{{"Pools":{{"p":{members}}}}}}}}}}}"#)
        };
        for bad in [
            "\n",
            "\0\0",
            "[]",
            "{} x",
            "{",
            "7",
            r#"{"IPAM":[]}"#,
            &pool(r#"{"RefCount":1.5}"#),
            &pool(r#"{"Subnet":{"Mask":"?"}}"#),
            &pool(r#"{"Addresses":{"10.1.0.5":{"Addr":"banana"}}}"#),
            &pool(r#"{"Addresses":{"10.1.0.5":{"InUse":"yes"}}}"#),
            &pool(r#"{"Addresses":{"banana":{}}}"#),
            &pool(r#"{"Addresses":{"":{}}}"#),
        ] {
            assert!(
                Document::parse(bad.as_bytes(), BOOT, NOW).is_err(),
                "{bad:?}"
            );
        }
    }
}
