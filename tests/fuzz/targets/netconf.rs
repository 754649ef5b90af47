//! The network configuration on stdin.
#![no_main]

use azure_vnet_ipam::cni::{Call, Defaults, Environment, NAME, RawNetworkConfig};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|stdin: &[u8]| {
    let _ = Defaults::read(stdin);
    let Ok(raw_config) = RawNetworkConfig::read(stdin) else {
        return;
    };
    for command in ["ADD", "DEL", "CHECK", "GC", "STATUS", "VERSION", "NONE"] {
        let environment = Environment {
            command: command.into(),
            container_id: "c1".into(),
            netns: "/var/run/netns/c1".into(),
            if_name: "eth0".into(),
            args: String::new(),
        };
        let _ = Call::parse(&environment, &raw_config, &Defaults::default(), NAME);
    }
    let _ = raw_config.requested_version();
});
