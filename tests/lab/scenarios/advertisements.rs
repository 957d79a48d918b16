//! What routers hear is what Advertisements say.

use std::{collections::BTreeSet, net::IpAddr, path::Path, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use cairn::api::{Advertisement, BgpPeer, Condition, ConditionStatus, ConditionType, NodeReport};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use super::{SOON, cluster_with_cairn};
use crate::harness::{
    Lab, RouterKind,
    address::{NODE_ASN, ROUTER_ASN},
    cairn::AGENT,
    enclosure::{WORK, inside},
    service::{ExternalTrafficPolicy, Service, host_prefix},
    uplink::{Heard, Make, Uplink},
    wait::stays,
    wait_for,
};

/// Makes or changes an Advertisement.
pub(super) async fn advertise(lab: &Lab, name: &str, spec: Value) -> Result<()> {
    let advertisements: Api<Advertisement> = Api::all(lab.kube().clone());
    let object = json!({ "apiVersion": "cairn.dev/v1alpha1", "kind": "Advertisement", "metadata": { "name": name }, "spec": spec });
    advertisements.patch(name, &PatchParams::apply("lab").force(), &Patch::Apply(&object)).await?;
    Ok(())
}

pub(super) async fn withdraw(lab: &Lab, name: &str) -> Result<()> {
    let advertisements: Api<Advertisement> = Api::all(lab.kube().clone());
    advertisements.delete(name, &DeleteParams::default()).await?;
    Ok(())
}

/// Waits until a condition of an Advertisement has this status, and gives its sentence.
async fn condition(lab: &Lab, name: &str, kind: ConditionType, status: ConditionStatus) -> Result<String> {
    let advertisements: Api<Advertisement> = Api::all(lab.kube().clone());
    wait_for(&format!("{kind:?} of Advertisement {name} is {status:?}"), SOON, async || {
        let conditions = advertisements.get(name).await?.status.unwrap_or_default().conditions;
        let found =
            conditions.iter().find(|condition: &&Condition| condition.kind == kind && condition.status == status);
        found.map(|condition| condition.message.clone()).with_context(|| format!("{conditions:?}"))
    })
    .await
}

/// Makes a `BgpPeer` for a router beside the lab's own, labelled with its name.
pub(super) async fn peer_with(lab: &Lab, uplink: &Uplink, name: &str, more: Value) -> Result<()> {
    let peers: Api<BgpPeer> = Api::all(lab.kube().clone());
    let mut spec = json!({
        "localAsn": NODE_ASN, "peerAsn": uplink.asn(), "address": uplink.host().v4(), "holdTimeSeconds": 3,
    });
    let fields = more.as_object().context("fields of a BgpPeer")?.clone();
    spec.as_object_mut().context("a spec")?.extend(fields);
    let object = json!({ "metadata": { "name": name, "labels": { "name": name } }, "spec": spec });
    peers.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    Ok(())
}

/// BIRD, FRR and GoBGP, each once in an AS of its own and once in that of the nodes.
async fn six_routers(lab: &mut Lab) -> Result<Vec<Uplink>> {
    let mut uplinks = Vec::new();
    for (place, make) in (0..).zip([Make::Bird, Make::Frr, Make::GoBgp]) {
        for (offset, asn) in [(2, ROUTER_ASN + 2 + u32::from(place)), (5, NODE_ASN)] {
            let uplink = lab.start_uplink(make, offset + place, asn, &[]).await?;
            peer_with(lab, &uplink, &format!("r{}", uplink.host().0), json!({})).await?;
            uplinks.push(uplink);
        }
    }
    Ok(uplinks)
}

#[test]
fn every_make_of_router_shows_what_the_advertisement_says() {
    inside(async || {
        let mut lab = Lab::builder().nodes(2).router(RouterKind::Bird).start().await?;
        lab.run_cairn().await?;
        let uplinks = six_routers(&mut lab).await?;
        lab.start_pod("n1", "web-1", "web").await?;
        let web = Service::create(lab.kube(), "web", ExternalTrafficPolicy::Cluster).await?;
        let prefixes = web.wait_for_addresses(SOON).await?.map(host_prefix);
        for uplink in &uplinks {
            for prefix in &prefixes {
                uplink.wait_until_heard(prefix, 2, |heard| is_plain(uplink, heard), SOON).await?;
            }
        }

        let communities = ["64512:100", "65535:65281", "4200000000:1:2"];
        let bgp = json!({ "communities": ["64512:100", "no-export", "4200000000:1:2"], "localPreference": 200, "med": 50, "asPathPrepend": 2 });
        advertise(&lab, "all", json!({ "services": {}, "bgp": bgp })).await?;
        let is_as_said = |uplink: &Uplink, heard: &Heard| {
            let said: BTreeSet<_> =
                heard.communities.iter().map(|name| if name == "no-export" { "65535:65281" } else { name }).collect();
            let (path, preference) = if uplink.is_internal() { (vec![], Some(200)) } else { (vec![NODE_ASN; 3], None) };
            said == communities.into()
                && heard.med == Some(50)
                && heard.as_path == path
                && told_preference(uplink, heard) == preference
        };
        for uplink in &uplinks {
            for prefix in &prefixes {
                uplink.wait_until_heard(prefix, 2, |heard| is_as_said(uplink, heard), SOON).await?;
            }
        }

        // Without the Advertisement it is as it was.
        withdraw(&lab, "all").await?;
        for uplink in &uplinks {
            uplink.wait_until_heard(&prefixes[0], 2, |heard| is_plain(uplink, heard), SOON).await?;
        }
        Ok(())
    });
}

fn is_plain(uplink: &Uplink, heard: &Heard) -> bool {
    let (path, preference) = if uplink.is_internal() { (vec![], Some(100)) } else { (vec![NODE_ASN], None) };
    heard.communities.is_empty()
        && heard.med.unwrap_or(0) == 0
        && heard.as_path == path
        && told_preference(uplink, heard) == preference
}

/// The preference that a node told; BIRD shows its own on external sessions, where none is told.
fn told_preference(uplink: &Uplink, heard: &Heard) -> Option<u32> {
    heard.local_preference.filter(|_| uplink.is_internal())
}

#[test]
fn a_network_is_announced_as_long_as_an_address_in_it_is_and_to_the_peers_that_are_meant() {
    inside(async || {
        let mut lab = cluster_with_cairn().await?;
        let uplink = lab.start_uplink(Make::Bird, 2, ROUTER_ASN + 2, &[]).await?;
        peer_with(&lab, &uplink, "office", json!({})).await?;
        lab.start_pod("n1", "web-1", "web").await?;
        let bgp = json!({ "peerSelector": { "matchLabels": { "name": "office" } }, "aggregationLength": 26, "aggregationLengthV6": 124 });
        advertise(&lab, "office", json!({ "services": { "pools": ["public"] }, "bgp": bgp })).await?;
        let web = Service::create(lab.kube(), "web", ExternalTrafficPolicy::Cluster).await?;
        let other = Service::create_for_app(lab.kube(), "other", "web", ExternalTrafficPolicy::Cluster).await?;
        let addresses = web.wait_for_addresses(SOON).await?;
        let others = other.wait_for_addresses(SOON).await?;
        let both = [addresses, others].concat();
        // The pool begins at .10, so these are the widest networks that do not leave it.
        let networks: BTreeSet<_> = both.iter().map(|address| network_of(&lab, *address)).collect::<Result<_>>()?;
        for network in &networks {
            uplink.wait_until_heard(network, 3, |_| true, SOON).await?;
        }
        let router_hears_none = async || {
            for prefix in both.iter().map(|address| host_prefix(*address)).chain(networks.iter().cloned()) {
                let hops = lab.router()?.next_hops(&prefix).await?;
                ensure!(hops.is_empty(), "{prefix} via {hops:?}");
            }
            Ok(())
        };
        wait_for("the other router has none of them", SOON, router_hears_none).await?;
        web.delete().await?;
        let left: BTreeSet<_> = others.iter().map(|address| network_of(&lab, *address)).collect::<Result<_>>()?;
        for network in &networks {
            let nodes = if left.contains(network) { 3 } else { 0 };
            uplink.wait_until_heard(network, nodes, |_| true, SOON).await?;
        }
        stays("what is left stays", Duration::from_secs(1), async || {
            for network in &left {
                ensure!(uplink.heard(network).await?.len() == 3, "{network} is gone");
            }
            Ok(())
        })
        .await?;
        other.delete().await?;
        for network in &networks {
            uplink.wait_until_heard(network, 0, |_| true, SOON).await?;
        }
        Ok(())
    });
}

/// By the very rule of the agents, from the pool of the lab.
pub(super) fn network_of(lab: &Lab, address: std::net::IpAddr) -> Result<String> {
    let text = std::fs::read_to_string(lab.cairn()?.configuration().join("pool.yaml"))?;
    let blocks =
        text.lines().filter_map(|line| line.trim().strip_prefix("- ")?.parse::<cairn::config::AddressBlock>().ok());
    let length = if address.is_ipv4() { 26 } else { 124 };
    let network = blocks.filter(|block| block.contains(address)).find_map(|block| block.aggregate(address, length));
    Ok(network.with_context(|| format!("{address} is in no block"))?.to_string())
}

#[test]
fn pod_cidrs_carry_what_their_advertisement_says_and_can_be_kept_back() {
    inside(async || {
        let lab = cluster_with_cairn().await?;
        let cidrs = lab.nodes().next().context("a node")?.pod_cidrs().await?;
        let community = async |prefix: &str| lab.router()?.birdc(&format!("show route {prefix} all")).await;
        for cidr in &cidrs {
            wait_for(&format!("the router has {cidr}"), SOON, async || {
                ensure!(!lab.router()?.next_hops(cidr).await?.is_empty(), "not yet");
                Ok(())
            })
            .await?;
        }
        advertise(&lab, "pods", json!({ "podCidrs": {}, "bgp": { "communities": ["64512:7", "64512:7:7"] } })).await?;
        for cidr in &cidrs {
            wait_for(&format!("{cidr} has communities"), SOON, async || {
                let shown = community(cidr).await?;
                ensure!(shown.contains("(64512,7)") && shown.contains("(64512, 7, 7)"), "{shown}");
                Ok(())
            })
            .await?;
        }
        advertise(&lab, "pods", json!({ "podCidrs": {}, "withhold": {}, "bgp": null })).await?;
        for cidr in &cidrs {
            lab.router()?.wait_for_next_hops(cidr, [], SOON).await?;
        }
        Ok(())
    });
}

#[test]
fn wrong_advertisements_are_told_and_the_order_of_objects_does_not_matter() {
    inside(async || {
        let mut lab = cluster_with_cairn().await?;
        lab.start_pod("n1", "web-1", "web").await?;
        // Names of what does not exist yet.
        let bgp = json!({ "peers": ["later"], "communities": ["64512:1"], "med": 10 });
        advertise(&lab, "early", json!({ "services": { "pools": ["public", "none"] }, "bgp": bgp })).await?;
        let told = condition(&lab, "early", ConditionType::ResolvedRefs, ConditionStatus::False).await?;
        ensure!(told.contains("there is no AddressPool none") && told.contains("there is no BgpPeer later"), "{told}");
        condition(&lab, "early", ConditionType::Ready, ConditionStatus::True).await?;
        let web = Service::create(lab.kube(), "web", ExternalTrafficPolicy::Cluster).await?;
        let [v4, _] = web.wait_for_addresses(SOON).await?;

        let uplink = lab.start_uplink(Make::Bird, 2, ROUTER_ASN + 2, &[]).await?;
        peer_with(&lab, &uplink, "later", json!({})).await?;
        let marked = |heard: &Heard| heard.communities.contains("64512:1") && heard.med == Some(10);
        uplink.wait_until_heard(&host_prefix(v4), 3, marked, SOON).await?;
        // The other router is not meant. An agent that heard of the Service first takes back what it told.
        lab.router()?.wait_for_next_hops(&host_prefix(v4), [], SOON).await?;
        wait_for("Advertisement early misses only the pool", SOON, async || {
            let told = condition(&lab, "early", ConditionType::ResolvedRefs, ConditionStatus::False).await?;
            ensure!(told.contains("AddressPool none") && !told.contains("BgpPeer"), "{told}");
            Ok(())
        })
        .await?;

        // One that says something else of the same routes.
        advertise(&lab, "other", json!({ "services": {}, "bgp": { "med": 20, "communities": ["64512:2"] } })).await?;
        for (name, other) in [("early", "other"), ("other", "early")] {
            let told = condition(&lab, name, ConditionType::Conflict, ConditionStatus::True).await?;
            ensure!(told.contains("spec.bgp.med") && told.contains(other), "{told}");
        }
        let merged = |heard: &Heard| marked(heard) && heard.communities.contains("64512:2");
        uplink.wait_until_heard(&host_prefix(v4), 3, merged, SOON).await?;
        advertise(&lab, "other", json!({ "services": {}, "bgp": { "communities": ["64512:2"], "med": null } })).await?;
        condition(&lab, "early", ConditionType::Conflict, ConditionStatus::False).await?;

        // A network around pods that holds the nodes themselves is not announced, and the reports say why.
        advertise(&lab, "pods", json!({ "podCidrs": {}, "bgp": { "aggregationLength": 8 } })).await?;
        let reports: Api<NodeReport> = Api::all(lab.kube().clone());
        wait_for("n1 says why it does not announce 10.0.0.0/8", SOON, async || {
            let adverts = reports.get("n1").await?.status.unwrap_or_default().bgp.adverts;
            let is_told = adverts
                .iter()
                .any(|advert| advert.advertisement == "pods" && advert.message.contains("10.0.0.0/8 holds"));
            if !is_told {
                bail!("{adverts:?}");
            }
            Ok(())
        })
        .await?;
        ensure!(uplink.heard("10.0.0.0/8").await?.is_empty(), "10.0.0.0/8 is announced");
        Ok(())
    });
}

#[test]
fn what_is_withheld_stays_so_when_its_advertisement_became_wrong_and_the_agent_starts_again() {
    inside(async || {
        let mut lab = Lab::builder().nodes(1).router(RouterKind::Bird).start().await?;
        lab.run_cairn().await?;
        lab.start_pod("n1", "web-1", "web").await?;
        let withheld = json!({ "services": {}, "withhold": {} });
        advertise(&lab, "hidden", withheld.clone()).await?;
        condition(&lab, "hidden", ConditionType::Ready, ConditionStatus::True).await?;
        let web = Service::create(lab.kube(), "web", ExternalTrafficPolicy::Cluster).await?;
        let [v4, _] = web.wait_for_addresses(SOON).await?;
        wait_for("the agent has kept what is withheld", SOON, async || {
            let kept = std::fs::read_to_string(Path::new(WORK).join("n1/state.json"))?;
            ensure!(kept.contains("hidden"), "{kept}");
            Ok(())
        })
        .await?;

        let mut wrong = withheld;
        wrong["nodeSelector"] = json!({ "no label": "x" });
        advertise(&lab, "hidden", wrong).await?;
        condition(&lab, "hidden", ConditionType::Ready, ConditionStatus::False).await?;
        let node = IpAddr::from(lab.node("n1")?.host().v4());
        let [cidr, _] = lab.node("n1")?.pod_cidrs().await?;
        lab.node("n1")?.program(AGENT)?.kill().await?;
        lab.router()?.wait_for_next_hops(&cidr, [], SOON).await?;
        lab.spawn_agent("n1")?;
        lab.router()?.wait_for_next_hops(&cidr, [node], SOON).await?;
        let prefix = host_prefix(v4);
        stays("the address is withheld", Duration::from_secs(2), async || {
            let heard = lab.router()?.next_hops(&prefix).await?;
            ensure!(heard.is_empty(), "via {heard:?}");
            Ok(())
        })
        .await?;

        withdraw(&lab, "hidden").await?;
        lab.router()?.wait_for_next_hops(&prefix, [node], SOON).await
    });
}
