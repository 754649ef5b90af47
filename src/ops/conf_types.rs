//! The JSON types that libcni, ptp and bridge need in the configuration of a plugin. Go's decoder refuses any other type.

use std::fmt::{self, Display};

use super::tree::Tree;
use crate::codec::is;

/// A JSON type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JsonType {
    Text,
    Boolean,
    Integer,
    Object,
    Texts,
    Booleans,
}

/// Keys and the types of their values.
type Keys = &'static [(&'static str, JsonType)];

/// What libcni reads of a plugin.
const OF_PLUGIN: Keys = &[
    ("cniVersion", JsonType::Text),
    ("name", JsonType::Text),
    ("type", JsonType::Text),
    ("capabilities", JsonType::Booleans),
    ("ipam", JsonType::Object),
    ("dns", JsonType::Object),
    ("prevResult", JsonType::Object),
];

/// What libcni reads of the objects in it.
const OF_OBJECTS: &[(&str, Keys)] = &[
    ("ipam", &[("type", JsonType::Text)]),
    (
        "dns",
        &[
            ("nameservers", JsonType::Texts),
            ("domain", JsonType::Text),
            ("search", JsonType::Texts),
            ("options", JsonType::Texts),
        ],
    ),
];

/// What ptp reads beside that.
const OF_PTP: Keys = &[("ipMasq", JsonType::Boolean), ("mtu", JsonType::Integer)];

/// What bridge reads beside that.
const OF_BRIDGE: Keys = &[
    ("enabledad", JsonType::Boolean),
    ("forceAddress", JsonType::Boolean),
    ("hairpinMode", JsonType::Boolean),
    ("ipMasq", JsonType::Boolean),
    ("isDefaultGateway", JsonType::Boolean),
    ("isGateway", JsonType::Boolean),
    ("macspoofchk", JsonType::Boolean),
    ("mtu", JsonType::Integer),
    ("promiscMode", JsonType::Boolean),
    ("vlan", JsonType::Integer),
];

impl JsonType {
    /// Whether Go reads the value as this type. It skips `null`.
    fn accepts(self, value: &Tree) -> bool {
        match (self, value) {
            (_, Tree::Other(raw)) if raw.get() == "null" => true,
            (JsonType::Text, Tree::Text(_)) | (JsonType::Object, Tree::Object(_)) => true,
            (JsonType::Boolean, Tree::Other(raw)) => matches!(raw.get(), "true" | "false"),
            // Go refuses 1500.0, too.
            (JsonType::Integer, Tree::Other(raw)) => raw.get().parse::<i64>().is_ok(),
            (JsonType::Texts, Tree::List(items)) => {
                items.iter().all(|item| JsonType::Text.accepts(item))
            }
            (JsonType::Booleans, Tree::Object(members)) => members
                .values()
                .all(|value| JsonType::Boolean.accepts(value)),
            _ => false,
        }
    }
}

impl Display for JsonType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            JsonType::Text => "a string",
            JsonType::Boolean => "true or false",
            JsonType::Integer => "a whole number",
            JsonType::Object => "an object",
            JsonType::Texts => "a list of strings",
            JsonType::Booleans => "an object with values that are true or false",
        })
    }
}

/// A key whose value has the wrong type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistyped {
    key: String,
    needed: JsonType,
}

impl Mistyped {
    /// Finds the first one. As in Go, the case of keys does not matter, and each of several spellings is read.
    fn find(object: &Tree, keys: Keys) -> Option<Mistyped> {
        object.members().find_map(|(key, value)| {
            let (_, needed) = keys.iter().find(|(known, _)| is(key, known))?;
            let mistyped = || Mistyped {
                key: key.clone(),
                needed: *needed,
            };
            (!needed.accepts(value)).then(mistyped)
        })
    }
}

impl Display for Mistyped {
    /// `mtu, which must be a whole number`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, which must be {}", self.key, self.needed)
    }
}

/// Why libcni refuses the configuration of a plugin, if the reason is the type of a value.
pub fn libcni_refusal(netconf: &Tree) -> Option<String> {
    if let Some(Mistyped { key, needed }) = Mistyped::find(netconf, OF_PLUGIN) {
        return Some(format!("{key} must be {needed}"));
    }
    OF_OBJECTS.iter().find_map(|(name, keys)| {
        let mut objects = netconf.members().filter(|(key, _)| is(key, name));
        let Mistyped { key, needed } = objects.find_map(|(_, o)| Mistyped::find(o, keys))?;
        Some(format!("{name}.{key} must be {needed}"))
    })
}

/// The first key of a main plugin of this type whose value it refuses.
pub fn mistyped_key(kind: &str, netconf: &Tree) -> Option<Mistyped> {
    let keys = match kind {
        "ptp" => OF_PTP,
        "bridge" => OF_BRIDGE,
        _ => return None,
    };
    Mistyped::find(netconf, keys)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(json: &str) -> Tree {
        Tree::parse(json.as_bytes()).unwrap()
    }

    #[test]
    fn values_that_libcni_refuses_are_found() {
        for (json, why) in [
            (r#"{"dns": "1.1.1.1"}"#, "dns must be an object"),
            (r#"{"DNS": {}, "dns": 1}"#, "dns must be an object"),
            (
                r#"{"Dns": {"Search": ["a", 1]}}"#,
                "dns.Search must be a list of strings",
            ),
            (r#"{"ipam": {"type": 1}}"#, "ipam.type must be a string"),
            (r#"{"ipam": []}"#, "ipam must be an object"),
            (r#"{"name": 1}"#, "name must be a string"),
            (
                r#"{"capabilities": {"portMappings": "true"}}"#,
                "capabilities must be an object with values that are true or false",
            ),
            (r#"{"prevResult": "x"}"#, "prevResult must be an object"),
        ] {
            assert_eq!(libcni_refusal(&tree(json)).as_deref(), Some(why), "{json}");
        }
        for json in [
            r#"{"dns": null, "ipam": null, "name": null, "capabilities": null}"#,
            r#"{"dns": {"nameservers": ["1.1.1.1", null], "x": 1}, "mtu": "1500"}"#,
            r#"{"capabilities": {"portMappings": true, "x": null}, "prevResult": {}}"#,
        ] {
            assert_eq!(libcni_refusal(&tree(json)), None, "{json}");
        }
    }

    #[test]
    fn values_that_a_main_plugin_refuses_are_found() {
        let found = |kind, json| mistyped_key(kind, &tree(json)).map(|found| found.to_string());
        for (kind, json, why) in [
            (
                "ptp",
                r#"{"ipMasq": "true"}"#,
                "ipMasq, which must be true or false",
            ),
            (
                "ptp",
                r#"{"MTU": "1500"}"#,
                "MTU, which must be a whole number",
            ),
            (
                "bridge",
                r#"{"mtu": 1500.0}"#,
                "mtu, which must be a whole number",
            ),
            (
                "bridge",
                r#"{"isgateway": 1}"#,
                "isgateway, which must be true or false",
            ),
        ] {
            assert_eq!(found(kind, json).as_deref(), Some(why), "{json}");
        }
        for (kind, json) in [
            (
                "ptp",
                r#"{"ipMasq": null, "mtu": 1500, "isGateway": "true"}"#,
            ),
            ("bridge", r#"{"ipMasq": true, "vlan": 0, "mtu": null}"#),
            ("macvlan", r#"{"mtu": "1500"}"#),
        ] {
            assert_eq!(found(kind, json), None, "{json}");
        }
    }
}
