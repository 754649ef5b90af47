//! Reads JSON objects as the original does: keys match in any case, a repeated key is merged into the value that is there, `null`
//! leaves a value as it is, and unknown keys are skipped (contract sections 2 and 5).
//!
//! The derived readers of serde do none of this. The state and the network configuration need it; other documents may derive
//! `Deserialize`.

mod address;
mod cursor;
mod literals;
mod members;
mod tree;
mod values;

pub use address::{
    format_ipv6, format_octet, leading_address, leading_v4, leading_v6, named_address, read_address,
};
pub use cursor::{Cursor, ParseError};
pub use literals::plain_length;
pub use members::{
    Error, Members, Scalar, compound, document, entries, is, list, object, raw, read, text, value,
};
pub use tree::Tree;
