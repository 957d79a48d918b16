#![expect(clippy::disallowed_methods, reason = "shell: the tasks that answer are aborted with their set")]
//! A light pod: a namespace behind a veth of its node, an HTTP server in it, and a Pod object that says it is Ready.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener},
    time::Duration,
};

use anyhow::{Context, Result};
use k8s_openapi::{
    api::core::v1::{Pod as PodObject, ServiceAccount},
    jiff,
};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
};

use super::{namespace::Namespace, node::Node, wait::wait_for};

pub(crate) const PORT: u16 = 8080;
const SOON: Duration = Duration::from_secs(20);

/// A pod that answers HTTP as long as this value lives.
pub(crate) struct Pod {
    name: String,
    pods: Api<PodObject>,
    _server: JoinSet<()>,
}

/// A pod's address and its gateway, in one family.
struct Wiring<Address> {
    pod: Address,
    gateway: Address,
}

impl Pod {
    /// Starts pod `name` with the label `app` on `node`; `number` (2–9) makes its addresses.
    pub(crate) async fn start(admin: &Client, node: &Node, name: &str, number: u8, app: &str) -> Result<Self> {
        let [cidr_v4, cidr_v6] = node.pod_cidrs().await?;
        let v4 = wire(network_address::<Ipv4Addr>(&cidr_v4)?.to_bits().into(), number, |bits| {
            Ipv4Addr::from_bits(u32::try_from(bits).expect("an IPv4 address has 32 bits"))
        });
        let v6 = wire(network_address::<Ipv6Addr>(&cidr_v6)?.to_bits(), number, Ipv6Addr::from_bits);
        let namespace = Namespace::make(name).await?;
        connect(node.namespace(), &namespace, &v4, &v6).await?;

        let listener = namespace.enter(|| TcpListener::bind((Ipv6Addr::UNSPECIFIED, PORT)))??;
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let mut server = JoinSet::new();
        server.spawn(serve(listener, format!("node={} pod={name}", node.name())));

        wait_for("pods have an account", SOON, async || {
            Ok(Api::<ServiceAccount>::default_namespaced(admin.clone()).get("default").await?)
        })
        .await?;
        let pods: Api<PodObject> = Api::default_namespaced(admin.clone());
        let object = object(node.name(), name, app);
        pods.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
        let pod = Self { name: name.to_owned(), pods, _server: server };
        let addresses = [v4.pod.into(), v6.pod.into()];
        pod.patch(running(node.host().v4().into(), addresses)).await?;
        pod.set_ready(true).await?;
        Ok(pod)
    }

    /// Sets the pod's Ready condition, which decides whether it is an endpoint.
    pub(crate) async fn set_ready(&self, is_ready: bool) -> Result<()> {
        let now = jiff::Timestamp::now().to_string();
        let status = if is_ready { "True" } else { "False" };
        let condition = |kind: &str, status: &str| json!({ "type": kind, "status": status, "lastTransitionTime": now });
        let conditions = [
            condition("PodScheduled", "True"),
            condition("Initialized", "True"),
            condition("ContainersReady", status),
            condition("Ready", status),
        ];
        self.patch(json!({ "conditions": conditions })).await
    }

    /// Deletes the Pod object; the server goes with this value.
    pub(crate) async fn delete(self) -> Result<()> {
        self.pods.delete(&self.name, &DeleteParams::default()).await?;
        Ok(())
    }

    async fn patch(&self, status: serde_json::Value) -> Result<()> {
        let patch = Patch::Merge(json!({ "status": status }));
        self.pods.patch_status(&self.name, &PatchParams::default(), &patch).await?;
        Ok(())
    }
}

fn network_address<Address: std::str::FromStr>(cidr: &str) -> Result<Address> {
    let (address, _) = cidr.split_once('/').with_context(|| format!("{cidr} has a prefix length"))?;
    address.parse().ok().with_context(|| format!("{cidr} begins with an address"))
}

fn wire<Address>(network: u128, number: u8, from_bits: impl Fn(u128) -> Address) -> Wiring<Address> {
    Wiring { pod: from_bits(network + u128::from(number)), gateway: from_bits(network + 1) }
}

/// Point to point: the gateway's address on the veth as a host address, and a host route to the pod.
async fn connect(node: &Namespace, pod: &Namespace, v4: &Wiring<Ipv4Addr>, v6: &Wiring<Ipv6Addr>) -> Result<()> {
    let name = pod.name();
    let (a4, g4, a6, g6) = (v4.pod, v4.gateway, v6.pod, v6.gateway);
    node.ip(&format!(
        "link add v-{name} type veth peer name eth0 netns {name}\n\
         link set v-{name} up\n\
         addr add {g4}/32 dev v-{name}\n\
         addr add {g6}/128 dev v-{name} nodad"
    ))
    .await?;
    pod.ip(&format!(
        "link set eth0 up\n\
         addr add {a4}/32 dev eth0\n\
         addr add {a6}/128 dev eth0 nodad\n\
         route add {g4}/32 dev eth0\n\
         route add default via {g4}\n\
         route add {g6}/128 dev eth0\n\
         route add default via {g6}"
    ))
    .await?;
    node.ip(&format!("route add {a4}/32 dev v-{name}\nroute add {a6}/128 dev v-{name}")).await
}

/// Bound already, so that no scheduler is needed; without a grace period, or nothing would ever remove it.
fn object(node: &str, name: &str, app: &str) -> serde_json::Value {
    json!({
        "metadata": { "name": name, "labels": { "app": app } },
        "spec": {
            "nodeName": node,
            "automountServiceAccountToken": false,
            "terminationGracePeriodSeconds": 0,
            "tolerations": [{ "operator": "Exists" }],
            "containers": [{ "name": "http", "image": "lab/http", "ports": [{ "containerPort": PORT }] }],
        },
    })
}

fn running(host: IpAddr, addresses: [IpAddr; 2]) -> serde_json::Value {
    let now = jiff::Timestamp::now().to_string();
    json!({
        "phase": "Running",
        "hostIP": host,
        "podIP": addresses[0],
        "podIPs": addresses.map(|ip| json!({ "ip": ip })),
        "startTime": now,
        "containerStatuses": [{
            "name": "http", "image": "lab/http", "imageID": "lab/http", "ready": true, "started": true,
            "restartCount": 0, "state": { "running": { "startedAt": now } },
        }],
    })
}

async fn serve(listener: tokio::net::TcpListener, greeting: String) {
    let mut answers = JoinSet::new();
    while let Ok((stream, client)) = listener.accept().await {
        answers.spawn(answer(stream, format!("{greeting} client={}\n", client.ip().to_canonical())));
        while answers.try_join_next().is_some() {}
    }
}

/// One request, one answer; a client that goes away midway is nobody's concern.
async fn answer(mut stream: TcpStream, body: String) {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        match stream.read_buf(&mut request).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
    }
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    stream.write_all(head.as_bytes()).await.ok();
    stream.write_all(body.as_bytes()).await.ok();
    stream.shutdown().await.ok();
}
