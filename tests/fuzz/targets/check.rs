//! `check` on a whole node: with any content of the files, it makes a report that fits a screen.
#![no_main]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use azure_vnet_ipam::ops::check_text;
use libfuzzer_sys::fuzz_target;

/// The files, in the order of the parts of the input. The source is a saved answer of the wire server.
const FILES: [&str; 9] = [
    "var/run/azure-vnet-ipam.json",
    "var/run/.azure-vnet-ipam.backup",
    "var/run/azure-vnet/azure-vnet-ipam.lock",
    "var/run/azure-vnet/azure-vnet-ipam.fetch",
    "etc/cni/net.d/10-azure.conflist",
    "etc/azure-vnet-ipam.json",
    "var/run/azure-vnet.json",
    "var/lib/cni/results/azure-c1-eth0",
    "answer.xml",
];
/// The text between two parts of the input.
const SEPARATOR: &[u8] = b"\n--\n";

/// Returns the root folder of this process. Sets the source to the file in it.
fn root() -> &'static Path {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    ROOT.get_or_init(|| {
        let root =
            std::env::temp_dir().join(format!("azure-vnet-ipam-fuzz-{}", std::process::id()));
        for file in FILES {
            fs::create_dir_all(root.join(file).parent().unwrap()).unwrap();
        }
        let url = format!("file:{}", root.join("answer.xml").display());
        // SAFETY: no other thread runs yet.
        unsafe { std::env::set_var("AZURE_VNET_IPAM_QUERY_URL", url) };
        root
    })
}

fuzz_target!(|input: &[u8]| {
    let root = root();
    let mut rest = input;
    for file in FILES {
        let end = rest.windows(SEPARATOR.len()).position(|w| w == SEPARATOR);
        let (part, after) = match end {
            Some(end) => (&rest[..end], &rest[end + SEPARATOR.len()..]),
            None => (rest, &[][..]),
        };
        // An empty part is a missing file.
        match part.is_empty() {
            true => drop(fs::remove_file(root.join(file))),
            false => fs::write(root.join(file), part).unwrap(),
        }
        rest = after;
    }
    let text = check_text(root.to_owned());
    assert!(text.lines().count() <= 70, "{text}");
});
