//! What is said to whom, and by how many: kept as Services come and go.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::agent::node_addresses::take_one;
use crate::model::{Adverts, PathAttributes, Prefix};

/// Which Advertisements give a prefix to a peer, by their place.
pub(super) type Speakers = BTreeSet<usize>;

/// One thing that is said of a prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Statement {
    /// To every peer, with nothing said of it.
    Plain(Prefix),
    /// To one peer, by its place, as an Advertisement says, by its.
    Spoken { peer: usize, prefix: Prefix, advertisement: usize },
}

/// Whether a statement comes or goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Count {
    Add,
    Take,
}

impl Count {
    fn to<K: Ord>(self, counts: &mut BTreeMap<K, usize>, key: K) {
        match self {
            Self::Add => *counts.entry(key).or_default() += 1,
            Self::Take => _ = take_one(counts, key),
        }
    }
}

/// The statements, and what each peer is told by them.
#[derive(Debug, Clone, Default)]
pub(super) struct Book {
    plain: BTreeMap<Prefix, usize>,
    spoken: BTreeMap<(usize, Prefix), Spoken>,
    /// What several Advertisements say together, and of how many prefixes.
    paths: BTreeMap<Speakers, (usize, Arc<PathAttributes>)>,
    /// Prefixes of which something else is said since it was last settled.
    open: BTreeSet<Prefix>,
    told: Vec<Adverts>,
    nothing: Arc<PathAttributes>,
}

/// What a peer is told of one prefix because Advertisements say so.
#[derive(Debug, Clone, Default)]
struct Spoken {
    by: BTreeMap<usize, usize>,
    /// Those by whom it was last settled.
    settled: Speakers,
}

impl Book {
    /// Nothing is said to so many peers.
    pub(super) fn new(peers: usize) -> Self {
        Self { told: vec![Adverts::default(); peers], ..Self::default() }
    }

    /// Adds a statement, or takes one out that was added.
    pub(super) fn count(&mut self, statement: Statement, count: Count) {
        let prefix = match statement {
            Statement::Plain(prefix) => {
                count.to(&mut self.plain, prefix);
                prefix
            }
            Statement::Spoken { peer, prefix, advertisement } => {
                count.to(&mut self.spoken.entry((peer, prefix)).or_default().by, advertisement);
                prefix
            }
        };
        self.open.insert(prefix);
    }

    /// What each peer is told now; `merged` makes one path of what several say.
    pub(super) fn settle(&mut self, merged: impl Fn(&Speakers) -> PathAttributes) -> &[Adverts] {
        for prefix in std::mem::take(&mut self.open) {
            for peer in 0..self.told.len() {
                let spoken = self.settle_spoken(peer, prefix, &merged);
                let plain = || self.plain.contains_key(&prefix).then(|| Arc::clone(&self.nothing));
                match spoken.or_else(plain) {
                    Some(path) if self.told[peer].get(&prefix) == Some(&path) => {}
                    Some(path) => drop(self.told[peer].insert(prefix, path)),
                    None => drop(self.told[peer].remove(&prefix)),
                }
            }
        }
        &self.told
    }

    /// The sets of Advertisements that say something together.
    pub(super) fn speakers(&self) -> impl Iterator<Item = &Speakers> {
        self.paths.keys()
    }

    fn settle_spoken(
        &mut self,
        peer: usize,
        prefix: Prefix,
        merged: impl Fn(&Speakers) -> PathAttributes,
    ) -> Option<Arc<PathAttributes>> {
        let spoken = self.spoken.get_mut(&(peer, prefix))?;
        let now: Speakers = spoken.by.keys().copied().collect();
        let before = std::mem::replace(&mut spoken.settled, now.clone());
        if now.is_empty() {
            self.spoken.remove(&(peer, prefix));
        } else if now != before {
            let (count, _) = self.paths.entry(now.clone()).or_insert_with(|| (0, Arc::new(merged(&now))));
            *count += 1;
        }
        if now != before
            && let Some((count, _)) = self.paths.get_mut(&before)
        {
            *count -= 1;
            if *count == 0 {
                self.paths.remove(&before);
            }
        }
        self.paths.get(&now).map(|(_, path)| Arc::clone(path))
    }
}
