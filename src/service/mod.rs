//! x
pub mod allocator;
pub mod plan;
pub mod request;
