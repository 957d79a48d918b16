//! The tools of people at a terminal: see, predict and check.
//!
//! Each verb is a file with one function that writes to the given output and returns its verdict;
//! nothing here exits the process.

pub mod validate;
