//! Prints the error object of CNI (SPEC.md, "Error").

use serde::Serialize;

use super::print::to_pretty_json;

/// Error codes: 1 to 99 are the specification's, 100 and up the plugin's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Code {
    /// Incompatible CNI version.
    IncompatibleVersion = 1,
    /// Container unknown or does not exist.
    UnknownContainer = 3,
    /// Invalid necessary environment variables, an unknown verb among them.
    InvalidEnvironment = 4,
    /// I/O failure.
    Io = 5,
    /// Content that cannot be decoded.
    Decoding = 6,
    /// Invalid network configuration.
    InvalidNetworkConfig = 7,
    /// Try again later.
    TryAgain = 11,
    /// The plugin is not available: it cannot serve ADDs.
    NotAvailable = 50,
    /// The plugin's own: no address can be given, as the original coded everything.
    Plugin = 100,
}

/// What a failed call prints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CniError {
    /// The kind of failure.
    pub code: Code,
    /// One sentence that begins with the original's words where it had some; counts, but no names of pods or containers.
    pub msg: String,
    /// The remedy, and names of pods or containers; may be empty.
    pub details: String,
}

impl CniError {
    /// Prints the object as the original does: indented by four spaces, without a trailing newline. `cni_version` is the caller's,
    /// or the newest when that is not known.
    pub fn print(&self, cni_version: &str) -> String {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct ErrorJson<'a> {
            cni_version: &'a str,
            code: u8,
            msg: &'a str,
            #[serde(skip_serializing_if = "str::is_empty")]
            details: &'a str,
        }
        let object = ErrorJson {
            cni_version,
            code: self.code as u8,
            msg: &self.msg,
            details: &self.details,
        };
        to_pretty_json(&object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_object_and_leaves_empty_details_out() {
        let mut error = CniError {
            code: Code::TryAgain,
            msg: "a \"b\"".into(),
            details: String::new(),
        };
        let bare =
            "{\n    \"cniVersion\": \"0.4.0\",\n    \"code\": 11,\n    \"msg\": \"a \\\"b\\\"\"\n}";
        assert_eq!(error.print("0.4.0"), bare);
        error.details = "c".into();
        assert!(
            error
                .print("1.1.0")
                .ends_with(",\n    \"details\": \"c\"\n}")
        );
    }
}
