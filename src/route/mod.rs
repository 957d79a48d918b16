//! x
pub mod plan;
pub mod witnesses;
