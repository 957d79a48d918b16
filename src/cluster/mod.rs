//! The Kubernetes shell: who else would speak to the API server, and the clock.
//!
//! [`store`] watches objects and keeps [`views`] of them; [`client`] finds the way to the server;
//! [`clock`] reads time. Nothing here decides anything.

pub mod client;
pub mod clock;
pub mod store;
pub mod views;
