//! The state of the main plugin azure-vnet.
#![no_main]

use azure_vnet_ipam::evidence::parse;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|file: &[u8]| {
    let _ = parse::azure_vnet(file);
});
