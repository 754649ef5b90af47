//! Tests of the executable. The tests start it as a runtime does, in a folder or in namespaces of its own, with wire
//! servers on real sockets.
//!
//! Tests that need root, or programs other than Rust's, are ignored with the reason. `.ci/run` runs them too.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    missing_docs
)]

#[cfg(feature = "tls")]
mod apiserver;
mod backup;
mod bounds;
mod broken_nodes;
mod build_info;
mod callers;
mod check;
mod cluster;
mod contention;
mod contributors;
mod documents;
mod dual_stack;
mod errors;
mod failures;
mod families;
mod freshness;
mod genuine_azure_vnet;
mod harness;
mod hidden;
mod histories;
mod install;

mod json_shapes;
mod kill;
#[cfg(feature = "tls")]
mod kubelet;
#[cfg(feature = "tls")]
mod kubernetes;
mod layering;
mod leaks;
mod manual;
mod metrics;
mod model;
mod namespaces;
mod never_twice;
mod node_loop;
mod operator;
mod privileged;
mod properties;
mod protocol;
mod readme;
mod recorded;
mod runtimes;
mod sibling;
mod strange_files;
mod trouble;
mod upgrade;
mod uplink;
mod verbs;
mod without_tls;
