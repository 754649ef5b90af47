//! The CNI protocol: parses environment and network configuration, and prints results and errors in the form of each version. No IO.

mod call;
mod environment;
mod ipam_config;
mod network_config;
mod overrides;
mod raw_ipam_config;
mod result;
mod version;

pub use call::Call;
pub use call::CallError;
pub use environment::Environment;
pub use ipam_config::{Backend, IpamConfig, NAME, NAME_V6, WhenFull};
pub use network_config::QueryUrl;
pub use network_config::{Attachments, NETWORK_CONFIG_KEYS, NetworkConfig};
pub use overrides::{Dns, Route};
pub use raw_ipam_config::{Defaults, IPAM_KEYS, is_ipam_key};
pub use result::{AddResult, print_versions};
pub use result::{CniError, Code};
pub use version::CniVersion;
pub use version::Verb;
