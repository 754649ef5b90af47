//! The network configurations that `check` reads. Other programs wrote them.
#![no_main]

use azure_vnet_ipam::ops::Tree;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|json: &[u8]| {
    if let Ok(tree) = Tree::parse(json) {
        let _ = tree.text_at("name");
        let _ = tree.clone();
    }
});
