//! What `/state` shows: everything the plans depend on.

use std::sync::{Arc, PoisonError, RwLock};

use serde_json::{Value, json};
use tokio::sync::watch;

use super::stores::Stores;
use crate::cluster::store::Store;
use crate::inventory::InventoryState;
use crate::leader::Leadership;
use crate::route::spec::Responsibility;

/// What the process sees now.
pub struct State {
    pub(super) identity: String,
    pub(super) leadership: watch::Receiver<Leadership>,
    pub(super) inventory: watch::Receiver<Arc<InventoryState>>,
    pub(super) routes: Responsibility,
    pub(super) stores: Arc<RwLock<Stores>>,
}

impl State {
    /// The page, made anew each time somebody asks for it.
    pub fn into_page(self) -> Box<dyn Fn() -> Value + Send + Sync> {
        Box::new(move || self.show())
    }

    /// All of it. Stores but that of the Nodes are there on a leader only.
    fn show(&self) -> Value {
        let inventory = self.inventory.borrow().clone();
        let stores = self.stores.read().unwrap_or_else(PoisonError::into_inner).clone();
        json!({
            "identity": self.identity,
            "leadership": *self.leadership.borrow(),
            "inventory": {
                "machines": inventory.inventory.as_ref().map(|inventory| inventory.machines().collect::<Vec<_>>()),
                "faults": inventory.faults.to_string(),
                "heldRemovals": inventory.removals,
            },
            "routes": self.routes,
            "observed": {
                "nodes": stores.nodes.as_ref().map(Store::snapshot),
                "services": stores.services.as_ref().map(Store::snapshot),
                "pools": stores.pools.as_ref().map(Store::snapshot),
                "advertisements": stores.advertisements.as_ref().map(Store::snapshot),
                "peers": stores.peers.as_ref().map(Store::snapshot),
                "nodeRoutes": stores.routes.as_ref().map(Store::snapshot),
                "nodeReports": stores.reports.as_ref().map(Store::snapshot),
            },
        })
    }
}
