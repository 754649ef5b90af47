//! `azure-vnet-ipam`: a CNI IPAM plugin that assigns an address to every pod on an Azure node. It
//! replaces the original plugin of the same name.
//!
//! One call is one short process. Each module uses only the modules above it in this list:
//!
//! - [`codec`]: reads JSON as the original does, and writes addresses;
//! - [`ipam`]: allocates, releases and reclaims addresses; pure;
//! - [`cni`]: the CNI protocol: environment, network configuration, results and errors;
//! - `host`: the kernel, clocks, files and every path;
//! - [`source`]: queries the sources of the pools;
//! - [`state`]: the lock, the state file and its backup;
//! - [`evidence`]: collects the evidence of live attachments on the node;
//! - [`events`]: the list of the last operations, and their totals;
//! - `log`, `stdio`: the log, and the standard streams;
//! - [`failure`]: the table from each failure to its CNI error, and the remedies;
//! - [`plugin`]: the verbs, each one transaction on the state;
//! - [`ops`]: the commands of an operator.
//!
//! Items are public for the tests only. The interface of the program is the CNI specification.

#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        reason = "a panic is how a test fails"
    )
)]

#[doc(hidden)]
pub mod cni;
#[doc(hidden)]
pub mod codec;
#[doc(hidden)]
pub mod events;
#[doc(hidden)]
pub mod evidence;
#[doc(hidden)]
pub mod failure;
mod host;
#[doc(hidden)]
pub mod ipam;
mod log;
#[doc(hidden)]
pub mod ops;
#[doc(hidden)]
pub mod plugin;
#[doc(hidden)]
pub mod source;
#[doc(hidden)]
pub mod state;
mod stdio;

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use cni::{Environment, NAME, NAME_V6};

/// Runs the program with its name and its arguments. Returns the exit status.
pub fn main(args: &[OsString]) -> u8 {
    host::ignore_file_size_signal();
    let (called, args) = args.split_first().map_or((None, args), |(called, args)| {
        (Some(called.as_os_str()), args)
    });
    let paths = host::Paths::new(root_folder(), program_name(called));
    host::shift_boot_clock(&paths);
    let started = host::boot_now();
    match Environment::read(|name| env::var_os(name)) {
        // A runtime passes no arguments. This is an operator who tried a call by hand, and still has
        // CNI_COMMAND in the environment.
        Some(_) if !args.is_empty() => ops::refuse_arguments(&paths),
        Some(environment) => plugin::main(&environment, &paths, started),
        None => ops::main(args, &paths, started),
    }
}

/// Returns the name for the state, the lock and the log: that of the executable. A suffix, such as a
/// version, may follow it there.
fn program_name(called: Option<&OsStr>) -> &'static str {
    let is_v6 = called
        .map(Path::new)
        .and_then(Path::file_name)
        .is_some_and(|file| file.as_encoded_bytes().starts_with(NAME_V6.as_bytes()));
    if is_v6 { NAME_V6 } else { NAME }
}

/// Returns the folder to put in front of every path, if any.
fn root_folder() -> Option<PathBuf> {
    env::var_os("AZURE_VNET_IPAM_ROOT")
        .filter(|root| !root.is_empty())
        .map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_name_is_that_of_the_executable() {
        for (called, expected) in [
            ("/opt/cni/bin/azure-vnet-ipam", NAME),
            ("/opt/cni/bin/azure-vnet-ipamv6", NAME_V6),
            ("azure-vnet-ipamv6.new", NAME_V6),
            ("/opt/azure-vnet-ipamv6/ipam", NAME),
            ("", NAME),
        ] {
            assert_eq!(program_name(Some(OsStr::new(called))), expected, "{called}");
        }
        assert_eq!(program_name(None), NAME);
    }
}
