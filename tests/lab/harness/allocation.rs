//! What holds of Services, pools and the leader's allocator whenever nobody has anything left to do.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use anyhow::{Context, Result, ensure};
use cairn::{
    api::{AddressCounts, AddressPool},
    cluster::views,
    config::AddressBlock,
    model::{
        Family, Scope,
        claim::{ALLOCATION, SHARING},
        views::{IpMode, ServiceView},
    },
    service::plan::{CLASS_CLEANUP_FINALIZER, CLEANUP_FINALIZER},
};
use k8s_openapi::api::core::v1::Service;
use kube::{Api, ResourceExt, api::ListParams};

use super::{Lab, cairn::ask};

/// An error that says what is not as it should be:
///
/// - every Service that Cairn serves has at most one address of each family, Cairn's finalizer and a term; no other
///   has a finalizer of Cairn's;
/// - no two Services have one address, unless they share it lawfully;
/// - as many addresses of a pool as Services have are in use for the leader's allocator, which writes that into the
///   pool's status, all others can be had, and none that somebody has cools down;
/// - a ledger made of these objects (`cairn status pool`) says the same, address by address.
///
/// Pools of such a lab have no reservations, and no Node has an address in one.
pub(crate) async fn ensure_sound(lab: &Lab, scope: Scope) -> Result<()> {
    let all = ListParams::default();
    let services = Api::<Service>::all(lab.kube().clone()).list(&all).await?;
    let services: Vec<_> = services.iter().filter_map(views::service).collect();
    for service in &services {
        carries_what_it_should(service, scope).with_context(|| service.key.to_string())?;
    }
    let holders = holders(&services);
    for (address, holders) in &holders {
        share_lawfully(holders).with_context(|| address.to_string())?;
    }
    for pool in Api::<AddressPool>::all(lab.kube().clone()).list(&all).await? {
        counts_what_is_there(&pool, &holders).with_context(|| format!("AddressPool {}", pool.name_any()))?;
    }
    let shown = ask(lab.control_plane(), &["status", "pool"]).await?;
    lists_who_has_what(&shown, &holders)
}

fn carries_what_it_should(service: &ServiceView, scope: Scope) -> Result<()> {
    let finalizer = if service.class.is_some() { CLASS_CLEANUP_FINALIZER } else { CLEANUP_FINALIZER };
    let is_carried = |name: &str| service.finalizers.iter().any(|finalizer| finalizer == name);
    if !scope.includes(service) {
        let orphans = [CLASS_CLEANUP_FINALIZER, CLEANUP_FINALIZER].map(is_carried);
        ensure!(orphans == [false; 2], "a finalizer of Cairn's is left: {:?}", service.finalizers);
        return Ok(());
    }
    ensure!(!service.is_deleting, "it is being deleted, with finalizers {:?}", service.finalizers);
    if service.ingress.is_empty() {
        return Ok(());
    }
    ensure!(is_carried(finalizer), "no {finalizer} in {:?}", service.finalizers);
    ensure!(service.annotations.contains_key(ALLOCATION), "no term: {:?}", service.annotations);
    let families: Vec<_> = service.ingress.iter().filter_map(|entry| entry.ip.map(Family::of)).collect();
    let distinct: BTreeSet<_> = families.iter().collect();
    ensure!(families.len() == service.ingress.len() && distinct.len() == families.len(), "{:?}", service.ingress);
    let are_virtual = service.ingress.iter().all(|entry| entry.ip_mode == IpMode::Vip);
    ensure!(are_virtual, "{:?}", service.ingress);
    Ok(())
}

fn holders(services: &[ServiceView]) -> BTreeMap<IpAddr, Vec<&ServiceView>> {
    let mut holders = BTreeMap::<IpAddr, Vec<&ServiceView>>::new();
    for service in services {
        for address in service.ingress.iter().filter_map(|entry| entry.ip) {
            holders.entry(address).or_default().push(service);
        }
    }
    holders
}

fn share_lawfully(holders: &[&ServiceView]) -> Result<()> {
    for (index, one) in holders.iter().enumerate() {
        for other in &holders[..index] {
            let (mine, theirs) = (sharing_key(one), sharing_key(other));
            let is_lawful = mine.is_some()
                && mine == theirs
                && one.ports.is_disjoint(&other.ports)
                && one.external_traffic_policy == other.external_traffic_policy;
            ensure!(is_lawful, "both {} and {} have it", one.key, other.key);
        }
    }
    Ok(())
}

fn sharing_key(service: &ServiceView) -> Option<&str> {
    let said = SHARING.iter().find_map(|name| service.annotations.get(*name));
    said.map(|key| key.trim()).filter(|key| !key.is_empty())
}

fn counts_what_is_there(pool: &AddressPool, holders: &BTreeMap<IpAddr, Vec<&ServiceView>>) -> Result<()> {
    let status = pool.status.clone().context("no status")?;
    let blocks: Vec<AddressBlock> = status.blocks.iter().map(|text| text.parse()).collect::<Result<_, _>>()?;
    for (family, counts) in [(Family::V4, status.ipv4), (Family::V6, status.ipv6)] {
        let is_in = |address: &&IpAddr| Family::of(**address) == family && blocks.iter().any(|b| b.contains(**address));
        let held: Vec<_> = holders.keys().filter(is_in).collect();
        let AddressCounts { total, used, free } = counts.unwrap_or_default();
        ensure!(used == i64::try_from(held.len())?, "{family}: {used} in use, and Services have {held:?}");
        ensure!(total - used == free, "{family}: {free} of {total} can be had while {used} are in use");
    }
    for cooling in &status.cooling {
        ensure!(!holders.contains_key(&cooling.address.parse()?), "{cooling:?} cools down and is in use");
    }
    Ok(())
}

fn lists_who_has_what(shown: &str, holders: &BTreeMap<IpAddr, Vec<&ServiceView>>) -> Result<()> {
    let line = |line: &str| {
        let (address, rest) = line.trim().split_once(' ')?;
        let names: BTreeSet<_> = rest.trim_start().split(", ").map(str::to_owned).collect();
        Some((address.parse::<IpAddr>().ok()?, names))
    };
    let shown: BTreeMap<_, _> = shown.lines().filter(|line| !line.contains("given back by")).filter_map(line).collect();
    let names = |holders: &Vec<&ServiceView>| holders.iter().map(|service| service.key.to_string()).collect();
    for (address, names) in holders.iter().map(|(address, holders)| (address, names(holders))) {
        let of_pool: Option<&BTreeSet<String>> = shown.get(address);
        ensure!(of_pool.is_none_or(|of_pool| *of_pool == names), "{address}: {of_pool:?}, and {names:?} have it");
    }
    let surplus: Vec<_> = shown.keys().filter(|address| !holders.contains_key(address)).collect();
    ensure!(surplus.is_empty(), "nobody has {surplus:?}");
    Ok(())
}
