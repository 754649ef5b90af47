//! The problems of this node, their causes and remedies: one list of findings, which `check` prints.

pub mod check;
mod configuration;
mod executables;
pub mod host_addresses;
mod host_links;
pub mod inspection;
mod kubelet;
pub mod records;
mod source;
mod storage;
#[cfg(test)]
mod tests;
