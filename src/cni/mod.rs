//! The protocol of CNI: what the caller says in environment and stdin, results in the form of each version, errors. Bytes
//! in, values out, and back; no IO.

mod call;
mod call_error;
mod environment;
mod error;
mod ipam_conf;
mod netconf;
mod overrides;
mod print;
mod query_url;
mod raw_ipam;
mod requested;
mod result;
mod values;
mod verb;
mod version;

pub use call::Call;
pub use call_error::CallError;
pub use environment::{Environment, Invocation};
pub use error::{CniError, Code};
pub use ipam_conf::{Backend, IpamConf, NAME, NAME_V6, WhenFull};
pub use netconf::{Attachments, NetConf};
pub use overrides::{Dns, Route};
pub use query_url::QueryUrl;
pub use raw_ipam::{Defaults, is_ipam_key};
pub use result::{AddResult, versions};
pub use verb::Verb;
pub use version::CniVersion;
