//! /etc/kubernetes/interfaces.json.
#![no_main]

use azure_vnet_ipam::source::parse;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|file: &[u8]| {
    let _ = parse::interfaces_file(file);
});
