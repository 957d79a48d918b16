//! The flags of a cloud-controller-manager, with upstream's names and defaults.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::ArgAction;

use super::value::{address, duration, number, path, rate, truth};

/// The Lease of cloud-controller-managers, where no flag names another.
pub const MAIN_LEASE: &str = "cloud-controller-manager";

/// Which loops run, how often, and as whom.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Controllers")]
pub struct Generic {
    /// Controllers to run: '*' is all of them, 'foo' enables foo, '-foo' disables it.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "*", allow_hyphen_values = true)]
    pub controllers: Vec<String>,
    /// The cloud provider: 'cairn', or 'external' as the kubelet calls every one.
    #[arg(long, value_name = "NAME", default_value = "cairn")]
    pub cloud_provider: String,
    /// The file that says where the inventory is.
    #[arg(long, value_name = "FILE", value_parser = path, default_value = "", hide_default_value = true)]
    pub cloud_config: PathBuf,
    /// How long after one controller the next is started.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration)]
    pub controller_start_interval: Duration,
    /// How often addresses and labels of Nodes are looked at without a change.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration)]
    pub node_status_update_frequency: Duration,
    /// How often Nodes that are not Ready are looked at.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = duration)]
    pub node_monitor_period: Duration,
    /// How often routes are looked at without a change.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    pub route_reconciliation_period: Duration,
    /// Whether to see to routes between pods.
    #[arg(long, value_name = "BOOL", default_value = "true", value_parser = truth,
          num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    pub configure_cloud_routes: bool,
    /// Writes about Nodes on their way at the same time.
    #[arg(long, value_name = "COUNT", default_value_t = 50, value_parser = number::<i64>, allow_negative_numbers = true)]
    pub concurrent_node_syncs: i64,
    /// Writes about Services on their way at the same time.
    #[arg(long, value_name = "COUNT", default_value_t = 50, value_parser = number::<i64>, allow_negative_numbers = true)]
    pub concurrent_service_syncs: i64,
    /// Whether to serve only Services of class cairn.dev/cairn, and leave those without a class to another
    /// controller. The agents take the same flag.
    #[arg(long, value_name = "BOOL", default_value = "false", value_parser = truth,
          num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    pub load_balancer_class_only: bool,
    /// Whether each controller writes as its own ServiceAccount in kube-system.
    #[arg(long, value_name = "BOOL", default_value = "false", value_parser = truth,
          num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    pub use_service_account_credentials: bool,
}

/// The addresses of pods, and who gives them to Nodes.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Pod CIDRs")]
pub struct PodCidrs {
    /// The addresses of pods, one CIDR or one of each family: routes to others are left alone. Without
    /// it, the routes of every Node's pod CIDRs are ours.
    #[arg(long, value_name = "CIDRS", default_value = "", hide_default_value = true)]
    pub cluster_cidr: String,
    /// Whether Nodes get their pod CIDRs from here; kube-controller-manager must not do so as well.
    #[arg(long, value_name = "BOOL", default_value = "false", value_parser = truth,
          num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    pub allocate_node_cidrs: bool,
    /// How they are given out; 'RangeAllocator', by blocks of --cluster-cidr, is the only way.
    #[arg(long, value_name = "TYPE", default_value = "RangeAllocator")]
    pub cidr_allocator_type: String,
    /// Bits of a Node's block in a cluster of one family; 0 is 24 for IPv4 and 64 for IPv6.
    #[arg(long, value_name = "BITS", default_value_t = 0, value_parser = number::<i64>, allow_negative_numbers = true)]
    pub node_cidr_mask_size: i64,
    /// Bits of a Node's IPv4 block; 0 is 24.
    #[arg(long, value_name = "BITS", default_value_t = 0, value_parser = number::<i64>, allow_negative_numbers = true)]
    pub node_cidr_mask_size_ipv4: i64,
    /// Bits of a Node's IPv6 block; 0 is 64.
    #[arg(long, value_name = "BITS", default_value_t = 0, value_parser = number::<i64>, allow_negative_numbers = true)]
    pub node_cidr_mask_size_ipv6: i64,
    /// The addresses of Services, one CIDR or one of each family: no Node gets a block that has any.
    #[arg(long, value_name = "CIDRS", default_value = "", hide_default_value = true)]
    pub service_cluster_ip_range: String,
}

/// How to reach the API server.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "API server")]
pub struct Server {
    /// How to reach the API server; without it, as the pod's ServiceAccount.
    #[arg(long, value_name = "FILE", value_parser = path, default_value = "", hide_default_value = true)]
    pub kubeconfig: PathBuf,
    /// URL of the API server, in place of the kubeconfig's.
    #[arg(long, value_name = "URL", default_value = "", hide_default_value = true)]
    pub master: String,
    /// Requests a second; 0 or less leaves it to the API server to hold us back.
    #[arg(long, value_name = "RATE", default_value_t = 0.0, value_parser = rate, allow_negative_numbers = true)]
    pub kube_api_qps: f64,
    /// Requests at once before --kube-api-qps counts.
    #[arg(long, value_name = "COUNT", default_value_t = 30, value_parser = number::<i64>, allow_negative_numbers = true)]
    pub kube_api_burst: i64,
}

/// Who acts when several of us run.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Leader election")]
pub struct Election {
    /// Whether to act only while holding the Lease.
    #[arg(long, value_name = "BOOL", default_value = "true", value_parser = truth,
          num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    pub leader_elect: bool,
    /// How long others wait for a sign of life before they take over.
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = duration)]
    pub leader_elect_lease_duration: Duration,
    /// How long a leader goes on without a successful renewal.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    pub leader_elect_renew_deadline: Duration,
    /// How often a leader renews and others look.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration)]
    pub leader_elect_retry_period: Duration,
    /// The kind of lock; 'leases' is the only one.
    #[arg(long, value_name = "KIND", default_value = "leases")]
    pub leader_elect_resource_lock: String,
    /// Name of the Lease.
    #[arg(long, value_name = "NAME", default_value = MAIN_LEASE)]
    pub leader_elect_resource_name: String,
    /// Namespace of the Lease.
    #[arg(long, value_name = "NAMESPACE", default_value = "kube-system")]
    pub leader_elect_resource_namespace: String,
    /// Whether some controllers run under a second Lease, shared with kube-controller-manager.
    #[arg(long, value_name = "BOOL", default_value = "false", value_parser = truth,
          num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    pub enable_leader_migration: bool,
    /// The LeaderMigrationConfiguration; without it, Kubernetes' default.
    #[arg(long, value_name = "FILE", value_parser = path, default_value = "", hide_default_value = true)]
    pub leader_migration_config: PathBuf,
}

/// The port for probes, metrics and people.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Secure serving")]
pub struct Serving {
    /// Address to listen on.
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0", value_parser = address)]
    pub bind_address: IpAddr,
    /// Port of /healthz, /readyz, /livez, /metrics, /metrics/slis, /configz, /state and /debug/flags/v; 0 serves none.
    #[arg(long, value_name = "PORT", default_value_t = 10258, value_parser = number::<u16>)]
    pub secure_port: u16,
    /// Whether other processes may listen on the same port.
    #[arg(long, value_name = "BOOL", default_value = "false", value_parser = truth,
          num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    pub permit_port_sharing: bool,
    /// Whether to listen although old connections wait for their end (SO_REUSEADDR).
    #[arg(long, value_name = "BOOL", default_value = "false", value_parser = truth,
          num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    pub permit_address_sharing: bool,
    /// Whether PUT /debug/flags/v changes how much is logged. Profiles are not served.
    #[arg(long, value_name = "BOOL", default_value = "true", value_parser = truth,
          num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    pub profiling: bool,
    /// Folder of cloud-controller-manager.crt and .key, made when missing; without it a
    /// self-signed certificate is kept in memory.
    #[arg(long, value_name = "FOLDER", value_parser = path, default_value = "", hide_default_value = true)]
    pub cert_dir: PathBuf,
    /// Certificate and its chain, PEM; read again when it changes.
    #[arg(long, value_name = "FILE", value_parser = path, default_value = "", hide_default_value = true)]
    pub tls_cert_file: PathBuf,
    /// Private key of --tls-cert-file, PEM.
    #[arg(long, value_name = "FILE", value_parser = path, default_value = "", hide_default_value = true)]
    pub tls_private_key_file: PathBuf,
    /// Cipher suites; without it, those that are secure.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub tls_cipher_suites: Vec<String>,
    /// The oldest version of TLS: VersionTLS12 or VersionTLS13.
    #[arg(long, value_name = "VERSION", default_value = "", hide_default_value = true)]
    pub tls_min_version: String,
    /// Key exchange groups by number: 23 (P-256), 24 (P-384), 29 (X25519).
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', value_parser = number::<u16>)]
    pub tls_curve_preferences: Vec<u16>,
}

/// Who may ask the secure port.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Authentication and authorization")]
pub struct Access {
    /// How to reach the API server for TokenReviews; without it, as for everything else.
    #[arg(long, value_name = "FILE", value_parser = path, default_value = "", hide_default_value = true)]
    pub authentication_kubeconfig: PathBuf,
    /// How long the answer to a TokenReview holds.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    pub authentication_token_webhook_cache_ttl: Duration,
    /// Whether to do without ConfigMap kube-system/extension-apiserver-authentication.
    #[arg(long, value_name = "BOOL", default_value = "false", value_parser = truth,
          num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    pub authentication_skip_lookup: bool,
    /// Whether to go on when that ConfigMap cannot be read.
    #[arg(long, value_name = "BOOL", default_value = "false", value_parser = truth,
          num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    pub authentication_tolerate_lookup_failure: bool,
    /// Authorities of client certificates, in place of the ConfigMap's.
    #[arg(long, value_name = "FILE", value_parser = path, default_value = "", hide_default_value = true)]
    pub client_ca_file: PathBuf,
    /// Authorities of proxies that say in headers who asks, in place of the ConfigMap's.
    #[arg(long, value_name = "FILE", value_parser = path, default_value = "", hide_default_value = true)]
    pub requestheader_client_ca_file: PathBuf,
    /// Common names of such proxies; without it, any.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub requestheader_allowed_names: Vec<String>,
    /// Headers with the user's name.
    #[arg(long, value_name = "HEADERS", value_delimiter = ',', default_value = "x-remote-user")]
    pub requestheader_username_headers: Vec<String>,
    /// Headers with the user's UID.
    #[arg(long, value_name = "HEADERS", value_delimiter = ',')]
    pub requestheader_uid_headers: Vec<String>,
    /// Headers with the user's groups.
    #[arg(long, value_name = "HEADERS", value_delimiter = ',', default_value = "x-remote-group")]
    pub requestheader_group_headers: Vec<String>,
    /// Beginnings of headers with more about the user.
    #[arg(long, value_name = "PREFIXES", value_delimiter = ',', default_value = "x-remote-extra-")]
    pub requestheader_extra_headers_prefix: Vec<String>,
    /// How to reach the API server for SubjectAccessReviews; without it, as for everything else.
    #[arg(long, value_name = "FILE", value_parser = path, default_value = "", hide_default_value = true)]
    pub authorization_kubeconfig: PathBuf,
    /// How long a permission holds.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    pub authorization_webhook_cache_authorized_ttl: Duration,
    /// How long a refusal holds.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    pub authorization_webhook_cache_unauthorized_ttl: Duration,
    /// Paths that everyone may ask for.
    #[arg(long, value_name = "PATHS", value_delimiter = ',', default_value = "/healthz,/readyz,/livez")]
    pub authorization_always_allow_paths: Vec<String>,
}

/// The log.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Log")]
pub struct Log {
    /// How lines are written: text or json.
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub logging_format: String,
    /// How much is told: from 4 on debugging, from 6 on everything. RUST_LOG goes before it.
    #[arg(short = 'v', long = "v", value_name = "LEVEL", default_value_t = 0, value_parser = number::<u8>)]
    pub verbosity: u8,
}
