//! Whether a Service's addresses are announced, as far as the leader knows: pure.
//!
//! Reports of agents hold counts and exceptions, no lists, so none says "I announce this Service". The
//! leader follows what the agents themselves decide by: which nodes may be an entry (`NodeRoute`),
//! where the Service has endpoints (EndpointSlices), and of each node whether a router listens to it
//! (`NodeReport`: a session that is Established), and which nodes Advertisements have announce it. A node
//! costs one look at how many of each kind there are, an EndpointSlice one at its Service, an Advertisement
//! one at all Services.
//!
//! Where an Advertisement names routers, a node counts as heard if a session with one of those is Established:
//! reports name the peers of their sessions. One that names fewer than it counts may be heard by any.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use super::selection::{Selection, Speakers};
use crate::api::{EntryFlag, NodeReportStatus};
use crate::config::Advertisement;
use crate::config::last_good::Checked;
use crate::config::pool_view::PoolView;
use crate::config::selector::Labels;
use crate::model::views::{EndpointCounts, EndpointView, NodeView, ServiceView, TrafficPolicy, Truth};
use crate::model::{NodeName, PeerName, ServiceKey};

/// Whether and how a Service's addresses are announced: a closed set. Of several addresses, the last in this
/// order counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Announcement {
    /// By BGP.
    Bgp,
    /// Those who would know have not said anything.
    Pending,
    /// It has no address.
    NoAddress,
    /// It has no endpoint that takes traffic.
    NoReadyEndpoint,
    /// Advertisements select it, and none of them has routers told.
    Withheld,
    /// No node that could take its traffic may be an entry, or announces it.
    NoEntry,
    /// No node that is a right entry has a session with a router that is told.
    NoSession,
}

impl Announcement {
    /// The status of the condition.
    pub fn status(self) -> Truth {
        match self {
            Self::Bgp => Truth::True,
            Self::NoAddress | Self::NoReadyEndpoint | Self::Withheld | Self::NoEntry | Self::NoSession => Truth::False,
            Self::Pending => Truth::Unknown,
        }
    }

    /// The reason of the condition; of one that is true, the protocol.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Bgp => "BGP",
            Self::NoAddress => "NoAddress",
            Self::NoReadyEndpoint => "NoReadyEndpoint",
            Self::Withheld => "Withheld",
            Self::NoEntry => "NoEntry",
            Self::NoSession => "NoSession",
            Self::Pending => "Pending",
        }
    }

    /// The message of the condition.
    pub fn message(self) -> &'static str {
        match self {
            Self::Bgp => "its addresses are announced by BGP",
            Self::NoAddress => "it has no address",
            Self::NoReadyEndpoint => "it has no endpoint that is ready and on a node",
            Self::Withheld => {
                "Advertisements select an address of it, and none of them announces that address by BGP: see those whose spec has withhold or l2"
            }
            Self::NoEntry => {
                "no node that could take its traffic may be an entry and announces it: see spec.entry of the NodeRoutes and spec.nodeSelector of the Advertisements"
            }
            Self::NoSession => {
                "no node that may take its traffic has a session with a router that is told of it: see status.bgp of the NodeReports and spec.bgp of the Advertisements"
            }
            Self::Pending => "the agents of the nodes that may take its traffic have not reported since these started",
        }
    }
}

/// What is known of a node that may be an entry, the best last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Entry {
    /// No router listens to it.
    NoSession,
    /// Its agent has said nothing that holds today.
    Silent,
    /// A router listens to it.
    Heard,
}

/// A node that may be an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryNode {
    /// What it is to all routers.
    pub entry: Entry,
    /// The routers that listen to it; `None` when nobody has named all of them.
    pub heard_by: Option<Box<[PeerName]>>,
}

impl From<Entry> for EntryNode {
    fn from(entry: Entry) -> Self {
        Self { entry, heard_by: None }
    }
}

impl EntryNode {
    /// What a node is; `None` when it is no entry.
    pub fn of(flag: Option<EntryFlag>, node: Option<&NodeView>, report: Option<&NodeReportStatus>) -> Option<Self> {
        let EntryFlag::Eligible = flag? else { return None };
        let holds = |report: &&NodeReportStatus| {
            // Nobody takes back the report of a machine that died.
            node.is_none_or(|node| report.is_current(node) && node.ready != Some(Truth::Unknown))
        };
        Some(match report.filter(holds).map(|report| &report.bgp) {
            None => Entry::Silent.into(),
            Some(bgp) if bgp.established > 0 => {
                let names: Box<[_]> = bgp.heard_by.iter().filter_map(|name| name.parse().ok()).collect();
                let is_complete = u32::try_from(names.len()).is_ok_and(|named| named >= bgp.established);
                Self { entry: Entry::Heard, heard_by: is_complete.then_some(names) }
            }
            Some(_) => Entry::NoSession.into(),
        })
    }
}

/// Why a node that may be an entry announces no address of a Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hindrance {
    /// No endpoint of it is ready, on any node.
    NoReadyEndpoint,
    /// Its `externalTrafficPolicy` is Local, and no ready endpoint is on the node.
    NoLocalEndpoint,
    /// Advertisements select its addresses, and none of them has routers told.
    Withheld,
    /// Advertisements select its addresses, and none of them selects the node.
    NotSelected,
}

/// Where one EndpointSlice has endpoints that traffic may go to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoints {
    service: ServiceKey,
    nodes: Box<[(NodeName, Serving)]>,
}

/// What a node's endpoints are, at best.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Serving {
    /// They end, and still serve.
    Terminating,
    Ready,
}

impl From<EndpointView> for Endpoints {
    fn from(view: EndpointView) -> Self {
        let serving = |(node, counts): (NodeName, EndpointCounts)| {
            let serving = if counts.ready > 0 { Serving::Ready } else { Serving::Terminating };
            (counts.ready + counts.serving_terminating > 0).then_some((node, serving))
        };
        Self { service: view.service, nodes: view.nodes.into_iter().filter_map(serving).collect() }
    }
}

/// Whose announcements may be others than before.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Concerned {
    /// Every Service's.
    pub all: bool,
    /// Those of these Services.
    pub services: BTreeSet<ServiceKey>,
    /// Those of Services that keep traffic local and have endpoints on these nodes.
    pub nodes: BTreeSet<NodeName>,
}

impl Concerned {
    fn add(&mut self, service: &ServiceKey) {
        if !self.all {
            self.services.insert(service.clone());
        }
    }
}

/// What is known of one node.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Known {
    node: EntryNode,
    /// The places of the Advertisements that have it announce something, and what it is to the routers they have told.
    spoken_by: Box<[(usize, Entry)]>,
}

impl Known {
    /// What it is for an address that these announce; `None` when it is not one of them.
    fn among(&self, speakers: &Speakers) -> Option<Entry> {
        match speakers {
            Speakers::Everyone => Some(self.node.entry),
            Speakers::Nobody => None,
            Speakers::Those(places) => {
                let spoken = self.spoken_by.iter().filter(|(place, _)| places.contains(place));
                spoken.map(|(_, entry)| *entry).max()
            }
        }
    }
}

/// How many nodes are what.
#[derive(Debug, Clone, Default)]
struct Counts(BTreeMap<Entry, usize>);

impl Counts {
    fn add(&mut self, entry: Entry) {
        *self.0.entry(entry).or_default() += 1;
    }

    fn take(&mut self, entry: Entry) {
        if let Some(count) = self.0.get_mut(&entry) {
            *count -= 1;
        }
        self.0.retain(|_, count| *count > 0);
    }

    fn best(&self) -> Option<Entry> {
        self.0.keys().next_back().copied()
    }
}

/// What the leader knows of nodes, endpoints and Advertisements.
#[derive(Debug, Default)]
pub struct Entrances {
    nodes: BTreeMap<NodeName, Known>,
    selection: Selection,
    /// How many nodes are what: of all, and then of those that each Advertisement has announce something.
    counts: Vec<Counts>,
    slices: BTreeMap<Box<str>, Arc<Endpoints>>,
    of: BTreeMap<ServiceKey, Vec<Arc<Endpoints>>>,
}

impl Entrances {
    /// Takes what is known of a node, and its labels.
    pub fn set_node(&mut self, name: NodeName, node: Option<EntryNode>, labels: &Labels, concerned: &mut Concerned) {
        let now = node.map(|node| Known { spoken_by: self.selection.spoken_by(labels, &node), node });
        if self.nodes.get(&name) == now.as_ref() {
            return;
        }
        let best: Vec<_> = self.bests().collect();
        if let Some(before) = self.nodes.remove(&name) {
            self.count(&before, Counts::take);
        }
        if let Some(now) = now {
            self.count(&now, Counts::add);
            self.nodes.insert(name.clone(), now);
        }
        concerned.all |= !self.bests().eq(best);
        concerned.nodes.insert(name);
    }

    /// Takes the Advertisements, the pools and the labels of the peers that there are; `labels` gives those of a node.
    pub fn set_selection(
        &mut self,
        advertisements: &BTreeMap<String, Arc<Checked<Advertisement>>>,
        pools: &BTreeMap<String, Arc<Checked<PoolView>>>,
        peers: &BTreeMap<String, Arc<Labels>>,
        labels: impl Fn(&NodeName) -> Labels,
        concerned: &mut Concerned,
    ) {
        if !self.selection.set(advertisements, pools, peers) {
            return;
        }
        concerned.all = true;
        self.counts.clear();
        for (name, mut known) in std::mem::take(&mut self.nodes) {
            known.spoken_by = self.selection.spoken_by(&labels(&name), &known.node);
            self.count(&known, Counts::add);
            self.nodes.insert(name, known);
        }
    }

    fn count(&mut self, known: &Known, count: fn(&mut Counts, Entry)) {
        self.counts.resize_with(1 + self.selection.count(), Counts::default);
        count(&mut self.counts[0], known.node.entry);
        known.spoken_by.iter().for_each(|(place, entry)| count(&mut self.counts[1 + place], *entry));
    }

    /// Takes what is known of an EndpointSlice, by namespace and name.
    pub fn set_slice(&mut self, name: &str, slice: Option<Arc<Endpoints>>, concerned: &mut Concerned) {
        if let Some(before) = self.slices.remove(name) {
            if let Some(slices) = self.of.get_mut(&before.service) {
                slices.retain(|slice| !Arc::ptr_eq(slice, &before));
                if slices.is_empty() {
                    self.of.remove(&before.service);
                }
            }
            concerned.add(&before.service);
        }
        if let Some(slice) = slice {
            concerned.add(&slice.service);
            self.of.entry(slice.service.clone()).or_default().push(Arc::clone(&slice));
            self.slices.insert(name.into(), slice);
        }
    }

    /// The nodes that are known.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeName> {
        self.nodes.keys()
    }

    /// The slices that are known.
    pub fn slices(&self) -> impl Iterator<Item = &str> {
        self.slices.keys().map(|name| &**name)
    }

    /// The best of all nodes, and of those of each Advertisement; shorter while none are known.
    fn bests(&self) -> impl Iterator<Item = Option<Entry>> {
        let known = self.counts.iter().map(Counts::best);
        known.chain(std::iter::repeat(None)).take(1 + self.selection.count())
    }

    /// The best of the nodes that announce an address.
    fn best_of(&self, speakers: &Speakers) -> Option<Entry> {
        let best = |place: usize| self.counts.get(place).and_then(Counts::best);
        match speakers {
            Speakers::Everyone => best(0),
            Speakers::Nobody => None,
            Speakers::Those(places) => places.iter().filter_map(|place| best(1 + place)).max(),
        }
    }

    /// Whether a Service's addresses are announced, by the rules of the agents.
    ///
    /// Silence turns nothing that is False: what its condition says of sessions stays until an agent says otherwise.
    pub fn announcement(&self, service: &ServiceView) -> Announcement {
        let with_endpoints = self.nodes_of(&service.key);
        let of_address = |speakers: &Speakers| {
            if *speakers == Speakers::Nobody {
                return Announcement::Withheld;
            }
            let best = match service.external_traffic_policy {
                TrafficPolicy::Cluster => self.best_of(speakers),
                TrafficPolicy::Local => {
                    let known = with_endpoints.iter().filter_map(|node| self.nodes.get(*node));
                    known.filter_map(|known| known.among(speakers)).max()
                }
            };
            match best {
                Some(Entry::Heard) => Announcement::Bgp,
                Some(Entry::NoSession) => Announcement::NoSession,
                Some(Entry::Silent) if says_no_session(service) => Announcement::NoSession,
                Some(Entry::Silent) => Announcement::Pending,
                None => Announcement::NoEntry,
            }
        };
        match self.speakers(service).map(|speakers| of_address(&speakers)).max() {
            None => Announcement::NoAddress,
            Some(_) if with_endpoints.is_empty() => Announcement::NoReadyEndpoint,
            Some(announcement) => announcement,
        }
    }

    /// Who announces each of a Service's addresses.
    fn speakers(&self, service: &ServiceView) -> impl Iterator<Item = Speakers> {
        service.ingress.iter().filter_map(|entry| entry.ip).map(|address| self.selection.speakers(service, address))
    }

    /// The addresses of a Service that a node is to announce, and what it is to the routers that are told of each; why
    /// none, if none.
    pub fn announced_on(&self, service: &ServiceView, node: &NodeName) -> Result<Vec<(IpAddr, Entry)>, Hindrance> {
        let with_endpoints = self.nodes_of(&service.key);
        if with_endpoints.is_empty() {
            return Err(Hindrance::NoReadyEndpoint);
        }
        if service.external_traffic_policy == TrafficPolicy::Local && !with_endpoints.contains(node) {
            return Err(Hindrance::NoLocalEndpoint);
        }
        let known = self.nodes.get(node);
        let (mut announced, mut why) = (Vec::new(), Hindrance::Withheld);
        for address in service.ingress.iter().filter_map(|entry| entry.ip) {
            let speakers = self.selection.speakers(service, address);
            match known.and_then(|known| known.among(&speakers)) {
                Some(entry) => announced.push((address, entry)),
                None if speakers == Speakers::Nobody => {}
                None => why = Hindrance::NotSelected,
            }
        }
        if announced.is_empty() { Err(why) } else { Ok(announced) }
    }

    /// What a node that may be an entry is to all routers.
    pub fn entry(&self, node: &NodeName) -> Option<Entry> {
        self.nodes.get(node).map(|known| known.node.entry)
    }

    /// Whether a Service has an endpoint on one of these nodes.
    pub fn is_on(&self, service: &ServiceKey, nodes: &BTreeSet<NodeName>) -> bool {
        let slices = self.of.get(service).into_iter().flatten();
        slices.flat_map(|slice| &*slice.nodes).any(|(node, _)| nodes.contains(node))
    }

    /// The nodes with endpoints that traffic may go to: ready ones, else those that still serve (KEP-1669).
    fn nodes_of(&self, service: &ServiceKey) -> BTreeSet<&NodeName> {
        let slices = || self.of.get(service).into_iter().flatten().flat_map(|slice| &*slice.nodes);
        let best = slices().map(|(_, serving)| *serving).max();
        slices().filter(|(_, serving)| Some(*serving) == best).map(|(node, _)| node).collect()
    }
}

fn says_no_session(service: &ServiceView) -> bool {
    let announced = service.conditions.announced.as_ref();
    announced.is_some_and(|said| said.says.reason == Announcement::NoSession.reason())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::BgpReport;
    use crate::config::Pool;
    use crate::model::views::{Condition, Ingress, IpMode, ServiceCondition};
    use crate::service::cases;

    fn name(node: &str) -> NodeName {
        node.parse().expect("a node name")
    }

    /// Node n1 is in rack n1, and so on.
    fn rack(node: &str) -> Labels {
        Labels::from([("rack".to_owned(), node.to_owned())])
    }

    fn advertise(entrances: &mut Entrances, specs: &[serde_json::Value]) -> Concerned {
        let checked = |(number, spec): (usize, &serde_json::Value)| {
            let name = format!("a{number}");
            let spec = serde_json::from_value(spec.clone()).expect("a spec");
            (name.clone(), Arc::new(Checked::new(Advertisement::check(&name, &spec), 0)))
        };
        let mut concerned = Concerned::default();
        let all = specs.iter().enumerate().map(checked).collect();
        let peer = |side: &str| (side.to_owned(), Arc::new(Labels::from([("side".to_owned(), side.to_owned())])));
        let peers = ["left", "right"].map(peer).into();
        entrances.set_selection(&all, &BTreeMap::new(), &peers, |node| rack(node.as_str()), &mut concerned);
        concerned
    }

    fn service(policy: TrafficPolicy) -> ServiceView {
        let ingress = vec![Ingress { ip: "10.60.0.1".parse().ok(), ip_mode: IpMode::Vip }];
        ServiceView { ingress, external_traffic_policy: policy, ..cases::service("web") }
    }

    fn slice(nodes: &[(&str, u32, u32)]) -> Option<Arc<Endpoints>> {
        let counts = |&(node, ready, serving_terminating): &(&str, u32, u32)| {
            (name(node), EndpointCounts { ready, serving_terminating })
        };
        let service = cases::service("web").key;
        let view = EndpointView { service, family: None, nodes: nodes.iter().map(counts).collect() };
        Some(Arc::new(view.into()))
    }

    fn entrances(nodes: &[(&str, Entry)], endpoints: &[(&str, u32, u32)]) -> Entrances {
        let (mut entrances, mut concerned) = (Entrances::default(), Concerned::default());
        for (node, entry) in nodes {
            entrances.set_node(name(node), Some((*entry).into()), &rack(node), &mut concerned);
        }
        entrances.set_slice("default/web-1", slice(endpoints), &mut concerned);
        entrances
    }

    #[test]
    fn a_service_is_announced_when_a_router_listens_to_a_right_entry() {
        use Entry::{Heard, NoSession, Silent};
        use TrafficPolicy::{Cluster, Local};
        type Nodes = &'static [(&'static str, Entry)];
        type Counts = &'static [(&'static str, u32, u32)];
        let cases: &[(&str, TrafficPolicy, Nodes, Counts, Announcement)] = &[
            ("heard", Cluster, &[("n1", Heard), ("n2", Silent)], &[("n3", 1, 0)], Announcement::Bgp),
            ("no endpoint", Cluster, &[("n1", Heard)], &[], Announcement::NoReadyEndpoint),
            ("one that is not ready", Cluster, &[("n1", Heard)], &[("n1", 0, 0)], Announcement::NoReadyEndpoint),
            ("only terminating ones", Cluster, &[("n1", Heard)], &[("n2", 0, 1)], Announcement::Bgp),
            ("no session", Cluster, &[("n1", NoSession)], &[("n1", 1, 0)], Announcement::NoSession),
            ("one may have one", Cluster, &[("n1", NoSession), ("n2", Silent)], &[("n1", 1, 0)], Announcement::Pending),
            ("nobody has reported", Cluster, &[("n1", Silent)], &[("n1", 1, 0)], Announcement::Pending),
            ("no entry", Cluster, &[], &[("n1", 1, 0)], Announcement::NoEntry),
            ("local, heard there", Local, &[("n1", Heard), ("n2", NoSession)], &[("n1", 1, 0)], Announcement::Bgp),
            ("elsewhere", Local, &[("n1", Heard), ("n2", NoSession)], &[("n2", 1, 0)], Announcement::NoSession),
            ("on a node that is no entry", Local, &[("n1", Heard)], &[("n2", 1, 0)], Announcement::NoEntry),
            (
                "ready elsewhere",
                Local,
                &[("n1", Heard), ("n2", NoSession)],
                &[("n1", 0, 1), ("n2", 1, 0)],
                Announcement::NoSession,
            ),
        ];
        for (case, policy, nodes, endpoints, want) in cases {
            assert_eq!(entrances(nodes, endpoints).announcement(&service(*policy)), *want, "{policy:?}: {case}");
        }
        let without = ServiceView { ingress: Vec::new(), ..service(Cluster) };
        assert_eq!(entrances(&[("n1", Heard)], &[("n1", 1, 0)]).announcement(&without), Announcement::NoAddress);
    }

    #[test]
    fn a_service_is_announced_as_the_advertisements_that_select_it_say() {
        use Entry::{Heard, NoSession, Silent};
        use TrafficPolicy::{Cluster, Local};
        type Nodes = &'static [(&'static str, Entry)];
        let all = |how: &str| json!({ "services": {}, how: {} });
        let on = |node: &str| json!({ "services": {}, "nodeSelector": { "rack": node }, "bgp": {} });
        let elsewhere = json!({ "services": { "namespaces": ["elsewhere"] }, "withhold": {} });
        let two: Nodes = &[("n1", Heard), ("n2", NoSession)];
        let cases: &[(&str, TrafficPolicy, Nodes, &[serde_json::Value], Announcement)] = &[
            ("withheld", Cluster, two, &[all("withhold")], Announcement::Withheld),
            ("withheld", Local, two, &[all("withhold")], Announcement::Withheld),
            ("withheld, and nobody could", Cluster, &[], &[all("withhold")], Announcement::Withheld),
            ("to neighbours", Cluster, two, &[all("l2")], Announcement::Withheld),
            ("withheld and announced", Cluster, two, &[all("withhold"), all("bgp")], Announcement::Bgp),
            ("another is withheld", Cluster, two, &[elsewhere], Announcement::Bgp),
            ("pods are withheld", Cluster, two, &[json!({ "podCidrs": {}, "withhold": {} })], Announcement::Bgp),
            ("by the one that is heard", Cluster, two, &[on("n1")], Announcement::Bgp),
            ("by the other", Cluster, two, &[on("n2")], Announcement::NoSession),
            ("by either", Cluster, two, &[on("n2"), on("n1")], Announcement::Bgp),
            ("by none that there is", Cluster, two, &[on("n3")], Announcement::NoEntry),
            ("by one that is silent", Cluster, &[("n1", Heard), ("n2", Silent)], &[on("n2")], Announcement::Pending),
            ("where its endpoint is", Local, two, &[on("n1")], Announcement::Bgp),
            ("not where its endpoint is", Local, two, &[on("n2")], Announcement::NoEntry),
        ];
        for (case, policy, nodes, specs, want) in cases {
            let service = service(*policy);
            // Whichever comes first.
            let mut late = entrances(nodes, &[("n1", 1, 0)]);
            advertise(&mut late, specs);
            assert_eq!(late.announcement(&service), *want, "{policy:?}: {case}");
            let mut early = Entrances::default();
            advertise(&mut early, specs);
            early.set_slice("default/web-1", slice(&[("n1", 1, 0)]), &mut Concerned::default());
            for (node, entry) in *nodes {
                early.set_node(name(node), Some((*entry).into()), &rack(node), &mut Concerned::default());
            }
            assert_eq!(early.announcement(&service), *want, "{policy:?}: {case}, known before the nodes");
        }
        let mut entrances = entrances(two, &[]);
        advertise(&mut entrances, &[all("withhold")]);
        assert_eq!(entrances.announcement(&service(Cluster)), Announcement::NoReadyEndpoint);
    }

    #[test]
    fn a_session_counts_with_a_router_that_an_advertisement_has_told() {
        let to = |peers: serde_json::Value| json!({ "services": {}, "bgp": peers });
        let named = |peer: &str| to(json!({ "peers": [peer] }));
        let selected = |side: &str| to(json!({ "peerSelector": { "matchLabels": { "side": side } } }));
        let heard_by = |names: &[&str]| {
            let names = names.iter().map(|name| name.parse().expect("a name")).collect();
            EntryNode { entry: Entry::Heard, heard_by: Some(names) }
        };
        let (left, unnamed) = (|| heard_by(&["left"]), || EntryNode::from(Entry::Heard));
        for (case, node, specs, want) in [
            ("any router", left(), vec![to(json!({}))], Announcement::Bgp),
            ("no Advertisement", left(), vec![], Announcement::Bgp),
            ("this one", left(), vec![named("left")], Announcement::Bgp),
            ("the other one", left(), vec![named("right")], Announcement::NoSession),
            ("one that is not there", left(), vec![named("gone")], Announcement::NoSession),
            ("the other one, and any", left(), vec![named("right"), to(json!({}))], Announcement::Bgp),
            ("this one by its labels", left(), vec![selected("left")], Announcement::Bgp),
            ("the other one by its labels", left(), vec![selected("right")], Announcement::NoSession),
            ("one of both", heard_by(&["left", "right"]), vec![named("right")], Announcement::Bgp),
            ("nobody knows with whom", unnamed(), vec![named("right")], Announcement::Bgp),
        ] {
            for policy in [TrafficPolicy::Cluster, TrafficPolicy::Local] {
                let service = service(policy);
                let mut entrances = entrances(&[], &[("n1", 1, 0)]);
                advertise(&mut entrances, &specs);
                entrances.set_node(name("n1"), Some(node.clone()), &Labels::new(), &mut Concerned::default());
                assert_eq!(entrances.announcement(&service), want, "{case}, {policy:?}");
            }
        }
    }

    #[test]
    fn a_report_that_names_fewer_sessions_than_it_counts_may_mean_any() {
        for (established, named, want) in [(1, vec!["left"], Some(1)), (2, vec!["left"], None), (1, vec![], None)] {
            let heard_by = named.into_iter().map(str::to_owned).collect();
            let bgp = BgpReport { established, heard_by, ..BgpReport::default() };
            let report = NodeReportStatus { bgp, ..NodeReportStatus::default() };
            let node = EntryNode::of(Some(EntryFlag::Eligible), None, Some(&report)).expect("an entry");
            assert_eq!((node.entry, node.heard_by.map(|names| names.len())), (Entry::Heard, want));
        }
    }

    #[test]
    fn the_address_that_is_worst_off_counts() {
        let mut service = service(TrafficPolicy::Cluster);
        service.ingress.push(Ingress { ip: "10.61.0.1".parse().ok(), ip_mode: IpMode::Vip });
        let pool = serde_json::from_value(json!({ "addresses": ["10.61.0.0/24"] })).expect("a spec");
        let pool = Pool::check("private", &pool).map(|pool| PoolView::new(pool, &Labels::new()));
        let spec = serde_json::from_value(json!({ "services": { "pools": ["private"] }, "withhold": {} }));
        let withheld = Advertisement::check("a", &spec.expect("a spec"));
        let mut entrances = entrances(&[("n1", Entry::Heard)], &[("n1", 1, 0)]);
        assert_eq!(entrances.announcement(&service), Announcement::Bgp);
        entrances.set_selection(
            &BTreeMap::from([("a".to_owned(), Arc::new(Checked::new(withheld, 0)))]),
            &BTreeMap::from([("private".to_owned(), Arc::new(Checked::new(pool, 0)))]),
            &BTreeMap::new(),
            |node| rack(node.as_str()),
            &mut Concerned::default(),
        );
        assert_eq!(entrances.announcement(&service), Announcement::Withheld);
        let other = service.ingress[0].ip.expect("an address");
        assert_eq!(entrances.announced_on(&service, &name("n1")), Ok(vec![(other, Entry::Heard)]), "the other");
        service.ingress.pop();
        assert_eq!(entrances.announcement(&service), Announcement::Bgp);
    }

    #[test]
    fn an_advertisement_concerns_every_service_once_and_a_label_those_whose_best_node_it_changes() {
        let mut entrances = entrances(&[("n1", Entry::Heard), ("n2", Entry::Heard)], &[("n1", 1, 0)]);
        let on_n1 = json!({ "services": {}, "nodeSelector": { "rack": "n1" }, "bgp": {} });
        assert!(advertise(&mut entrances, std::slice::from_ref(&on_n1)).all);
        assert_eq!(advertise(&mut entrances, std::slice::from_ref(&on_n1)), Concerned::default(), "as before");
        for (case, node, labels, all) in [
            ("another label", "n2", Labels::new(), None),
            ("one more in the rack", "n2", rack("n1"), Some(false)),
            ("one fewer", "n1", rack("n3"), Some(false)),
            ("the last one leaves it", "n2", rack("n2"), Some(true)),
            ("one comes back", "n2", rack("n1"), Some(true)),
        ] {
            let mut concerned = Concerned::default();
            entrances.set_node(name(node), Some(Entry::Heard.into()), &labels, &mut concerned);
            let nodes = all.iter().map(|_| name(node)).collect();
            let want = Concerned { all: all.unwrap_or_default(), nodes, ..Concerned::default() };
            assert_eq!(concerned, want, "{case}");
        }
    }

    #[test]
    fn silence_turns_nothing_that_is_false_and_nothing_else_stays() {
        let said = |reason: &str, status: Truth| {
            let says = Condition { status, reason: reason.to_owned(), message: String::new() };
            let mut service = service(TrafficPolicy::Cluster);
            service.conditions.announced = Some(ServiceCondition { says, since_seconds: 0 });
            service
        };
        let joined = entrances(&[("n1", Entry::NoSession), ("n2", Entry::Silent)], &[("n1", 1, 0)]);
        for (said, want) in [
            (said("NoSession", Truth::False), Announcement::NoSession),
            (said("BGP", Truth::True), Announcement::Pending),
            (said("NoReadyEndpoint", Truth::False), Announcement::Pending),
        ] {
            assert_eq!(joined.announcement(&said), want, "{:?}", said.conditions.announced);
        }
        let back = entrances(&[("n1", Entry::Heard), ("n2", Entry::Silent)], &[("n1", 1, 0)]);
        assert_eq!(back.announcement(&said("NoSession", Truth::False)), Announcement::Bgp);
    }

    #[test]
    fn a_report_counts_while_its_node_is_the_one_it_is_about_and_lives() {
        let node = NodeView { uid: "u1".to_owned(), boot_id: Some("b1".to_owned()), ..cases::node("n1") };
        let report = |established, boot_id: &str| NodeReportStatus {
            boot_id: boot_id.to_owned(),
            node_uid: Some("u1".to_owned()),
            bgp: BgpReport { established, ..BgpReport::default() },
            ..NodeReportStatus::default()
        };
        let dead = NodeView { ready: Some(Truth::Unknown), ..node.clone() };
        let other = NodeView { uid: "u2".to_owned(), ..node.clone() };
        let eligible = Some(EntryFlag::Eligible);
        for (case, flag, node, report, want) in [
            ("a session", eligible, &node, Some(report(1, "b1")), Some(Entry::Heard)),
            ("none", eligible, &node, Some(report(0, "b1")), Some(Entry::NoSession)),
            ("no report", eligible, &node, None, Some(Entry::Silent)),
            ("of another boot", eligible, &node, Some(report(1, "b0")), Some(Entry::Silent)),
            ("of another Node of this name", eligible, &other, Some(report(0, "b1")), Some(Entry::Silent)),
            ("of a machine that died", eligible, &dead, Some(report(1, "b1")), Some(Entry::Silent)),
            ("excluded", Some(EntryFlag::ExcludedByLabel), &node, Some(report(1, "b1")), None),
            ("no NodeRoute", None, &node, Some(report(1, "b1")), None),
        ] {
            let got = EntryNode::of(flag, Some(node), report.as_ref());
            assert_eq!(got.map(|node| node.entry), want, "{case}");
        }
    }

    #[test]
    fn a_change_concerns_whom_it_may_change_and_nobody_else() {
        let mut entrances = Entrances::default();
        let mut concerned = Concerned::default();
        let web = cases::service("web").key;
        entrances.set_slice("default/web-1", slice(&[("n1", 1, 0)]), &mut concerned);
        assert_eq!(concerned, Concerned { services: BTreeSet::from([web.clone()]), ..Concerned::default() });
        for (case, node, entry, all) in [
            ("the first", "n1", Some(Entry::Silent), true),
            ("a session", "n1", Some(Entry::Heard), true),
            ("one that joins", "n2", Some(Entry::Silent), false),
            ("a second session", "n2", Some(Entry::Heard), false),
            ("one lost of two", "n1", Some(Entry::NoSession), false),
            ("the last that is heard goes", "n2", None, true),
        ] {
            concerned = Concerned::default();
            entrances.set_node(name(node), entry.map(EntryNode::from), &Labels::new(), &mut concerned);
            assert_eq!(
                concerned,
                Concerned { all, nodes: BTreeSet::from([name(node)]), ..Concerned::default() },
                "{case}"
            );
            concerned = Concerned::default();
            entrances.set_node(name(node), entry.map(EntryNode::from), &Labels::new(), &mut concerned);
            assert_eq!(concerned, Concerned::default(), "{case}, again");
        }
        assert!(
            entrances.is_on(&web, &BTreeSet::from([name("n1")]))
                && !entrances.is_on(&web, &BTreeSet::from([name("n2")]))
        );
        entrances.set_slice("default/web-1", None, &mut concerned);
        assert_eq!(concerned.services, BTreeSet::from([web]));
        assert!(entrances.slices.is_empty() && entrances.of.is_empty());
    }
}
