//! How the API server shares itself out: every account of Cairn's is in the level that the flow schemas say.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use axum::http::Request;

use super::SOON;
use crate::harness::{Lab, control_plane, enclosure::inside, kubernetes::Kubernetes, wait_for};

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
const CLAIM: &str = "/apis/coordination.k8s.io/v1/namespaces/cairn-pod-cidrs/leases/cairn-cidr-10-244-3-0-24";
const FLOW_SCHEMA: &str = "x-kubernetes-pf-flowschema-uid";
/// An account, what it asks for, the flow schema and its priority level.
const CASES: &[(&str, &str, &str, &str)] = &[
    ("cairn-controller", "/cloud-controller-manager", "cairn-leader-election", "leader-election"),
    ("cairn-controller", "/cloud-provider-extraction-migration", "cairn-leader-election", "leader-election"),
    ("cairn-controller", "?watch=true&timeoutSeconds=1", "cairn-leader-election", "leader-election"),
    ("cairn-controller", "", "cairn-controller", "workload-high"),
    ("cairn-controller", "/api/v1/nodes", "cairn-controller", "workload-high"),
    ("cairn-controller", CLAIM, "cairn-pod-cidrs", "workload-high"),
    ("node-controller", CLAIM, "cairn-pod-cidrs", "workload-high"),
    ("node-controller", "/api/v1/nodes", "cairn-controller", "workload-high"),
    ("service-controller", "/api/v1/services", "cairn-controller", "workload-high"),
    ("route-controller", "/apis/cairn.dev/v1alpha1/noderoutes", "cairn-controller", "workload-high"),
    ("cairn-agent", "/api/v1/services", "cairn-agents", "cairn-agents"),
    ("cairn-agent", "/apis/cairn.dev/v1alpha1/nodereports", "cairn-agents", "cairn-agents"),
];

#[test]
fn each_account_is_in_the_level_that_the_manifests_say() {
    inside(async || accounts_are_in_their_levels(Kubernetes::default()).await);
}

/// First as if each account asked, then by the metrics when Cairn does.
pub(super) async fn accounts_are_in_their_levels(kubernetes: Kubernetes) -> Result<()> {
    let mut lab = Lab::builder().kubernetes(kubernetes).nodes(1).start().await?;
    lab.install_cairn().await?;
    lab.cairn()?.give_accounts(lab.control_plane()).await?;
    for (account, asked, schema, level) in CASES {
        let path = if asked.starts_with("/a") { (*asked).to_owned() } else { format!("{LEASES}{asked}") };
        // The API server goes by new flow schemas a moment after it has taken them.
        wait_for(&format!("{account} asks for {path}"), SOON, async || {
            let classified = classified(&lab, account, &path).await?;
            ensure!(classified == *schema, "it is in {classified}, not in {schema}");
            Ok(())
        })
        .await?;
        let of_schema = ["get", "flowschema", schema, "-o", "jsonpath={.spec.priorityLevelConfiguration.name}"];
        let of_schema = lab.control_plane().kubectl(of_schema).await?;
        ensure!(of_schema == *level, "{schema} is in {of_schema}");
    }

    let before = dispatched(&lab).await?;
    lab.spawn_controller_with(&["--use-service-account-credentials"])?;
    lab.spawn_agents()?;
    lab.node("n1")?.wait_until_initialized().await?;
    wait_for("the API server takes Cairn's own requests by each of the flow schemas", SOON, async || {
        let now = dispatched(&lab).await?;
        ensure!(before.iter().zip(&now).all(|(before, now)| before < now), "{before:?}, and now {now:?}");
        Ok(())
    })
    .await?;
    nobody_else_asks_for_us(&lab)
}

/// The flow schema that a request of this account was put under, allowed or not.
async fn classified(lab: &Lab, account: &str, path: &str) -> Result<String> {
    let control_plane = lab.control_plane();
    let token = control_plane.kubectl(["create", "token", account, "--namespace=kube-system"]).await?;
    let kubeconfig = control_plane.authority().kubeconfig_with_token(account, token.trim())?;
    let answer = control_plane::client(&kubeconfig).await?.send(Request::get(path).body(Vec::new().into())?).await?;
    let uid =
        answer.headers().get(FLOW_SCHEMA).with_context(|| format!("{} without a flow schema", answer.status()))?;
    let names = "jsonpath={range .items[*]}{.metadata.uid} {.metadata.name}{\"\\n\"}{end}";
    let schemas = control_plane.kubectl(["get", "flowschemas", "-o", names]).await?;
    let all = schemas.lines().filter_map(|line| line.split_once(' '));
    let name = all.into_iter().find(|(known, _)| known.as_bytes() == uid.as_bytes()).map(|(_, name)| name.to_owned());
    name.with_context(|| format!("no flow schema has the uid {uid:?}: {schemas}"))
}

/// How many requests were answered by our flow schemas, one after the other.
async fn dispatched(lab: &Lab) -> Result<[f64; 3]> {
    let metrics = lab.control_plane().kubectl(["get", "--raw", "/metrics"]).await?;
    Ok(["cairn-leader-election", "cairn-controller", "cairn-agents"].map(|schema| {
        let metric = format!("apiserver_flowcontrol_dispatched_requests_total{{flow_schema=\"{schema}\",");
        let lines = metrics.lines().filter(|line| line.starts_with(&metric));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    }))
}

/// Every account that Cairn asks as is one of the cases.
fn nobody_else_asks_for_us(lab: &Lab) -> Result<()> {
    let requests = lab.control_plane().requests_by_cairn()?;
    let users: BTreeSet<_> = requests.iter().filter_map(|request| request.user.rsplit(':').next()).collect();
    let known: BTreeSet<_> = CASES.iter().map(|(account, ..)| *account).collect();
    ensure!(users.is_subset(&known), "Cairn asks as {users:?}, and the cases are of {known:?}");
    Ok(())
}
