//! Tests that need no cluster: the structure of the house, generated files, the examples' plans, and the kernel in
//! namespaces of their own.

mod architecture;
mod examples;
mod kernel_guard;
mod kernel_routes;
mod manifests;
mod netns;
