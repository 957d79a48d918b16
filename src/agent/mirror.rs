//! A copy of a store that one round of planning after the other shares.
//!
//! A round takes in what changed and hands out the whole, without copying it.

use std::collections::BTreeMap;
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
        Self { store, objects: Objects::default(), is_known: false }
    }

    /// Until the store has its first list, this is how it was.
    pub fn seed(&mut self, objects: &Objects<V>) {
        if !self.store.is_synced() {
            self.objects = objects.clone();
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
            return (self.objects.clone(), Changes::default());
        }
        let changes = self.store.take_changes();
        match &changes {
            Changes::All => self.objects = self.store.with(|all| refreshed(&self.objects, all)),
            Changes::Keys(keys) if keys.is_empty() => {}
            Changes::Keys(keys) => {
                for key in keys {
                    match self.store.get(key) {
                        Some(object) => drop(self.objects.insert(key.clone(), object)),
                        None => drop(self.objects.remove(key)),
                    }
                }
            }
        }
        (self.objects.clone(), changes)
    }
}

/// What there is now, sharing with what there was.
fn refreshed<V: PartialEq>(before: &Objects<V>, now: &BTreeMap<String, Arc<V>>) -> Objects<V> {
    if before.is_empty() {
        return now.iter().map(|(name, object)| (name.clone(), Arc::clone(object))).collect();
    }
    let mut objects = before.clone();
    before.keys().filter(|name| !now.contains_key(*name)).for_each(|name| drop(objects.remove(name)));
    for (name, object) in now {
        if objects.get(name).is_none_or(|known| !Arc::ptr_eq(known, object)) {
            objects.insert(name.clone(), Arc::clone(object));
        }
    }
    objects
}
