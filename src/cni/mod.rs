//! The CNI protocol: parses environment and network configuration, and prints results and errors in the form of each version. No IO.

mod call;
mod call_error;
mod cni_error;
mod config_values;
mod environment;
mod ipam_config;
mod key_forms;
mod network_config;
mod overrides;
mod print;
mod query_url;
mod raw_ipam_config;
mod requested_addresses;
mod result;
mod verb;
mod version;

pub use call::Call;
pub use call_error::CallError;
pub use cni_error::{CniError, Code};
pub use environment::Environment;
pub use ipam_config::{Backend, IpamConfig, NAME, NAME_V6, WhenFull};
pub use network_config::{Attachments, NETWORK_CONFIG_KEYS, NetworkConfig};
pub use overrides::{Dns, Route};
pub use query_url::QueryUrl;
pub use raw_ipam_config::{Defaults, IPAM_KEYS, is_ipam_key};
pub use result::{AddResult, print_versions};
pub use verb::Verb;
pub use version::CniVersion;
