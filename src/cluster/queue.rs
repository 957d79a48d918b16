//! What has to be looked at: in order, each key once, and none while it is being written.

use std::collections::{BTreeSet, VecDeque};

/// Keys that wait their turn.
///
/// A key that is added while it waits is not added twice; one that is added while somebody works on
/// it comes again when that is [done](Self::done).
#[derive(Debug)]
pub struct Queue<K> {
    order: VecDeque<K>,
    waiting: BTreeSet<K>,
    busy: BTreeSet<K>,
    again: BTreeSet<K>,
}

impl<K> Default for Queue<K> {
    fn default() -> Self {
        Self { order: VecDeque::new(), waiting: BTreeSet::new(), busy: BTreeSet::new(), again: BTreeSet::new() }
    }
}

impl<K: Ord + Clone> Queue<K> {
    /// Puts a key at the end, unless it waits already.
    pub fn add(&mut self, key: K) {
        if self.busy.contains(&key) {
            self.again.insert(key);
        } else if self.waiting.insert(key.clone()) {
            self.order.push_back(key);
        }
    }

    /// Takes up to this many keys from the front; they are busy until they are done.
    pub fn take(&mut self, most: usize) -> Vec<K> {
        let taken: Vec<_> = self.order.drain(..most.min(self.order.len())).collect();
        for key in &taken {
            self.waiting.remove(key);
            self.busy.insert(key.clone());
        }
        taken
    }

    /// Nobody works on the key any more.
    pub fn done(&mut self, key: &K) {
        self.busy.remove(key);
        if self.again.remove(key) {
            self.add(key.clone());
        }
    }

    /// Whether no key waits its turn.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_in_order_and_once() {
        let mut queue = Queue::default();
        ["b", "a", "b", "c"].into_iter().for_each(|key| queue.add(key));
        assert_eq!((queue.take(2), queue.take(2), queue.take(2)), (vec!["b", "a"], vec!["c"], vec![]));
    }

    #[test]
    fn a_key_that_is_worked_on_comes_again_afterwards() {
        let mut queue = Queue::default();
        queue.add("a");
        assert_eq!(queue.take(1), ["a"]);
        queue.add("a");
        queue.add("a");
        assert!(queue.is_empty() && queue.take(1).is_empty(), "somebody works on it");
        queue.done(&"a");
        assert_eq!(queue.take(9), ["a"]);
        queue.done(&"a");
        assert!(queue.is_empty(), "nothing happened meanwhile");
    }
}
