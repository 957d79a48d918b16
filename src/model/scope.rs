//! Which Services are Cairn's to serve.

use serde::{Deserialize, Serialize};

use super::truth;
use super::views::ServiceView;

/// `spec.loadBalancerClass` of Services that are ours by class (KEP-1959).
pub const LOAD_BALANCER_CLASS: &str = "cairn.dev/cairn";
/// The annotation of a Service that somebody else sees to, when it is true.
pub const IGNORE: &str = "cairn.dev/ignore";

/// Which classes of Services are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Scope {
    /// Those of our class, and those without one.
    #[default]
    Default,
    /// Those of our class only (`--load-balancer-class-only`): another controller has the others.
    OwnClassOnly,
}

impl Scope {
    /// What the flag `--load-balancer-class-only` says.
    pub fn of_flag(is_class_only: bool) -> Self {
        if is_class_only { Self::OwnClassOnly } else { Self::Default }
    }

    /// Whether a load balancer of this class is ours.
    pub fn has_class(self, class: Option<&str>) -> bool {
        match class {
            Some(class) => class == LOAD_BALANCER_CLASS,
            None => self == Self::Default,
        }
    }

    /// Whether a Service is a load balancer of ours that nobody wants us to leave alone.
    pub fn includes(self, service: &ServiceView) -> bool {
        service.is_load_balancer && self.has_class(service.class.as_deref()) && !service.is_ignored()
    }
}

impl ServiceView {
    /// Whether somebody else sees to it: nothing of it is written, and it is not announced.
    pub fn is_ignored(&self) -> bool {
        self.annotations.get(IGNORE).and_then(|text| truth(text.trim())) == Some(true)
    }
}
