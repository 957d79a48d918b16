//! The configuration in force, in upstream's form: `CloudControllerManagerConfiguration` v1alpha1.

use serde_json::{Value, json};

use super::Args;
use super::value::show;
use crate::config::Selection;
use crate::leader::Migration;

/// What `/configz` shows under `cloudcontrollermanager.config.k8s.io`.
pub fn configuration(args: &Args, selection: &Selection, migration: Option<&Migration>) -> Value {
    let Args { generic, pod_cidrs, server, election, serving, access: _, log: _, ignored: _ } = args;
    json!({
        "kind": "CloudControllerManagerConfiguration",
        "apiVersion": "cloudcontrollermanager.config.k8s.io/v1alpha1",
        "Generic": {
            "Port": serving.secure_port,
            "Address": serving.bind_address,
            "ClientConnection": {
                "kubeconfig": server.kubeconfig,
                "contentType": "application/json",
                "qps": server.kube_api_qps,
                "burst": server.kube_api_burst,
            },
            "ControllerStartInterval": show(generic.controller_start_interval),
            "LeaderElection": {
                "leaderElect": election.leader_elect,
                "leaseDuration": show(election.leader_elect_lease_duration),
                "renewDeadline": show(election.leader_elect_renew_deadline),
                "retryPeriod": show(election.leader_elect_retry_period),
                "resourceLock": election.leader_elect_resource_lock,
                "resourceName": election.leader_elect_resource_name,
                "resourceNamespace": election.leader_elect_resource_namespace,
            },
            "Controllers": selection.names(),
            "Debugging": { "EnableProfiling": serving.profiling, "EnableContentionProfiling": false },
            "LeaderMigrationEnabled": migration.is_some(),
            "LeaderMigration": migration.map(leader_migration),
        },
        "KubeCloudShared": {
            "CloudProvider": { "Name": generic.cloud_provider, "CloudConfigFile": generic.cloud_config },
            "UseServiceAccountCredentials": generic.use_service_account_credentials,
            "RouteReconciliationPeriod": show(generic.route_reconciliation_period),
            "NodeMonitorPeriod": show(generic.node_monitor_period),
            "AllocateNodeCIDRs": pod_cidrs.allocate_node_cidrs,
            "CIDRAllocatorType": pod_cidrs.cidr_allocator_type,
            "ClusterCIDR": pod_cidrs.cluster_cidr,
            "ConfigureCloudRoutes": generic.configure_cloud_routes,
        },
        "NodeIPAMController": {
            "ServiceCIDR": pod_cidrs.service_cluster_ip_range,
            "NodeCIDRMaskSize": pod_cidrs.node_cidr_mask_size,
            "NodeCIDRMaskSizeIPv4": pod_cidrs.node_cidr_mask_size_ipv4,
            "NodeCIDRMaskSizeIPv6": pod_cidrs.node_cidr_mask_size_ipv6,
        },
        "NodeController": { "ConcurrentNodeSyncs": generic.concurrent_node_syncs },
        "ServiceController": { "ConcurrentServiceSyncs": generic.concurrent_service_syncs },
        "NodeStatusUpdateFrequency": show(generic.node_status_update_frequency),
    })
}

/// What the file, or Kubernetes' default, makes of each controller, under its canonical name.
fn leader_migration(migration: &Migration) -> Value {
    let leaders = migration.components.iter();
    let leaders: Vec<_> =
        leaders.map(|(controller, component)| json!({ "name": controller, "component": component })).collect();
    json!({ "leaderName": migration.lease, "resourceLock": "leases", "controllerLeaders": leaders })
}
