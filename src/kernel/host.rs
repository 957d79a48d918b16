//! Looks whether the host forwards pods' packets, whenever something of that changes.
//!
//! Settings, interfaces, rules and chains each have events. Only the older iptables has none: once in a while it is looked
//! whether it is in use.
#![expect(clippy::disallowed_methods, reason = "shell: reads settings and waits for the kernel")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use netlink_sys::protocols::{NETLINK_NETFILTER, NETLINK_ROUTE};
use tokio::sync::watch;
use tracing::{info, warn};

use super::firewall;
use super::forwarding::{self, Chain, Host, Interface, PodNetwork};
use super::messages::{self, Address, GET_ADDRESS, GET_LINK, LINK_AND_ADDRESS_GROUPS};
use super::pace::Pace;
use super::rules;
use super::socket::{NetlinkError, Socket};
use crate::api::{ForwardingFault, ForwardingReason};
use crate::cluster::clock::now;
use crate::model::Family;

/// `RTNLGRP_IPV4_RULE`, `RTNLGRP_IPV6_RULE`, `RTNLGRP_IPV4_NETCONF`, `RTNLGRP_IPV6_NETCONF`.
const RULE_AND_SETTING_GROUPS: [u32; 4] = [8, 19, 24, 25];

/// kube-proxy writes its tables again and again; one look follows the other in this time.
const SHORTEST_GAP: Duration = Duration::from_millis(200);
const LONGEST_GAP: Duration = Duration::from_secs(5);

/// How soon it is seen that the older iptables has come into use.
const LEGACY_LOOK: Duration = Duration::from_secs(30);

/// Whether settings that are needed are made, or only told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sysctls {
    /// They are told.
    #[default]
    Told,
    /// Forwarding is turned on for the families that pods have.
    Managed,
}

/// Keeps `out` at what is wrong with the host for the pods of `network`. While that is `None` nothing is
/// looked at. Ends when its sender is gone.
///
/// # Errors
/// When the kernel cannot be asked.
pub async fn run(
    mut network: watch::Receiver<Option<Arc<PodNetwork>>>,
    sysctls: Sysctls,
    out: watch::Sender<Vec<ForwardingFault>>,
) -> Result<(), NetlinkError> {
    let groups = [&LINK_AND_ADDRESS_GROUPS[..], &RULE_AND_SETTING_GROUPS[..]].concat();
    let mut events = Socket::open(NETLINK_ROUTE, &groups)?;
    let mut requests = Socket::open(NETLINK_ROUTE, &[])?;
    // A kernel without nftables has no chains of it.
    let mut firewall = Socket::open(NETLINK_NETFILTER, &[firewall::GROUP]).ok();
    let mut pace = Pace::new(SHORTEST_GAP, LONGEST_GAP);
    loop {
        let wish = network.borrow_and_update().clone();
        let seen = unseen();
        if let Some(wish) = wish {
            let mut host = look(&mut requests, &wish).await?;
            if sysctls == Sysctls::Managed {
                turn_on(&wish, &mut host);
            }
            pace.worked(now());
            tell(&out, forwarding::faults(&wish, &host));
        }
        tokio::select! {
            changed = network.changed() => if changed.is_err() { return Ok(()) },
            event = events.events() => { event?; }
            () = changed(&mut firewall) => {}
            () = unseen_changed(&seen) => {}
        }
        tokio::time::sleep(pace.wait(now())).await;
        events.drain(|_| ())?;
        if let Some(firewall) = &mut firewall {
            firewall.drain(|_| ())?;
        }
    }
}

/// Waits for an event of the firewall; for ever without one.
async fn changed(firewall: &mut Option<Socket>) {
    let is_event = match firewall {
        Some(socket) => socket.events().await.is_ok(),
        None => false,
    };
    if !is_event {
        std::future::pending::<()>().await;
    }
}

/// Waits until the older iptables is in use and was not, or the other way round.
async fn unseen_changed(before: &BTreeSet<Family>) {
    while unseen() == *before {
        tokio::time::sleep(LEGACY_LOOK).await;
    }
}

/// The families that the older iptables filters.
fn unseen() -> BTreeSet<Family> {
    let has_filter = |family: &Family| {
        let names = std::fs::read_to_string(firewall::legacy_tables_file(*family));
        names.is_ok_and(|names| firewall::has_filter(&names))
    };
    [Family::V4, Family::V6].into_iter().filter(has_filter).collect()
}

/// Says what is new, and what is no longer so.
fn tell(out: &watch::Sender<Vec<ForwardingFault>>, faults: Vec<ForwardingFault>) {
    out.send_if_modified(|told| {
        for fault in faults.iter().filter(|fault| !told.contains(fault)) {
            match fault.reason {
                // It may well accept everything.
                ForwardingReason::FirewallUnseen => info!(reason = ?fault.reason, "{}", fault.message),
                _ => warn!(reason = ?fault.reason, "{}", fault.message),
            }
        }
        for fault in told.iter().filter(|fault| faults.iter().all(|other| other.reason != fault.reason)) {
            info!(reason = ?fault.reason, "no longer keeps pods' packets from being forwarded");
        }
        let is_new = *told != faults;
        *told = faults;
        is_new
    });
}

async fn look(requests: &mut Socket, network: &PodNetwork) -> Result<Host, NetlinkError> {
    let links = requests.list("links", GET_LINK, &messages::links_request(), messages::link).await?;
    let addresses = requests.list("addresses", GET_ADDRESS, &messages::addresses_request(), messages::address).await?;
    let is_way = |index: &u32| network.interfaces.contains(index);
    let interface = |link: messages::Link| Interface {
        // A node has hundreds of interfaces, and the setting counts for these.
        reverse_path_filter: if is_way(&link.index) { reverse_path_filter(&link.name) } else { 0 },
        addresses: addresses
            .iter()
            .filter(|of| of.index == link.index)
            .map(|Address { address, .. }| *address)
            .collect(),
        name: link.name,
        mtu: link.mtu,
    };
    let settings = forwarding::families(network).into_iter().filter_map(|family| Some((family, forwards(family)?)));
    Ok(Host {
        forwards: settings.collect(),
        reverse_path_filter: reverse_path_filter("all"),
        interfaces: links.into_iter().map(|link| (link.index, interface(link))).collect::<BTreeMap<_, _>>(),
        dropping: dropping().await,
        unseen: unseen(),
        consulted: consulted(requests, network).await,
        refusal: None,
    })
}

/// The chains that drop; none where the kernel has no nftables or does not let us see.
async fn dropping() -> BTreeSet<Chain> {
    let Ok(mut socket) = Socket::open(NETLINK_NETFILTER, &[]) else { return BTreeSet::new() };
    let chains =
        socket.list("chains", firewall::GET_CHAIN, &firewall::chains_request(), firewall::dropping_chain).await;
    chains.unwrap_or_default().into_iter().collect()
}

/// The tables that rules of every family of pods lead to.
async fn consulted(requests: &mut Socket, network: &PodNetwork) -> Option<BTreeSet<u32>> {
    let mut everywhere: Option<BTreeSet<u32>> = None;
    for family in forwarding::families(network) {
        let request = rules::request(family);
        let found = requests.list("rules", rules::GET_RULE, &request, rules::target).await.ok()?;
        // Rules of virtual routers lead to whatever table an interface is bound to.
        let tables: BTreeSet<u32> = found.into_iter().collect::<Option<_>>()?;
        everywhere = Some(match everywhere {
            Some(others) => &others & &tables,
            None => tables,
        });
    }
    everywhere
}

/// Turns forwarding on where it is off.
fn turn_on(network: &PodNetwork, host: &mut Host) {
    for family in forwarding::families(network) {
        if host.forwards.get(&family) != Some(&false) {
            continue;
        }
        let sysctl = forwarding::forwarding_sysctl(family);
        match std::fs::write(path_of(sysctl), "1") {
            Ok(()) => {
                info!(sysctl, "set to 1, as --manage-sysctls asks");
                host.forwards.insert(family, true);
            }
            Err(error) => host.refusal = Some(error.to_string()),
        }
    }
}

fn forwards(family: Family) -> Option<bool> {
    number(path_of(forwarding::forwarding_sysctl(family))).map(|number| number != 0)
}

fn reverse_path_filter(interface: &str) -> u8 {
    // A name may hold dots, which separate words of a sysctl but not folders.
    number(PathBuf::from("/proc/sys/net/ipv4/conf").join(interface).join("rp_filter")).unwrap_or_default()
}

fn path_of(sysctl: &str) -> PathBuf {
    PathBuf::from("/proc/sys").join(sysctl.replace('.', "/"))
}

fn number(file: PathBuf) -> Option<u8> {
    std::fs::read_to_string(file).ok()?.trim().parse().ok()
}
