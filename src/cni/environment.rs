//! Reads the CNI variables (SPEC.md, "Parameters"; contract section 1).

use std::ffi::OsString;

use super::{CallError, Verb};

/// The CNI variables as they are spelled; absent and empty are the same.
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
    /// Reads the variables through `get`; `None` without CNI_COMMAND, when a person started the program. Bytes that are not UTF-8
    /// become replacement characters, which no check lets through where the text matters.
    pub fn read(get: impl Fn(&str) -> Option<OsString>) -> Option<Environment> {
        let text = |name| {
            get(name)
                .map(|v| v.to_string_lossy().into_owned())
                .unwrap_or_default()
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

    /// Checks that the variables are set that the verb needs. CNI_PATH is not among them (difference D17).
    ///
    /// # Errors
    /// All missing ones, in the original's order.
    pub fn check_required(&self) -> Result<(), CallError> {
        let container_id = ("CNI_CONTAINERID", &self.container_id);
        let netns = ("CNI_NETNS", &self.netns);
        let if_name = ("CNI_IFNAME", &self.if_name);
        let required = match self.verb() {
            Some(Verb::Add | Verb::Check) => vec![container_id, netns, if_name],
            Some(Verb::Del) => vec![container_id, if_name],
            Some(Verb::Gc | Verb::Status | Verb::Version) | None => vec![],
        };
        let missing: Vec<_> = required
            .into_iter()
            .filter(|(_, value)| value.is_empty())
            .map(|(name, _)| name)
            .collect();
        if missing.is_empty() {
            Ok(())
        } else {
            Err(CallError::MissingVariables(missing))
        }
    }

    /// Iterates over the values of `name` in CNI_ARGS; absent and empty are the same.
    pub fn args<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let pairs = self.args.split(';').filter_map(|pair| pair.split_once('='));
        pairs
            .filter(move |(key, value)| *key == name && !value.is_empty())
            .map(|(_, value)| value)
    }

    /// Returns the first value of `name` in CNI_ARGS.
    pub fn arg<'a>(&'a self, name: &'a str) -> Option<&'a str> {
        self.args(name).next()
    }

    /// Returns the unknown keys in CNI_ARGS, unless `IgnoreUnknown` is set. A part that is not a pair is skipped, as by the
    /// original.
    pub fn unknown_args(&self) -> Vec<String> {
        const KNOWN: [&str; 6] = [
            "IP",
            "IgnoreUnknown",
            "K8S_POD_INFRA_CONTAINER_ID",
            "K8S_POD_NAME",
            "K8S_POD_NAMESPACE",
            "K8S_POD_UID",
        ];
        if matches!(
            self.arg("IgnoreUnknown"),
            Some("1" | "true" | "True" | "TRUE")
        ) {
            return Vec::new();
        }
        let names = self.args.split(';').filter_map(|pair| pair.split_once('='));
        names
            .map(|(name, _)| name)
            .filter(|name| !name.is_empty() && !KNOWN.contains(name))
            .map(str::to_owned)
            .collect()
    }

    /// Returns `namespace/name` of the pod from CNI_ARGS: for messages, never identity.
    pub fn pod(&self) -> Option<String> {
        // No name in Kubernetes is longer than 253 characters.
        let arg = |name| self.arg(name).filter(|value| value.len() <= 253);
        let name = arg("K8S_POD_NAME")?;
        Some(match arg("K8S_POD_NAMESPACE") {
            Some(namespace) => format!("{namespace}/{name}"),
            None => name.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_args(args: &str) -> Option<String> {
        Environment {
            args: args.into(),
            ..Environment::default()
        }
        .pod()
    }

    #[test]
    fn the_pod_is_read_from_cni_args() {
        assert_eq!(
            with_args("IgnoreUnknown=1;K8S_POD_NAMESPACE=a;K8S_POD_NAME=b"),
            Some("a/b".into())
        );
        assert_eq!(with_args("K8S_POD_NAME=b"), Some("b".into()));
        for none in ["", "garbage", ";;=;=x", "K8S_POD_NAME=;K8S_POD_NAMESPACE=a"] {
            assert_eq!(with_args(none), None, "{none}");
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
}
