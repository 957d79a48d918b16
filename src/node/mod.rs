//! x
pub mod addresses;
pub mod plan;
