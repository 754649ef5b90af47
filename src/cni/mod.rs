//! The CNI protocol: parses the environment and the network configuration, and prints results and
//! errors in the form of each version. There is no IO here.

mod call;
mod environment;
mod error;
mod ipam_config;
mod ipam_keys;
mod network_config;
mod overrides;
mod raw_ipam_config;
mod result;
mod server_url;
mod version;

pub use call::Call;
pub use environment::Environment;
pub use error::{CallError, Key};
pub use ipam_config::{
    Backend, IpamConfig, KeepPattern, LOCAL_SPACE, NAME, NAME_V6, QueryUrl, WhenFull,
};
pub use ipam_keys::{ipam_keys, is_ipam_key};
pub use network_config::{Attachments, NETWORK_CONFIG_KEYS, NetworkConfig, RawNetworkConfig};
pub use overrides::{Dns, Route};
pub use raw_ipam_config::Defaults;
pub use result::{CniError, Code, print_result, print_versions};
pub use server_url::{ServerUrl, WIRE_SERVER, without_secrets};
pub use version::{CniVersion, Verb};
