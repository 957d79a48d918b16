//! Whether some neighbours are there: asked of the kernel, and heard from it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use netlink_packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_REQUEST};
use netlink_sys::protocols::NETLINK_ROUTE;
use tokio::sync::watch;

use super::heard::Heard;
use super::neighbour::{self, Standing};
use super::socket::{Events, NetlinkError, Socket};
use super::wire;
use crate::model::Neighbour;

/// How often each is asked for, so that one that went away is noticed. The kernel takes up to eight
/// seconds to call a neighbour silent.
const ASK_EVERY: Duration = Duration::from_secs(10);

/// The neighbours to look for.
pub type Wish = Arc<BTreeSet<Neighbour>>;

/// Keeps `out` at what is known of the wanted neighbours: `true` for those that answer, `false` for
/// those that do not, nothing while they are being asked. Ends when the sender of `wanted` is gone.
///
/// # Errors
/// When the kernel cannot be asked.
pub async fn run(
    mut wanted: watch::Receiver<Wish>,
    out: watch::Sender<BTreeMap<IpAddr, bool>>,
) -> Result<(), NetlinkError> {
    let mut events = Socket::open(NETLINK_ROUTE, &[neighbour::GROUP])?;
    let mut requests = Socket::open(NETLINK_ROUTE, &[])?;
    let mut heard = Heard::default();
    let mut ask = tokio::time::interval(ASK_EVERY);
    ask.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let mut wish = Arc::clone(&wanted.borrow());
        let mut is_incomplete = false;
        // Each of the three may be dropped at any time: watch and interval keep their state, and a
        // datagram stays queued until it is read.
        tokio::select! {
            changed = wanted.changed() => match changed {
                Ok(()) => {
                    wish = Arc::clone(&wanted.borrow_and_update());
                    heard.keep(|neighbour| wish.contains(neighbour));
                    ask_for(&mut requests, &mut heard, wish.iter()).await?;
                    is_incomplete = true;
                }
                Err(_) => return Ok(()),
            },
            _ = ask.tick() => {
                ask_for(&mut requests, &mut heard, wish.iter()).await?;
                // One whose entry the kernel dropped without a word is noticed here.
                is_incomplete = !wish.is_empty();
            }
            events = events.events() => match events? {
                Events::Overrun => is_incomplete = true,
                Events::Datagram(datagram) => hear(datagram, &mut heard),
            },
        }
        if is_incomplete {
            heard.learn_all(&look(&mut requests, &wish).await?);
        }
        let doubtful = heard.doubtful();
        ask_for(&mut requests, &mut heard, &doubtful).await?;
        let standing = heard.answers();
        out.send_if_modified(|shown| {
            let is_new = *shown != standing;
            *shown = standing;
            is_new
        });
    }
}

fn hear(datagram: &[u8], heard: &mut Heard) {
    for message in wire::messages(datagram) {
        if let Some((neighbour, standing)) = neighbour::event(message.kind, message.payload) {
            heard.learn(neighbour, standing);
        }
    }
}

/// A refusal (the interface went away) is answered by silence.
async fn ask_for(
    requests: &mut Socket,
    heard: &mut Heard,
    neighbours: impl IntoIterator<Item = &Neighbour>,
) -> Result<(), NetlinkError> {
    let neighbours: Vec<_> = neighbours.into_iter().copied().collect();
    neighbours.iter().for_each(|neighbour| heard.asked(*neighbour));
    let flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE;
    let encode = |out: &mut Vec<u8>, neighbour: &Neighbour, sequence| {
        wire::put_message(out, neighbour::NEW_NEIGHBOUR, flags, sequence, &neighbour::use_request(neighbour));
    };
    requests.carry_out(&neighbours, encode).await.map(drop)
}

async fn look(
    requests: &mut Socket,
    wish: &BTreeSet<Neighbour>,
) -> Result<BTreeMap<Neighbour, Standing>, NetlinkError> {
    let wanted = |payload: &[u8]| neighbour::entry(payload).filter(|(neighbour, _)| wish.contains(neighbour));
    let request = neighbour::list_request();
    Ok(requests.list("neighbours", neighbour::GET_NEIGHBOUR, &request, wanted).await?.into_iter().collect())
}
