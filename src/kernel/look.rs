//! One look at the kernel's routes and links, for people and for `cairn plan`.

use std::collections::BTreeSet;

use netlink_sys::protocols::NETLINK_ROUTE;
use serde::{Deserialize, Serialize};

use super::known::Known;
use super::messages::{self, GET_LINK};
use super::place::Place;
use super::plan::Surroundings;
use super::present::Present;
use super::route::KernelRoute;
use super::route_codec::{self, GET_ROUTE, Listing};
use super::socket::{NetlinkError, Socket};
use crate::model::{Family, FibRoute};

/// What the kernel holds that can matter to routes of ours.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Sight {
    /// Ours in every table, and everybody's in our table.
    pub routes: Vec<KernelRoute>,
    /// The indices of interfaces that nothing gets out of.
    pub down: BTreeSet<u32>,
}

impl Sight {
    /// The same for the planner.
    pub fn present(&self, place: Place) -> (Present, Surroundings<'_>) {
        (Present::of(self.routes.iter().cloned(), place), Surroundings { place, down: &self.down })
    }
}

/// Looks once.
///
/// # Errors
/// When the kernel cannot be asked.
pub async fn look(place: Place) -> Result<Sight, NetlinkError> {
    let mut requests = Socket::open(NETLINK_ROUTE, &[])?;
    let links = requests.list("links", GET_LINK, &messages::links_request(), messages::link).await?;
    let routes = list(&mut requests, &[Listing::Ours, Listing::Table(place.table())]).await?;
    let known = Known::new(routes, links, place);
    Ok(Sight { routes: known.present().routes().cloned().collect(), down: known.around().down.clone() })
}

/// The routes that an earlier run has made in that place.
///
/// # Errors
/// When the kernel cannot be asked.
pub async fn left_behind(place: Place) -> Result<Vec<FibRoute>, NetlinkError> {
    let mut requests = Socket::open(NETLINK_ROUTE, &[])?;
    let routes = list(&mut requests, &[Listing::Ours]).await?;
    Ok(routes.iter().filter_map(|route| route.wanted(place)).collect())
}

async fn list(requests: &mut Socket, listings: &[Listing]) -> Result<BTreeSet<KernelRoute>, NetlinkError> {
    let mut routes = BTreeSet::new();
    for family in [Family::V4, Family::V6] {
        for listing in listings {
            let request = route_codec::listing_request(family, *listing);
            let of_family =
                |payload: &[u8]| route_codec::route(payload).filter(|route| route.destination.family() == family);
            match requests.list("routes", GET_ROUTE, &request, of_family).await {
                Ok(some) => routes.extend(some),
                // The kernel makes a table with its first route, and may lack a family.
                Err(NetlinkError::Listing { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(routes)
}
