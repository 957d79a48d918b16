//! The stories whose outcome may hang on the control plane's version, on the oldest Kubernetes that Cairn is held to.

use anyhow::ensure;

use super::{cluster_with_cairn_on, first_service, flow_schemas, lifecycle, meddling, migration, rights, schemas};
use crate::harness::{enclosure::inside, kubernetes::Kubernetes};

const OLDEST: Kubernetes = Kubernetes::V1_33;

#[test]
fn a_service_on_fresh_machines_answers_from_the_outside() {
    inside(async || {
        let mut lab = cluster_with_cairn_on(OLDEST).await?;
        let version = lab.kube().apiserver_version().await?.git_version;
        ensure!(version.starts_with(&format!("v{}.", OLDEST.minor())), "the API server is {version}");
        first_service::comes_to_serve(&mut lab).await
    });
}

#[test]
fn addresses_said_to_be_a_proxys_are_ours_again() {
    inside(async || meddling::ip_mode_is_kept(OLDEST).await);
}

#[test]
fn a_wrong_pool_or_peer_is_refused_by_the_api_server() {
    inside(async || schemas::wrong_objects_are_refused(OLDEST).await);
}

#[test]
fn one_account_is_denied_nothing_and_uses_all_it_may() {
    inside(async || rights::one_account_suffices(OLDEST).await);
}

#[test]
fn each_account_is_in_the_level_that_the_manifests_say() {
    inside(async || flow_schemas::accounts_are_in_their_levels(OLDEST).await);
}

#[test]
fn an_account_per_controller_is_denied_nothing_and_uses_all_it_may() {
    inside(async || rights::accounts_suffice(OLDEST).await);
}

#[test]
fn a_dead_node_leaves_the_router_and_the_service_answers_on() {
    inside(async || first_service::a_node_dies(OLDEST).await);
}

#[test]
fn a_dead_node_is_deleted_once_its_machine_is_decommissioned_and_a_ready_one_is_not() {
    inside(async || lifecycle::dead_nodes_are_deleted(OLDEST).await);
}

#[test]
fn a_clouds_loops_move_from_kube_controller_manager_to_cairn_and_back() {
    inside(async || migration::loops_move_there_and_back(OLDEST).await);
}
