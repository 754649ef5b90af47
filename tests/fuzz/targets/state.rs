//! The state file: a state that can be parsed is printed to an equal one, and every operation on it keeps its invariants.
#![no_main]

use std::time::Duration;

use azure_vnet_ipam::ipam::{
    Attachment, Evidence, Exclusions, Family, Hint, Inventory, ListedPool, Moment, PoolSelector, Taken, Wanted,
    WantedAddress,
};
use azure_vnet_ipam::state::{Document, WriteStamp};
use libfuzzer_sys::fuzz_target;

const BOOT: Option<&str> = Some("8f3c5c52-0000-4000-8000-000000000001");
const NOW: Moment = Moment(1 << 50);

fn print(document: &mut Document) -> Vec<u8> {
    let stamp = WriteStamp {
        version: "v0",
        time: "t",
        boot_id: BOOT,
    };
    document.print(&document.origin.condition(), stamp)
}

fuzz_target!(|text: &[u8]| {
    let Ok(mut document) = Document::parse(text, BOOT, NOW) else {
        return;
    };
    let written = print(&mut document);
    let mut again = Document::parse(&written, BOOT, NOW).expect("what we write we read");
    let twice = print(&mut again);
    assert_eq!(
        Document::parse(&twice, BOOT, NOW).expect("again").ipam(),
        again.ipam()
    );

    let before = document.ipam().check();
    let attachment = Attachment {
        network: "azure".into(),
        container_id: "c1".into(),
        if_name: "eth0".into(),
    };
    let listed = ListedPool::new(
        "10.224.0.0/16".parse().expect("a net"),
        "eth0".into(),
        0,
        vec!["10.224.0.5".parse().expect("an address")],
    );
    let ipam = document.ipam_mut();
    let inventory = Inventory {
        pools: vec![listed],
    };
    ipam.merge(&inventory, NOW);
    for space in ipam.spaces.keys().cloned().collect::<Vec<_>>() {
        let any = WantedAddress {
            pool: PoolSelector::Any {
                family: Family::V4,
                if_name: None,
            },
            address: None,
            decides_family: false,
        };
        let wanted = Wanted {
            attachment: attachment.clone(),
            pod: None,
            netns: None,
            is_kept: false,
            space,
            configured_address: None,
            addresses: vec![any.clone()],
            cooldown: Duration::from_secs(30),
            exclude: Exclusions::default(),
        };
        let _ = ipam.allocate(&wanted, &any, &Taken::default(), NOW);
    }
    let candidates = ipam.candidates(|_, _, _| true, None, NOW);
    ipam.reclaim(candidates, &Evidence::default(), None, NOW);
    ipam.release(&attachment, Hint::default(), NOW);
    let worse: Vec<_> = ipam
        .check()
        .into_iter()
        .filter(|v| !before.contains(v))
        .collect();
    assert!(worse.is_empty(), "{worse:?}");
});
