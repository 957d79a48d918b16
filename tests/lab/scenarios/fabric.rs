//! Nodes behind two routers, in different subnets: their pods reach each other by what the routers learn over BGP.
//!
//! ```text
//! cp ─┬─ 10.90.0.0/24 ─── ra ══ 10.99.0.0/30 ══ rb ─── 10.92.0.0/24 ─┬─ n2
//! n1 ─┘                     BIRD, AS 64512                            └─ n3
//! ```

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use cairn::api::{BgpPeer, NodeReport};
use k8s_openapi::api::core::v1::Node as NodeObject;
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use super::SOON;
use crate::harness::{
    Lab,
    address::ROUTER,
    enclosure::{WORK, inside},
    namespace::{Namespace, Program, ip_batch},
    wait::stays,
    wait_for,
};

#[test]
fn pods_behind_two_routers_reach_each_other_over_bgp() {
    inside(async || {
        let (mut lab, routers) = three_nodes(Told::Nothing, Value::Null).await?;
        for (from, to) in [(1, 2), (1, 3), (2, 1), (2, 3), (3, 1)] {
            let pod = format!("pod{from}");
            for address in [format!("10.244.{to}.2"), format!("fd00:244:0:{to}::2")] {
                wait_for(&format!("{pod} pings {address}"), SOON, async || {
                    lab.node("n1")?.exec(["ip", "netns", "exec", &pod, "busybox", "ping", "-c1", "-W1", &address]).await
                })
                .await?;
            }
        }
        for number in 1..=3 {
            let name = format!("n{number}");
            wait_for(&format!("{name}'s network is available"), SOON, async || is_available(&lab, &name).await).await?;
        }
        let reports: Api<NodeReport> = Api::all(lab.kube().clone());
        wait_for("n1 says who carries what", SOON, async || {
            let witness = reports.get("n1").await?.status.context("no status")?.witness;
            let mut by = witness.iter().filter_map(|answer| answer.message.as_ref());
            ensure!(by.any(|by| by.contains("10.90.0.1")), "{witness:?}");
            Ok(())
        })
        .await?;
        drop(routers);
        Ok(())
    });
}

/// The nodes are of one AS, and the routers pass on what they announce as it is.
#[test]
fn nodes_of_one_as_learn_each_others_pods_where_their_policy_allows_the_own_number() {
    inside(async || {
        let prefixes = json!([{ "prefix": "10.244.0.0/16", "le": 24 }, { "prefix": "fd00:244::/48", "le": 64 }]);
        let (mut lab, routers) = three_nodes(Told::PodCidrs, json!({ "prefixes": prefixes })).await?;
        wait_for("the router tells n1 of n2's and n3's pods", SOON, async || {
            let control = Path::new(WORK).join("ra.ctl").display().to_string();
            // A session that broke off and came again has another name.
            let asked = format!("birdc -r -s {control} show route export");
            let last = format!("birdc -r -s {control} show protocols | grep -o '^node[0-9]*' | tail -n 1");
            let told = routers[0].0.exec(["sh", "-c", &format!("{asked} $({last})")]).await?;
            ensure!(told.contains("10.244.2.0/24") && told.contains("fd00:244:0:3::/64"), "{told}");
            Ok(())
        })
        .await?;
        stays("loops are refused", Duration::from_secs(2), async || {
            let learned = learned(&mut lab).await?;
            ensure!(!learned.contains("via"), "{learned}");
            Ok(())
        })
        .await?;
        let peers: Api<BgpPeer> = Api::all(lab.kube().clone());
        let allow = async |count: u8| {
            let patch = Patch::Merge(json!({ "spec": { "import": { "allowOwnAs": count } } }));
            peers.patch("ra", &PatchParams::default(), &patch).await
        };
        allow(1).await?;
        wait_for("n1 has the routes to n2's and n3's pods", SOON, async || {
            let learned = learned(&mut lab).await?;
            for route in
                ["10.244.2.0/24 via 10.90.0.1 ", "10.244.3.0/24 via 10.90.0.1 ", "fd00:244:0:2::/64 via fd90::1 "]
            {
                ensure!(learned.contains(route), "{route} is not in {learned}");
            }
            Ok(())
        })
        .await?;
        wait_for("a pod of n1 pings one of n2", SOON, async || {
            lab.node("n1")?.exec(["ip", "netns", "exec", "pod1", "busybox", "ping", "-c1", "-W1", "10.244.2.2"]).await
        })
        .await?;
        allow(0).await?;
        wait_for("they go with the permission", SOON, async || {
            let learned = learned(&mut lab).await?;
            ensure!(!learned.contains("via"), "{learned}");
            Ok(())
        })
        .await
    });
}

/// n1's routes of ours; it reaches no other node without a router.
async fn learned(lab: &mut Lab) -> Result<String> {
    let node = lab.node("n1")?;
    let v4 = node.exec(["ip", "-4", "route", "show", "proto", "202"]).await?;
    Ok(v4 + &node.exec(["ip", "-6", "route", "show", "proto", "202"]).await?)
}

/// What routers tell the nodes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    Nothing,
    PodCidrs,
}

/// n1 behind one router, n2 and n3 behind the other, with a pod each.
async fn three_nodes(told: Told, import: Value) -> Result<(Lab, [(Namespace, Program); 2])> {
    let mut lab = Lab::builder().nodes(3).api_only().start().await?;
    let routers = build(&lab, told).await?;
    lab.install_cairn().await?;
    lab.spawn_controller_with(&["--controllers=route"])?;
    lab.spawn_agents()?;
    peer_with(&lab, "ra", "10.90.0.1", &import).await?;
    peer_with(&lab, "rb", "10.92.0.1", &import).await?;
    for (number, subnet, rack) in [(1, 90, "ra"), (2, 92, "rb"), (3, 92, "rb")] {
        join(&lab, number, subnet, rack).await?;
    }
    Ok((lab, routers))
}

/// Puts n2 and n3 into a subnet of their own, and two routers between.
async fn build(lab: &Lab, told: Told) -> Result<[(Namespace, Program); 2]> {
    let (ra, rb) = (Namespace::make("ra").await?, Namespace::make("rb").await?);
    ra.plug_in(ROUTER).await?;
    ip_batch(
        &[],
        "link add br1 type bridge forward_delay 0 stp_state 0 mcast_snooping 0\n\
         link set br1 up\n\
         link add p-rb type veth peer name eth0 netns rb\n\
         link set p-rb master br1 up\n\
         link set p-n2 master br1\n\
         link set p-n3 master br1",
    )
    .await?;
    ra.ip("link add up0 type veth peer name up0 netns rb\n\
           link set up0 up\n\
           addr add 10.99.0.1/30 dev up0\n\
           addr add fd99::1/64 dev up0 nodad\n\
           route add 10.92.0.0/24 via 10.99.0.2\n\
           route add fd92::/64 via fd99::2")
        .await?;
    rb.ip("link set up0 up\n\
           link set eth0 up\n\
           addr add 10.92.0.1/24 dev eth0\n\
           addr add fd92::1/64 dev eth0 nodad\n\
           addr add 10.99.0.2/30 dev up0\n\
           addr add fd99::2/64 dev up0 nodad\n\
           route add default via 10.99.0.1\n\
           route add default via fd99::1")
        .await?;
    for (name, number) in [("n2", 12), ("n3", 13)] {
        let node = lab.nodes().find(|node| node.name() == name).context("no such node")?.namespace();
        node.ip(&format!(
            "addr flush dev eth0 scope global\n\
             addr add 10.92.0.{number}/24 dev eth0\n\
             addr add fd92::{number}/64 dev eth0 nodad\n\
             route replace default via 10.92.0.1\n\
             route replace default via fd92::1"
        ))
        .await?;
    }
    for router in [&ra, &rb] {
        router.sysctl("net/ipv4/ip_forward", "1")?;
        router.sysctl("net/ipv6/conf/all/forwarding", "1")?;
    }
    let a = bird(&ra, told, "10.99.0.1", "10.99.0.2", "10.90.0.0/24")?;
    let b = bird(&rb, told, "10.99.0.2", "10.99.0.1", "10.92.0.0/24")?;
    Ok([(ra, a), (rb, b)])
}

/// Takes what its nodes announce, and tells the other router.
fn bird(router: &Namespace, told: Told, own: &str, other: &str, nodes: &str) -> Result<Program> {
    let name = router.name();
    let export = match told {
        Told::Nothing => "none",
        Told::PodCidrs => "where source = RTS_BGP",
    };
    let gateway = nodes.replace("10.", "fd").replace(".0.0/24", "::1");
    let own_v6 = own.replace("10.99.0.", "fd99::");
    let config = Path::new(WORK).join(format!("{name}.conf"));
    std::fs::write(
        &config,
        format!(
            r#"log stderr all;
router id {own};
protocol device {{ scan time 5; }}
protocol direct {{ ipv4; ipv6; interface "eth*", "up*"; }}
protocol kernel k4 {{ ipv4 {{ import none; export where source = RTS_BGP; }}; }}
protocol kernel k6 {{ ipv6 {{ import none; export where source = RTS_BGP; }}; }}
protocol bgp nodes {{
  local as 64512;
  neighbor range {nodes} as 64513;
  dynamic name "node";
  passive on;
  ipv4 {{ import all; export {export}; next hop self; }};
  ipv6 {{ import all; export {export}; next hop self; next hop address {gateway}; }};
}}
protocol bgp fabric {{
  local {own} as 64512;
  neighbor {other} as 64512;
  connect retry time 1; connect delay time 1;
  ipv4 {{ import all; export where source = RTS_BGP; next hop self; }};
  ipv6 {{ import all; export where source = RTS_BGP; next hop self; next hop address {own_v6}; }};
}}
"#
        ),
    )?;
    let mut command = router.command("bird");
    command.arg("-f").arg("-c").arg(config).arg("-s").arg(Path::new(WORK).join(format!("{name}.ctl")));
    router.spawn(&format!("bird-{name}"), command)
}

/// The router that the nodes of a rack have a session with.
async fn peer_with(lab: &Lab, rack: &str, address: &str, import: &Value) -> Result<()> {
    let peers: Api<BgpPeer> = Api::all(lab.kube().clone());
    let peer = json!({
        "metadata": { "name": rack },
        "spec": {
            "localAsn": 64513, "peerAsn": 64512, "address": address, "holdTimeSeconds": 3,
            "nodeSelector": { "rack": rack }, "import": import,
        },
    });
    peers.create(&PostParams::default(), &serde_json::from_value(peer)?).await?;
    Ok(())
}

/// A node with addresses in a subnet, pod CIDRs and a pod.
async fn join(lab: &Lab, number: u8, subnet: u8, rack: &str) -> Result<()> {
    let name = format!("n{number}");
    let (v4, v6) = (format!("10.244.{number}.0/24"), format!("fd00:244:0:{number}::/64"));
    let nodes: Api<NodeObject> = Api::all(lab.kube().clone());
    let object = json!({
        "metadata": { "labels": { "rack": rack } },
        "spec": { "podCIDR": v4, "podCIDRs": [v4, v6], "taints": null },
    });
    nodes.patch(&name, &PatchParams::default(), &Patch::Merge(object)).await?;
    let addresses = [format!("10.{subnet}.0.1{number}"), format!("fd{subnet}::1{number}")];
    let addresses = addresses.map(|address| json!({ "type": "InternalIP", "address": address }));
    let status = json!({ "status": { "addresses": addresses } });
    nodes.patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await?;
    let node = lab.nodes().find(|node| node.name() == name).context("no such node")?.namespace();
    start_pod(node, number).await
}

/// A pod at `.2` and `::2` of the node's pod CIDRs, behind a veth.
async fn start_pod(node: &Namespace, number: u8) -> Result<()> {
    let pod = Namespace::make(&format!("pod{number}")).await?;
    let (v4, v6) = (format!("10.244.{number}."), format!("fd00:244:0:{number}::"));
    node.ip(&format!(
        "link add v-pod type veth peer name eth0 netns pod{number}\n\
         link set v-pod up\n\
         addr add {v4}1/32 dev v-pod\n\
         addr add {v6}1/128 dev v-pod nodad\n\
         route add {v4}2/32 dev v-pod\n\
         route add {v6}2/128 dev v-pod"
    ))
    .await?;
    pod.ip(&format!(
        "link set eth0 up\n\
         addr add {v4}2/32 dev eth0\n\
         addr add {v6}2/128 dev eth0 nodad\n\
         route add {v4}1/32 dev eth0\n\
         route add default via {v4}1\n\
         route add {v6}1/128 dev eth0\n\
         route add default via {v6}1"
    ))
    .await
}

async fn is_available(lab: &Lab, name: &str) -> Result<()> {
    let nodes: Api<NodeObject> = Api::all(lab.kube().clone());
    let status = nodes.get(name).await?.status.unwrap_or_default();
    let condition = status.conditions.into_iter().flatten().find(|condition| condition.type_ == "NetworkUnavailable");
    ensure!(condition.as_ref().is_some_and(|condition| condition.status == "False"), "{condition:?}");
    Ok(())
}
