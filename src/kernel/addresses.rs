//! The addresses of this node, as a watch: they tell which networks it is on.
#![expect(clippy::disallowed_methods, reason = "shell: waits and talks to the kernel")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use netlink_sys::protocols::NETLINK_ROUTE;
use tokio::sync::watch;

use super::messages::{self, Address, GET_ADDRESS, GET_LINK, LINK_AND_ADDRESS_GROUPS, Link};
use super::pace::Pace;
use super::socket::{NetlinkError, Socket};
use crate::cluster::clock::now;
use crate::model::LocalAddress;

/// A burst of events (a pod's interface makes several) leads to one look.
const SHORTEST_GAP: Duration = Duration::from_millis(10);
const LONGEST_GAP: Duration = Duration::from_millis(200);

/// Keeps `out` at the addresses of interfaces that are up, without loopback, sorted.
///
/// `out` is left as it is (`None`: not known) until the first complete look. Addresses that are
/// still being checked for duplicates, or are some, do not count. Ends when nobody listens.
///
/// # Errors
/// When the kernel cannot be asked; what `out` holds then stays.
pub async fn watch_addresses(out: watch::Sender<Option<Arc<Vec<LocalAddress>>>>) -> Result<(), NetlinkError> {
    let mut events = Socket::open(NETLINK_ROUTE, &LINK_AND_ADDRESS_GROUPS)?;
    let mut requests = Socket::open(NETLINK_ROUTE, &[])?;
    let mut pace = Pace::new(SHORTEST_GAP, LONGEST_GAP);
    loop {
        let seen = look(&mut requests).await?;
        pace.worked(now());
        out.send_if_modified(|known| {
            let is_new = known.as_deref() != Some(&seen);
            if is_new {
                *known = Some(Arc::new(seen));
            }
            is_new
        });
        tokio::select! {
            () = out.closed() => return Ok(()),
            // Each of these groups is about what we list, and so is an overrun.
            event = events.events() => { event?; }
        }
        tokio::time::sleep(pace.wait(now())).await;
        events.drain(|_| ())?;
    }
}

async fn look(requests: &mut Socket) -> Result<Vec<LocalAddress>, NetlinkError> {
    let links = requests.list("links", GET_LINK, &messages::links_request(), messages::link).await?;
    let addresses = requests.list("addresses", GET_ADDRESS, &messages::addresses_request(), messages::address).await?;
    let is_usable = |link: &Link| link.is_up && !link.is_loopback;
    let usable: BTreeMap<u32, Link> = links.into_iter().filter(is_usable).map(|link| (link.index, link)).collect();
    let seen: BTreeSet<LocalAddress> = addresses
        .into_iter()
        .filter_map(|Address { index, address, prefix }| {
            let link = usable.get(&index)?;
            let (interface, has_carrier) = (link.name.clone(), link.has_carrier);
            Some(LocalAddress { interface, index, address, prefix, has_carrier })
        })
        .collect();
    Ok(seen.into_iter().collect())
}
