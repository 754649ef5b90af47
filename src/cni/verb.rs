//! The verbs of the CNI specification.

use super::CniVersion;

/// CNI_COMMAND.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// ADD
    Add,
    /// DEL
    Del,
    /// CHECK
    Check,
    /// GC
    Gc,
    /// STATUS
    Status,
    /// VERSION
    Version,
}

impl Verb {
    /// Parses CNI_COMMAND; verbs are in capitals.
    pub fn parse(command: &str) -> Option<Verb> {
        Some(match command {
            "ADD" => Verb::Add,
            "DEL" => Verb::Del,
            "CHECK" => Verb::Check,
            "GC" => Verb::Gc,
            "STATUS" => Verb::Status,
            "VERSION" => Verb::Version,
            _ => return None,
        })
    }

    /// Returns whether the verb needs a pool to allocate from.
    pub fn allocates(self) -> bool {
        matches!(self, Verb::Add | Verb::Status)
    }

    /// Returns the version of CNI that added the verb; `None` for those of the first version.
    pub fn since(self) -> Option<CniVersion> {
        match self {
            Verb::Add | Verb::Del | Verb::Version => None,
            Verb::Check => Some(CniVersion::V040),
            Verb::Gc | Verb::Status => Some(CniVersion::V110),
        }
    }

    /// Returns the verb as in CNI_COMMAND.
    pub fn as_str(self) -> &'static str {
        match self {
            Verb::Add => "ADD",
            Verb::Del => "DEL",
            Verb::Check => "CHECK",
            Verb::Gc => "GC",
            Verb::Status => "STATUS",
            Verb::Version => "VERSION",
        }
    }
}
