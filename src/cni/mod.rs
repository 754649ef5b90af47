//! The protocol of CNI: what the caller says in environment and stdin, results in the form of each version, errors. Bytes
//! in, values out, and back; no IO.

mod call;
mod environment;
mod error;
mod netconf;
mod result;
mod version;

pub use call::{Call, CallError, Verb};
pub use environment::{Environment, Said};
pub use error::{CniError, Code};
pub use netconf::{Backend, IpamConf, NetConf, QueryUrl};
pub use result::{AddResult, versions};
pub use version::CniVersion;
