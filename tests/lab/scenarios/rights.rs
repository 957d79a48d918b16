//! What Cairn may do: enough, and nothing that it never does. The API server's audit log is the witness.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::core::v1::Node as NodeObject;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject};
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

use super::SOON;
use crate::harness::{
    Lab, RouterKind,
    address::{CLUSTER_CIDRS, SERVICE_CIDRS},
    control_plane::ApiRequest,
    enclosure::inside,
    kubernetes::Kubernetes,
    lab::PodCidrs,
    service::{ExternalTrafficPolicy, Service},
    wait_for,
};

/// A right: account, API group, resource, verb.
type Right = (String, String, String, String);

/// Where a right is given: in a namespace or everywhere, to one object or to all.
type Scope = (Option<String>, Option<String>);

/// Rights that a lab without trouble does not use: resource, verb, and what uses it.
const FOR_OTHER_DAYS: &[(&str, &str, &str)] = &[
    ("nodes", "delete", "a machine is decommissioned"),
    ("nodes", "list", "a server that cannot send the first list by a watch"),
    ("machines", "delete", "a machine leaves the inventory"),
    ("noderoutes", "delete", "a Node goes before the garbage collector knows its NodeRoute"),
    ("leases", "watch", "a standby waits for the leader's end"),
    ("leases", "get", "a pod CIDR was claimed and the answer lost"),
    ("leases", "delete", "a Node's claims go before the garbage collector knows of them"),
    ("nodes", "get", "the same: whether the Node is gone"),
];

#[test]
fn one_account_is_denied_nothing_and_uses_all_it_may() {
    inside(async || one_account_suffices(Kubernetes::default()).await);
}

#[test]
fn an_account_per_controller_is_denied_nothing_and_uses_all_it_may() {
    inside(async || accounts_suffice(Kubernetes::default()).await);
}

/// Each controller writes as its own account.
pub(super) async fn accounts_suffice(kubernetes: Kubernetes) -> Result<()> {
    let mut lab = Lab::builder()
        .kubernetes(kubernetes)
        .pod_cidrs(PodCidrs::Others)
        .nodes(2)
        .router(RouterKind::Bird)
        .start()
        .await?;
    lab.install_cairn().await?;
    lab.cairn()?.give_accounts(lab.control_plane()).await?;
    lab.cairn()?.give_node_ipam_an_account(lab.control_plane()).await?;
    go_through_the_stories(&mut lab, &["--use-service-account-credentials"]).await?;
    let requests = lab.control_plane().requests_by_cairn()?;
    for account in ["node-controller", "service-controller", "route-controller"] {
        let user = format!("system:serviceaccount:kube-system:{account}");
        let writes = requests.iter().filter(|request| request.user == user && request.verb == "patch").count();
        ensure!(writes > 0, "{account} wrote nothing");
    }
    judge(&lab).await
}

pub(super) async fn one_account_suffices(kubernetes: Kubernetes) -> Result<()> {
    let builder = Lab::builder().kubernetes(kubernetes).pod_cidrs(PodCidrs::Others);
    let mut lab = builder.nodes(2).router(RouterKind::Bird).start().await?;
    lab.install_cairn().await?;
    lab.cairn()?.allow_node_ipam(lab.control_plane()).await?;
    go_through_the_stories(&mut lab, &[]).await?;
    judge(&lab).await
}

/// Nodes join and get their pod CIDRs, a Service comes and goes, one Node is excluded and one goes, somebody looks at the metrics, Cairn ends.
async fn go_through_the_stories(lab: &mut Lab, flags: &[&str]) -> Result<()> {
    lab.apply_pool_and_peer().await?;
    wait_for("the API server goes by the rights that it was told of", SOON, async || rights_are_known(lab).await)
        .await?;
    let (pods, services) =
        (format!("--cluster-cidr={CLUSTER_CIDRS}"), format!("--service-cluster-ip-range={SERVICE_CIDRS}"));
    lab.spawn_controller_with(&[&["--allocate-node-cidrs", &pods, &services], flags].concat())?;
    lab.spawn_agents()?;
    for name in ["n1", "n2"] {
        lab.node(name)?.wait_until_initialized().await?;
        let node = lab.node(name)?;
        wait_for(&format!("{name}'s network is available"), SOON, async || {
            let conditions = node.object().await?.status.and_then(|status| status.conditions).unwrap_or_default();
            let condition = conditions.iter().find(|condition| condition.type_ == "NetworkUnavailable");
            ensure!(condition.is_some_and(|condition| condition.status == "False"), "{condition:?}");
            Ok(())
        })
        .await?;
    }
    let web = Service::create(lab.kube(), "web", ExternalTrafficPolicy::Cluster).await?;
    web.wait_for_addresses(SOON).await?;
    web.delete().await?;
    super::advertisements::advertise(lab, "all", json!({ "services": {}, "bgp": {} })).await?;
    let nodes: Api<NodeObject> = Api::all(lab.kube().clone());
    let excluded =
        json!({ "metadata": { "labels": { "node.kubernetes.io/exclude-from-external-load-balancers": "" } } });
    nodes.patch("n1", &PatchParams::default(), &Patch::Merge(excluded)).await?;
    nodes.delete("n2", &DeleteParams::default()).await?;
    super::secure_port::anonymous_is_refused(lab).await?;
    wait_for("events were told and machines shown", SOON, async || {
        let all = lab.control_plane().requests_by_cairn()?;
        let of = |resource: &str| all.iter().filter(|request| request.resource == resource).count();
        ensure!(
            of("events") >= 3
                && of("machines/status") >= 2
                && of("advertisements/status") >= 1
                && of("bgppeers/status") >= 1,
            "{} events, {} machines",
            of("events"),
            of("machines/status")
        );
        let is_change = |request: &&ApiRequest| request.resource == "noderoutes" && request.verb == "patch";
        ensure!(all.iter().any(|request| is_change(&request)), "no NodeRoute was changed");
        let surplus = surplus(lab).await?;
        ensure!(surplus.is_empty(), "granted and never used: {surplus:#?}");
        Ok(())
    })
    .await?;
    let status = lab.controller()?.terminate(SOON).await?;
    ensure!(status.success(), "the controller ended with {status}");
    Ok(())
}

async fn judge(lab: &Lab) -> Result<()> {
    let requests = lab.control_plane().requests_by_cairn()?;
    let denied: Vec<_> = requests.iter().filter(|request| request.code == 403).collect();
    ensure!(denied.is_empty(), "denied: {denied:#?}");
    let rights = granted(lab).await?.len();
    ensure!(rights > 20, "only {rights} rights were found");
    Ok(())
}

/// What is granted and was not used so far, nor is for other days.
async fn surplus(lab: &Lab) -> Result<Vec<Right>> {
    let requests = lab.control_plane().requests_by_cairn()?;
    let used: BTreeSet<Right> = requests
        .iter()
        .map(|request| {
            let account = request.user.rsplit(':').next().unwrap_or_default().to_owned();
            (account, request.group.clone(), request.resource.clone(), request.verb.clone())
        })
        .collect();
    let unused = granted(lab).await?.into_keys().filter(|right| !used.contains(right));
    let is_for_other_days = |(_, _, resource, verb): &Right| {
        FOR_OTHER_DAYS.iter().any(|(for_resource, for_verb, _)| for_resource == resource && for_verb == verb)
    };
    Ok(unused.filter(|right| !is_for_other_days(right)).collect())
}

/// An error for a right that is written down and not gone by yet.
async fn rights_are_known(lab: &Lab) -> Result<()> {
    let reviews: Api<SubjectAccessReview> = Api::all(lab.kube().clone());
    for ((account, group, resource, verb), (namespace, name)) in granted(lab).await? {
        let (resource, subresource) = resource.split_once('/').unwrap_or((&resource, ""));
        let asked = json!({ "metadata": {}, "spec": {
            "user": format!("system:serviceaccount:kube-system:{account}"),
            "resourceAttributes": {
                "group": group, "resource": resource, "subresource": subresource, "verb": verb,
                "namespace": namespace, "name": name,
            },
        } });
        let answer = reviews.create(&PostParams::default(), &serde_json::from_value(asked)?).await?;
        let is_known = answer.status.is_some_and(|status| status.allowed);
        ensure!(is_known, "{account}: {verb} {resource} {subresource} {group}");
    }
    Ok(())
}

/// Every right that one of our own roles gives to an account, and where, once.
async fn granted(lab: &Lab) -> Result<BTreeMap<Right, Scope>> {
    let (kube, all) = (lab.kube(), ListParams::default());
    let cluster_roles: Api<ClusterRole> = Api::all(kube.clone());
    let mut rights = BTreeMap::new();
    for binding in Api::<ClusterRoleBinding>::all(kube.clone()).list(&all).await? {
        if is_ours(&binding.role_ref) {
            let role = cluster_roles.get(&binding.role_ref.name).await.context(binding.role_ref.name)?;
            rights.extend(of(binding.subjects, role.rules, None));
        }
    }
    for namespace in ["kube-system", "cairn-pod-cidrs"] {
        let roles: Api<Role> = Api::namespaced(kube.clone(), namespace);
        for binding in Api::<RoleBinding>::namespaced(kube.clone(), namespace).list(&all).await? {
            if is_ours(&binding.role_ref) {
                let role = roles.get(&binding.role_ref.name).await.context(binding.role_ref.name)?;
                rights.extend(of(binding.subjects, role.rules, Some(namespace)));
            }
        }
    }
    Ok(rights)
}

fn is_ours(role: &RoleRef) -> bool {
    role.name.starts_with("cairn-")
}

fn of(
    subjects: Option<Vec<Subject>>,
    rules: Option<Vec<PolicyRule>>,
    namespace: Option<&str>,
) -> BTreeMap<Right, Scope> {
    let mut rights = BTreeMap::new();
    for account in subjects.unwrap_or_default() {
        for rule in rules.iter().flatten() {
            let name = rule.resource_names.iter().flatten().next();
            let scope = (namespace.map(str::to_owned), name.cloned());
            for group in rule.api_groups.iter().flatten() {
                for resource in rule.resources.iter().flatten() {
                    let right = |verb: &String| (account.name.clone(), group.clone(), resource.clone(), verb.clone());
                    rights.extend(rule.verbs.iter().map(right).map(|right| (right, scope.clone())));
                }
            }
        }
    }
    rights
}
