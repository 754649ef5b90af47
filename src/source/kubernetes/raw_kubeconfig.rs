//! The YAML of a kubeconfig as spelled, before its current context is resolved.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_saphyr::budget::BudgetBreach;
use serde_saphyr::options::{DuplicateKeyPolicy, MergeKeyPolicy};
use serde_saphyr::{Error, with_deserializer_from_str_with_options};

use super::error::{NodeError, bounded};

/// The maximum nesting: deeper than any kubeconfig, and safe for the stack.
const MAX_LEVELS: usize = 32;

/// The maximum number of values: more than any kubeconfig has, and little memory.
const MAX_EVENTS: usize = 50_000;

/// The used members of a kubeconfig. All are optional, as in kubectl.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct RawKubeconfig {
    pub current_context: Option<String>,
    pub contexts: Option<Vec<Named<RawContext>>>,
    pub clusters: Option<Vec<Named<RawCluster>>>,
    pub users: Option<Vec<Named<RawUser>>>,
}

/// An element of one of the lists.
#[derive(Deserialize)]
pub struct Named<T> {
    #[serde(default)]
    pub name: Option<String>,
    #[serde(default, alias = "context", alias = "cluster", alias = "user")]
    pub value: Option<T>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub struct RawContext {
    pub cluster: Option<String>,
    pub user: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct RawCluster {
    pub server: Option<String>,
    pub certificate_authority: Option<String>,
    pub certificate_authority_data: Option<String>,
    pub tls_server_name: Option<String>,
    /// A text, as YAML 1.1 has many spellings of truth values.
    pub insecure_skip_tls_verify: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct RawUser {
    pub client_certificate: Option<String>,
    pub client_certificate_data: Option<String>,
    pub client_key: Option<String>,
    pub client_key_data: Option<String>,
    pub token: Option<String>,
    #[serde(rename = "tokenFile")]
    pub token_file: Option<String>,
    pub username: Option<String>,
    pub password: Option<String>,
    pub exec: Option<IgnoredAny>,
    pub auth_provider: Option<IgnoredAny>,
}

impl RawKubeconfig {
    /// Parses the first document of a text, as kubectl does. Errors quote no values, which may be secrets.
    pub fn parse(text: &str) -> Result<RawKubeconfig, NodeError> {
        let options = serde_saphyr::options! {
            // Anchors can expand a short text into a huge value, and deep nesting overflows the stack.
            budget: serde_saphyr::budget! {
                max_anchors: 0,
                max_aliases: 0,
                max_depth: MAX_LEVELS,
                max_events: MAX_EVENTS,
            },
            duplicate_keys: DuplicateKeyPolicy::LastWins,
            merge_keys: MergeKeyPolicy::AsOrdinary,
            with_snippet: false,
        };
        let not_yaml = |why: &str| NodeError::BadKubeconfig(format!("is not a YAML object: {why}"));
        let mut file = None;
        let read = with_deserializer_from_str_with_options(text, options, |document| {
            file = Option::<RawKubeconfig>::deserialize(document)?;
            Ok(())
        });
        match (file, read) {
            // An error after the first document does not matter.
            (Some(file), _) => Ok(file),
            (None, Err(error)) => Err(not_yaml(&describe(&error))),
            (None, Ok(())) => Err(not_yaml("it is not an object")),
        }
    }
}

/// Describes an error without quoting values, which only errors of types would do.
fn describe(error: &Error) -> String {
    let what = match error {
        Error::Budget {
            breach: BudgetBreach::Anchors { .. } | BudgetBreach::Aliases { .. },
            ..
        }
        | Error::UnknownAnchor { .. } => "it has an anchor or an alias (& or *)".to_owned(),
        Error::Budget { .. } => format!(
            "it has more than {MAX_EVENTS} values or is nested more than {MAX_LEVELS} levels deep"
        ),
        Error::SerdeInvalidType { expected, .. } | Error::SerdeInvalidValue { expected, .. } => {
            format!("it has a value that is not {expected}")
        }
        _ => return bounded(&error.to_string()),
    };
    match error.location() {
        Some(at) => format!("{what} at line {} column {}", at.line(), at.column()),
        None => what,
    }
}
