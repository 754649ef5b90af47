//! Where pools come from: the wire server, the file of Azure Stack, or nowhere. Asking is kept apart from reading the
//! answer, and both from matching it to the interfaces of the host.

mod ask;
mod fetch;
mod freshness;
mod interfaces_file;
mod listing;
mod matching;
mod wire;

pub use ask::{Source, SourceError, WIRE_SERVER};
pub use freshness::{Asked, Asker, Attempts, Need, News, Stamps, last_attempts};
pub use listing::{Listing, parse_address, parse_prefix};
pub use matching::{Matched, Style, match_links};
pub use wire::WireError;

#[doc(hidden)]
pub mod parse {
    //! The parsers, for fuzzing and for tests from outside.
    pub use super::interfaces_file::parse as interfaces_file;
    pub use super::wire::parse as wire;
}
