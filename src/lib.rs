//! `azure-vnet-ipam`: the CNI IPAM plugin that gives every pod on an Azure node its address, in the place of the original of
//! the same name.
//!
//! One call is one short process. The rooms, each of which may use only those above it:
//!
//! - `sorting`: what is sorted without haste;
//! - [`codec`]: JSON objects as the original reads them;
//! - [`ipam`]: the domain, pure: pools, records, merging, taking, releasing;
//! - [`cni`]: the protocol: environment, network configuration, results, errors;
//! - `host`: the few facts asked of the kernel, and every path;
//! - [`source`]: where pools come from, and when they are asked for;
//! - [`state`]: the lock, the state file, its replacement;
//! - [`evidence`]: what the node shows of who is alive;
//! - [`events`]: the last operations;
//! - `log`, `stdio`: the log, and the standard streams;
//! - `failure`: everything that can go wrong, and the error that callers get;
//! - `plugin`: one call as one transaction;
//! - [`ops`]: what an operator types.
//!
//! What is public is so for the tests; the program's interface is the CNI specification.

#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        reason = "a test that panics has failed, as it should"
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
mod sorting;
#[doc(hidden)]
pub mod source;
#[doc(hidden)]
pub mod state;
mod stdio;

use std::env;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::ExitCode;

use cni::{Environment, Invocation, NAME, NAME_V6};

/// The whole program.
pub fn main() -> ExitCode {
    host::ignore_file_size_signal();
    let mut args = env::args_os();
    let paths = host::Paths::new(root(), name(args.next().as_deref()));
    host::shift_boot_clock(&paths);
    let started = host::boot_now();
    match Environment::said(|name| env::var_os(name)) {
        Invocation::Call(environment) => plugin::main(&environment, &paths, started),
        // It was a person who started it.
        Invocation::Operator => ops::main(args, &paths, started),
    }
}

/// The name that state, lock and log carry: that by which the program was started, which may have something behind it, such
/// as a version.
fn name(called: Option<&OsStr>) -> &'static str {
    let path = called.map(OsStr::as_encoded_bytes).unwrap_or_default();
    let file = path.rsplit(|byte| *byte == b'/').next();
    match file.is_some_and(|file| file.starts_with(NAME_V6.as_bytes())) {
        true => NAME_V6,
        false => NAME,
    }
}

/// The folder in front of every path, where there is one.
fn root() -> Option<PathBuf> {
    let root = env::var_os("AZURE_VNET_IPAM_ROOT").filter(|root| !root.is_empty());
    root.map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_is_that_of_the_file_that_was_started() {
        for (called, expected) in [
            ("/opt/cni/bin/azure-vnet-ipam", NAME),
            ("/opt/cni/bin/azure-vnet-ipamv6", NAME_V6),
            ("azure-vnet-ipamv6.new", NAME_V6),
            ("/opt/azure-vnet-ipamv6/ipam", NAME),
            ("", NAME),
        ] {
            assert_eq!(name(Some(OsStr::new(called))), expected, "{called}");
        }
        assert_eq!(name(None), NAME);
    }
}
