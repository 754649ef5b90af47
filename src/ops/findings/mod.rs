//! The problems of this node, their causes and remedies: one list of findings, which `check` prints.

pub mod check;
mod configuration;
mod executables;
mod host_links;
pub mod host_network;
mod host_routes;
pub mod inspection;
mod kubelet;
pub mod pod_routes;
pub mod prediction;
pub mod records;
mod source;
mod storage;
#[cfg(test)]
mod tests;
