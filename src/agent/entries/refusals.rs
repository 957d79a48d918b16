//! Why Services that have an address are not announced here: by Service, and by reason.

use std::collections::{BTreeMap, BTreeSet};

use crate::api::NoEntry;
use crate::model::ServiceKey;

/// Services that are not announced, each with its reason.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Refusals {
    by_service: BTreeMap<ServiceKey, NoEntry>,
    by_reason: BTreeMap<NoEntry, BTreeSet<ServiceKey>>,
}

impl Refusals {
    /// Why a Service is not announced, if it is not.
    pub fn get(&self, service: &ServiceKey) -> Option<&NoEntry> {
        self.by_service.get(service)
    }

    /// All of them, in the order of the Services.
    pub fn iter(&self) -> impl Iterator<Item = (&ServiceKey, &NoEntry)> {
        self.by_service.iter()
    }

    /// All reasons, a Service's in the order of their names.
    pub fn values(&self) -> impl Iterator<Item = &NoEntry> {
        self.by_service.values()
    }

    /// The Services of each reason, of which there are few.
    pub fn by_reason(&self) -> impl Iterator<Item = (NoEntry, &BTreeSet<ServiceKey>)> {
        self.by_reason.iter().map(|(reason, services)| (*reason, services))
    }

    /// Refuses a Service for a reason, and no longer for another.
    pub(in crate::agent) fn insert(&mut self, service: ServiceKey, reason: NoEntry) {
        self.remove(&service);
        self.by_reason.entry(reason).or_default().insert(service.clone());
        self.by_service.insert(service, reason);
    }

    /// Refuses a Service no longer.
    pub(super) fn remove(&mut self, service: &ServiceKey) {
        let Some(reason) = self.by_service.remove(service) else { return };
        let Some(services) = self.by_reason.get_mut(&reason) else { return };
        services.remove(service);
        if services.is_empty() {
            self.by_reason.remove(&reason);
        }
    }
}
