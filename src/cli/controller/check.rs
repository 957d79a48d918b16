//! From flags to options: every fault at once.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::bail;

use super::{Args, configz, flags};
use crate::cluster::client::ServerOptions;
use crate::config::{self, CloudConfig, Controller, Faults, NodeCidrFlags, NodeCidrs, Selection, source};
use crate::controller::{Identities, Limits, Options, Periods};
use crate::leader::{LeaseConfig, Migration, Placement, Timing, identity};
use crate::model::{Prefix, Scope};
use crate::telemetry::access::{AccessOptions, RequestHeader};
use crate::telemetry::certificate::CertificateSource;
use crate::telemetry::log::{Format, LogOptions};
use crate::telemetry::secure::ServingOptions;
use crate::telemetry::tls::TlsPolicy;

/// `--cloud-provider` as the kubelet has it.
pub const EXTERNAL: &str = "external";
const CAIRN: &str = "cairn";
/// Where kube-controller-manager has its Leases unless it is told otherwise.
const KUBE_SYSTEM: &str = "kube-system";

/// What the flags say.
#[derive(Debug)]
pub struct Checked {
    /// How the controller is started.
    pub controller: Options,
    /// How the log is written.
    pub log: LogOptions,
    /// What is not wrong, but most likely not meant.
    pub warnings: Vec<String>,
}

/// Reads the flags, and the cloud config they name.
///
/// # Errors
/// Every fault, one a line.
pub fn check(args: &Args) -> anyhow::Result<Checked> {
    let mut faults = Vec::new();
    let cloud_config = cloud_config(&args.generic, &mut faults);
    let selection = Selection::read(&args.generic.controllers)
        .map_err(|unknown| faults.extend(unknown.iter().map(ToString::to_string)));
    let (cluster_cidrs, node_cidrs) = pod_cidrs(&args.pod_cidrs, &mut faults);
    let limits = limits(args, &mut faults);
    let server = server(&args.server, &mut faults);
    let lease = lease(&args.election, &mut faults);
    let migration = migration(&args.election, &mut faults);
    let serving = serving(&args.serving, access(&args.access), &mut faults);
    let log = log(&args.log, &mut faults);
    let (Some(cloud_config), Ok(selection), true) = (cloud_config, selection, faults.is_empty()) else {
        bail!("{}", faults.join("\n"));
    };
    let generic = &args.generic;
    let controller = Options {
        configz: configz::configuration(args, &selection, migration.as_ref()),
        profiling: args.serving.profiling,
        server,
        cloud_config,
        controllers: selection.enabled(),
        lease,
        migration,
        periods: Periods {
            node_status_update: generic.node_status_update_frequency,
            node_monitor: generic.node_monitor_period,
            route_reconciliation: generic.route_reconciliation_period,
        },
        start_interval: generic.controller_start_interval,
        scope: Scope::of_flag(generic.load_balancer_class_only),
        configures_routes: generic.configure_cloud_routes,
        cluster_cidrs,
        node_cidrs,
        limits,
        identities: match generic.use_service_account_credentials {
            true => Identities::PerController,
            false => Identities::One,
        },
        serving,
    };
    let warnings = doubts(args, &controller);
    Ok(Checked { controller, log, warnings })
}

/// The cluster CIDRs, and how they are given out if they are.
fn pod_cidrs(flags: &flags::PodCidrs, faults: &mut Vec<String>) -> (Vec<Prefix>, Option<NodeCidrs>) {
    let Ok(cluster) =
        config::cluster_cidrs(&flags.cluster_cidr).map_err(|all| faults.extend(all.iter().map(ToString::to_string)))
    else {
        return (Vec::new(), None);
    };
    if !flags.allocate_node_cidrs {
        return (cluster, None);
    }
    let given = NodeCidrFlags {
        allocator_type: &flags.cidr_allocator_type,
        mask: flags.node_cidr_mask_size,
        mask_v4: flags.node_cidr_mask_size_ipv4,
        mask_v6: flags.node_cidr_mask_size_ipv6,
        services: &flags.service_cluster_ip_range,
    };
    let cidrs = NodeCidrs::check(&cluster, given);
    let cidrs = cidrs.map_err(|all| faults.extend(all.iter().map(ToString::to_string))).ok();
    (cluster, cidrs)
}

/// What is not wrong, but most likely not meant.
fn doubts(args: &Args, options: &Options) -> Vec<String> {
    let flags = &args.pod_cidrs;
    let mut doubts = Vec::new();
    let of_ipam = [
        ("node-cidr-mask-size", flags.node_cidr_mask_size != 0),
        ("node-cidr-mask-size-ipv4", flags.node_cidr_mask_size_ipv4 != 0),
        ("node-cidr-mask-size-ipv6", flags.node_cidr_mask_size_ipv6 != 0),
        ("service-cluster-ip-range", !flags.service_cluster_ip_range.is_empty()),
    ];
    let in_vain = of_ipam.into_iter().filter(|(_, is_given)| *is_given && !flags.allocate_node_cidrs);
    doubts.extend(in_vain.map(|(flag, _)| format!("--{flag} has no effect without --allocate-node-cidrs")));
    if path(&args.election.leader_migration_config).is_some() && !args.election.enable_leader_migration {
        doubts.push("--leader-migration-config has no effect without --enable-leader-migration".to_owned());
    }
    if options.controllers.is_empty() {
        doubts.push("--controllers enables none: nothing is done for the cluster".to_owned());
    }
    if let Some(migration) = &options.migration {
        let namespace = &args.election.leader_elect_resource_namespace;
        if namespace != KUBE_SYSTEM {
            doubts.push(format!(
                "the Lease {} of the leader migration is in namespace {namespace}: kube-controller-manager needs \
                 --leader-elect-resource-namespace={namespace} too, or both run the same controllers",
                migration.lease
            ));
        }
        let name = Controller::NodeIpam;
        match (flags.allocate_node_cidrs, migration.placement(name)) {
            (false, Placement::Migration) => doubts.push(format!(
                "the leader migration names {name}, but without --allocate-node-cidrs nobody here gives out pod CIDRs"
            )),
            (true, Placement::Main) => doubts.push(format!(
                "--allocate-node-cidrs is set, but the leader migration does not name {name}: \
                 a kube-controller-manager that runs it gives out the same pod CIDRs at the same time"
            )),
            _ => {}
        }
    }
    doubts
}

fn cloud_config(flags: &flags::Generic, faults: &mut Vec<String>) -> Option<CloudConfig> {
    match flags.cloud_provider.as_str() {
        "" => faults.push("--cloud-provider cannot be empty".to_owned()),
        CAIRN | EXTERNAL => {}
        other => faults.push(format!("--cloud-provider: unknown cloud provider {other:?}: it is {CAIRN:?}")),
    }
    let zero = [
        ("node-status-update-frequency", flags.node_status_update_frequency),
        ("node-monitor-period", flags.node_monitor_period),
        ("route-reconciliation-period", flags.route_reconciliation_period),
    ];
    let zero = zero.into_iter().filter(|(_, period)| period.is_zero());
    faults.extend(zero.map(|(flag, _)| format!("--{flag} must be greater than zero")));
    let Some(file) = path(&flags.cloud_config) else {
        faults.push("--cloud-config is missing: it names the file that says where the inventory is".to_owned());
        return None;
    };
    CloudConfig::load(&file).map_err(|all| faults.push(all.to_string())).ok()
}

fn limits(args: &Args, faults: &mut Vec<String>) -> Limits {
    let mut positive = |flag: &str, count: i64| match usize::try_from(count) {
        Ok(count) if count > 0 => count,
        _ => {
            faults.push(format!("{flag} must be a positive number"));
            1
        }
    };
    let limits = Limits {
        node_writes: positive("concurrent-node-syncs", args.generic.concurrent_node_syncs),
        service_writes: positive("concurrent-service-syncs", args.generic.concurrent_service_syncs),
    };
    if args.ignored.concurrent_node_status_updates < 0 {
        faults.push("concurrent-node-status-updates cannot be a negative number".to_owned());
    }
    limits
}

fn server(flags: &flags::Server, faults: &mut Vec<String>) -> ServerOptions {
    if !flags.kube_api_qps.is_finite() {
        faults.push("--kube-api-qps must be a number: 0 or less is no limit".to_owned());
    }
    // As client-go has it, and manifests that were written for it.
    let is_unlimited = flags.kube_api_qps <= 0.0;
    let burst = u32::try_from(flags.kube_api_burst).ok().filter(|burst| *burst > 0);
    if burst.is_none() && !is_unlimited {
        faults.push("--kube-api-burst must be a positive number".to_owned());
    }
    let url = Some(flags.master.as_str())
        .filter(|url| !url.is_empty())
        .and_then(|url| url.parse().map_err(|error| faults.push(format!("--master {url}: not a URL: {error}"))).ok());
    ServerOptions {
        kubeconfig: path(&flags.kubeconfig),
        url,
        rate: (!is_unlimited).then_some((flags.kube_api_qps, burst.unwrap_or(1))),
    }
}

/// As `leaderelection.NewLeaderElector` and `ValidateLeaderElectionConfiguration` check it.
fn lease(flags: &flags::Election, faults: &mut Vec<String>) -> Option<LeaseConfig> {
    if !flags.leader_elect {
        return None;
    }
    let timing = Timing {
        lease_duration: flags.leader_elect_lease_duration,
        renew_deadline: flags.leader_elect_renew_deadline,
        retry_period: flags.leader_elect_retry_period,
    };
    faults.extend(timing.faults().iter().map(ToString::to_string));
    if flags.leader_elect_resource_lock != "leases" {
        faults.push("resourceLock value must be \"leases\"".to_owned());
    }
    for (name, value) in [
        ("resourceName", &flags.leader_elect_resource_name),
        ("resourceNamespace", &flags.leader_elect_resource_namespace),
    ] {
        if value.is_empty() {
            faults.push(format!("{name} is required"));
        }
    }
    Some(LeaseConfig {
        namespace: flags.leader_elect_resource_namespace.clone(),
        name: flags.leader_elect_resource_name.clone(),
        identity: identity(),
        timing,
    })
}

fn migration(flags: &flags::Election, faults: &mut Vec<String>) -> Option<Migration> {
    if !flags.enable_leader_migration {
        return None;
    }
    if !flags.leader_elect {
        faults.push(
            "--enable-leader-migration needs --leader-elect: without a Lease nothing says who runs what".to_owned(),
        );
    }
    let migration = match path(&flags.leader_migration_config) {
        None => Migration::default(),
        Some(file) => {
            let read = source::read(&file).map_err(Faults::from);
            read.and_then(|text| Migration::parse(&file, &text)).map_err(|all| faults.push(all.to_string())).ok()?
        }
    };
    if migration.lease == flags.leader_elect_resource_name {
        let name = &migration.lease;
        faults.push(format!("--leader-migration-config: leaderName {name:?} is the name of the main Lease too"));
    }
    Some(migration)
}

fn access(flags: &flags::Access) -> AccessOptions {
    AccessOptions {
        authentication_kubeconfig: path(&flags.authentication_kubeconfig),
        authorization_kubeconfig: path(&flags.authorization_kubeconfig),
        token_ttl: flags.authentication_token_webhook_cache_ttl,
        authorized_ttl: flags.authorization_webhook_cache_authorized_ttl,
        unauthorized_ttl: flags.authorization_webhook_cache_unauthorized_ttl,
        skips_lookup: flags.authentication_skip_lookup,
        tolerates_lookup_failure: flags.authentication_tolerate_lookup_failure,
        client_ca_file: path(&flags.client_ca_file),
        always_allowed: words(&flags.authorization_always_allow_paths),
        request_header: RequestHeader {
            ca_file: path(&flags.requestheader_client_ca_file),
            allowed_names: words(&flags.requestheader_allowed_names),
            username: words(&flags.requestheader_username_headers),
            uid: words(&flags.requestheader_uid_headers),
            group: words(&flags.requestheader_group_headers),
            extra_prefix: words(&flags.requestheader_extra_headers_prefix),
        },
    }
}

fn serving(flags: &flags::Serving, access: AccessOptions, faults: &mut Vec<String>) -> Option<ServingOptions> {
    let certificate = match (path(&flags.tls_cert_file), path(&flags.tls_private_key_file), path(&flags.cert_dir)) {
        (Some(certificate), Some(key), _) => CertificateSource::Files { certificate, key },
        (None, None, Some(folder)) => CertificateSource::Folder(folder),
        (None, None, None) => CertificateSource::Memory,
        _ => {
            faults.push("--tls-cert-file and --tls-private-key-file belong together: give both or none".to_owned());
            CertificateSource::Memory
        }
    };
    let tls = TlsPolicy::read(&words(&flags.tls_cipher_suites), &flags.tls_min_version, &flags.tls_curve_preferences);
    let tls = tls.unwrap_or_else(|all| {
        faults.extend(all);
        TlsPolicy::default()
    });
    (flags.secure_port != 0).then(|| ServingOptions {
        address: SocketAddr::new(flags.bind_address, flags.secure_port),
        shares_port: flags.permit_port_sharing,
        shares_address: flags.permit_address_sharing,
        certificate,
        tls,
        access,
    })
}

fn log(flags: &flags::Log, faults: &mut Vec<String>) -> LogOptions {
    let format = match flags.logging_format.as_str() {
        "text" => Format::Text,
        "json" => Format::Json,
        other => {
            faults.push(format!("--logging-format: {other:?} is not supported: it is \"text\" or \"json\""));
            Format::Text
        }
    };
    LogOptions { format, verbosity: flags.verbosity }
}

/// Go's flags say "none" by an empty string.
fn path(given: &Path) -> Option<PathBuf> {
    (!given.as_os_str().is_empty()).then(|| given.to_owned())
}

fn words(given: &[String]) -> Vec<String> {
    given.iter().map(|word| word.trim().to_owned()).filter(|word| !word.is_empty()).collect()
}
