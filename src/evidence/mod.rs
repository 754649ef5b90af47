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

use crate::cni::{NAME, NAME_V6};
use crate::host::{Paths, boot_id, host_routes, io_reason};
use crate::ipam::{Evidence, Holder, OtherName, Routes};
use crate::state::{self, Condition};

#[doc(hidden)]
pub mod parse {
    //! The parsers, for fuzzing and for the integration tests.
    pub use super::azure_vnet::parse as azure_vnet;
    pub use super::cni_cache::parse as cni_cache;
}

/// Collects all evidence.
pub fn gather(paths: &Paths, progress: &Progress) -> Evidence {
    let mut other_name = read_other_name(paths);
    let kernel = kernel::scan_namespaces(paths, progress);
    let cache = cni_cache::read(paths, &kernel, progress);
    let azure_vnet = azure_vnet::read(paths, &kernel);
    let routes = match host_routes(paths) {
        Ok(routes) => Routes::Read(routes),
        Err(e) => Routes::Unreadable(io_reason(&e)),
    };
    // What the other name allocated or released during the scan is in one of the two.
    other_name.holders.extend(read_other_name(paths).holders);
    Evidence {
        kernel,
        cache,
        azure_vnet,
        routes,
        other_name,
    }
}

/// Reads what the state of the other name of this program holds. That is nothing if the state cannot be read, or is from another boot.
fn read_other_name(paths: &Paths) -> OtherName {
    let name = if paths.name() == NAME { NAME_V6 } else { NAME };
    let mut other = OtherName {
        name,
        ..OtherName::default()
    };
    let state = state::view(&paths.of_plugin(name), boot_id(paths).as_deref());
    if let Ok(state) = state
        && state.condition != Condition::NewBoot
    {
        for record in state.ipam().records() {
            if let Some(held) = record.held() {
                let holder = Holder::clone(&held.holder);
                other.holders.insert(record.address(), holder);
            }
        }
    }
    other
}
