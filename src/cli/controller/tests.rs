//! The command line as upstream has it (`cloud-provider/options`).

use clap::{CommandFactory, Parser};

use super::check::{Checked, check};
use super::{Args, configz, ignored};
use crate::cluster::traffic::IN_FLIGHT;
use crate::config::{ClusterCidr, Controller, Selection};
use crate::controller::Identities;
use crate::leader::Migration;
use crate::telemetry::certificate::CertificateSource;
use crate::telemetry::log::Format;

const EXAMPLE: &str = concat!("--cloud-config=", env!("CARGO_MANIFEST_DIR"), "/examples/flat-lan/cloud-config.yaml");

const MIGRATION: &str = "apiVersion: controllermanager.config.k8s.io/v1\nkind: LeaderMigrationConfiguration\n";

#[derive(Debug, Parser)]
struct CommandLine {
    #[command(flatten)]
    args: Args,
}

fn parse(flags: &[&str]) -> Args {
    let words = ["controller", EXAMPLE].iter().chain(flags);
    CommandLine::try_parse_from(words).unwrap_or_else(|error| panic!("{error}")).args
}

fn checked(flags: &[&str]) -> Checked {
    check(&parse(flags)).unwrap_or_else(|error| panic!("{flags:?}: {error}"))
}

fn faults(flags: &[&str]) -> Vec<String> {
    match check(&parse(flags)) {
        Ok(_) => Vec::new(),
        Err(faults) => faults.to_string().lines().map(str::to_owned).collect(),
    }
}

/// Upstream's flags and their defaults, as `--help` would show them; those that are ignored have none.
const DEFAULTS: &[(&str, &str)] = &[
    ("controllers", "*"),
    ("cloud-provider", "cairn"),
    ("cloud-config", ""),
    ("controller-start-interval", "0s"),
    ("node-status-update-frequency", "5m"),
    ("node-monitor-period", "5s"),
    ("route-reconciliation-period", "10s"),
    ("configure-cloud-routes", "true"),
    ("cluster-cidr", ""),
    ("allocate-node-cidrs", "false"),
    ("cidr-allocator-type", "RangeAllocator"),
    ("node-cidr-mask-size", "0"),
    ("node-cidr-mask-size-ipv4", "0"),
    ("node-cidr-mask-size-ipv6", "0"),
    ("service-cluster-ip-range", ""),
    ("use-service-account-credentials", "false"),
    ("kubeconfig", ""),
    ("master", ""),
    ("kube-api-burst", "30"),
    ("leader-elect", "true"),
    ("leader-elect-lease-duration", "15s"),
    ("leader-elect-renew-deadline", "10s"),
    ("leader-elect-retry-period", "2s"),
    ("leader-elect-resource-lock", "leases"),
    ("leader-elect-resource-name", "cloud-controller-manager"),
    ("leader-elect-resource-namespace", "kube-system"),
    ("enable-leader-migration", "false"),
    ("leader-migration-config", ""),
    ("bind-address", "0.0.0.0"),
    ("secure-port", "10258"),
    ("profiling", "true"),
    ("permit-port-sharing", "false"),
    ("permit-address-sharing", "false"),
    ("cert-dir", ""),
    ("tls-cert-file", ""),
    ("tls-private-key-file", ""),
    ("tls-min-version", ""),
    ("authentication-kubeconfig", ""),
    ("authentication-token-webhook-cache-ttl", "10s"),
    ("authentication-skip-lookup", "false"),
    ("authentication-tolerate-lookup-failure", "false"),
    ("client-ca-file", ""),
    ("requestheader-client-ca-file", ""),
    ("requestheader-username-headers", "x-remote-user"),
    ("requestheader-group-headers", "x-remote-group"),
    ("requestheader-extra-headers-prefix", "x-remote-extra-"),
    ("authorization-kubeconfig", ""),
    ("authorization-webhook-cache-authorized-ttl", "10s"),
    ("authorization-webhook-cache-unauthorized-ttl", "10s"),
    ("authorization-always-allow-paths", "/healthz,/readyz,/livez"),
    ("logging-format", "text"),
    ("v", "0"),
    ("tls-cipher-suites", ""),
    ("tls-curve-preferences", ""),
    ("requestheader-allowed-names", ""),
    ("requestheader-uid-headers", ""),
    // Where Cairn has other ones.
    ("kube-api-qps", "0"),
    ("concurrent-node-syncs", "50"),
    ("concurrent-service-syncs", "50"),
];

#[test]
fn flags_have_upstreams_names_and_defaults() {
    let command = CommandLine::command();
    for (name, want) in DEFAULTS {
        let flag = command.get_arguments().find(|flag| flag.get_long() == Some(name));
        let flag = flag.unwrap_or_else(|| panic!("there is no --{name}"));
        let default: Vec<_> = flag.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
        assert_eq!(default.join(","), *want, "--{name}");
    }
}

#[test]
fn every_flag_parses_into_the_configuration() {
    let folder = tempfile::tempdir().expect("a folder");
    let cert_dir = format!("--cert-dir={}", folder.path().display());
    let file = folder.path().join("migration.yaml");
    std::fs::write(&file, format!("{MIGRATION}leaderName: m\n")).expect("a file");
    let migration = format!("--leader-migration-config={}", file.display());
    let options = checked(&[
        "--controllers=*,-service",
        "--cloud-provider=external",
        "--controller-start-interval=2m",
        "--node-status-update-frequency=10m",
        "--node-monitor-period=2s",
        "--route-reconciliation-period=30s",
        "--configure-cloud-routes=false",
        "--cluster-cidr=10.244.0.0/16,fd00:244::/48",
        "--allocate-node-cidrs",
        "--cidr-allocator-type=RangeAllocator",
        "--node-cidr-mask-size-ipv4=25",
        "--node-cidr-mask-size-ipv6=60",
        "--service-cluster-ip-range=10.96.0.0/16,fd00:96::/112",
        "--use-service-account-credentials",
        "--concurrent-node-syncs=5",
        "--concurrent-service-syncs=1",
        "--kubeconfig=/kubeconfig",
        "--master=https://192.168.4.20:6443",
        "--kube-api-qps=50",
        "--kube-api-burst=100",
        "--leader-elect-lease-duration=30s",
        "--leader-elect-renew-deadline=15s",
        "--leader-elect-retry-period=5s",
        "--leader-elect-resource-name=mine",
        "--leader-elect-resource-namespace=here",
        "--enable-leader-migration",
        &migration,
        "--bind-address=192.168.4.21",
        "--secure-port=10001",
        "--permit-port-sharing",
        "--permit-address-sharing=true",
        &cert_dir,
        "--tls-cipher-suites=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        "--tls-min-version=VersionTLS13",
        "--tls-curve-preferences=29,23",
        "--authentication-kubeconfig=/authn",
        "--authentication-token-webhook-cache-ttl=20s",
        "--authentication-skip-lookup",
        "--authentication-tolerate-lookup-failure",
        "--client-ca-file=/ca.crt",
        "--requestheader-client-ca-file=/front.crt",
        "--requestheader-allowed-names=a,b",
        "--requestheader-uid-headers=x-remote-uid",
        "--authorization-kubeconfig=/authz",
        "--authorization-webhook-cache-authorized-ttl=1m",
        "--authorization-webhook-cache-unauthorized-ttl=2m",
        "--authorization-always-allow-paths=/healthz",
        "--logging-format=json",
        "-v=4",
    ]);
    let Checked { controller, log, warnings } = options;
    let seconds = std::time::Duration::from_secs;
    let enabled: Vec<_> = controller.controllers.iter().copied().collect();
    assert_eq!(enabled, [Controller::Node, Controller::NodeLifecycle, Controller::Route, Controller::NodeIpam]);
    assert_eq!(warnings.len(), 2, "another namespace, and a file that does not name the allocator: {warnings:?}");
    let periods = controller.periods;
    assert_eq!(
        (periods.node_status_update, periods.node_monitor, periods.route_reconciliation, controller.start_interval),
        (seconds(600), seconds(2), seconds(30), seconds(120))
    );
    assert_eq!((controller.configures_routes, controller.identities), (false, Identities::PerController));
    let prefixes: Vec<_> = controller.cluster_cidrs.iter().map(ToString::to_string).collect();
    assert_eq!(prefixes, ["10.244.0.0/16", "fd00:244::/48"]);
    let node_cidrs = controller.node_cidrs.expect("pod CIDRs are given out");
    assert_eq!(node_cidrs.cluster.iter().map(ClusterCidr::node_length).collect::<Vec<_>>(), [25, 60]);
    assert_eq!(node_cidrs.services.len(), 2);
    assert_eq!((controller.limits.node_writes, controller.limits.service_writes), (5, 1));
    assert_eq!(controller.server.kubeconfig.as_deref(), Some("/kubeconfig".as_ref()));
    assert_eq!(controller.server.url.expect("a URL").authority().expect("a host").as_str(), "192.168.4.20:6443");
    assert_eq!(controller.server.rate, Some((50.0, 100)));
    let lease = controller.lease.expect("a lease");
    assert_eq!((lease.namespace.as_str(), lease.name.as_str()), ("here", "mine"));
    let timing = lease.timing;
    assert_eq!(
        (timing.lease_duration, timing.renew_deadline, timing.retry_period),
        (seconds(30), seconds(15), seconds(5))
    );
    assert_eq!(controller.migration.map(|migration| migration.lease), Some("m".to_owned()));
    let serving = controller.serving.expect("a port");
    assert_eq!(serving.address.to_string(), "192.168.4.21:10001");
    assert!(serving.shares_port && serving.shares_address);
    assert_eq!(serving.certificate, CertificateSource::Folder(folder.path().to_owned()));
    let access = serving.access;
    assert_eq!(
        (access.token_ttl, access.authorized_ttl, access.unauthorized_ttl),
        (seconds(20), seconds(60), seconds(120))
    );
    assert!(access.skips_lookup && access.tolerates_lookup_failure);
    assert_eq!(access.always_allowed, ["/healthz"]);
    assert_eq!(access.client_ca_file, Some("/ca.crt".into()));
    let header = access.request_header;
    assert_eq!((header.ca_file, header.allowed_names.len()), (Some("/front.crt".into()), 2));
    assert_eq!((header.username, header.uid), (vec!["x-remote-user".to_owned()], vec!["x-remote-uid".to_owned()]));
    assert_eq!((log.format, log.verbosity), (Format::Json, 4));
}

#[test]
fn without_flags_a_config_is_made_that_has_no_limit_of_requests_and_fifty_writes() {
    let options = checked(&[]).controller;
    assert_eq!(options.server.rate, None);
    assert_eq!((options.limits.node_writes, options.limits.service_writes), (IN_FLIGHT, IN_FLIGHT));
    assert_eq!((options.controllers.len(), options.identities), (Controller::ALL.len(), Identities::One));
    assert_eq!(options.serving.expect("a port").certificate, CertificateSource::Memory);
    assert_eq!(options.migration, None);
    assert_eq!(checked(&["--kube-api-qps=-1"]).controller.server.rate, None);
    assert!(checked(&["--secure-port=0"]).controller.serving.is_none());
    assert!(checked(&["--leader-elect=false"]).controller.lease.is_none());
}

#[test]
fn of_a_flag_given_twice_the_last_counts_and_lists_add_up() {
    let Checked { controller, log, .. } = checked(&[
        "--leader-elect=false",
        "--controllers=*",
        "--secure-port=1",
        "--v=2",
        "--leader-elect",
        "--controllers=-service",
        "--secure-port=2",
        "-v=4",
    ]);
    assert!(controller.lease.is_some());
    assert!(!controller.controllers.contains(&Controller::Service) && controller.controllers.len() > 1);
    assert_eq!((controller.serving.expect("a port").address.port(), log.verbosity), (2, 4));
}

/// Upstream's flags that have nothing to set here, with its own defaults.
const WITHOUT_MEANING: &[(&str, &str)] = &[
    ("min-resync-period", "12h"),
    ("kube-api-content-type", "application/vnd.kubernetes.protobuf"),
    ("feature-gates", "A=true,B=false"),
    ("contention-profiling", "false"),
    ("external-cloud-volume-plugin", ""),
    ("allow-untagged-cloud", "false"),
    ("cluster-name", "kubernetes"),
    ("node-sync-period", "0s"),
    ("disable-http2-serving", "false"),
    ("http2-max-streams-per-connection", "0"),
    ("tls-sni-cert-key", "a.crt,a.key:a.example"),
    ("webhooks", "*,-a"),
    ("webhook-bind-address", "0.0.0.0"),
    ("webhook-secure-port", "10260"),
    ("webhook-cert-dir", ""),
    ("webhook-tls-cert-file", ""),
    ("webhook-tls-private-key-file", ""),
    ("webhook-tls-cipher-suites", "TLS_AES_128_GCM_SHA256"),
    ("webhook-tls-min-version", "VersionTLS12"),
    ("webhook-tls-curve-preferences", "29"),
    ("webhook-tls-sni-cert-key", "a.crt,a.key"),
    ("webhook-disable-http2-serving", "false"),
    ("log-flush-frequency", "5s"),
    ("log-text-split-stream", "false"),
    ("log-text-info-buffer-size", "0"),
    ("log-json-split-stream", "false"),
    ("log-json-info-buffer-size", "0"),
    ("vmodule", "a=2"),
];

#[test]
fn every_flag_of_upstream_without_meaning_is_accepted_and_told_alone() {
    for (name, value) in WITHOUT_MEANING {
        let args = parse(&[&format!("--{name}={value}")]);
        let told: Vec<_> = args.ignored.given.iter().map(|(flag, _)| *flag).collect();
        assert_eq!(told, [*name]);
        assert!(check(&args).is_ok(), "--{name}");
    }
    let known: Vec<_> = WITHOUT_MEANING.iter().map(|(name, _)| *name).collect();
    assert_eq!(ignored::FLAGS.iter().map(|(name, _)| *name).collect::<Vec<_>>(), known);
}

#[test]
fn flags_of_webhooks_and_others_without_meaning_are_accepted_and_told() {
    let args = parse(&[
        "--webhooks=*,-a",
        "--webhook-secure-port=0",
        "--webhook-bind-address",
        "0.0.0.0",
        "--allow-untagged-cloud",
        "--node-sync-period=0s",
        "--external-cloud-volume-plugin=",
        "--feature-gates=A=true,B=false",
        "--contention-profiling=false",
        "--min-resync-period=12h",
        "--kube-api-content-type=application/vnd.kubernetes.protobuf",
        "--cluster-name=kubernetes",
        "--log-flush-frequency=5s",
    ]);
    assert_eq!(args.ignored.given.len(), 12, "{:?}", args.ignored.given);
    assert!(check(&args).is_ok());
    assert_eq!(parse(&[]).ignored.given, []);
}

#[test]
fn faults_are_upstreams_and_told_all_at_once() {
    for (name, flags, want) in [
        (
            "concurrent-node-syncs -5",
            &["--concurrent-node-syncs=-5"][..],
            &["concurrent-node-syncs must be a positive number"][..],
        ),
        (
            "concurrent-node-syncs 0",
            &["--concurrent-node-syncs=0"],
            &["concurrent-node-syncs must be a positive number"],
        ),
        ("concurrent-node-syncs 5", &["--concurrent-node-syncs=5"], &[]),
        (
            "concurrent-node-syncs 5 with status updates 5",
            &["--concurrent-node-syncs=5", "--concurrent-node-status-updates=5"],
            &[],
        ),
        (
            "concurrent-node-syncs 5 with status updates -1",
            &["--concurrent-node-syncs=5", "--concurrent-node-status-updates=-1"],
            &["concurrent-node-status-updates cannot be a negative number"],
        ),
        (
            "a cluster CIDR that is none",
            &["--cluster-cidr=10.244.0.0"],
            &[
                "--cluster-cidr: \"10.244.0.0\" is not a prefix: it takes the form address/length, such as 10.244.1.0/24 or fd00:244::/64",
            ],
        ),
        (
            "pod CIDRs without a cluster CIDR",
            &["--allocate-node-cidrs"],
            &["Must specify --cluster-cidr if --allocate-node-cidrs is set"],
        ),
        (
            "pod CIDRs with a mask of the other family",
            &["--allocate-node-cidrs", "--cluster-cidr=10.0.0.0/8", "--node-cidr-mask-size-ipv6=64"],
            &["usage of --node-cidr-mask-size-ipv6 is not allowed for a single-stack IPv4 cluster"],
        ),
        ("allocation disabled", &["--cidr-allocator-type=CloudAllocator", "--service-cluster-ip-range=x"], &[]),
        ("no limit of requests, as client-go has it", &["--kube-api-qps=-1", "--kube-api-burst=-1"], &[]),
        (
            "a limit without a burst",
            &["--kube-api-qps=20", "--kube-api-burst=0"],
            &["--kube-api-burst must be a positive number"],
        ),
        (
            "a limit that is no number",
            &["--kube-api-qps=NaN"],
            &["--kube-api-qps must be a number: 0 or less is no limit"],
        ),
        ("no cloud provider", &["--cloud-provider="], &["--cloud-provider cannot be empty"]),
        (
            "another lock",
            &["--leader-elect-resource-lock=configmapsleases"],
            &["resourceLock value must be \"leases\""],
        ),
        (
            "a renew deadline that is too long",
            &["--leader-elect-renew-deadline=15s"],
            &["leaseDuration must be greater than renewDeadline"],
        ),
        (
            "a retry period that is too long",
            &["--leader-elect-retry-period=9s"],
            &["renewDeadline must be greater than retryPeriod*JitterFactor"],
        ),
        (
            "migration without a lease",
            &["--enable-leader-migration", "--leader-elect=false"],
            &["--enable-leader-migration needs --leader-elect: without a Lease nothing says who runs what"],
        ),
        (
            "migration by the main Lease",
            &["--enable-leader-migration", "--leader-elect-resource-name=cloud-provider-extraction-migration"],
            &[
                "--leader-migration-config: leaderName \"cloud-provider-extraction-migration\" is the name of the main Lease too",
            ],
        ),
        (
            "a migration file that is not there",
            &["--enable-leader-migration", "--leader-migration-config=/nowhere/m.yaml"],
            &["/nowhere/m.yaml: does not exist: check the path"],
        ),
        (
            "a certificate without a key",
            &["--tls-cert-file=/a"],
            &["--tls-cert-file and --tls-private-key-file belong together: give both or none"],
        ),
        (
            "several",
            &["--controllers=red-controller,-grey-controller", "--cloud-provider=aws", "--logging-format=xml"],
            &[
                "--cloud-provider: unknown cloud provider \"aws\": it is \"cairn\"",
                "\"red-controller\" is not in the list of known controllers: they are cloud-node-controller, cloud-node-lifecycle-controller, service-lb-controller, node-route-controller, node-ipam-controller, and * for all",
                "\"grey-controller\" is not in the list of known controllers: they are cloud-node-controller, cloud-node-lifecycle-controller, service-lb-controller, node-route-controller, node-ipam-controller, and * for all",
                "--logging-format: \"xml\" is not supported: it is \"text\" or \"json\"",
            ],
        ),
    ] {
        assert_eq!(faults(flags), want, "{name}");
    }
    let none = CommandLine::try_parse_from(["controller"]).expect("it parses").args;
    assert!(check(&none).expect_err("a fault").to_string().contains("--cloud-config is missing"));
}

#[test]
fn configz_shows_what_is_in_force_under_upstreams_names() {
    let args = parse(&["--controllers=service,-route", "--leader-elect-lease-duration=1m30s"]);
    let selection = Selection::read(&args.generic.controllers).expect("known names");
    let migration = Migration::default();
    let shown = configz::configuration(&args, &selection, Some(&migration));
    for (pointer, want) in [
        ("/kind", serde_json::json!("CloudControllerManagerConfiguration")),
        ("/Generic/Controllers", serde_json::json!(["service-lb-controller", "-node-route-controller"])),
        ("/Generic/LeaderElection/leaseDuration", serde_json::json!("1m30s")),
        ("/Generic/LeaderMigrationEnabled", serde_json::json!(true)),
        (
            "/Generic/LeaderMigration",
            serde_json::json!({
                "leaderName": "cloud-provider-extraction-migration",
                "resourceLock": "leases",
                "controllerLeaders": [
                    { "name": "cloud-node-lifecycle-controller", "component": "*" },
                    { "name": "service-lb-controller", "component": "*" },
                    { "name": "node-route-controller", "component": "*" },
                ],
            }),
        ),
        ("/KubeCloudShared/NodeMonitorPeriod", serde_json::json!("5s")),
        ("/NodeStatusUpdateFrequency", serde_json::json!("5m0s")),
    ] {
        assert_eq!(shown.pointer(pointer), Some(&want), "{pointer}");
    }
}

#[test]
fn a_migration_file_is_read_only_when_migration_is_enabled() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("m.yaml");
    std::fs::write(&file, format!("{MIGRATION}leaderName: m\nfoo: 1\n")).expect("a file");
    let flag = format!("--leader-migration-config={}", file.display());
    assert_eq!(checked(&[&flag]).controller.migration, None);
    let told = faults(&[&flag, "--enable-leader-migration"]);
    assert!(told[0].starts_with(&format!("{}:4:1: foo: is not a field", file.display())), "{told:?}");
    let default = checked(&["--enable-leader-migration"]).controller.migration;
    assert_eq!(default, Some(Migration::default()));
}

#[test]
fn a_migration_in_another_namespace_is_told() {
    let elsewhere = ["--enable-leader-migration", "--leader-elect-resource-namespace=here"];
    let want = "the Lease cloud-provider-extraction-migration of the leader migration is in namespace here: \
                kube-controller-manager needs --leader-elect-resource-namespace=here too, or both run the same controllers";
    assert_eq!(checked(&elsewhere).warnings, [want]);
    assert_eq!(checked(&elsewhere[..1]).warnings, [""; 0]);
    assert_eq!(checked(&elsewhere[1..]).warnings, [""; 0], "without migration it is nobody else's");
}

#[test]
fn flags_that_do_nothing_are_told() {
    let none = "--controllers enables none: nothing is done for the cluster";
    let file = "--leader-migration-config=/none.yaml";
    for (name, flags, want) in [
        ("one controller", vec!["--controllers=service"], vec![]),
        ("no controller", vec!["--controllers="], vec![none]),
        ("no controller, as another word", vec!["--controllers", ""], vec![none]),
        ("only what is off", vec!["--controllers=-service"], vec![none]),
        (
            "a file of a migration that is not on",
            vec![file],
            vec!["--leader-migration-config has no effect without --enable-leader-migration"],
        ),
        ("no file", vec!["--leader-migration-config="], vec![]),
    ] {
        assert_eq!(checked(&flags).warnings, want, "{name}");
    }
}

#[test]
fn flags_about_pod_cidrs_that_do_not_fit_together_are_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("m.yaml");
    let text = "leaderName: m\ncontrollerLeaders: [{name: nodeipam, component: '*'}]\n";
    std::fs::write(&file, format!("{MIGRATION}{text}")).expect("a file");
    let migration = format!("--leader-migration-config={}", file.display());
    let allocates = ["--allocate-node-cidrs", "--cluster-cidr=10.0.0.0/8"];
    let migrates = ["--enable-leader-migration", &migration];
    for (name, flags, want) in [
        ("all together", [&allocates[..], &migrates].concat(), vec![]),
        ("nothing of it", vec![], vec![]),
        (
            "masks without allocation",
            vec!["--node-cidr-mask-size=25", "--service-cluster-ip-range=10.96.0.0/16"],
            vec![
                "--node-cidr-mask-size has no effect without --allocate-node-cidrs",
                "--service-cluster-ip-range has no effect without --allocate-node-cidrs",
            ],
        ),
        (
            "migration without allocation",
            migrates.to_vec(),
            vec![
                "the leader migration names node-ipam-controller, but without --allocate-node-cidrs nobody here gives out pod CIDRs",
            ],
        ),
        (
            "allocation beside a migration",
            [&allocates[..], &["--enable-leader-migration"]].concat(),
            vec![
                "--allocate-node-cidrs is set, but the leader migration does not name node-ipam-controller: a kube-controller-manager that runs it gives out the same pod CIDRs at the same time",
            ],
        ),
    ] {
        assert_eq!(checked(&flags).warnings, want, "{name}");
    }
}
