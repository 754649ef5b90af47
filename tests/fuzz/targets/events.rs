//! The file of the last operations.
#![no_main]

use azure_vnet_ipam::events;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &[u8]| {
    let _ = events::parse(text);
});
