//! Evidence E1: libcni's cache of results. A file there means that an ADD succeeded and its DEL has not succeeded yet.
//!
//! libcni does not replace files atomically: a reader can meet an empty or half-written one, which libcni ignores.

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

use super::reader::{Progress, addresses, find_namespace, named_namespace, not_empty};
use crate::codec::{self, object};
use crate::host::{Paths, ReadOutcome, boot_now, io_reason, read_bounded, wall_now};
use crate::ipam::{Entry, EvidenceList, Kernel, Moment, UnreadablePart};

/// Larger files are not read.
const FILE_LIMIT: usize = 1 << 20;
/// More files are not read.
const FILES_LIMIT: usize = 100_000;

/// Reads the whole folder.
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
    for (n, file) in files.enumerate() {
        progress.cached.fetch_add(1, Ordering::Relaxed);
        let file = match file {
            Ok(file) if n < FILES_LIMIT => file,
            Ok(_) => return unreadable(io::ErrorKind::FileTooLarge.into()),
            Err(e) => return unreadable(e),
        };
        let path = file.path();
        match read_bounded(&path, FILE_LIMIT) {
            Ok(ReadOutcome::Read(bytes)) => {
                if let Some(mut entry) = parse(&bytes) {
                    entry.is_live = find_namespace(paths, kernel, &mut entry);
                    // libcni before version 1.2 does not write `netns`.
                    entry.of_this_boot = entry.netns.is_none() && last_change(&path).is_some();
                    entries.push(entry);
                    continue;
                }
            }
            // The DEL of its pod removed it meanwhile.
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

/// Returns when the file was last changed, as far as the wall clock can be trusted; `None` if that was before the machine started. A
/// file that cannot be examined counts as changed now.
fn last_change(file: &Path) -> Option<Moment> {
    let written = fs::metadata(file).map_or(i64::MAX, |found| found.mtime());
    let age = wall_now().seconds.saturating_sub(written);
    let age = Duration::from_secs(u64::try_from(age).unwrap_or(0));
    let since_boot = boot_now().since(Moment(0));
    since_boot.checked_sub(age).map(|at| Moment(0).after(at))
}

/// Reads one file: what libcni writes today, or the bare result that it wrote before version 0.8, which has addresses only.
/// `None` when it is neither.
pub fn parse(bytes: &[u8]) -> Option<Entry> {
    let mut cached: CacheEntry = codec::parse(bytes).ok()?;
    match &*cached.kind {
        "cniCacheV1" => {}
        "" => cached.result = codec::parse(bytes).unwrap_or_default(),
        _ => return None,
    }
    let entry = Entry {
        pod: cached.pod(),
        container_id: cached.container_id,
        network: not_empty(cached.network_name).filter(|_| !delegates(&cached.config)),
        if_name: not_empty(cached.if_name),
        netns: named_namespace(cached.netns),
        addresses: cached.result.addresses(),
        ..Entry::default()
    };
    (!entry.container_id.is_empty() || !entry.addresses.is_empty()).then_some(entry)
}

/// Whether the plugins of a configuration, in base64, leave the addresses to plugins that they call, as Multus does. These get another
/// network's name.
fn delegates(config: &str) -> bool {
    let config = STANDARD.decode(config).unwrap_or_default();
    let config: Value = serde_json::from_slice(&config).unwrap_or_default();
    let plugins = config.get("plugins").and_then(Value::as_array);
    let plugins = plugins.map_or(slice::from_ref(&config), Vec::as_slice);
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
    /// `namespace/name`, where `cniArgs` has both.
    fn pod(&self) -> Option<String> {
        let arg = |name: &str| {
            let mut found = self.args.iter().filter(|(key, _)| key == name);
            found.next().map(|(_, value)| value.as_str())
        };
        Some(format!(
            "{}/{}",
            arg("K8S_POD_NAMESPACE")?,
            arg("K8S_POD_NAME")?
        ))
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
        let all = self.ips.iter().chain([&self.ip4, &self.ip6]);
        addresses(all.filter_map(|ip| ip.address.as_deref().or(ip.ip.as_deref())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn current_format_is_read() {
        let json = br#"{"kind":"cniCacheV1","containerId":"c1","config":"e30=","ifName":"eth0","networkName":"a-b","netns":"/run/netns/x","cniArgs":[["IgnoreUnknown","1"],["K8S_POD_NAMESPACE","default"],["K8S_POD_NAME","web-0"]],"result":{"cniVersion":"1.0.0","interfaces":[{"name":"eth0"}],"ips":[{"address":"10.1.0.5/16","interface":0},{"address":"fd00::5/64"}],"routes":[{"dst":"0.0.0.0/0"}]}}"#;
        let entry = parse(json).unwrap();
        assert_eq!(
            (
                entry.container_id.as_str(),
                entry.network.as_deref(),
                entry.if_name.as_deref()
            ),
            ("c1", Some("a-b"), Some("eth0"))
        );
        assert_eq!(entry.pod.as_deref(), Some("default/web-0"));
        assert_eq!(&*entry.netns.unwrap().path, "/run/netns/x");
        assert_eq!(
            entry.addresses,
            ["10.1.0.5", "fd00::5"].map(|a| a.parse::<IpAddr>().unwrap())
        );
    }

    #[test]
    fn network_of_the_call_is_unknown_where_the_plugins_delegate() {
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
            let config = STANDARD.encode(config);
            let json = format!(
                r#"{{"kind":"cniCacheV1","containerId":"c1","config":"{config}","ifName":"eth0","networkName":"a"}}"#
            );
            let entry = parse(json.as_bytes()).unwrap();
            assert_eq!(entry.network.is_some(), is_known, "{config}");
        }
    }

    #[test]
    fn addresses_of_old_results_and_old_libcni_are_read() {
        let old = br#"{"cniVersion":"0.2.0","ip4":{"ip":"10.1.0.5/16","gateway":"10.1.0.1"},"ip6":{"ip":"fd00::5/64"}}"#;
        assert_eq!(parse(old).unwrap().addresses.len(), 2);
        let within = br#"{"kind":"cniCacheV1","containerId":"c1","ifName":"eth0","networkName":"a","result":{"cniVersion":"0.2.0","ip4":{"ip":"10.1.0.5/16"}}}"#;
        assert_eq!(parse(within).unwrap().addresses.len(), 1);
        let without = br#"{"kind":"cniCacheV1","containerId":"c1","ifName":"lo","networkName":"cni-loopback","result":null}"#;
        assert_eq!(parse(without).unwrap().container_id, "c1");
    }

    #[test]
    fn last_change_is_told_only_in_this_boot() {
        let path = std::env::temp_dir().join(format!("last-change-{}", std::process::id()));
        let file = fs::File::create(&path).unwrap();
        let now = || boot_now().since(Moment(0));
        for (age, is_told) in [
            (Duration::ZERO, true),
            (now() / 2, true),
            (now() + Duration::from_secs(100), false),
        ] {
            file.set_modified(std::time::SystemTime::now() - age)
                .unwrap();
            let told = last_change(&path).map(|at| boot_now().since(at));
            assert_eq!(told.is_some(), is_told, "{age:?}");
            // Files have whole seconds here.
            let second = Duration::from_secs(1);
            assert!(
                told.is_none_or(|told| told + second >= age),
                "{told:?} {age:?}"
            );
        }
        fs::remove_file(&path).unwrap();
        let told = last_change(&path).unwrap();
        assert!(
            boot_now().since(told) < Duration::from_secs(60),
            "as if changed now"
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
