//! Routes that routers tell of go into the kernel where a peer's policy asks for them, and nowhere else.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use cairn::api::{BgpReport, NodeReport};
use kube::Api;
use serde_json::{Value, json};

use super::{
    SOON,
    advertisements::peer_with,
    route_monitor::{self, changes_of_ours},
};
use crate::harness::{
    Lab, RouterKind,
    address::ROUTER_ASN,
    cairn::AGENT,
    enclosure::inside,
    uplink::{Make, Uplink},
    wait::stays,
    wait_for,
};

/// What both routers tell of: two networks behind them, the default routes, and what is not theirs to give.
const TOLD: [&str; 8] = [
    "192.0.2.0/24",
    "198.51.100.0/24",
    "0.0.0.0/0",
    "10.90.0.128/25",
    "10.60.0.0/25",
    "2001:db8:7::/48",
    "::/0",
    "10.244.0.0/16",
];

/// One node with two BIRDs in ASes of their own that tell of the same.
async fn node_with_two_routers(import: Value) -> Result<(Lab, [Uplink; 2])> {
    let mut lab = Lab::builder().nodes(1).router(RouterKind::Bird).start().await?;
    lab.install_cairn().await?;
    let one = lab.start_uplink(Make::Bird, 2, ROUTER_ASN + 2, &TOLD).await?;
    let other = lab.start_uplink(Make::Bird, 3, ROUTER_ASN + 3, &TOLD).await?;
    for (uplink, name) in [(&one, "one"), (&other, "other")] {
        peer_with(&lab, uplink, name, json!({ "import": import })).await?;
    }
    lab.apply_pool_and_peer().await?;
    lab.spawn_controller()?;
    lab.spawn_agents()?;
    Ok((lab, [one, other]))
}

/// The node's route of ours to a destination, as `ip` shows it; empty without one.
async fn route(lab: &mut Lab, destination: &str) -> Result<String> {
    let family = if destination.contains(':') { "-6" } else { "-4" };
    let shown = lab.node("n1")?.exec(["ip", family, "route", "show", "proto", "202"]).await?;
    let destination = if matches!(destination, "0.0.0.0/0" | "::/0") { "default" } else { destination };
    // Next hops of a multipath route follow on lines of their own.
    let mut lines = shown.lines().skip_while(|line| !line.starts_with(&format!("{destination} "))).peekable();
    let first = lines.next().unwrap_or_default().to_owned();
    let more = lines.take_while(|line| line.starts_with(char::is_whitespace)).collect::<Vec<_>>().join(" ");
    Ok(format!("{first} {more}"))
}

async fn goes_by(lab: &mut Lab, destination: &str, hops: &[&str]) -> Result<()> {
    wait_for(&format!("{destination} goes by {hops:?}"), SOON, async || {
        let shown = route(lab, destination).await?;
        let count = shown.matches("via ").count();
        if count != hops.len() || !hops.iter().all(|hop| shown.contains(&format!("via {hop} "))) {
            bail!("{shown:?}");
        }
        Ok(())
    })
    .await
}

async fn report(lab: &Lab) -> Result<BgpReport> {
    let reports: Api<NodeReport> = Api::all(lab.kube().clone());
    Ok(reports.get("n1").await?.status.unwrap_or_default().bgp)
}

#[test]
fn equal_routes_of_two_routers_share_the_packets_and_one_takes_over() {
    inside(async || {
        let import = json!({ "prefixes": [
            { "prefix": "192.0.0.0/8", "le": 24 }, { "prefix": "10.0.0.0/8", "le": 32 }, { "prefix": "2001:db8::/32", "le": 64 },
            { "prefix": "0.0.0.0/0", "le": 8 },
        ] });
        let (mut lab, [mut one, _other]) = node_with_two_routers(import).await?;
        goes_by(&mut lab, "192.0.2.0/24", &["10.90.0.2", "10.90.0.3"]).await?;
        goes_by(&mut lab, "2001:db8:7::/48", &["fd90::2", "fd90::3"]).await?;
        goes_by(&mut lab, "10.244.0.0/16", &["10.90.0.2", "10.90.0.3"]).await?;
        // Neither what the policy does not take, nor what would take packets from where they must go.
        for destination in ["198.51.100.0/24", "0.0.0.0/0", "::/0", "10.90.0.128/25", "10.60.0.0/25"] {
            goes_by(&mut lab, destination, &[]).await?;
        }
        wait_for("the report says what was taken and what not", SOON, async || {
            let report = report(&lab).await?;
            let told =
                report.exceptions.iter().filter(|exception| exception.message.contains("would take packets from"));
            ensure!(report.imported == 3 && told.count() == 2, "{report:?}");
            Ok(())
        })
        .await?;
        one.kill().await?;
        goes_by(&mut lab, "192.0.2.0/24", &["10.90.0.3"]).await?;
        goes_by(&mut lab, "2001:db8:7::/48", &["fd90::3"]).await
    });
}

#[test]
fn an_agent_that_is_killed_and_starts_again_takes_no_learned_route_out_that_routers_still_tell_of() {
    inside(async || {
        let import = json!({ "prefixes": [{ "prefix": "198.51.100.0/24" }, { "prefix": "2001:db8::/32", "le": 64 }] });
        let (mut lab, [one, other]) = node_with_two_routers(import).await?;
        let v4 = ["10.90.0.2", "10.90.0.3"];
        let v6 = ["fd90::2", "fd90::3"];
        goes_by(&mut lab, "198.51.100.0/24", &v4).await?;
        goes_by(&mut lab, "2001:db8:7::/48", &v6).await?;
        route_monitor::watch(&mut lab, "n1").await?;
        restart_agent(&mut lab, async |_| Ok(())).await?;
        let changes = changes_of_ours(&mut lab, "n1")?;
        ensure!(changes.is_empty(), "{changes:#?}");

        // What is withdrawn while it is away goes when the routers have told all the rest; of one that only one of them
        // still has, that next hop stays.
        restart_agent(&mut lab, async |lab| {
            stop_telling(&one, "s6").await?;
            stop_telling(&other, "s6").await?;
            stop_telling(&other, "s4").await?;
            // Nobody takes it out before.
            goes_by(lab, "2001:db8:7::/48", &v6).await
        })
        .await?;
        goes_by(&mut lab, "2001:db8:7::/48", &[]).await?;
        goes_by(&mut lab, "198.51.100.0/24", &v4[..1]).await?;
        let changes = changes_of_ours(&mut lab, "n1")?;
        let deleted: Vec<_> = changes.iter().filter(|line| line.starts_with("Deleted")).collect();
        ensure!(deleted.iter().all(|line| line.contains("2001:db8:7::/48")), "{changes:#?}");
        Ok(())
    });
}

/// Whatever make they are: each says that it has told everything to an agent that asks for it.
#[test]
fn what_routers_of_three_makes_withdrew_while_the_agent_was_away_goes_when_they_have_told_the_rest() {
    inside(async || {
        let mut lab = Lab::builder().nodes(1).router(RouterKind::Bird).start().await?;
        lab.install_cairn().await?;
        let import = json!({ "prefixes": [{ "prefix": "198.18.0.0/15", "le": 24 }] });
        let mut uplinks = Vec::new();
        for (place, make) in (2..).zip([Make::Bird, Make::Frr, Make::GoBgp]) {
            let told = [format!("198.18.{place}.0/24"), format!("198.19.{place}.0/24")];
            let told = told.each_ref().map(String::as_str);
            let uplink = lab.start_uplink(make, place, ROUTER_ASN + u32::from(place), &told).await?;
            peer_with(&lab, &uplink, &format!("r{place}"), json!({ "import": import })).await?;
            uplinks.push((uplink, place));
        }
        lab.apply_pool_and_peer().await?;
        lab.spawn_controller()?;
        lab.spawn_agents()?;
        for (_, place) in &uplinks {
            for network in ["198.18", "198.19"] {
                goes_by(&mut lab, &format!("{network}.{place}.0/24"), &[&format!("10.90.0.{place}")]).await?;
            }
        }
        route_monitor::watch(&mut lab, "n1").await?;
        restart_agent(&mut lab, async |_| {
            for (uplink, place) in &uplinks {
                uplink.withdraw(&format!("198.19.{place}.0/24")).await?;
            }
            Ok(())
        })
        .await?;
        for (_, place) in &uplinks {
            goes_by(&mut lab, &format!("198.19.{place}.0/24"), &[]).await?;
            goes_by(&mut lab, &format!("198.18.{place}.0/24"), &[&format!("10.90.0.{place}")]).await?;
        }
        let changes = changes_of_ours(&mut lab, "n1")?;
        let deleted = changes.iter().filter(|line| line.starts_with("Deleted"));
        ensure!(deleted.clone().count() == 3 && deleted.clone().all(|line| line.contains("198.19.")), "{changes:#?}");
        Ok(())
    });
}

/// Kills n1's agent, does something, starts another, and waits until that holds nothing of the last run any more.
async fn restart_agent(lab: &mut Lab, meanwhile: impl AsyncFnOnce(&mut Lab) -> Result<()>) -> Result<()> {
    let finished = |lab: &mut Lab| -> Result<usize> {
        let log = lab.node("n1")?.program(AGENT)?.log()?;
        let is_end = |line: &&str| line.contains("routers have told routes") && line.contains("routes=0");
        Ok(log.lines().filter(is_end).count())
    };
    let before = finished(lab)?;
    lab.node("n1")?.program(AGENT)?.kill().await?;
    meanwhile(lab).await?;
    lab.spawn_agent("n1")?;
    wait_for("the routers have told everything again", SOON, async || {
        ensure!(finished(lab)? > before, "not yet");
        Ok(())
    })
    .await
}

/// A router forgets the routes that it told of by itself, of one family.
async fn stop_telling(uplink: &Uplink, protocol: &str) -> Result<()> {
    let answer = uplink.ask(&format!("disable {protocol}")).await?;
    ensure!(answer.contains("disabled"), "{answer}");
    Ok(())
}

#[test]
fn without_a_policy_nothing_is_imported_and_a_default_route_only_by_name_and_no_more_than_the_limit() {
    inside(async || {
        let (mut lab, _uplinks) = node_with_two_routers(Value::Null).await?;
        wait_for("three sessions are established", SOON, async || {
            let report = report(&lab).await?;
            ensure!(report.established >= 2, "{report:?}");
            Ok(())
        })
        .await?;
        stays("nothing is imported", Duration::from_secs(2), async || {
            for destination in TOLD {
                let shown = route(&mut lab, destination).await?;
                ensure!(!shown.contains("via"), "{shown}");
            }
            Ok(())
        })
        .await?;
        // A policy that comes later asks the router to tell everything again.
        let import =
            json!({ "prefixes": [{ "prefix": "::/0" }, { "prefix": "192.0.0.0/4", "ge": 24 }], "maxPrefixes": 2 });
        let peers: Api<cairn::api::BgpPeer> = Api::all(lab.kube().clone());
        let patch = kube::api::Patch::Merge(json!({ "spec": { "import": import } }));
        peers.patch("one", &kube::api::PatchParams::default(), &patch).await?;
        wait_for("as many as the limit says are imported, and the report tells of the rest", SOON, async || {
            let report = report(&lab).await?;
            let is_told = report.exceptions.iter().any(|exception| exception.message.contains("1 routes are left out"));
            ensure!(report.imported == 2 && is_told, "{report:?}");
            Ok(())
        })
        .await
    });
}

#[test]
fn packets_to_a_pod_that_is_gone_end_on_the_node_instead_of_going_in_circles() {
    inside(async || {
        let mut lab = Lab::builder().nodes(1).router(RouterKind::Bird).client().start().await?;
        lab.run_cairn().await?;
        let [v4, _] = lab.node("n1")?.pod_cidrs().await?;
        let hops = [lab.node("n1")?.host().v4().into()];
        lab.router()?.wait_for_next_hops(&v4, hops, SOON).await?;
        wait_for("the router's kernel has the route as well", SOON, async || {
            let shown = lab.router()?.namespace().exec(["ip", "route", "show", &v4]).await?;
            ensure!(shown.contains("via"), "{shown}");
            Ok(())
        })
        .await?;
        let gone = v4.replace(".0/24", ".77");
        let node = lab.node("n1")?;
        wait_for("the node's own pod CIDR ends in a blackhole", SOON, async || {
            let shown = node.exec(["ip", "route", "show", "proto", "202"]).await?;
            ensure!(shown.contains(&format!("blackhole {v4} ")), "{shown}");
            Ok(())
        })
        .await?;
        let counted = async |lab: &Lab| -> Result<u64> {
            let shown = lab.router()?.namespace().exec(["cat", "/proc/net/snmp"]).await?;
            let mut lines = shown.lines().filter(|line| line.starts_with("Ip: "));
            let (names, values) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
            let at = names.split_whitespace().position(|name| name == "ForwDatagrams");
            Ok(at.and_then(|at| values.split_whitespace().nth(at)?.parse().ok()).unwrap_or_default())
        };
        let before = counted(&lab).await?;
        let answer = lab.client()?.http_get(gone.parse()?, 80).await?;
        ensure!(answer.is_err(), "{answer:?}");
        // A few SYNs, each forwarded once; in a circle each would be so dozens of times.
        let forwarded = counted(&lab).await? - before;
        ensure!((1..10).contains(&forwarded), "the router forwarded {forwarded} packets");
        // A bridge with the same CIDR decides before it.
        let bridge =
            format!("link add cni0 type bridge\nlink set cni0 up\naddr add {} dev cni0", v4.replace(".0/24", ".1/24"));
        let node = lab.node("n1")?;
        node.namespace().ip(&bridge).await?;
        let shown = node.exec(["ip", "route", "get", &gone]).await?;
        ensure!(shown.contains("dev cni0"), "{shown}");
        Ok(())
    });
}
