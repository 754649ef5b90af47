//! The versions of the CNI specification, and its verbs.

use std::fmt;

/// A version of the CNI specification that this plugin supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CniVersion {
    /// 0.1.0
    V010,
    /// 0.2.0
    V020,
    /// 0.3.0
    V030,
    /// 0.3.1
    V031,
    /// 0.4.0
    V040,
    /// 1.0.0
    V100,
    /// 1.1.0
    V110,
}

impl CniVersion {
    /// All supported versions, oldest first.
    pub const ALL: [CniVersion; 7] = [
        Self::V010,
        Self::V020,
        Self::V030,
        Self::V031,
        Self::V040,
        Self::V100,
        Self::V110,
    ];

    /// The newest supported version.
    pub const NEWEST: CniVersion = Self::V110;

    /// Parses a version; the text must be exact.
    pub fn parse(text: &str) -> Option<CniVersion> {
        Self::ALL.into_iter().find(|v| v.as_str() == text)
    }

    /// Returns the text of the version.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V010 => "0.1.0",
            Self::V020 => "0.2.0",
            Self::V030 => "0.3.0",
            Self::V031 => "0.3.1",
            Self::V040 => "0.4.0",
            Self::V100 => "1.0.0",
            Self::V110 => "1.1.0",
        }
    }

    /// Returns the texts of all supported versions, as the answer to VERSION lists them.
    pub fn texts() -> [&'static str; 7] {
        Self::ALL.map(Self::as_str)
    }
}

impl fmt::Display for CniVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A verb, which is the value of CNI_COMMAND.
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
    /// Parses CNI_COMMAND. Verbs are in capitals.
    pub fn parse(command: &str) -> Option<Verb> {
        match command {
            "ADD" => Some(Verb::Add),
            "DEL" => Some(Verb::Del),
            "CHECK" => Some(Verb::Check),
            "GC" => Some(Verb::Gc),
            "STATUS" => Some(Verb::Status),
            "VERSION" => Some(Verb::Version),
            _ => None,
        }
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
