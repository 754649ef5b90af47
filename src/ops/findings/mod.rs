//! The problems of this node, their causes and remedies: one list of findings, which `check` and `doctor` print.

pub mod check;
mod conflists;
pub mod diagnosis;
mod disk;
pub mod doctor;
mod executables;
mod files;
pub mod finding;
mod foreign;
mod group;
mod host;
pub mod inspection;
mod lock;
mod other_ipam;
mod pools;
mod predictions;
pub mod records;
mod source;
mod state;
#[cfg(test)]
mod tests;
mod texts;
mod visibility;
