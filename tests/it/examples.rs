//! Each folder of `examples/` says what it leads to in `expected-plan.txt`, and that is so.
//!
//! The planners of the controller and of each agent run on the example's files, one after the other
//! as they would in a cluster, each on what the one before it wrote.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cairn::agent;
use cairn::agent::desired::Memory;
use cairn::agent::peers;
use cairn::agent::snapshot::{NodeRouteView, OwnCidr, Snapshot};
use cairn::api::{AddressPool, NodeReportStatus, NodeRoute, NodeRouteSpec, RouteException, RouteExceptionReason};
use cairn::cluster::views;
use cairn::config::CloudConfig;
use cairn::config::last_good::{Checked, LastGood};
use cairn::config::pool_view::PoolView;
use cairn::inventory::{InventoryState, file};
use cairn::model::views::{EndpointView, Ingress, IpFamilyPolicy, IpMode, NodeView, ServiceView};
use cairn::model::{Family, LocalAddress, Moment, NodeName, PathAttributes, Prefix, Scope, SharedMap};
use cairn::route::plan::{ObservedRoute, Planner, RouteAction};
use cairn::route::spec::Responsibility;
use cairn::{node, service};
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::manifests::check_or_write;

/// What an example leads to.
#[derive(Debug, Default, Serialize)]
struct ExpectedPlan {
    nodes: BTreeMap<NodeName, PlannedNode>,
    node_routes: BTreeMap<NodeName, NodeRouteSpec>,
    services: BTreeMap<String, Vec<IpAddr>>,
    agents: BTreeMap<NodeName, PlannedAgent>,
}

#[derive(Debug, Serialize)]
struct PlannedNode {
    provider_id: String,
    addresses: Vec<String>,
    labels: BTreeMap<String, String>,
}

#[derive(Debug, Serialize)]
struct PlannedAgent {
    routes: Vec<String>,
    /// Pod CIDRs that are on no network of the node: routers have to carry them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    left_to_routers: Vec<String>,
    peers: Vec<String>,
    announces: BTreeMap<String, Vec<String>>,
    not_announced: BTreeMap<String, String>,
}

/// The objects of an example, by kind.
#[derive(Default)]
struct Objects {
    documents: Vec<serde_json::Value>,
}

impl Objects {
    fn read(folder: &Path) -> Self {
        let mut files: Vec<PathBuf> =
            fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()).collect();
        files.retain(|file| file.extension().is_some_and(|extension| extension == "yaml"));
        files.sort();
        let mut objects = Self::default();
        for file in files {
            let text = fs::read_to_string(&file).expect("a file");
            objects.documents.extend(text.split("\n---\n").map(|document| {
                serde_saphyr::from_str(document).unwrap_or_else(|e| panic!("{}: {e}", file.display()))
            }));
        }
        objects
    }

    fn all<K: DeserializeOwned>(&self, kind: &str) -> Vec<K> {
        let of_kind = self.documents.iter().filter(|document| document["kind"] == kind);
        of_kind.map(|document| serde_json::from_value(document.clone()).expect(kind)).collect()
    }
}

/// A cluster whose controller and agents have done all they are to do.
struct Cluster {
    objects: Objects,
    nodes: BTreeMap<NodeName, Arc<NodeView>>,
    plan: ExpectedPlan,
}

impl Cluster {
    fn of(folder: &Path) -> Self {
        let objects = Objects::read(folder);
        let views = objects.all::<Node>("Node").iter().filter_map(views::node).collect::<Vec<_>>();
        let nodes = views.into_iter().map(|view| (view.name.clone(), Arc::new(view))).collect();
        let mut cluster = Self { objects, nodes, plan: ExpectedPlan::default() };
        cluster.initialize_nodes(&inventory(folder));
        cluster.write_node_routes();
        let services = cluster.give_addresses();
        cluster.run_agents(&services);
        cluster
    }

    fn initialize_nodes(&mut self, inventory: &InventoryState) {
        let plan = node::plan::plan(&node::observed(&self.nodes, inventory));
        assert!(plan.notes.is_empty(), "{:?}", plan.notes);
        for (name, action) in plan.actions {
            let node::plan::Action::Initialize(wanted) = action else { panic!("{name}: {action:?}") };
            let view = Arc::make_mut(self.nodes.get_mut(&name).expect("a node"));
            let differences = wanted.differences;
            view.addresses = differences.addresses.expect("a fresh node has no addresses");
            // What is taken off, a fresh node does not have.
            let labels: BTreeMap<_, _> =
                differences.labels.into_iter().filter_map(|(key, value)| Some((key, value?))).collect();
            view.labels.extend(labels.clone());
            let provider_id = wanted.provider_id.expect("a fresh node has no provider ID").to_string();
            let addresses = view.addresses.iter().map(|address| address.address.clone()).collect();
            self.plan.nodes.insert(name, PlannedNode { provider_id, addresses, labels });
        }
    }

    /// The leader writes, the agents report that they act on it, until nothing is left to say.
    fn write_node_routes(&mut self) {
        let mut planner = Planner::new(Responsibility::Everything);
        for (name, node) in &self.nodes {
            planner.node(name, Some(Arc::clone(node)));
        }
        loop {
            let actions = planner.plan(Moment::default()).routes;
            if actions.is_empty() {
                break;
            }
            for (name, action) in actions {
                let RouteAction::Write { spec, owner_uid } = action else { panic!("{name}: {action:?}") };
                let report = NodeReportStatus { own_route: Some(spec.digest()), ..NodeReportStatus::default() };
                self.plan.node_routes.insert(name.clone(), spec.clone());
                let route = ObservedRoute { resource_version: String::new(), owner_uid: Some(owner_uid), spec };
                planner.route(&name, Some(Arc::new(route)));
                planner.report(&name, Some(Arc::new(report)));
            }
        }
    }

    /// The Services once the controller gave them their addresses.
    fn give_addresses(&mut self) -> BTreeMap<String, Arc<ServiceView>> {
        let views = self.objects.all::<Service>("Service");
        let mut services: BTreeMap<_, _> =
            views.iter().filter_map(views::service).map(as_defaulted).map(|view| (view.key.clone(), view)).collect();
        let pools = self.objects.all::<AddressPool>("AddressPool");
        let observed = service::plan::Observed {
            services: services.iter().map(|(key, view)| (key.clone(), Arc::new(view.clone()))).collect(),
            pools: pools
                .iter()
                .filter_map(|pool| Some((pool.metadata.name.as_deref()?.parse().ok()?, Arc::new(service::pool(pool)?))))
                .collect(),
            nodes: self.nodes.clone(),
            ..service::plan::Observed::default()
        };
        let (plan, _) = service::plan::plan(&observed, service::allocator::Now::default());
        assert!(plan.notes.is_empty(), "{:?}", plan.notes);
        for (key, action) in plan.actions {
            let view = services.get_mut(&key).expect("a service");
            view.ingress = action.ingress.iter().map(|ip| Ingress { ip: Some(*ip), ip_mode: IpMode::Vip }).collect();
            self.plan.services.insert(key.to_string(), action.ingress);
        }
        services.into_iter().map(|(key, view)| (key.to_string(), Arc::new(view))).collect()
    }

    /// What people have written of a kind, all of it right.
    fn in_force<K, T>(&self, kind: &str, check: impl Fn(&K) -> Option<Checked<T>>) -> Vec<Arc<T>>
    where
        K: DeserializeOwned + kube::ResourceExt,
    {
        let mut written = LastGood::default();
        let objects = self.objects.all::<K>(kind);
        let checked = objects.iter().filter_map(|object| Some((object.name_any(), Arc::new(check(object)?))));
        assert_eq!(written.take(&checked.collect()), Vec::new());
        written.in_force()
    }

    fn run_agents(&mut self, services: &BTreeMap<String, Arc<ServiceView>>) {
        let peers = self.in_force("BgpPeer", peers::peer);
        let advertisements = self.in_force("Advertisement", cairn::config::Advertisement::of);
        let pools = self.in_force("AddressPool", PoolView::of);
        let endpoints: Vec<EndpointView> =
            self.objects.all::<EndpointSlice>("EndpointSlice").iter().filter_map(views::endpoint_slice).collect();
        let routes = self.plan.node_routes.iter().filter_map(|(name, spec)| {
            let view = NodeRouteView::of(&NodeRoute::new(name.as_str(), spec.clone()))?;
            Some((name.to_string(), Arc::new(view)))
        });
        let node_routes: SharedMap<_, _> = routes.collect();
        for (name, node) in &self.nodes {
            let snapshot = Snapshot {
                me: name.clone(),
                labels: node.labels.clone(),
                local: node.internal_ips().map(on_a_lan).collect(),
                node_routes: node_routes.clone(),
                peers: peers.clone(),
                advertisements: advertisements.clone(),
                pools: pools.clone(),
                learned: BTreeMap::new(),
                stale: Arc::default(),
                own_cidr: OwnCidr::Blackholed,
                services: services.clone().into_iter().collect(),
                endpoints: endpoints
                    .iter()
                    .enumerate()
                    .map(|(n, view)| (n.to_string(), Arc::new(view.clone())))
                    .collect(),
                scope: Scope::Default,
            };
            let desired = agent::desired::plan(&snapshot, &mut Memory::default(), Moment::default());
            let is_wrong = |told: &&RouteException| told.reason != RouteExceptionReason::NotOnLink;
            let wrong: Vec<_> = desired.routes.exceptions().filter(is_wrong).collect();
            assert_eq!(wrong, Vec::<&RouteException>::new(), "{name}");
            self.plan.agents.insert(name.clone(), planned(&desired));
        }
    }
}

/// What the API server of a dual-stack cluster makes of a Service that does not name its families.
fn as_defaulted(service: ServiceView) -> ServiceView {
    let families = match service.ip_family_policy {
        IpFamilyPolicy::SingleStack => vec![Family::V4],
        IpFamilyPolicy::PreferDualStack | IpFamilyPolicy::RequireDualStack => vec![Family::V4, Family::V6],
    };
    if service.ip_families.is_empty() { ServiceView { ip_families: families, ..service } } else { service }
}

fn planned(desired: &agent::desired::Desired) -> PlannedAgent {
    let advert = |(prefix, path): (&Prefix, &Arc<PathAttributes>)| match path.to_string() {
        nothing if nothing.is_empty() => prefix.to_string(),
        said => format!("{prefix} with {said}"),
    };
    let told =
        desired.announce.by_peer.iter().map(|(peer, adverts)| (peer.to_string(), adverts.iter().map(advert).collect()));
    PlannedAgent {
        routes: desired
            .routes
            .wanted
            .routes()
            .map(|route| format!("{} via {}", route.destination, route.target))
            .collect(),
        left_to_routers: desired.routes.exceptions().map(|told| told.cidr.clone()).collect(),
        peers: desired.peers.iter().map(|peer| peer.name.to_string()).collect(),
        announces: told.collect(),
        not_announced: desired.entries.refused.iter().map(|(key, why)| (key.to_string(), format!("{why:?}"))).collect(),
    }
}

fn inventory(folder: &Path) -> InventoryState {
    let config = CloudConfig::load(&folder.join("cloud-config.yaml")).unwrap_or_else(|faults| panic!("{faults}"));
    let inventory = file::load(&config.inventory_files).unwrap_or_else(|faults| panic!("{faults}"));
    InventoryState { inventory: Some(Arc::new(inventory)), ..InventoryState::unread() }
}

/// An address on an interface whose neighbours are the /24 or /64 around it.
fn on_a_lan(address: IpAddr) -> LocalAddress {
    let length = if address.is_ipv4() { 24 } else { 64 };
    let prefix = Prefix::containing(address, length).expect("the length is the family's");
    LocalAddress { interface: "eth0".to_owned(), index: 2, address, prefix, has_carrier: true }
}

#[test]
fn each_example_leads_to_its_expected_plan() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let folders = fs::read_dir(examples).expect("examples").map(|entry| entry.expect("an entry").path());
    for folder in folders.filter(|folder| folder.join("cloud-config.yaml").exists()) {
        let plan = serde_saphyr::to_string(&Cluster::of(&folder).plan).expect("a plan is YAML");
        check_or_write(&folder.join("expected-plan.txt"), &plan);
    }
}

#[test]
fn a_saved_state_leads_to_its_plan() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/saved-state");
    for (name, form) in [("agent", "json"), ("controller", "json"), ("imports", "json"), ("objects", "yaml")] {
        let state = folder.join(format!("{name}.{form}"));
        let cairn =
            std::process::Command::new(env!("CARGO_BIN_EXE_cairn")).args(["plan", "--from"]).arg(state).output();
        let output = cairn.expect("cairn plan runs");
        let (said, complaint) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{name}: {complaint}");
        check_or_write(&folder.join(format!("{name}-plan.txt")), &said);
    }
}
