//! A copy of a store that one round of planning after the other shares.
//!
//! A round takes in what changed and hands out the whole, without copying it.

use std::sync::Arc;

use crate::agent::snapshot::Objects;
use crate::cluster::changes::Changes;
use crate::cluster::store::Store;

/// A store, and its objects as of the last look.
#[derive(Debug)]
pub struct Mirror<V> {
    store: Store<V>,
    objects: Objects<V>,
    is_known: bool,
}

impl<V: PartialEq + Send + Sync + 'static> Mirror<V> {
    /// Of a store; nothing is known before its first list.
    pub fn of(store: Store<V>) -> Self {
        Self { store, objects: Arc::default(), is_known: false }
    }

    /// Until the store has its first list, this is how it was.
    pub fn seed(&mut self, objects: &Objects<V>) {
        if !self.store.is_synced() {
            self.objects = Arc::clone(objects);
            self.is_known = true;
        }
    }

    /// Whether the objects are known, be it from before.
    pub fn is_known(&self) -> bool {
        self.is_known || self.store.is_synced()
    }

    /// Whether the store has had its first list.
    pub fn is_synced(&self) -> bool {
        self.store.is_synced()
    }

    /// Waits until something changed. Cancel-safe.
    pub async fn changed(&mut self) {
        self.store.changed().await;
    }

    /// Takes in what changed and returns all objects, and what it was that changed.
    pub fn look(&mut self) -> (Objects<V>, Changes) {
        if !self.store.is_synced() {
            return (Arc::clone(&self.objects), Changes::default());
        }
        let changes = self.store.take_changes();
        match &changes {
            Changes::All => self.objects = Arc::new(self.store.snapshot()),
            Changes::Keys(keys) if keys.is_empty() => {}
            Changes::Keys(keys) => {
                let objects = Arc::make_mut(&mut self.objects);
                for key in keys {
                    match self.store.get(key) {
                        Some(object) => drop(objects.insert(key.clone(), object)),
                        None => drop(objects.remove(key)),
                    }
                }
            }
        }
        (Arc::clone(&self.objects), changes)
    }
}
