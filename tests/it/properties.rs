//! Random and damaged texts for every parser. Random histories are in `model.rs`.

use azure_vnet_ipam::cni::{Call, Defaults, Environment, NAME, RawNetworkConfig};
use azure_vnet_ipam::ipam::Moment;
use azure_vnet_ipam::source::parse;
use azure_vnet_ipam::state::{Document, WriteStamp};
use proptest::prelude::*;

const SAVED: &[u8] = include_bytes!("../../testdata/states/format-4.json");
const BOOT_ID: Option<&str> = Some("8f3c5c52-0000-4000-8000-000000000001");

#[test]
fn an_unusual_layout_reads_as_the_usual_one() {
    let mut unusual = SAVED.to_vec();
    unusual.retain(|byte| !b"\n\t".contains(byte));
    let [unusual, usual] =
        [&unusual, SAVED].map(|text| Document::parse(text, BOOT_ID, Moment(0)).unwrap());
    assert!(unusual.ipam().holders().next().is_some());
    assert_eq!(unusual.ipam(), usual.ipam());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn parsers_survive_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = Document::parse(&bytes, None, Moment(0));
        let _ = parse::wire(&bytes[..]);
        let _ = parse::interfaces_file(&bytes);
        let environment = Environment {
            command: "ADD".into(), container_id: "c".into(), netns: "n".into(), if_name: "e".into(),
            args: String::from_utf8_lossy(&bytes).into_owned(),
        };
        if let Ok(raw_config) = RawNetworkConfig::read(&bytes) {
            let _ = Call::parse(&environment, &raw_config, &Defaults::default(), NAME);
        }
    }

    #[test]
    fn parsers_survive_damaged_documents(at in any::<prop::sample::Index>(), byte: u8, cut in any::<prop::sample::Index>()) {
        for text in [include_bytes!("../../testdata/wire.xml").to_vec(), SAVED.to_vec()] {
            let mut damaged = text.clone();
            *at.get_mut(&mut damaged) = byte;
            damaged.truncate(cut.index(text.len() * 4) + 1);
            let _ = parse::wire(&damaged[..]);
            if let Ok(mut document) = Document::parse(&damaged, BOOT_ID, Moment(0)) {
                let again = document.print(&document.origin.condition(), WriteStamp { version: "v0", time: "t", boot_id: BOOT_ID });
                let again = Document::parse(&again, BOOT_ID, Moment(0)).unwrap();
                prop_assert_eq!(again.ipam(), document.ipam());
            }
        }
    }
}
