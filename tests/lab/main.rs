//! The lab: scenarios against a real control plane, real kube-proxies and a real router.
//!
//! Every test is an ordinary `#[test]` whose body runs inside namespaces of its own ([`harness::inside`]), so tests
//! run side by side, need no root and leave nothing behind. Start reading at [`harness`]; the scenarios are the
//! stories that a user would tell.

mod harness;
mod scenarios;
