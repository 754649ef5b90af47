//! `check` and `doctor`: the problems of this node and their remedies.
//!
//! Both examine one [`doctor::Inspection`]. `doctor` makes diagnostics of it, one or more for each subject. `check` takes the
//! diagnostics that concern running pods, and compares the records with the node.

pub mod check;
pub mod doctor;
