//! What the room remembers from one plan to the next, and what is under way.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;

use super::apply::Ended;
use super::knowledge::Knowledge;
use super::networks::Networks;
use super::plan::Reserved;
use crate::api::NodeReportStatus;
use crate::cluster::backoff::Backoff;
use crate::cluster::events::News;
use crate::cluster::store::Store;
use crate::model::{Moment, NodeName, Note, Prefix};

/// What the room remembers from one round to the next.
pub(super) struct Memory {
    pub(super) knowledge: Knowledge,
    pub(super) last: Vec<Option<Prefix>>,
    pub(super) backoff: Backoff<Object>,
    pub(super) news: News<NodeName>,
    pub(super) overlaps: News<Reserved>,
    pub(super) failures: BTreeMap<NodeName, Note>,
    /// How often another process had claimed a Node's block first.
    pub(super) in_vain: BTreeMap<NodeName, u32>,
    /// The networks that nodes are on.
    pub(super) networks: Networks,
    /// The blocks that Nodes have, to see which became free.
    pub(super) held: BTreeSet<Prefix>,
    pub(super) under_way: UnderWay,
    /// What each of them is about.
    pub(super) objects: BTreeMap<Object, Vec<Prefix>>,
    /// Whether something waits until fewer are under way.
    pub(super) is_crowded: bool,
    pub(super) planned: Moment,
}

type UnderWay = FuturesUnordered<BoxFuture<'static, (Object, Ended)>>;

/// What a write is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Object {
    Assignment(NodeName),
    Condition(NodeName),
    Release(Prefix),
}

impl Memory {
    /// Nothing is known yet; `last` are the blocks that were given last.
    pub(super) fn new(last: Vec<Option<Prefix>>, seed: u64) -> Self {
        Self {
            knowledge: Knowledge::default(),
            last,
            backoff: Backoff::new(seed),
            news: News::default(),
            overlaps: News::default(),
            failures: BTreeMap::new(),
            in_vain: BTreeMap::new(),
            networks: Networks::default(),
            held: BTreeSet::new(),
            under_way: FuturesUnordered::new(),
            objects: BTreeMap::new(),
            is_crowded: false,
            planned: Moment::default(),
        }
    }

    /// Takes in what agents reported. Says whether a network is another.
    pub(super) fn look_at_reports(&mut self, reports: &mut Store<NodeReportStatus>) -> bool {
        let changes = reports.take_changes();
        reports.with(|reports| self.networks.see(changes, reports))
    }

    /// Begins requests about an object.
    pub(super) fn start(&mut self, object: Object, blocks: Vec<Prefix>, future: BoxFuture<'static, Ended>) {
        self.objects.insert(object.clone(), blocks);
        self.under_way.push(future.map(|ended| (object, ended)).boxed());
    }
}
