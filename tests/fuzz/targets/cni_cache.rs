//! A file of libcni's cache.
#![no_main]

use azure_vnet_ipam::evidence::parse;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|file: &[u8]| {
    if let Some(entry) = parse::cni_cache(file) {
        assert!(!entry.is_live, "only the kernel can tell");
        assert!(!entry.holder.is_unknown() || !entry.addresses.is_empty());
    }
});
