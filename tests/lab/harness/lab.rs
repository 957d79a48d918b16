//! A lab and how it is put together.

use std::{collections::BTreeMap, path::Path};

use anyhow::{Context, Result};
use kube::Client as KubeClient;

use super::{
    address::{self, BENCH, CLIENT_V4, CONTROL_PLANE, LanHost, ROUTER},
    cairn::Cairn,
    client::Client,
    control_plane::ControlPlane,
    full_node::NodeIp,
    kubernetes::Kubernetes,
    namespace::{Namespace, Program, ip_batch},
    node::Node,
    pki::Identity,
    pod::Pod,
    router::Router,
    uplink::{Make, Uplink},
};

/// Which router stands between the cluster and the client.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RouterKind {
    Bird,
}

/// What a lab is to have; nothing but a control plane unless told.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Builder {
    kubernetes: Kubernetes,
    nodes: u8,
    router: Option<RouterKind>,
    has_client: bool,
    is_api_only: bool,
    pod_cidrs: PodCidrs,
}

/// Who gives Nodes their pod CIDRs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum PodCidrs {
    #[default]
    KubeControllerManager,
    /// Nobody before somebody else does: kube-controller-manager is told not to.
    Others,
}

/// A running cluster with its network.
pub(crate) struct Lab {
    control_plane: ControlPlane,
    nodes: BTreeMap<String, Node>,
    pods: BTreeMap<String, Pod>,
    router: Option<Router>,
    client: Option<Client>,
    cairn: Option<Cairn>,
    controller: Option<Program>,
}

impl Builder {
    /// Which Kubernetes runs the control plane.
    pub(crate) fn kubernetes(self, kubernetes: Kubernetes) -> Self {
        Self { kubernetes, ..self }
    }

    /// Machines `n1`, `n2`, … at 10.90.0.11, .12, …; each is registered, tainted and without kube-proxy.
    pub(crate) fn nodes(self, nodes: u8) -> Self {
        Self { nodes, ..self }
    }

    pub(crate) fn router(self, kind: RouterKind) -> Self {
        Self { router: Some(kind), ..self }
    }

    /// A client behind the router.
    pub(crate) fn client(self) -> Self {
        Self { has_client: true, ..self }
    }

    /// Without Kubernetes' own controllers, which would mark Nodes that no kubelet speaks for.
    pub(crate) fn api_only(self) -> Self {
        Self { is_api_only: true, ..self }
    }

    /// Without kube-controller-manager's `node-ipam-controller`.
    pub(crate) fn pod_cidrs(self, pod_cidrs: PodCidrs) -> Self {
        Self { pod_cidrs, ..self }
    }

    pub(crate) async fn start(self) -> Result<Lab> {
        make_switch().await?;
        let namespace = attach("cp", CONTROL_PLANE).await?;
        let mut control_plane = ControlPlane::start(self.kubernetes, namespace).await.context("control plane")?;
        if !self.is_api_only {
            control_plane.run_controller_manager(self.pod_cidrs)?;
        }
        control_plane.authority().kubeconfig("kube-proxy", Identity { user: "system:kube-proxy", group: None })?;
        let mut lab = Lab {
            control_plane,
            nodes: BTreeMap::new(),
            pods: BTreeMap::new(),
            router: None,
            client: None,
            cairn: None,
            controller: None,
        };
        for number in 1..=self.nodes {
            lab.add_node(number).await?;
        }
        if let Some(RouterKind::Bird) = self.router {
            let namespace = attach("r", ROUTER).await?;
            forward(&namespace)?;
            spread_flows(&namespace)?;
            lab.router = Some(Router::start(namespace).await?);
        }
        if self.has_client {
            let router = lab.router.as_ref().context("a client needs a router")?;
            lab.client = Some(Client::new(connect_client(router.namespace()).await?));
        }
        Ok(lab)
    }
}

impl Lab {
    pub(crate) fn builder() -> Builder {
        Builder::default()
    }

    pub(crate) fn control_plane(&self) -> &ControlPlane {
        &self.control_plane
    }

    pub(crate) fn control_plane_mut(&mut self) -> &mut ControlPlane {
        &mut self.control_plane
    }

    /// A client of the API server that may do everything.
    pub(crate) fn kube(&self) -> &KubeClient {
        self.control_plane.admin()
    }

    pub(crate) fn node(&mut self, name: &str) -> Result<&mut Node> {
        self.nodes.get_mut(name).with_context(|| format!("this lab has no node {name}"))
    }

    /// All nodes, in the order of their names.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.values()
    }

    pub(crate) fn router(&self) -> Result<&Router> {
        self.router.as_ref().context("this lab has no router")
    }

    pub(crate) fn client(&self) -> Result<&Client> {
        self.client.as_ref().context("this lab has no client")
    }

    /// Registers machine `n<number>`.
    pub(crate) async fn add_node(&mut self, number: u8) -> Result<()> {
        let (name, host) = (format!("n{number}"), address::node(number));
        let namespace = attach(&name, host).await?;
        forward(&namespace)?;
        let node = Node::register(&self.control_plane, namespace, &name, host).await?;
        self.nodes.insert(name, node);
        Ok(())
    }

    /// Boots machine `n<number>` with a real kubelet and containerd, which registers it; only root can.
    pub(crate) async fn add_full_node(&mut self, number: u8, node_ip: NodeIp) -> Result<()> {
        let (name, host) = (format!("n{number}"), address::node(number));
        let namespace = attach(&name, host).await?;
        forward(&namespace)?;
        let node = Node::boot(&self.control_plane, namespace, &name, host, node_ip).await?;
        self.nodes.insert(name, node);
        Ok(())
    }

    /// Starts a router beside the lab's own, at 10.90.0.`host`, which announces `originated` to the nodes.
    pub(crate) async fn start_uplink(&self, make: Make, host: u8, asn: u32, originated: &[&str]) -> Result<Uplink> {
        let host = LanHost(host);
        let namespace = attach(&format!("u{}", host.0), host).await?;
        forward(&namespace)?;
        Uplink::start(make, namespace, host, asn, originated).await.with_context(|| format!("{make:?}"))
    }

    /// Starts kube-proxy on every node once the Node has an InternalIP, and waits until all serve.
    pub(crate) async fn start_proxies(&mut self) -> Result<()> {
        for node in self.nodes.values_mut() {
            node.start_proxy(&self.control_plane).await?;
        }
        for node in self.nodes.values_mut() {
            node.wait_for_proxy().await?;
        }
        Ok(())
    }

    /// Starts a pod with the label `app` on a node and waits until it is Ready.
    pub(crate) async fn start_pod(&mut self, node: &str, name: &str, app: &str) -> Result<()> {
        let number = 2 + u8::try_from(self.pods.len()).context("a lab has few pods")?;
        let node = self.nodes.get(node).with_context(|| format!("this lab has no node {node}"))?;
        let pod = Pod::start(self.control_plane.admin(), node, name, number, app).await;
        self.pods.insert(name.to_owned(), pod.with_context(|| format!("pod {name}"))?);
        Ok(())
    }

    pub(crate) fn pod(&self, name: &str) -> Result<&Pod> {
        self.pods.get(name).with_context(|| format!("this lab has no pod {name}"))
    }

    /// Installs Cairn from the manifests, with a copy of `examples/flat-lan/`; nothing of it runs yet.
    pub(crate) async fn install_cairn(&mut self) -> Result<()> {
        self.cairn = Some(Cairn::install(&self.control_plane).await.context("install Cairn")?);
        Ok(())
    }

    /// Applies the pool and the peer as they stand in the copy.
    pub(crate) async fn apply_pool_and_peer(&self) -> Result<()> {
        self.cairn()?.apply_pool_and_peer(&self.control_plane).await
    }

    pub(crate) fn cairn(&self) -> Result<&Cairn> {
        self.cairn.as_ref().context("Cairn is not installed in this lab")
    }

    /// Controllers started from now on show a token that no other has: in the audit log they can be told apart.
    pub(crate) async fn renew_controller_token(&mut self) -> Result<()> {
        let cairn = self.cairn.as_mut().context("Cairn is not installed in this lab")?;
        cairn.renew_controller_token(&self.control_plane).await
    }

    /// Starts the controller, in the control plane's namespace.
    pub(crate) fn spawn_controller(&mut self) -> Result<()> {
        self.spawn_controller_with(&[])
    }

    /// Starts the controller with more flags.
    pub(crate) fn spawn_controller_with(&mut self, flags: &[&str]) -> Result<()> {
        self.controller = Some(self.cairn()?.spawn_controller(self.control_plane.namespace(), flags)?);
        Ok(())
    }

    /// Starts the controller again if it has ended, as the kubelet of its Deployment's pod does: one that cannot renew
    /// its Lease ends, and when that is, nobody outside can know.
    pub(crate) fn keep_controller(&mut self) -> Result<()> {
        if self.controller()?.ensure_running().is_err() { self.spawn_controller() } else { Ok(()) }
    }

    pub(crate) fn controller(&mut self) -> Result<&mut Program> {
        self.controller.as_mut().context("no controller was started")
    }

    pub(crate) fn spawn_agent(&mut self, node: &str) -> Result<()> {
        let cairn = self.cairn.as_ref().context("Cairn is not installed in this lab")?;
        let node = self.nodes.get_mut(node).with_context(|| format!("this lab has no node {node}"))?;
        cairn.spawn_agent(node)
    }

    /// Starts the agents of all nodes.
    pub(crate) fn spawn_agents(&mut self) -> Result<()> {
        let cairn = self.cairn.as_ref().context("Cairn is not installed in this lab")?;
        self.nodes.values_mut().try_for_each(|node| cairn.spawn_agent(node))
    }

    /// Everything that a cluster with Cairn has: configuration, controller, agents, kube-proxies.
    pub(crate) async fn run_cairn(&mut self) -> Result<()> {
        self.install_cairn().await?;
        self.apply_pool_and_peer().await?;
        self.spawn_controller()?;
        self.spawn_agents()?;
        self.start_proxies().await
    }

    /// Routes to all pod CIDRs on every node, as an agent keeps them, for labs without one.
    pub(crate) async fn route_pods_by_hand(&self) -> Result<()> {
        for target in self.nodes() {
            let [v4, v6] = target.pod_cidrs().await?;
            let (via_v4, via_v6) = (target.host().v4(), target.host().v6());
            for node in self.nodes().filter(|node| node.name() != target.name()) {
                node.namespace().ip(&format!("route add {v4} via {via_v4}\nroute add {v6} via {via_v6}")).await?;
            }
        }
        Ok(())
    }
}

/// The bench's own namespace is the switch, and a host on it.
async fn make_switch() -> Result<()> {
    std::fs::write(Path::new("/proc/sys/net/ipv6/conf/default/accept_dad"), "0")?;
    let (v4, v6) = (BENCH.v4(), BENCH.v6());
    ip_batch(
        &[],
        &format!(
            "link set lo up\n\
             link add br0 type bridge forward_delay 0 stp_state 0 mcast_snooping 0\n\
             link set br0 up\n\
             addr add {v4}/24 dev br0\n\
             addr add {v6}/64 dev br0 nodad"
        ),
    )
    .await
}

/// A new host on the LAN, with the router as its gateway.
async fn attach(name: &str, host: LanHost) -> Result<Namespace> {
    let namespace = Namespace::make(name).await?;
    namespace.plug_in(host).await?;
    if host.0 != ROUTER.0 {
        let (v4, v6) = (ROUTER.v4(), ROUTER.v6());
        namespace.ip(&format!("route add default via {v4}\nroute add default via {v6}")).await?;
    }
    Ok(namespace)
}

fn forward(namespace: &Namespace) -> Result<()> {
    namespace.sysctl("net/ipv4/ip_forward", "1")?;
    namespace.sysctl("net/ipv6/conf/all/forwarding", "1")
}

/// Next hops are chosen by addresses and ports, so that connections of one client spread.
fn spread_flows(namespace: &Namespace) -> Result<()> {
    namespace.sysctl("net/ipv4/fib_multipath_hash_policy", "1")?;
    namespace.sysctl("net/ipv6/fib_multipath_hash_policy", "1")
}

async fn connect_client(router: &Namespace) -> Result<Namespace> {
    let client = Namespace::make("c").await?;
    router
        .ip("link add eth1 type veth peer name eth0 netns c\n\
             link set eth1 up\n\
             addr add 10.91.0.1/24 dev eth1\n\
             addr add fd91::1/64 dev eth1 nodad")
        .await?;
    client
        .ip(&format!(
            "link set eth0 up\n\
             addr add {CLIENT_V4}/24 dev eth0\n\
             addr add fd91::2/64 dev eth0 nodad\n\
             route add default via 10.91.0.1\n\
             route add default via fd91::1"
        ))
        .await?;
    Ok(client)
}
