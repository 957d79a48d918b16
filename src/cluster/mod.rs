//! The Kubernetes shell: who else would speak to the API server, and the clock.
//!
//! [`store`] watches objects (as far as they are read: [`lean`]), keeps [`views`] of them and says which [`changes`]; [`patch`], [`conditions`] and [`events`] write; [`client`]
//! finds the way to the server and notices when it is dead, [`traffic`] holds the rules for all requests on it, [`identity`] lets
//! a controller go it under a name of its own; [`clock`] reads time. [`written`] and [`backoff`] remember what was
//! written and what failed; [`told`] says errors in one line. Nothing here decides anything.

pub mod backoff;
pub mod changes;
pub mod client;
pub mod clock;
pub mod conditions;
mod connection;
pub mod events;
pub mod identity;
pub mod lean;
pub mod metrics;
pub mod patch;
pub mod queue;
pub mod store;
pub mod throttle;
pub mod told;
pub mod traffic;
pub mod views;
pub mod written;
