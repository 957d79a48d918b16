//! Several processes that all give out blocks at the same time, and everything that can go wrong
//! between them, from a seed.
//!
//! None of them knows of a Lease for leaders: as if each held it. Requests are late or lost, and take
//! effect long after whoever sent them has given up or is dead; answers are lost; watches show the
//! past, each kind another one; Nodes leave and register again under the same name; Kubernetes'
//! garbage collector deletes claims as well. All the same no block is ever on two Nodes at once, and
//! when the world calms down every Node has blocks and every claim is one that is needed.

mod server;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::assignment::{Answer, Assignment, End, Progress, Request, Step};
use super::claim::Claim;
use super::desk::{Desk, Heard};
use super::knowledge::Knowledge;
use super::plan::{Observed, Release};
use crate::config::ClusterCidr;
use crate::model::{Moment, NodeName, Prefix};
use server::{Mistake, Server};

/// Nodes that a process has under way at most: others queue on its desk.
const UNDER_WAY: usize = 4;

/// One process: what its watches show, what it remembers, what it waits for.
struct Process {
    seen: Observed,
    node_changes: usize,
    claim_changes: usize,
    knowledge: Knowledge,
    desk: Option<Desk>,
    assignments: BTreeMap<u64, (Assignment, Progress)>,
    releases: BTreeMap<Prefix, Release>,
}

/// Something under way.
enum Message {
    Request { id: u64, from: usize, assignment: Assignment, request: Request },
    Answer { id: u64, to: usize, answer: Answer },
    Look { from: usize, release: Release },
    Delete { release: Release },
    Collect { claim: Claim },
}

struct World {
    random: fastrand::Rng,
    mistake: Mistake,
    cluster: Vec<ClusterCidr>,
    now: u64,
    ids: u64,
    is_calm: bool,
    server: Server,
    processes: Vec<Process>,
    under_way: BTreeMap<(u64, u64), Message>,
    given: usize,
}

impl World {
    fn new(seed: u64, mistake: Mistake) -> Self {
        let cluster = |text: &str, length| ClusterCidr::new(text.parse().expect("a prefix"), length).expect("blocks");
        let mut world = Self {
            random: fastrand::Rng::with_seed(seed),
            mistake,
            // Few, so that what becomes free is wanted at once.
            cluster: vec![cluster("10.0.0.0/21", 24), cluster("fd00::/60", 64)],
            now: 0,
            ids: 0,
            is_calm: false,
            server: Server::default(),
            processes: Vec::new(),
            under_way: BTreeMap::new(),
            given: 0,
        };
        world.processes = (0..3).map(|_| world.process()).collect();
        world
    }

    /// A process that has just listed everything.
    fn process(&self) -> Process {
        let seen = Observed {
            cluster: self.cluster.clone(),
            nodes: self.server.nodes.clone(),
            claims: self.server.claims.clone(),
            last: vec![None; self.cluster.len()],
            ..Observed::default()
        };
        Process {
            seen,
            node_changes: self.server.node_changes.len(),
            claim_changes: self.server.claim_changes.len(),
            knowledge: Knowledge::default(),
            desk: None,
            assignments: BTreeMap::new(),
            releases: BTreeMap::new(),
        }
    }

    fn id(&mut self) -> u64 {
        self.ids += 1;
        self.ids
    }

    /// Mostly soon, sometimes long after everybody has given up.
    fn delay(&mut self) -> u64 {
        match self.random.u32(0..100) {
            _ if self.is_calm => 1,
            0..70 => self.random.u64(1..5),
            70..92 => self.random.u64(5..60),
            _ => self.random.u64(60..600),
        }
    }

    fn send(&mut self, message: Message) {
        let at = self.now + self.delay();
        let id = self.id();
        self.under_way.insert((at, id), message);
    }

    fn is_lost(&mut self) -> bool {
        !self.is_calm && self.random.f64() < 0.1
    }

    fn tick(&mut self) {
        self.now += 1;
        while let Some(entry) = self.under_way.first_entry() {
            if entry.key().0 > self.now {
                break;
            }
            let message = entry.remove();
            self.arrive(message);
        }
        for index in 0..self.processes.len() {
            self.watch(index);
            if self.is_calm || self.random.u32(0..4) == 0 {
                self.round(index);
            }
        }
        if !self.is_calm {
            self.mischief();
        }
    }

    /// Each watch goes on by a few changes, or by none for a while.
    fn watch(&mut self, index: usize) {
        let lag = |random: &mut fastrand::Rng| if random.u32(0..10) == 0 { random.usize(1..8) } else { 0 };
        let (nodes, claims) = match self.is_calm {
            true => (usize::MAX, usize::MAX),
            false => (lag(&mut self.random), lag(&mut self.random)),
        };
        let process = &mut self.processes[index];
        let mut heard = Vec::new();
        for (name, node) in self.server.node_changes.iter().skip(process.node_changes).take(nodes) {
            process.node_changes += 1;
            heard.extend(process.desk.as_mut().map(|desk| desk.node(name, node.clone())));
            match node {
                Some(node) => drop(process.seen.nodes.insert(name.clone(), Arc::clone(node))),
                None => drop(process.seen.nodes.remove(name)),
            }
        }
        for (block, claim) in self.server.claim_changes.iter().skip(process.claim_changes).take(claims) {
            process.claim_changes += 1;
            heard.extend(process.desk.as_mut().map(|desk| desk.claim(*block, claim.clone())));
            match claim {
                Some(claim) => drop(process.seen.claims.insert(*block, Arc::clone(claim))),
                None => drop(process.seen.claims.remove(block)),
            }
        }
        if heard.contains(&Heard::Open) {
            process.desk = None;
        }
    }

    /// One step of the room: a plan where the desk says so, and now and then without that; then as many
    /// Nodes as may be under way.
    fn round(&mut self, index: usize) {
        let is_planned_for = self.processes[index].desk.is_some();
        if !is_planned_for || self.random.u32(0..if self.is_calm { 2 } else { 20 }) == 0 {
            self.plan(index);
        }
        for _ in 0..UNDER_WAY.saturating_sub(self.processes[index].assignments.len()) {
            let next = self.processes[index].desk.as_mut().and_then(|desk| desk.next(|_| true));
            let Some(assignment) = next else { return };
            let id = self.id();
            let (progress, first) = Progress::begin(&assignment);
            self.processes[index].assignments.insert(id, (assignment, progress));
            self.go_on(index, id, first);
        }
    }

    fn plan(&mut self, index: usize) {
        let now = self.moment();
        let process = &mut self.processes[index];
        let mut observed = process.seen.clone();
        process.knowledge.lay_over(&mut observed, now);
        let on_its_way = process.assignments.values();
        observed.under_way =
            on_its_way.map(|(assignment, _)| (assignment.holder.node.clone(), assignment.blocks.clone())).collect();
        let (desk, plan) = Desk::plan(observed);
        process.desk = Some(desk);
        process.seen.last.clone_from(&plan.last);
        let releases: Vec<_> =
            plan.releases.into_iter().filter(|(block, _)| !process.releases.contains_key(block)).collect();
        for (block, release) in releases {
            self.processes[index].releases.insert(block, release.clone());
            self.send(Message::Look { from: index, release });
        }
    }

    fn go_on(&mut self, index: usize, id: u64, step: Step) {
        let now = self.moment();
        let Some((assignment, progress)) = self.processes[index].assignments.remove(&id) else { return };
        match step {
            Step::Ask(request) => {
                self.processes[index].assignments.insert(id, (assignment.clone(), progress));
                if !self.is_lost() {
                    self.send(Message::Request { id, from: index, assignment, request });
                }
                // Given up, perhaps before the request has arrived.
                let given_up = Message::Answer { id, to: index, answer: Answer::Failed };
                let order = self.id();
                self.under_way.insert((self.now + 40, order), given_up);
            }
            Step::End(end) => {
                self.given += usize::from(end == End::Given);
                let request = progress.request();
                let process = &mut self.processes[index];
                process.knowledge.learn(&assignment, progress.learnt(), (end, request), now);
                let heard = process.desk.as_mut().map(|desk| desk.ended(&assignment, end));
                if heard == Some(Heard::Open) {
                    process.desk = None;
                }
            }
        }
    }

    fn arrive(&mut self, message: Message) {
        match message {
            Message::Request { id, from, assignment, request } => {
                let answer = self.server.take(&assignment, request, self.mistake);
                if !self.is_lost() {
                    self.send(Message::Answer { id, to: from, answer });
                }
            }
            Message::Answer { id, to, answer } => {
                let Some((_, progress)) = self.processes[to].assignments.get_mut(&id) else { return };
                let next = progress.step(answer);
                // Neither the time limit of this request nor a second answer counts any more.
                self.under_way
                    .retain(|_, message| !matches!(message, Message::Answer { id: other, .. } if *other == id));
                self.go_on(to, id, next);
            }
            Message::Look { from, release } => {
                self.processes[from].releases.remove(&release.claim.block);
                let is_there = release.unless_there.as_ref().is_some_and(|holder| self.server.is_there(holder));
                if !is_there || self.mistake == Mistake::NoLook {
                    self.send(Message::Delete { release });
                }
            }
            Message::Delete { release } => self.server.delete(&release.claim),
            Message::Collect { claim } => self.server.delete(&claim),
        }
    }

    /// Something that nobody wished for.
    fn mischief(&mut self) {
        match self.random.u32(0..100) {
            0..6 => {
                let name = format!("n{}", self.random.u32(0..7)).parse().expect("a name");
                self.register(name);
            }
            6..10 => {
                let count = self.server.nodes.len().max(1);
                let name = self.server.nodes.keys().nth(self.random.usize(0..count)).cloned();
                if let Some(name) = name {
                    self.leave(&name);
                }
            }
            // It dies: what it sent is on its way all the same.
            10..12 => {
                let index = self.random.usize(0..self.processes.len());
                self.processes[index] = self.process();
            }
            _ => {}
        }
    }

    fn register(&mut self, name: NodeName) {
        if self.server.nodes.contains_key(&name) {
            return;
        }
        let uid = self.id();
        let object = serde_json::json!({ "metadata": { "name": name.as_str(), "uid": format!("uid-{uid}") } });
        let node: k8s_openapi::api::core::v1::Node = serde_json::from_value(object).expect("a Node");
        let view = crate::cluster::views::node(&node).expect("a name");
        self.server.put_node(&name, Some(view));
    }

    fn leave(&mut self, name: &NodeName) {
        let uid = self.server.nodes.get(name).map(|node| node.uid.clone());
        self.server.put_node(name, None);
        // The garbage collector, which looks at owners as well.
        let owned: Vec<_> = self
            .server
            .claims
            .values()
            .filter(|claim| claim.holder.as_ref().map(|holder| &holder.uid) == uid.as_ref())
            .map(|claim| (**claim).clone())
            .collect();
        for claim in owned {
            if self.random.bool() {
                self.send(Message::Collect { claim });
            }
        }
    }

    fn moment(&self) -> Moment {
        Moment::since_boot(Duration::from_millis(200 * self.now))
    }

    /// A block that two Nodes have.
    fn twice(&self) -> Option<String> {
        let all: Vec<_> = self
            .server
            .nodes
            .values()
            .flat_map(|node| node.pod_cidrs.iter().map(move |cidr| (cidr, &node.name)))
            .collect();
        let mut owners = BTreeMap::new();
        all.into_iter()
            .find_map(|(cidr, name)| owners.insert(cidr, name).map(|other| format!("{cidr}: {other} and {name}")))
    }
}

#[test]
fn no_block_is_ever_on_two_nodes_whoever_leads_and_whatever_is_late() {
    let (mut given, mut joined) = (0, 0);
    for seed in 0..40 {
        let mut world = World::new(seed, Mistake::None);
        for _ in 0..2_000 {
            world.tick();
            assert_eq!(world.twice(), None, "seed {seed}, tick {}", world.now);
        }
        given += world.given;
        joined += world.server.node_changes.len();
    }
    assert!(given > 40 * 30, "blocks were given {given} times, of {joined} changes");
}

#[test]
fn when_the_world_calms_down_every_node_has_blocks_and_every_claim_is_needed() {
    for seed in 100..140 {
        let mut world = World::new(seed, Mistake::None);
        for _ in 0..1_500 {
            world.tick();
        }
        world.is_calm = true;
        // Late requests of before, and doubts that have to be forgotten.
        for _ in 0..1_200 {
            world.tick();
        }
        for node in world.server.nodes.values() {
            assert_eq!(node.pod_cidrs.len(), 2, "seed {seed}: {node:?}");
            let claims = node.pod_cidrs.iter().filter_map(|cidr| world.server.claims.get(cidr)?.holder.clone());
            assert!(
                claims.clone().all(|holder| holder.uid == node.uid) && claims.count() == 2,
                "seed {seed}: {node:?}"
            );
        }
        assert_eq!(world.server.claims.len(), 2 * world.server.nodes.len(), "seed {seed}");
    }
}

#[test]
fn the_simulation_notices_claims_that_two_share_and_claims_that_go_too_early() {
    for mistake in [Mistake::ClaimsShared, Mistake::NoLook] {
        let is_noticed = (0..60).any(|seed| {
            let mut world = World::new(seed, mistake);
            (0..3_000).any(|_| {
                world.tick();
                world.twice().is_some()
            })
        });
        assert!(is_noticed, "{mistake:?}: a simulation that finds nothing wrong with this proves nothing");
    }
}
