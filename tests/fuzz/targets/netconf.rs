//! The network configuration on stdin.
#![no_main]

use azure_vnet_ipam::cni::{Call, Defaults, Environment, NAME};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|stdin: &[u8]| {
    for command in ["ADD", "DEL", "CHECK", "GC", "STATUS", "VERSION", "NONE"] {
        let environment = Environment {
            command: command.into(),
            container_id: "c1".into(),
            netns: "/var/run/netns/c1".into(),
            if_name: "eth0".into(),
            args: String::new(),
        };
        let _ = Call::parse(&environment, stdin, &Defaults::default(), NAME);
    }
    let _ = Call::read_version_request(stdin);
    let _ = Defaults::read(stdin);
});
