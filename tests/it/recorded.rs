//! The recorded cases of the original, held against the program. A case agrees, or stands in `testdata/recorded/deviations.txt`
//! with the difference that is meant; a case that stands there and agrees after all fails too.
//!
//! Without root the cases run in a folder, with a wire server on loopback; the few that need mounts or routes wait for the
//! second test, which runs all of them with built-in paths and the wire server on its real address, in namespaces of its own.

mod compare;
mod world;

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::harness::package;
use world::World;

/// All recorded cases.
pub fn cases() -> Vec<Value> {
    let mut paths: Vec<_> = fs::read_dir(package().join("testdata/recorded")).unwrap().map(|e| e.unwrap().path()).collect();
    paths.retain(|p| p.extension().is_some_and(|e| e == "json"));
    paths.sort();
    paths.iter().map(|p| serde_json::from_slice(&fs::read(p).unwrap()).unwrap()).collect()
}

/// Case name to reason, and the names listed for cases that are not among the files here.
fn deviations() -> (BTreeMap<String, String>, Vec<String>) {
    let text = fs::read_to_string(package().join("testdata/recorded/deviations.txt")).unwrap();
    let mut listed = BTreeMap::new();
    let mut elsewhere = Vec::new();
    let names: Vec<_> = cases().iter().map(|c| c["name"].as_str().unwrap().to_owned()).collect();
    for line in text.lines() {
        let line = line.split('#').next().unwrap();
        let mut words = line.split_whitespace();
        let Some(name) = words.next() else { continue };
        let code = words.next().unwrap_or_default();
        let number = code.strip_prefix('D').and_then(|n| n.parse::<u32>().ok());
        assert!(number.is_some_and(|n| (1..=20).contains(&n)), "{line}: a reason is a D-code");
        assert!(words.next().is_some(), "{line}: and words");
        if names.iter().any(|n| n == name) {
            assert_eq!(listed.insert(name.to_owned(), code.to_owned()), None, "{name} is listed twice");
        } else {
            elsewhere.push(name.to_owned());
        }
    }
    (listed, elsewhere)
}

/// Runs the cases that `world` can run, and fails when the list of deviations is not the truth.
fn run(mut world: World) {
    let (listed, _) = deviations();
    let mut wrong = Vec::new();
    let mut counts = (0, 0, 0);
    for case in cases() {
        let name = case["name"].as_str().unwrap();
        if let Some(why) = world.cannot(&case) {
            println!("skipped  {name}: {why}");
            counts.2 += 1;
            continue;
        }
        match (world.run(&case), listed.get(name)) {
            (Ok(()), None) => counts.0 += 1,
            (Err(why), Some(code)) => {
                println!("meant    {name} [{code}]: {why}");
                counts.1 += 1;
            }
            (Err(why), None) => wrong.push(format!("differs  {name}: {why}")),
            (Ok(()), Some(code)) => wrong.push(format!("agrees   {name}, though listed under {code}")),
        }
    }
    println!("{} agree, {} differ as listed, {} skipped", counts.0, counts.1, counts.2);
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    assert!(counts.0 > 100, "hardly anything was compared");
}

#[test]
fn in_a_folder() {
    run(World::in_a_folder());
}

#[test]
#[ignore = "needs root, unshare and iproute2: all cases with built-in paths in private namespaces"]
fn in_private_namespaces() {
    const INNER: &str = "AZURE_VNET_IPAM_RECORDED_INNER";
    if std::env::var_os(INNER).is_some() {
        return run(World::in_private_namespaces());
    }
    let status = Command::new("unshare")
        .args(["-mn", "--propagation", "private", "sh", "-c", "ip link set lo up && exec \"$@\"", "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "recorded::in_private_namespaces", "--ignored", "--nocapture", "--test-threads=1"])
        .env(INNER, "1")
        .status()
        .unwrap();
    assert!(status.success());
}

#[test]
fn the_comparison_can_fail() {
    let case = cases().into_iter().find(|c| c["name"] == "add_ip_free").unwrap();
    let mut world = World::in_a_folder();
    assert_eq!(world.run(&case), Ok(()));
    let spoilt: [(&str, Value); 4] = [
        ("/steps/0/exit", 1.into()),
        ("/steps/0/stdout", "{\"ips\":[{\"address\":\"10.224.0.99/16\"}]}".into()),
        ("/steps/0/state_after/IPAM/AddressSpaces/local/Pools/10.224.0.0~116/RefCount", 7.into()),
        ("/steps/0/state_after/IPAM/AddressSpaces/local/Pools/10.224.0.0~116/Addresses/10.224.0.5/InUse", true.into()),
    ];
    for (pointer, value) in spoilt {
        let mut case = case.clone();
        *case.pointer_mut(pointer).unwrap() = value;
        assert!(world.run(&case).is_err(), "{pointer}");
    }
}
