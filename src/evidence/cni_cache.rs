//! Evidence E1: libcni's cache of results. A file in it means that an ADD succeeded and its DEL has
//! not succeeded yet.
//!
//! libcni does not replace files atomically. A reader can find a file that is empty or
//! half-written. libcni ignores such files.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::slice;
use std::sync::atomic::Ordering;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::reader::{Progress, addresses, find_namespace, named_namespace};
use crate::codec::{self, object};
use crate::host::{Paths, ReadOutcome, boot_now, io_reason, read_bounded, wall_now};
use crate::ipam::{Attachment, Entry, EvidenceList, Holder, Kernel, Moment, UnreadablePart};

/// Larger files are not read.
const FILE_LIMIT: usize = 1 << 20;
/// A folder with more files is not read.
const FILES_LIMIT: usize = 100_000;

/// Reads all files of the cache.
pub fn read(paths: &Paths, kernel: &Kernel, progress: &Progress) -> EvidenceList {
    let folder = paths.cni_cache();
    let unreadable =
        |e: io::Error| EvidenceList::Unreadable(format!("{}: {}", folder.display(), io_reason(&e)));
    let files = match fs::read_dir(&folder) {
        Ok(files) => files,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return EvidenceList::Absent,
        Err(e) => return unreadable(e),
    };
    let mut entries = Vec::new();
    let mut doubtful = Vec::new();
    for (n, listed) in files.enumerate() {
        progress.cached.fetch_add(1, Ordering::Relaxed);
        let file = match listed {
            Ok(file) if n < FILES_LIMIT => file,
            Ok(_) => return unreadable(io::ErrorKind::FileTooLarge.into()),
            Err(e) => return unreadable(e),
        };
        let path = file.path();
        match read_bounded(&path, FILE_LIMIT) {
            Ok(ReadOutcome::Read(bytes)) => {
                if let Some(mut entry) = parse(&bytes) {
                    entry.file = path.display().to_string();
                    entry.is_live = find_namespace(paths, kernel, &mut entry);
                    // libcni before version 1.2 does not write `netns`.
                    entry.of_this_boot =
                        entry.holder.netns.is_none() && last_change(&path).is_some();
                    entries.push(entry);
                    continue;
                }
            }
            // The DEL of its pod removed the file after it was listed.
            Ok(ReadOutcome::Missing) => continue,
            Err(e) if e.kind() == io::ErrorKind::IsADirectory => continue,
            Ok(ReadOutcome::TooLarge) | Err(_) => {}
        }
        doubtful.push(UnreadablePart {
            name: file.file_name().to_string_lossy().into_owned(),
            changed: last_change(&path),
        });
    }
    EvidenceList::Read { entries, doubtful }
}

/// Returns when the file was last changed; `None` if that was before the machine started. The wall
/// clock may have been set since, so the moment is approximate. A file that cannot be examined
/// counts as changed now.
fn last_change(file: &Path) -> Option<Moment> {
    let written = fs::metadata(file).map_or(i64::MAX, |metadata| metadata.mtime());
    // A time in the future counts as now.
    let seconds = u64::try_from(wall_now().seconds.saturating_sub(written)).unwrap_or(0);
    let uptime = boot_now().since(Moment(0));
    let changed = uptime.checked_sub(Duration::from_secs(seconds))?;
    Some(Moment(0).after(changed))
}

/// Parses one file. It has the format of today's libcni, or the bare result that libcni wrote
/// before version 0.8, which has addresses only. Returns `None` for any other file.
pub fn parse(bytes: &[u8]) -> Option<Entry> {
    let mut cached: CacheEntry = codec::parse(bytes).ok()?;
    match &*cached.kind {
        "cniCacheV1" => {}
        "" => cached.result = codec::parse(bytes).unwrap_or_default(),
        _ => return None,
    }
    let network = if delegates(&cached.config) {
        String::new()
    } else {
        cached.network_name.clone()
    };
    let entry = Entry {
        holder: Holder {
            pod: cached.pod(),
            attachment: Attachment {
                network: network.into(),
                container_id: cached.container_id,
                if_name: cached.if_name.into(),
            },
            netns: named_namespace(cached.netns),
            ..Holder::default()
        },
        addresses: cached.result.addresses(),
        ..Entry::default()
    };
    (!entry.holder.is_unknown() || !entry.addresses.is_empty()).then_some(entry)
}

/// Returns whether the plugins of a configuration (in base64) delegate addresses to other plugins,
/// as Multus does. Those are called with the name of another network.
fn delegates(config: &str) -> bool {
    let json = STANDARD.decode(config).unwrap_or_default();
    let config: Value = serde_json::from_slice(&json).unwrap_or_default();
    let plugins = match config.get("plugins").and_then(Value::as_array) {
        Some(plugins) => plugins.as_slice(),
        None => slice::from_ref(&config),
    };
    plugins.iter().any(|plugin| plugin.get("type").is_some())
        && plugins.iter().all(|plugin| plugin.get("ipam").is_none())
}

object! { exact read
    #[derive(Default)]
    struct CacheEntry {
        "kind": kind: String,
        "config": config: String,
        "containerId": container_id: String,
        "networkName": network_name: String,
        "ifName": if_name: String,
        "netns": netns: String,
        "cniArgs" with(codec::compound): args: Vec<(String, String)>,
        "result": result: CachedResult,
    }
}

impl CacheEntry {
    /// Returns `namespace/name` of the pod, where `cniArgs` has both.
    fn pod(&self) -> Option<String> {
        let namespace = self.arg("K8S_POD_NAMESPACE")?;
        let name = self.arg("K8S_POD_NAME")?;
        Some(format!("{namespace}/{name}"))
    }

    /// Returns the value of the first of the `cniArgs` with this name.
    fn arg(&self, name: &str) -> Option<&str> {
        let (_, value) = self.args.iter().find(|(key, _)| key == name)?;
        Some(value)
    }
}

object! { exact read
    /// A result of any version of CNI.
    #[derive(Default)]
    struct CachedResult {
        "ips": ips: Vec<CachedIp>,
        "ip4": ip4: CachedIp,
        "ip6": ip6: CachedIp,
    }
}

object! { exact read
    #[derive(Default)]
    struct CachedIp {
        "address": address: Option<String>,
        "ip": ip: Option<String>,
    }
}

impl CachedResult {
    fn addresses(&self) -> Vec<IpAddr> {
        let texts = self
            .ips
            .iter()
            .chain([&self.ip4, &self.ip6])
            .filter_map(|ip| ip.address.as_deref().or(ip.ip.as_deref()));
        addresses(texts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn current_format_is_read() {
        let json = br#"{"kind":"cniCacheV1","containerId":"c1","config":"e30=","ifName":"eth0","networkName":"a-b","netns":"/run/netns/x","cniArgs":[["IgnoreUnknown","1"],["K8S_POD_NAMESPACE","default"],["K8S_POD_NAME","web-0"]],"result":{"cniVersion":"1.0.0","interfaces":[{"name":"eth0"}],"ips":[{"address":"10.1.0.5/16","interface":0},{"address":"fd00::5/64"}],"routes":[{"dst":"0.0.0.0/0"}]}}"#;
        let Entry {
            holder, addresses, ..
        } = parse(json).unwrap();
        let expected = Attachment {
            network: "a-b".into(),
            container_id: "c1".to_owned(),
            if_name: "eth0".into(),
        };
        assert_eq!(holder.attachment, expected);
        assert_eq!(holder.pod.as_deref(), Some("default/web-0"));
        assert_eq!(&*holder.netns.unwrap().path, "/run/netns/x");
        assert_eq!(
            addresses,
            ["10.1.0.5", "fd00::5"].map(|a| a.parse::<IpAddr>().unwrap())
        );
    }

    #[test]
    fn network_is_unknown_if_plugins_delegate() {
        for (config, is_known) in [
            (
                r#"{"type":"bridge","ipam":{"type":"azure-vnet-ipam"}}"#,
                true,
            ),
            (
                r#"{"plugins":[{"type":"ptp","ipam":{}},{"type":"portmap"}]}"#,
                true,
            ),
            (
                r#"{"type":"multus","delegates":[{"type":"ptp","ipam":{}}]}"#,
                false,
            ),
            (
                r#"{"plugins":[{"type":"multus"},{"type":"tuning"}]}"#,
                false,
            ),
            ("not JSON", true),
        ] {
            let encoded = STANDARD.encode(config);
            let json = format!(
                r#"{{"kind":"cniCacheV1","containerId":"c1","config":"{encoded}","ifName":"eth0","networkName":"a"}}"#
            );
            let network = parse(json.as_bytes()).unwrap().holder.attachment.network;
            assert_eq!(!network.is_empty(), is_known, "{config}");
        }
    }

    #[test]
    fn addresses_of_old_results_and_old_libcni_are_read() {
        let old = br#"{"cniVersion":"0.2.0","ip4":{"ip":"10.1.0.5/16","gateway":"10.1.0.1"},"ip6":{"ip":"fd00::5/64"}}"#;
        assert_eq!(parse(old).unwrap().addresses.len(), 2);
        let within = br#"{"kind":"cniCacheV1","containerId":"c1","ifName":"eth0","networkName":"a","result":{"cniVersion":"0.2.0","ip4":{"ip":"10.1.0.5/16"}}}"#;
        assert_eq!(parse(within).unwrap().addresses.len(), 1);
        let without = br#"{"kind":"cniCacheV1","containerId":"c1","ifName":"lo","networkName":"cni-loopback","result":null}"#;
        assert_eq!(parse(without).unwrap().holder.container_id(), "c1");
    }

    #[test]
    fn last_change_is_known_only_within_this_boot() {
        let path = std::env::temp_dir().join(format!("last-change-{}", std::process::id()));
        let file = fs::File::create(&path).unwrap();
        let uptime = boot_now().since(Moment(0));
        for (age, is_known) in [
            (Duration::ZERO, true),
            (uptime / 2, true),
            (uptime + Duration::from_secs(100), false),
        ] {
            file.set_modified(std::time::SystemTime::now() - age)
                .unwrap();
            let found = last_change(&path).map(|at| boot_now().since(at));
            assert_eq!(found.is_some(), is_known, "{age:?}");
            // The time of a file is rounded to seconds.
            let second = Duration::from_secs(1);
            assert!(
                found.is_none_or(|found| found + second >= age),
                "{found:?} {age:?}"
            );
        }
        fs::remove_file(&path).unwrap();
        let changed = last_change(&path).unwrap();
        assert!(
            boot_now().since(changed) < Duration::from_secs(60),
            "a missing file counts as changed now"
        );
    }

    #[test]
    fn half_written_or_foreign_file_is_not_read() {
        for bad in [
            &b""[..],
            b"{",
            b"[]",
            b"{}",
            b"null",
            br#"{"kind":"cniCacheV9","containerId":"c"}"#,
            br#"{"kind":"cniCacheV1","containerId":"c","result":{"ips":[{"addr"#,
        ] {
            assert!(parse(bad).is_none(), "{bad:?}");
        }
    }
}
