//! Reads the addresses of a network namespace from /proc, for namespaces that may not be entered.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use super::proc::{is_gone, read_list};

/// Reads the addresses of the network namespace of a process.
pub(super) fn read_addresses(process: &Path) -> io::Result<BTreeSet<IpAddr>> {
    let text = |name: &str| read_list(&process.join("net").join(name));
    let mut found = parse_fib_trie(&text("fib_trie")?);
    // The file is missing where IPv6 is off.
    let v6 = text("if_inet6").or_else(|e| {
        if is_gone(&e) {
            Ok(String::new())
        } else {
            Err(e)
        }
    })?;
    found.extend(v6.lines().filter_map(|line| {
        let bits = u128::from_str_radix(line.split_whitespace().next()?, 16).ok()?;
        Some(IpAddr::from(bits.to_be_bytes()).to_canonical())
    }));
    Ok(found)
}

/// Parses the local addresses in fib_trie: each is followed by the line `/32 host LOCAL`.
fn parse_fib_trie(fib_trie: &str) -> BTreeSet<IpAddr> {
    let mut found = BTreeSet::new();
    let mut leaf: Option<Ipv4Addr> = None;
    for line in fib_trie.lines().map(str::trim) {
        if let Some(address) = line.strip_prefix("|-- ") {
            leaf = address.parse().ok();
        } else if line == "/32 host LOCAL" {
            found.extend(leaf.map(IpAddr::V4));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_from_what_proc_shows() {
        let text = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe UNICAST\n     +-- 10.1.0.0/16 2 0 2\n        |-- 10.1.0.0\n           /16 link UNICAST\n        |-- 10.1.0.5\n           /32 host LOCAL\n     |-- 10.1.255.255\n        /32 link BROADCAST\nLocal:\n     |-- 127.0.0.1\n        /32 host LOCAL\n";
        let found: Vec<_> = parse_fib_trie(text)
            .into_iter()
            .map(|a| a.to_string())
            .collect();
        assert_eq!(found, ["10.1.0.5", "127.0.0.1"]);
        let ours = read_addresses(Path::new("/proc/self")).unwrap();
        assert!(ours.contains(&"127.0.0.1".parse().unwrap()));
    }
}
