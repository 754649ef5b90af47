//! `azure-vnet-ipam`: the CNI IPAM plugin that gives every pod on an Azure node its address, in the place of the original of
//! the same name.
//!
//! One call is one short process. The rooms, each of which may use only those above it:
//!
//! - [`anycase`]: JSON objects as the original reads them;
//! - [`ipam`]: the domain, pure: pools, records, merging, taking, releasing;
//! - [`cni`]: the protocol: environment, network configuration, results, errors;
//! - `host`: the few facts asked of the kernel, and every path;
//! - [`source`]: where pools come from, and when they are asked for;
//! - [`state`]: the lock, the state file, its replacement;
//! - [`evidence`]: what the node shows of who is alive;
//! - `log`, `stdio`: the log, and the standard streams;
//! - `failure`: everything that can go wrong, and the error that callers get;
//! - `plugin`: one call as one transaction.
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
pub mod anycase;
#[doc(hidden)]
pub mod cni;
#[doc(hidden)]
pub mod evidence;
mod failure;
mod host;
#[doc(hidden)]
pub mod ipam;
mod log;
#[doc(hidden)]
pub mod plugin;
#[doc(hidden)]
pub mod source;
#[doc(hidden)]
pub mod state;
mod stdio;

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use cni::{CniVersion, Environment, Said};

/// The name that state, lock and log carry.
const NAME: &str = "azure-vnet-ipam";

/// The whole program.
pub fn main() -> ExitCode {
    let started = host::boot_now();
    match Environment::said(|name| env::var_os(name)) {
        Said::Call(environment) => {
            plugin::main(&environment, &host::Paths::new(root(), NAME), started)
        }
        Said::NoCall => by_hand(env::args_os().skip(1)),
    }
}

/// The folder in front of every path, where there is one.
fn root() -> Option<PathBuf> {
    let root = env::var_os("AZURE_VNET_IPAM_ROOT").filter(|root| !root.is_empty());
    root.map(PathBuf::from)
}

/// Without CNI_COMMAND it was a person who started it.
fn by_hand(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    let about = || {
        let versions = CniVersion::texts().join(", ");
        format!(
            "{NAME} v{}\nCNI protocol versions supported: {versions}\n",
            env!("CARGO_PKG_VERSION")
        )
    };
    match args
        .next()
        .as_ref()
        .map(|arg| arg.to_string_lossy())
        .as_deref()
    {
        None => stdio::tell(&about()),
        Some("--version" | "-V") => {
            return print(&format!("{NAME} {}\n", env!("CARGO_PKG_VERSION")));
        }
        Some("--help" | "-h") => return print(HELP),
        Some("check-settings") => {
            let built_in = || host::Paths::new(root(), NAME).settings();
            let path = args.next().map_or_else(built_in, PathBuf::from);
            return match plugin::check_settings(&path) {
                Ok(()) => print(&format!("{} is right\n", path.display())),
                Err(wrong) => {
                    stdio::tell(&wrong);
                    ExitCode::FAILURE
                }
            };
        }
        Some(other) => {
            stdio::tell(&format!("{NAME}: unknown argument {other:?}; see --help\n"));
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}

fn print(text: &str) -> ExitCode {
    match stdio::print(text) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

const HELP: &str = "\
azure-vnet-ipam gives pods on an Azure node their addresses. It is a CNI IPAM plugin: a container runtime starts it, with
CNI_COMMAND (ADD, DEL, CHECK, GC, STATUS or VERSION) and the other CNI variables in the environment and the network
configuration on stdin.

  CNI_COMMAND=VERSION azure-vnet-ipam </dev/null    the versions of CNI it speaks
  azure-vnet-ipam check-settings [FILE]             what is wrong in /etc/azure-vnet-ipam.json, or FILE
  azure-vnet-ipam --version                         its own version
  azure-vnet-ipam --help                            this text

  AZURE_VNET_IPAM_ROOT=DIR        look up every file below DIR
  AZURE_VNET_IPAM_QUERY_URL=URL   ask URL (http: or file:) instead of the wire server

State: /var/run/azure-vnet-ipam.json    Log: /var/log/azure-vnet-ipam.log
";
