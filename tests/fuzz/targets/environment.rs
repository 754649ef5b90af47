//! The CNI variables, with arbitrary values.
#![no_main]

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use azure_vnet_ipam::cni::{Call, Defaults, Environment, NAME, RawNetworkConfig};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|values: Vec<Vec<u8>>| {
    let names = [
        "CNI_COMMAND",
        "CNI_CONTAINERID",
        "CNI_NETNS",
        "CNI_IFNAME",
        "CNI_ARGS",
    ];
    let get = |name: &str| {
        let n = names.iter().position(|n| *n == name)?;
        values.get(n).cloned().map(OsString::from_vec)
    };
    let Some(environment) = Environment::read(get) else {
        return;
    };
    let _ = environment.pod();
    if environment.check_required().is_ok()
        && let Ok(call) = Call::parse(
            &environment,
            &RawNetworkConfig::read(br#"{"cniVersion":"1.0.0","name":"azure"}"#).expect("JSON"),
            &Defaults::default(),
            NAME,
        )
    {
        // Accepted values are safe in a file name and in a line of the log.
        let id = &call.attachment.container_id;
        assert!(
            id.bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b))
                && !id.starts_with('.')
        );
        assert!(call.attachment.if_name.len() <= 15 && !call.attachment.if_name.contains('/'));
    }
});
