//! The protocol of CNI: what the caller says in environment and stdin, results in the form of each version, errors. Bytes
//! in, values out, and back; no IO.

mod call;
mod environment;
mod error;
mod ipam_conf;
mod netconf;
mod overrides;
mod query_url;
mod requested;
mod result;
mod values;
mod version;

pub use call::{Call, CallError, Verb};
pub use environment::{Environment, Invocation};
pub use error::{CniError, Code};
pub use ipam_conf::{Backend, Defaults, IpamConf, NAME, NAME_V6, WhenFull, is_ipam_key};
pub use netconf::{Attachments, NetConf};
pub use overrides::{Dns, Route};
pub use query_url::QueryUrl;
pub use result::{AddResult, versions};
pub use version::CniVersion;
