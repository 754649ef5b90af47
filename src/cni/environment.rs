//! Reads the CNI variables (SPEC.md, "Parameters"; contract section 1).

use std::ffi::OsString;

use super::{CallError, Verb};

/// The CNI variables as they are spelled. An absent variable is an empty one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    /// CNI_COMMAND
    pub command: String,
    /// CNI_CONTAINERID
    pub container_id: String,
    /// CNI_NETNS
    pub netns: String,
    /// CNI_IFNAME
    pub if_name: String,
    /// CNI_ARGS
    pub args: String,
}

impl Environment {
    /// Reads the variables through `get`. Returns `None` without CNI_COMMAND: an operator started the
    /// program. Bytes that are not UTF-8 become replacement characters, which the checks refuse
    /// wherever the text matters.
    pub fn read(get: impl Fn(&str) -> Option<OsString>) -> Option<Environment> {
        let text = |name| match get(name) {
            Some(value) => value.to_string_lossy().into_owned(),
            None => String::new(),
        };
        let environment = Environment {
            command: text("CNI_COMMAND"),
            container_id: text("CNI_CONTAINERID"),
            netns: text("CNI_NETNS"),
            if_name: text("CNI_IFNAME"),
            args: text("CNI_ARGS"),
        };
        (!environment.command.is_empty()).then_some(environment)
    }

    /// Returns the verb; `None` if it is unknown.
    pub fn verb(&self) -> Option<Verb> {
        Verb::parse(&self.command)
    }

    /// Checks that all variables that the verb needs are set. No verb needs CNI_PATH (difference
    /// D17).
    ///
    /// # Errors
    /// The error lists all missing variables, in the original's order.
    pub fn check_required(&self) -> Result<(), CallError> {
        let container_id = ("CNI_CONTAINERID", &self.container_id);
        let netns = ("CNI_NETNS", &self.netns);
        let if_name = ("CNI_IFNAME", &self.if_name);
        let Some(verb) = self.verb() else {
            return Ok(());
        };
        let required = match verb {
            Verb::Add | Verb::Check => vec![container_id, netns, if_name],
            Verb::Del => vec![container_id, if_name],
            Verb::Gc | Verb::Status | Verb::Version => vec![],
        };
        let missing: Vec<_> = required
            .into_iter()
            .filter(|(_, value)| value.is_empty())
            .map(|(name, _)| name)
            .collect();
        if missing.is_empty() {
            Ok(())
        } else {
            Err(CallError::MissingVariables(verb, missing))
        }
    }

    /// Iterates over the values of `name` in CNI_ARGS. Empty values are skipped.
    pub fn args<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.arg_pairs()
            .filter(move |(key, value)| *key == name && !value.is_empty())
            .map(|(_, value)| value)
    }

    /// Iterates over the pairs in CNI_ARGS. As in the original, a part that is not a pair is
    /// skipped.
    fn arg_pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.args.split(';').filter_map(|part| part.split_once('='))
    }

    /// Returns the first value of `name` in CNI_ARGS.
    pub fn arg<'a>(&'a self, name: &'a str) -> Option<&'a str> {
        self.args(name).next()
    }

    /// Returns whether an agent of Kubernetes requests an address for itself, as cilium-agent does for its ingress. Such a call names a
    /// pod but no sandbox, which every runtime passes. Its container ID does not have the form of a runtime's.
    pub fn is_from_agent(&self) -> bool {
        self.arg("K8S_POD_NAME").is_some()
            && self.arg("K8S_POD_INFRA_CONTAINER_ID").is_none()
            && !is_runtime_id(&self.container_id)
    }

    /// Returns the unknown keys in CNI_ARGS. If `IgnoreUnknown` is set, there are none.
    pub fn unknown_args(&self) -> Vec<String> {
        const KNOWN: [&str; 6] = [
            "IP",
            "IgnoreUnknown",
            "K8S_POD_INFRA_CONTAINER_ID",
            "K8S_POD_NAME",
            "K8S_POD_NAMESPACE",
            "K8S_POD_UID",
        ];
        let ignore_unknown = self.arg("IgnoreUnknown");
        if matches!(ignore_unknown, Some("1" | "true" | "True" | "TRUE")) {
            return Vec::new();
        }
        self.arg_pairs()
            .map(|(name, _)| name)
            .filter(|name| !name.is_empty() && !KNOWN.contains(name))
            .map(str::to_owned)
            .collect()
    }

    /// Returns `namespace/name` of the pod from CNI_ARGS. It is for messages only, and identifies
    /// nothing.
    pub fn pod(&self) -> Option<String> {
        /// The maximum length of a name in Kubernetes.
        const MAX_NAME_LENGTH: usize = 253;
        let arg = |key| self.arg(key).filter(|value| value.len() <= MAX_NAME_LENGTH);
        let name = arg("K8S_POD_NAME")?;
        match arg("K8S_POD_NAMESPACE") {
            Some(namespace) => Some(format!("{namespace}/{name}")),
            None => Some(name.to_owned()),
        }
    }
}

/// Returns whether a container ID has the form that runtimes and cnitool use: hexadecimal digits, with or without hyphens. nerdctl puts
/// the name of a namespace before them.
fn is_runtime_id(id: &str) -> bool {
    /// A UUID has 32 digits, a hash 64. The name of a node, which agents use, may end with a UUID.
    const LEAST: usize = 32;
    const LEAST_AFTER_NAME: usize = 64;
    let is_number = |text: &str, least: usize| {
        let digits = text.bytes().filter(u8::is_ascii_hexdigit).count();
        let hyphens = text.bytes().filter(|b| *b == b'-').count();
        digits >= least && digits + hyphens == text.len()
    };
    let last = id.rsplit('-').next().unwrap_or(id);
    id.starts_with("cnitool-") || is_number(id, LEAST) || is_number(last, LEAST_AFTER_NAME)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod_from_args(args: &str) -> Option<String> {
        Environment {
            args: args.into(),
            ..Environment::default()
        }
        .pod()
    }

    #[test]
    fn the_pod_is_read_from_cni_args() {
        assert_eq!(
            pod_from_args("IgnoreUnknown=1;K8S_POD_NAMESPACE=a;K8S_POD_NAME=b"),
            Some("a/b".into())
        );
        assert_eq!(pod_from_args("K8S_POD_NAME=b"), Some("b".into()));
        for none in ["", "garbage", ";;=;=x", "K8S_POD_NAME=;K8S_POD_NAMESPACE=a"] {
            assert_eq!(pod_from_args(none), None, "{none}");
        }
    }

    #[test]
    fn unknown_args_are_listed_unless_they_are_to_be_ignored() {
        let unknown = |args: &str| {
            Environment {
                args: args.into(),
                ..Environment::default()
            }
            .unknown_args()
        };
        assert_eq!(unknown("A=1;IP=10.0.0.1;B=2;K8S_POD_UID=x"), ["A", "B"]);
        assert_eq!(unknown("A=1;IgnoreUnknown=false"), ["A"]);
        for none in [
            "",
            "A=1;IgnoreUnknown=1",
            "IgnoreUnknown=true;A=1",
            "garbage;;==",
        ] {
            assert_eq!(unknown(none), [""; 0], "{none}");
        }
    }

    #[test]
    fn an_agent_names_a_pod_and_no_sandbox() {
        const HASH: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
        let pod = "IgnoreUnknown=true;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=p";
        let sandbox = format!("{pod};K8S_POD_INFRA_CONTAINER_ID={HASH}");
        let after_name = format!("default-{HASH}");
        for (container_id, args, expected) in [
            ("cilium-ingress-node-1", pod, true),
            ("node-2f0c6a5e-0b9d-4b8e-9a51-6c1f0d3b7a92", pod, true),
            ("cilium-ingress-node-1", &sandbox, false),
            ("cilium-ingress-node-1", "", false),
            (HASH, pod, false),
            (&after_name, pod, false),
            ("cnitool-0123456789abcdef0123", pod, false),
            ("2f0c6a5e-0b9d-4b8e-9a51-6c1f0d3b7a92", pod, false),
        ] {
            let environment = Environment {
                container_id: container_id.to_owned(),
                args: args.to_owned(),
                ..Environment::default()
            };
            let found = environment.is_from_agent();
            assert_eq!(found, expected, "{container_id} {args}");
        }
    }
}
