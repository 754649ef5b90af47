//! Kubeconfigs.
#![no_main]

use azure_vnet_ipam::source::parse;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|file: &[u8]| {
    // The message is short, even for a large document.
    if let Err(wrong) = parse::kubeconfig(file) {
        assert!(wrong.to_string().len() < 8 << 10);
    }
});
