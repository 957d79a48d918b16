//! One change to the kernel's routes: what the plan says and the codec writes.

use super::route::KernelRoute;
use crate::model::{FibRoute, Prefix};

/// One change to the kernel's routes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum RouteChange {
    /// Add it; its key is free, and the kernel refuses if that is no longer so.
    Add(FibRoute),
    /// Put it in place of ours under the same key, without a moment between.
    Replace(FibRoute),
    /// Remove this one of ours.
    Delete(KernelRoute),
}

impl RouteChange {
    /// The wanted route this makes, if it makes one.
    pub fn makes(&self) -> Option<&FibRoute> {
        match self {
            Self::Add(route) | Self::Replace(route) => Some(route),
            Self::Delete(_) => None,
        }
    }

    /// The destination it is about.
    pub fn destination(&self) -> Prefix {
        match self {
            Self::Add(route) | Self::Replace(route) => route.destination,
            Self::Delete(route) => route.destination,
        }
    }
}
