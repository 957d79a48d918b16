//! Node IPAM: pod CIDRs for Nodes, as kube-controller-manager's `node-ipam-controller` gives them.
//!
//! With `--allocate-node-cidrs` every Node without pod CIDRs gets a block of each cluster CIDR. Each
//! block is first claimed by a Lease that is named after it, and only then written to the Node; so
//! whoever else gives out blocks in the same way at the same time, none is given twice.
//!
//! It never changes pod CIDRs that a Node has, whoever wrote them, never gives out what overlaps them
//! or is reserved, and never ends over something odd: that is told and left. Start at
//! [`plan`](plan::plan); [`assignment`] is the way of one Node, `simulation` tries to break it.

pub mod allocator;
mod apply;
pub mod assignment;
pub mod claim;
mod desk;
pub mod knowledge;
mod lease;
mod memory;
mod metrics;
pub mod networks;
mod observe;
pub mod plan;
#[cfg(test)]
mod simulation;
pub mod span;
pub mod survey;
mod work;

use kube::Client;

use crate::api::NodeReportStatus;
use crate::cluster::clock;
use crate::cluster::events::Events;
use crate::cluster::store::Store;
use crate::config::{AddressBlock, NodeCidrs};
use crate::model::views::NodeView;
use claim::Claim;
use desk::Desk;
use memory::Memory;
use survey::Outside;

pub use lease::claim_of;
pub use metrics::Metrics;
pub use observe::pool;

/// Source of this room's Events, as upstream's allocator names itself.
pub const REPORTER: &str = "cidrAllocator";

/// What the room works with.
pub struct Context {
    /// The way to the API server.
    pub client: Client,
    /// The same, to watch what only this room wants to know.
    pub reader: Client,
    /// Every Node.
    pub nodes: Store<NodeView>,
    /// Every Lease of [`claim::NAMESPACE`]; [`claim_of`] makes the view.
    pub claims: Store<Claim>,
    /// The blocks of every `AddressPool`; [`pool`] makes the view.
    pub pools: Store<Vec<AddressBlock>>,
    /// What every node's agent says of itself.
    pub reports: Store<NodeReportStatus>,
    /// Who tells of a pod CIDR outside the cluster CIDRs.
    pub outside: Outside,
    /// The cluster CIDRs, and the Services' range.
    pub cidrs: NodeCidrs,
    /// Where to tell what was done.
    pub events: Events,
    /// Where to count it.
    pub metrics: Metrics,
}

/// Gives out pod CIDRs until the future is dropped. Dropping it between two requests is safe: the
/// next plan goes on from whatever state they have left.
pub async fn run(mut context: Context, seed: u64) {
    context.nodes.synced().await;
    context.claims.synced().await;
    context.pools.synced().await;
    context.reports.synced().await;
    let mut services = observe::service_cidrs(&context.reader).await;
    let mut memory = Memory::new(observe::newest_claims(&context), seed);
    loop {
        memory.planned = clock::now();
        memory.look_at_reports(&mut context.reports);
        let observed = observe::observe(&mut context, services.as_ref(), &mut memory);
        let (mut desk, plan) = Desk::plan(observed);
        work::show(&context, desk.observed(), &plan, &mut memory);
        work::begin(&context, &desk, plan, &mut memory);
        work::wait(&mut context, services.as_mut(), &mut desk, &mut memory).await;
    }
}
