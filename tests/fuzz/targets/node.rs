//! The answers of the Kubernetes API: a node object, or the reason of a refusal.
#![no_main]

use azure_vnet_ipam::source::parse;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    // 320 characters of the answer, and "..." if there are more.
    assert!(parse::parse_refusal(body).chars().count() <= 320 + "...".len());
    let Ok(node) = parse::node(body) else { return };
    if let Ok(pool) = node.pool("n1") {
        assert!(!pool.addresses.is_empty() && pool.addresses.len() <= 254);
        assert!(
            pool.addresses
                .iter()
                .all(|address| pool.subnet.contains(address))
        );
    }
});
