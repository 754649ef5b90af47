//! JSON as the original prints it.

use serde::Serialize;

/// Prints JSON indented by four spaces, without a trailing newline.
pub(super) fn to_pretty_json(value: &impl Serialize) -> String {
    let mut out = Vec::with_capacity(512);
    let formatter = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    let mut serializer = serde_json::Serializer::with_formatter(&mut out, formatter);
    // Neither the values, which have string keys only, nor a Vec can fail.
    let _ = value.serialize(&mut serializer);
    String::from_utf8(out).unwrap_or_default()
}
