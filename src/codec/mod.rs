//! JSON objects as the original reads them: keys match without regard to case, a repeated key counts again on top of
//! what is there, `null` leaves a value as it was, and unknown keys are skipped (contract sections 2 and 5).
//!
//! serde's derived readers do none of this, so a type says here, member by member, how it fills itself.

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
