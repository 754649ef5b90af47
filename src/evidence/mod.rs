//! Collects evidence of which attachments are alive. The kernel is the first source, lists of other
//! programs are the second. Each reader distinguishes a missing list from an unreadable one.
//!
//! Evidence is collected without the state lock, because collecting takes time.

mod azure_vnet;
mod cni_cache;
mod kernel;
mod reader;

pub use azure_vnet::is_connected;
pub use reader::Progress;

use crate::host::{Paths, host_routes, io_reason};
use crate::ipam::{Evidence, Routes};

#[doc(hidden)]
pub mod parse {
    //! The parsers, for fuzzing and for the integration tests.
    pub use super::azure_vnet::parse as azure_vnet;
    pub use super::cni_cache::parse as cni_cache;
}

/// Collects all evidence.
pub fn gather(paths: &Paths, progress: &Progress) -> Evidence {
    let kernel = kernel::scan_namespaces(paths, progress);
    let cache = cni_cache::read(paths, &kernel, progress);
    let azure_vnet = azure_vnet::read(paths, &kernel);
    let routes = match host_routes(paths) {
        Ok(routes) => Routes::Read(routes),
        Err(e) => Routes::Unreadable(io_reason(&e)),
    };
    Evidence {
        kernel,
        cache,
        azure_vnet,
        routes,
        ..Evidence::default()
    }
}
