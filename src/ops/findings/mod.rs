//! `check` and `doctor`: what is wrong on this node, and what to do about it.
//!
//! Both examine one [`doctor::Inspection`]. `doctor` makes diagnostics of it, one or more for each subject. `check` takes the
//! diagnostics that concern running pods, and compares the records with the node.

pub mod check;
pub mod doctor;
