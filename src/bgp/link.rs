//! The TCP side of a session: none, one that is being made, or one that stands.

use std::future;
use std::io;
use std::pin::Pin;

use super::connection::Connection;

/// The TCP side of the session.
#[derive(Default)]
pub(super) enum Link {
    /// There is none.
    #[default]
    Down,
    /// It is being made.
    Dialling(Pin<Box<dyn Future<Output = io::Result<Connection>> + Send>>),
    /// It stands.
    Up(Connection),
}

/// What comes of a link.
pub(super) enum News {
    /// The attempt to connect ended.
    Dialled(io::Result<Connection>),
    /// The connection has something to read, or takes something.
    Ready,
}

impl Link {
    /// Waits until something comes of it. Cancel-safe.
    pub(super) async fn news(&mut self) -> News {
        match self {
            Self::Down => future::pending().await,
            Self::Dialling(attempt) => News::Dialled(attempt.await),
            Self::Up(connection) => {
                // An error shows again, and is handled, at the read that follows.
                let _ = connection.ready().await;
                News::Ready
            }
        }
    }

    /// The connection, once it is made.
    pub(super) fn connection(&mut self) -> Option<&mut Connection> {
        match self {
            Self::Up(connection) => Some(connection),
            Self::Down | Self::Dialling(_) => None,
        }
    }
}
