//! `azure-vnet-ipam`: the CNI IPAM plugin that gives every pod on an Azure node its address, in the place of the original of
//! the same name.
//!
//! One call is one short process. The rooms, each of which may use only those above it:
//!
//! - `sorting`: what is sorted without haste;
//! - [`anycase`]: JSON objects as the original reads them;
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
//! - [`admin`]: what an operator types.
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
pub mod admin;
#[doc(hidden)]
pub mod anycase;
#[doc(hidden)]
pub mod cni;
#[doc(hidden)]
pub mod events;
#[doc(hidden)]
pub mod evidence;
mod failure;
mod host;
#[doc(hidden)]
pub mod ipam;
mod log;
#[doc(hidden)]
pub mod plugin;
mod sorting;
#[doc(hidden)]
pub mod source;
#[doc(hidden)]
pub mod state;
mod stdio;

use std::env;
use std::path::PathBuf;
use std::process::ExitCode;

use cni::{Environment, Said};

/// The name that state, lock and log carry.
const NAME: &str = "azure-vnet-ipam";

/// The whole program.
pub fn main() -> ExitCode {
    let started = host::boot_now();
    let paths = host::Paths::new(root(), NAME);
    match Environment::said(|name| env::var_os(name)) {
        Said::Call(environment) => plugin::main(&environment, &paths, started),
        // It was a person who started it.
        Said::NoCall => admin::main(env::args_os().skip(1), &paths, started),
    }
}

/// The folder in front of every path, where there is one.
fn root() -> Option<PathBuf> {
    let root = env::var_os("AZURE_VNET_IPAM_ROOT").filter(|root| !root.is_empty());
    root.map(PathBuf::from)
}
