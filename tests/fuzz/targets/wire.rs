//! The wire server's answer.
#![no_main]

use azure_vnet_ipam::source::parse;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|answer: &[u8]| {
    if let Ok(listing) = parse::wire(answer) {
        assert!(!listing.interfaces.is_empty());
    }
});
