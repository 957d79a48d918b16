//! One netlink socket: requests with their answers, or the events of multicast groups.

use std::io;
use std::time::Duration;

use futures_util::FutureExt;
use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST};
use netlink_sys::{AsyncSocket, AsyncSocketExt, SocketAddr, TokioSocket};
use rustix::io::Errno;
use rustix::net::sockopt;
use thiserror::Error;

use super::wire::{self, Answer};

/// The kernel answers at once or is in trouble.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Holds the largest datagram of a dump (32 KiB) and of an event.
const DATAGRAM: usize = 128 * 1024;

/// Room for events and answers that come faster than we read, in bytes. Some 3,000 messages.
const RECEIVE_BUFFER: usize = 4 * 1024 * 1024;

/// Room for the largest batch sent in one go, in bytes.
const SEND_BUFFER: usize = 1024 * 1024;

/// Answers the receive buffer certainly holds, so that none is lost while we are still sending.
const IN_FLIGHT: usize = 128;

/// How often a list that others' changes overtook is read before it is taken as it is; the events
/// of those changes lead to another look anyway.
const LISTINGS: usize = 3;

/// Why a conversation with the kernel failed.
#[derive(Debug, Error)]
pub enum NetlinkError {
    /// The socket could not be made; the kernel may lack the protocol.
    #[error("cannot open a netlink socket")]
    Open {
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A request could not be sent.
    #[error("cannot send to the kernel")]
    Send {
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// Reading from the socket failed.
    #[error("cannot receive from the kernel")]
    Receive {
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The kernel refused to tell what it holds.
    #[error("the kernel refused to list {what}")]
    Listing {
        /// What was asked for.
        what: &'static str,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The kernel refused a change.
    #[error("the kernel refused the change")]
    Refused {
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The kernel gave no answer in time.
    #[error("no answer from the kernel within {} s", ANSWER_TIMEOUT.as_secs())]
    Silent,
}

/// What came from a multicast group.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Events<'a> {
    /// A datagram of messages.
    Datagram(&'a [u8]),
    /// Events were lost: what we know may be out of date.
    Overrun,
}

/// A netlink socket of one protocol.
pub(super) struct Socket {
    inner: TokioSocket,
    port: u32,
    sequence: u32,
    buffer: Vec<u8>,
}

impl Socket {
    /// Opens a socket of a `NETLINK_*` protocol and joins multicast groups.
    pub(super) fn open(protocol: isize, groups: &[u32]) -> Result<Self, NetlinkError> {
        let failed = |source| NetlinkError::Open { source };
        let mut inner = TokioSocket::new(protocol).map_err(failed)?;
        let port = inner.socket_mut().bind_auto().map_err(failed)?.port_number();
        let socket = inner.socket_ref();
        for group in groups {
            socket.add_membership(*group).map_err(failed)?;
        }
        // Only in the wish for speed: short refusals, filtered dumps, large buffers.
        let _ = socket.set_cap_ack(true);
        let _ = socket.set_netlink_get_strict_chk(true);
        if sockopt::set_socket_recv_buffer_size_force(socket, RECEIVE_BUFFER).is_err() {
            let _ = sockopt::set_socket_recv_buffer_size(socket, RECEIVE_BUFFER);
        }
        if sockopt::set_socket_send_buffer_size_force(socket, SEND_BUFFER).is_err() {
            let _ = sockopt::set_socket_send_buffer_size(socket, SEND_BUFFER);
        }
        Ok(Self { inner, port, sequence: 1, buffer: Vec::with_capacity(DATAGRAM) })
    }

    /// The number the kernel knows this socket by; events we caused carry it.
    pub(super) fn port(&self) -> u32 {
        self.port
    }

    /// The first of `count` sequence numbers that no request has had.
    pub(super) fn sequences(&mut self, count: u32) -> u32 {
        // A run never ends up here, but sequence numbers in one batch must not wrap around.
        let first = if self.sequence > u32::MAX - count { 1 } else { self.sequence };
        self.sequence = first + count;
        first
    }

    /// Waits for the next events. Cancel-safe: a datagram is either returned or still queued.
    pub(super) async fn events(&mut self) -> Result<Events<'_>, NetlinkError> {
        self.buffer.clear();
        match self.inner.recv(&mut self.buffer).await {
            Ok(()) => Ok(Events::Datagram(&self.buffer)),
            Err(error) if error.raw_os_error() == Some(Errno::NOBUFS.raw_os_error()) => Ok(Events::Overrun),
            Err(source) => Err(NetlinkError::Receive { source }),
        }
    }

    /// Sends one datagram to the kernel.
    pub(super) async fn send(&mut self, bytes: &[u8]) -> Result<(), NetlinkError> {
        // Netlink carries a request out within the call, so sending never waits for long.
        let kernel = SocketAddr::new(0, 0);
        let sent = tokio::time::timeout(ANSWER_TIMEOUT, self.inner.send_to(bytes, &kernel)).await;
        sent.map_err(|_| NetlinkError::Silent)?.map(|_| ()).map_err(|source| NetlinkError::Send { source })
    }

    /// The next answers, within a time limit.
    pub(super) async fn answers(&mut self) -> Result<Events<'_>, NetlinkError> {
        tokio::time::timeout(ANSWER_TIMEOUT, self.events()).await.map_err(|_| NetlinkError::Silent)?
    }

    /// Takes every event that is already there, without waiting.
    ///
    /// After an overrun the kernel queues nothing more until the queue has been empty, and says so
    /// only once: look at what it holds after this, not before.
    pub(super) fn drain(&mut self, mut see: impl FnMut(Events<'_>)) -> Result<(), NetlinkError> {
        // Unconstrained, or the runtime's wish to switch tasks would look like an empty queue.
        while let Some(events) = tokio::task::unconstrained(self.events()).now_or_never() {
            see(events?);
        }
        Ok(())
    }

    /// Asks for the list of `what` and reads each item; those `read` has no use for are left out.
    pub(super) async fn list<T>(
        &mut self,
        what: &'static str,
        kind: u16,
        request: &[u8],
        read: impl Fn(&[u8]) -> Option<T>,
    ) -> Result<Vec<T>, NetlinkError> {
        let mut items = Vec::new();
        for _ in 0..LISTINGS {
            items.clear();
            let sequence = self.sequences(1);
            let mut bytes = Vec::new();
            wire::put_message(&mut bytes, kind, NLM_F_REQUEST | NLM_F_DUMP, sequence, request);
            self.send(&bytes).await?;
            if self.read_list(what, sequence, &read, &mut items).await? == Listing::Consistent {
                break;
            }
        }
        Ok(items)
    }

    async fn read_list<T>(
        &mut self,
        what: &'static str,
        sequence: u32,
        read: &impl Fn(&[u8]) -> Option<T>,
        items: &mut Vec<T>,
    ) -> Result<Listing, NetlinkError> {
        let mut listing = Listing::Consistent;
        loop {
            let Events::Datagram(datagram) = self.answers().await? else {
                return Err(NetlinkError::Receive { source: Errno::NOBUFS.into() });
            };
            for message in wire::messages(datagram).filter(|message| message.sequence == sequence) {
                if message.is_interrupted() {
                    listing = Listing::Overtaken;
                }
                match message.answer() {
                    Answer::Item => items.extend(read(message.payload)),
                    Answer::Done => return Ok(listing),
                    Answer::Refused(errno) => {
                        return Err(NetlinkError::Listing { what, source: io::Error::from_raw_os_error(errno) });
                    }
                    Answer::Noise => {}
                }
            }
        }
    }

    /// Sends requests that each ask for an acknowledgement, many at a time, and returns the error
    /// number of each, `None` for success. `encode` appends one request with its sequence number.
    ///
    /// A request whose answer was lost counts as carried out; the next look tells.
    pub(super) async fn carry_out<T>(
        &mut self,
        requests: &[T],
        encode: impl Fn(&mut Vec<u8>, &T, u32),
    ) -> Result<Vec<Option<i32>>, NetlinkError> {
        let mut outcomes = Vec::with_capacity(requests.len());
        let mut bytes = Vec::new();
        for some in requests.chunks(IN_FLIGHT) {
            let first = self.sequences(IN_FLIGHT as u32);
            bytes.clear();
            for (request, sequence) in some.iter().zip(first..) {
                encode(&mut bytes, request, sequence);
            }
            self.send(&bytes).await?;
            let mut refusals = vec![None; some.len()];
            let mut waiting = some.len();
            while waiting > 0 {
                let Events::Datagram(datagram) = self.answers().await? else { break };
                for message in wire::messages(datagram) {
                    let index = usize::try_from(message.sequence.wrapping_sub(first)).unwrap_or(usize::MAX);
                    let Some(refusal) = refusals.get_mut(index) else { continue };
                    waiting = waiting.saturating_sub(1);
                    if let Answer::Refused(errno) = message.answer() {
                        *refusal = Some(errno);
                    }
                }
            }
            outcomes.append(&mut refusals);
        }
        Ok(outcomes)
    }
}

/// Whether a list shows one state of the kernel.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Listing {
    Consistent,
    /// Others changed something while it was read.
    Overtaken,
}
