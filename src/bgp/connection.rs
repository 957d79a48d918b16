//! One TCP connection: octets in, octets out, and how long the peer has taken none. Decides nothing.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use rustix::net::sockopt;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::cluster::clock::now;
use crate::model::Moment;

use super::codec::{self, Context, MAXIMUM_LENGTH, Message, Notification};

/// Octets that may wait for a peer; the RIB keeps the rest as a set.
const OUTBOUND_LIMIT: usize = 16 * MAXIMUM_LENGTH;
/// Class CS6: sessions hold when links are full (RFC 4271 appendix E, RFC 4594 §3.2).
const NETWORK_CONTROL: u32 = 0xc0;
/// How long a peer may take to read the last message and close its side.
const FAREWELL_LIMIT: Duration = Duration::from_millis(400);
/// Where the hold time is 0 neither side says that it lives, and only TCP can tell that a router
/// was replaced or unplugged: asked after this much silence, again in this time, this often.
const SILENCE: Duration = Duration::from_secs(60);
const ASK_AGAIN: Duration = Duration::from_secs(10);
const ASK_TIMES: u32 = 3;

/// Dials; the caller sets the time limit by dropping the future.
pub(super) async fn dial(address: SocketAddr) -> io::Result<Connection> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // A network that knows no classes carries the session all the same.
    let _ = if address.is_ipv4() { socket.set_tos_v4(NETWORK_CONTROL) } else { socket.set_tclass_v6(NETWORK_CONTROL) };
    let stream = socket.connect(address).await?;
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(&stream, true)?;
    sockopt::set_tcp_keepidle(&stream, SILENCE)?;
    sockopt::set_tcp_keepintvl(&stream, ASK_AGAIN)?;
    sockopt::set_tcp_keepcnt(&stream, ASK_TIMES)?;
    Ok(Connection { stream, inbound: Vec::new(), outbound: Vec::new(), blocked_since: None })
}

/// A connection and the octets on their way.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    /// Read, and not yet a whole message: less than one, once [`Self::messages`] has taken all.
    inbound: Vec<u8>,
    /// Written by us, and not yet taken by the kernel.
    outbound: Vec<u8>,
    /// Since when the kernel has taken nothing of what waits.
    blocked_since: Option<Moment>,
}

impl Connection {
    /// Our address on this connection.
    pub(super) fn local_address(&self) -> io::Result<IpAddr> {
        self.stream.local_addr().map(|address| address.ip())
    }

    /// Waits until there is something to read, or room to write where octets wait. Cancel-safe:
    /// readiness is kept by the stream.
    pub(super) async fn ready(&self) -> io::Result<()> {
        let interest =
            if self.outbound.is_empty() { Interest::READABLE } else { Interest::READABLE | Interest::WRITABLE };
        self.stream.ready(interest).await.map(|_| ())
    }

    /// Reads what is there, once. `false` when the peer has closed its side.
    pub(super) fn read(&mut self) -> io::Result<bool> {
        let mut octets = [0; 4 * MAXIMUM_LENGTH];
        match self.stream.try_read(&mut octets) {
            Ok(0) => Ok(false),
            Ok(count) => {
                self.inbound.extend(&octets[..count]);
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// The next whole message among what was read, or `None`.
    pub(super) fn message(&mut self, context: &Context) -> Result<Option<Message>, Notification> {
        let Some(length) = codec::frame_length(&self.inbound)?.filter(|length| *length <= self.inbound.len()) else {
            return Ok(None);
        };
        let message = Message::decode(&self.inbound[..length], context);
        self.inbound.drain(..length);
        message.map(Some)
    }

    /// Where to append what is to be sent.
    pub(super) fn outbound(&mut self) -> &mut Vec<u8> {
        &mut self.outbound
    }

    /// Whether more may be appended; a KEEPALIVE or NOTIFICATION always may.
    pub(super) fn has_room(&self) -> bool {
        self.outbound.len() < OUTBOUND_LIMIT
    }

    /// Hands the kernel as much as it takes now.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        while !self.outbound.is_empty() {
            match self.stream.try_write(&self.outbound) {
                Ok(count) => {
                    self.outbound.drain(..count);
                    self.blocked_since = None;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.blocked_since.get_or_insert_with(now);
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Since when the kernel has taken nothing, because the peer takes nothing.
    pub(super) fn blocked_since(&self) -> Option<Moment> {
        self.blocked_since
    }

    /// Sends what waits, then closes. Reads to the peer's end first: the kernel answers unread
    /// octets with a reset, and that could overtake our NOTIFICATION.
    pub(super) async fn hang_up(mut self) {
        let farewell = async {
            self.stream.write_all(&self.outbound).await?;
            self.stream.shutdown().await?;
            let mut ignored = [0; MAXIMUM_LENGTH];
            while self.stream.read(&mut ignored).await? > 0 {}
            io::Result::Ok(())
        };
        // Whatever went wrong, the connection is over.
        let _ = timeout(FAREWELL_LIMIT, farewell).await;
    }
}
