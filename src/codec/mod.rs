//! Reads and prints JSON as the original does (contract sections 2 and 5). Keys match in any case.
//! A repeated key is merged into the earlier value. `null` does not change a value, and unknown
//! keys are skipped.
//!
//! The derived readers of serde do none of this. The state and the network configuration need it;
//! other documents may derive `Deserialize`. A struct lists its members in one table. `object!`
//! makes its reader and its printer from that table.

mod address;
mod cursor;
pub mod go_json;
mod members;
mod print;
mod table;
mod values;

pub use address::{leading_address, named_address, read_address};
pub use cursor::{Cursor, ParseError};
pub use go_json::Out;
pub use members::{Error, Members, Read, compound, document, is, parse, text, utf8};
pub use print::{Layout, Print, PrintMembers, print_map};
pub(crate) use table::object;

/// The checksum of no bytes.
pub const BASIS: u64 = 0xcbf2_9ce4_8422_2325;

/// Continues an FNV-1a checksum with more bytes. It detects torn and damaged texts. It is not
/// cryptographic.
pub fn checksum(sum: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(sum, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
