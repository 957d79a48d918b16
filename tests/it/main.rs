//! Tests that need no cluster: the structure of the house, generated files, and the kernel in
//! namespaces of their own.

mod architecture;
mod kernel_guard;
mod kernel_routes;
mod manifests;
mod netns;
