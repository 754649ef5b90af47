//! The form of each key of a configuration, with an example: what its errors tell.

/// The form of a key whose value is a string or one of our own kinds, to follow `KEY must be`.
pub(super) fn form(key: &str) -> &'static str {
    FORMS
        .iter()
        .find(|(known, _)| *known == key)
        .map_or("a string", |(_, form)| form)
}

/// Each key that can be wrong, with its form.
const FORMS: [(&str, &str); 26] = [
    ("cniVersion", "a string, for example \"1.0.0\""),
    ("name", "a string, for example \"azure\""),
    ("master", "a string, for example \"eth0\""),
    ("logLevel", "a string, for example \"info\""),
    (
        "ipam",
        "an object, for example {\"type\": \"azure-vnet-ipam\"}",
    ),
    ("ipam.type", "a string, for example \"azure-vnet-ipam\""),
    ("ipam.environment", "a string, for example \"azure\""),
    (
        "ipam.ipv6Environment",
        "a string, for example \"ipv6NodeIpam\"",
    ),
    (
        "ipam.families",
        "a list of \"ipv4\" and \"ipv6\", each once at most, with the family of ipam.subnet, for example [\"ipv4\", \"ipv6\"]",
    ),
    ("ipam.addressSpace", "a string, for example \"local\""),
    ("ipam.subnet", "a string, for example \"10.224.0.0/16\""),
    ("ipam.ipAddress", "a string, for example \"10.224.0.9\""),
    (
        "ipam.queryInterval",
        "a string of whole seconds above zero, for example \"10\"",
    ),
    (
        "ipam.queryUrl",
        "a string that begins with http:// or file:, for example \"file:///etc/interfaces.xml\"",
    ),
    (
        "ipam.kubeconfig",
        "a string, for example \"/var/lib/kubelet/kubeconfig\"",
    ),
    ("ipam.nodeName", "a string, for example \"aks-nodepool1-0\""),
    ("ipam.exclude", "a list, for example [\"10.224.0.128/25\"]"),
    ("ipam.cooldown", "whole seconds, for example 30"),
    (
        "ipam.statusWhenFull",
        "\"ready\" or \"error\", for example \"ready\"",
    ),
    (
        "ipam.routes",
        "a list of objects with dst and, if wanted, gw, for example [{\"dst\": \"10.0.0.0/8\", \"gw\": \"10.224.0.1\"}]",
    ),
    (
        "ipam.dns",
        "an object with nameservers, domain, search and options, for example {\"nameservers\": [\"10.0.0.10\"]}",
    ),
    ("args.cni.ips", IPS),
    ("runtimeConfig.ips", IPS),
    (
        "prevResult",
        "the result of an ADD, for example {\"ips\": [{\"address\": \"10.224.0.9/16\"}]}",
    ),
    ("cni.dev/valid-attachments", ATTACHMENTS),
    ("cni.dev/attachments", ATTACHMENTS),
];

const IPS: &str = "a list of addresses, for example [\"10.224.0.9\"]";
const ATTACHMENTS: &str =
    "a list of objects, for example [{\"containerID\": \"3f2a91c04d7e\", \"ifname\": \"eth0\"}]";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_has_an_example_that_is_json() {
        for (key, form) in FORMS {
            let (_, example) = form.split_once(", for example ").expect(key);
            serde_json::from_str::<serde_json::Value>(example).expect(key);
        }
    }
}
