//! What the cluster has, listed once, for the verbs that explain it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use clap::ArgAction;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use k8s_openapi::jiff::Timestamp;
use kube::api::ListParams;
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;

use super::controller::flags::MAIN_LEASE;
use super::controller::value::truth;
use super::overview::Seen;
use crate::api::{AddressPool, Advertisement, BgpPeer, Condition, ConditionType, Machine, NodeReport, NodeRoute};
use crate::cluster::views::SERVICE_NAME;
use crate::cluster::{client, clock, views};
use crate::config;
use crate::config::pool_view::PoolView;
use crate::config::selector::Labels;
use crate::model::{Scope, ServiceKey};
use crate::service;
use crate::service::allocator::Now;
use crate::service::announced::{Concerned, EntryNode};
use crate::service::explain::Surroundings;
use crate::service::plan::Observed;

/// Where the Lease is whose holder leads, unless flags name another.
const LEASE_NAMESPACE: &str = "kube-system";
/// The conditions of what people write, those that say most first.
const ALL: [ConditionType; 4] =
    [ConditionType::Conflict, ConditionType::ResolvedRefs, ConditionType::Draining, ConditionType::Ready];
/// The group of Cairn's own kinds.
const GROUP: &str = "cairn.dev";
/// So many objects come with one answer.
const PAGE: u32 = 500;

/// How to reach the API server.
#[derive(Debug, clap::Args)]
pub(super) struct Server {
    /// How to reach the API server; without it, as ~/.kube/config says, or as the pod's ServiceAccount.
    #[arg(long, env = "KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The controller runs with this flag: Services without spec.loadBalancerClass are another one's.
    #[arg(long, value_name = "BOOL", default_value = "false", value_parser = truth,
          num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    load_balancer_class_only: bool,
}

impl Server {
    /// Lists everything that decides about addresses.
    pub(super) fn observe(self) -> anyhow::Result<Observed> {
        let scope = Scope::of_flag(self.load_balancer_class_only);
        self.ask(async |client| observe(client, scope).await)
    }

    /// Lists everything that decides about addresses, and about the announcements of one Service.
    pub(super) fn observe_service(self, key: &ServiceKey) -> anyhow::Result<(Observed, Surroundings)> {
        let scope = Scope::of_flag(self.load_balancer_class_only);
        self.ask(async |client| {
            let observed = observe(client, scope).await?;
            let around = surroundings(client, &observed, key).await?;
            Ok((observed, around))
        })
    }

    /// Lists what a look at the whole of it is made of.
    pub(super) fn see(self) -> anyhow::Result<Seen> {
        let scope = Scope::of_flag(self.load_balancer_class_only);
        self.ask(async |client| see(client, scope).await)
    }

    fn ask<T>(self, questions: impl AsyncFnOnce(&Client) -> anyhow::Result<T>) -> anyhow::Result<T> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let home = std::env::home_dir().map(|home| home.join(".kube/config")).filter(|file| file.exists());
            let client = client::connect(self.kubeconfig.or(home).as_deref()).await?;
            questions(&client).await
        })
    }
}

/// The time, as the planners take it.
pub(super) fn now() -> Now {
    Now { moment: clock::now(), unix_seconds: Timestamp::now().as_second() }
}

/// Seconds since 1970 as the API writes times.
pub(super) fn time(seconds: i64) -> String {
    Timestamp::from_second(seconds).unwrap_or_default().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

async fn observe(client: &Client, scope: Scope) -> anyhow::Result<Observed> {
    let services: Vec<Service> = list(&Api::all(client.clone())).await?;
    let pools: Vec<AddressPool> = list(&Api::all(client.clone())).await?;
    let nodes: Vec<Node> = list(&Api::all(client.clone())).await?;
    let namespaces: Vec<Namespace> = list(&Api::all(client.clone())).await?;
    let cidrs: Vec<ServiceCIDR> = match list(&Api::all(client.clone())).await {
        // An API server before 1.33 has no such kind.
        Err(error) if is_missing(&error) => Vec::new(),
        cidrs => cidrs?,
    };
    Ok(Observed {
        scope,
        services: services.iter().filter_map(views::service).map(|view| (view.key.clone(), Arc::new(view))).collect(),
        pools: pools
            .iter()
            .filter_map(|pool| Some((pool.name_any().parse().ok()?, Arc::new(service::pool(pool)?))))
            .collect(),
        nodes: nodes.iter().filter_map(views::node).map(|view| (view.name.clone(), Arc::new(view))).collect(),
        namespaces: namespaces
            .iter()
            .filter_map(|namespace| Some((namespace.name_any(), views::namespace(namespace)?)))
            .collect(),
        cidrs: cidrs
            .iter()
            .flat_map(|cidr| {
                let what = service::of_service_cidr(&cidr.name_any());
                views::service_cidr(cidr).into_iter().flatten().map(move |prefix| (prefix, what.clone()))
            })
            .collect(),
    })
}

async fn see(client: &Client, scope: Scope) -> anyhow::Result<Seen> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), LEASE_NAMESPACE);
    let lease = leases.get_opt(MAIN_LEASE).await.with_context(|| format!("cannot get Lease {MAIN_LEASE}"))?;
    let nodes: Vec<Node> = list(&Api::all(client.clone())).await?;
    let reports: Vec<NodeReport> = list(&Api::all(client.clone())).await?;
    let services: Vec<Service> = list(&Api::all(client.clone())).await?;
    let machines: Vec<Machine> = list(&Api::all(client.clone())).await?;
    let pools: Vec<AddressPool> = list(&Api::all(client.clone())).await?;
    let advertisements: Vec<Advertisement> = list(&Api::all(client.clone())).await?;
    let peers: Vec<BgpPeer> = list(&Api::all(client.clone())).await?;
    Ok(Seen {
        leader: lease.and_then(|lease| holder(&lease, Timestamp::now().as_second())),
        nodes: nodes.iter().filter_map(views::node).collect(),
        reports: reports
            .into_iter()
            .filter_map(|report| Some((report.name_any().parse().ok()?, report.status?)))
            .collect(),
        services: services.iter().filter_map(views::service).collect(),
        scope,
        objects: BTreeMap::from([
            (
                "machines",
                faults(&machines, &[ConditionType::Ready], |machine| Some(&machine.status.as_ref()?.conditions)),
            ),
            ("pools", faults(&pools, &ALL, |pool| Some(&pool.status.as_ref()?.conditions))),
            ("advertisements", faults(&advertisements, &ALL, |one| Some(&one.status.as_ref()?.conditions))),
            ("peers", faults(&peers, &ALL, |peer| Some(&peer.status.as_ref()?.conditions))),
        ]),
    })
}

/// Who holds a Lease that has not run out.
fn holder(lease: &Lease, now_seconds: i64) -> Option<String> {
    let spec = lease.spec.as_ref()?;
    let ends = spec.renew_time.as_ref()?.0.as_second() + i64::from(spec.lease_duration_seconds?);
    spec.holder_identity.clone().filter(|holder| !holder.is_empty() && now_seconds <= ends)
}

/// The names of objects, and what of these conditions is not as it should be: the first.
fn faults<K: ResourceExt>(
    objects: &[K],
    of: &[ConditionType],
    conditions: impl Fn(&K) -> Option<&Vec<Condition>>,
) -> Vec<(String, Option<String>)> {
    let fault = |object: &K| {
        let all = conditions(object).map(Vec::as_slice).unwrap_or_default();
        fault(all, of, object.meta().generation)
    };
    objects.iter().map(|object| (object.name_any(), fault(object))).collect()
}

/// What of these conditions of an object of this generation is not as it should be: the first.
fn fault(all: &[Condition], of: &[ConditionType], generation: Option<i64>) -> Option<String> {
    let wrong = of.iter().find_map(|kind| all.iter().find(|one| one.kind == *kind && !one.is_well()));
    if let Some(Condition { kind, status, reason, message, .. }) = wrong {
        return Some(format!("{kind:?} {status:?}, {reason:?}: {message}"));
    }
    let is_of_now = |one: &Condition| one.observed_generation.is_none_or(|of| generation.is_none_or(|now| of >= now));
    if all.is_empty() {
        return Some("its status does not say yet how it stands: a controller that leads writes that".to_owned());
    }
    (!all.iter().all(is_of_now)).then(|| "its status speaks of what it was before its last change".to_owned())
}

/// What is known of all nodes, and the endpoints of one Service.
async fn surroundings(client: &Client, observed: &Observed, key: &ServiceKey) -> anyhow::Result<Surroundings> {
    let routes: Vec<NodeRoute> = list(&Api::all(client.clone())).await?;
    let reports: Vec<NodeReport> = list(&Api::all(client.clone())).await?;
    let own = ListParams::default().labels(&format!("{SERVICE_NAME}={}", key.name()));
    let slices: Vec<EndpointSlice> = list_some(&Api::namespaced(client.clone(), key.namespace()), own).await?;
    let advertisements: Vec<Advertisement> = list(&Api::all(client.clone())).await?;
    let pools: Vec<AddressPool> = list(&Api::all(client.clone())).await?;
    let peers: Vec<BgpPeer> = list(&Api::all(client.clone())).await?;
    let mut around = Surroundings {
        flags: routes
            .iter()
            .filter_map(|route| Some((route.name_any().parse().ok()?, service::entry(route)?)))
            .collect(),
        reports: reports
            .into_iter()
            .filter_map(|report| Some((report.name_any().parse().ok()?, report.status?)))
            .collect(),
        ..Surroundings::default()
    };
    let Surroundings { entrances, flags, reports } = &mut around;
    let mut concerned = Concerned::default();
    entrances.set_selection(
        &by_name(&advertisements, config::Advertisement::of),
        &by_name(&pools, PoolView::of),
        &by_name(&peers, service::peer),
        |_| Labels::new(),
        &mut concerned,
    );
    for (name, flag) in flags {
        let node = observed.nodes.get(name).map(|node| &**node);
        let labels = node.map(|node| node.labels.clone()).unwrap_or_default();
        let known = EntryNode::of(Some(*flag), node, reports.get(name));
        entrances.set_node(name.clone(), known, &labels, &mut concerned);
    }
    for slice in slices {
        entrances.set_slice(&slice.name_any(), service::endpoints(&slice).map(Arc::new), &mut concerned);
    }
    Ok(around)
}

/// The views of objects, by their names.
fn by_name<K: Resource, V>(objects: &[K], view: impl Fn(&K) -> Option<V>) -> BTreeMap<String, Arc<V>> {
    objects.iter().filter_map(|object| Some((object.name_any(), Arc::new(view(object)?)))).collect()
}

fn cannot_list(plural: &str, group: &str, error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if status.code == 404 && group == GROUP => {
            format!("cannot list {plural}: the cluster knows them once manifests/crds/ is applied")
        }
        _ => format!("cannot list {plural}"),
    }
}

fn is_missing(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(kube::Error::Api(status)) if status.code == 404)
}

/// Every object of a kind, page by page.
async fn list<K>(api: &Api<K>) -> anyhow::Result<Vec<K>>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    list_some(api, ListParams::default()).await
}

/// Every object of a kind that is asked for, page by page.
async fn list_some<K>(api: &Api<K>, which: ListParams) -> anyhow::Result<Vec<K>>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let mut all = Vec::new();
    let mut page = which.limit(PAGE);
    loop {
        let answer = api.list(&page).await.map_err(|error| {
            let what = cannot_list(&K::plural(&()), &K::group(&()), &error);
            anyhow::Error::new(error).context(what)
        })?;
        all.extend(answer.items);
        match answer.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return Ok(all),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{ConditionReason, ConditionStatus};

    #[test]
    fn what_a_status_does_not_say_is_told_as_well() {
        let condition = |kind, status, reason| Condition {
            kind,
            status,
            reason,
            message: "why".to_owned(),
            last_transition_time: String::new(),
            observed_generation: Some(3),
        };
        let ready = || condition(ConditionType::Ready, ConditionStatus::True, ConditionReason::Valid);
        let wrong = condition(ConditionType::Conflict, ConditionStatus::True, ConditionReason::RouterTaken);
        for (case, conditions, generation, want) in [
            ("well", vec![ready()], Some(3), None),
            ("of no generation", vec![ready()], None, None),
            ("a conflict", vec![ready(), wrong], Some(4), Some("Conflict True, RouterTaken: why")),
            (
                "none",
                vec![],
                Some(3),
                Some("its status does not say yet how it stands: a controller that leads writes that"),
            ),
            ("of before", vec![ready()], Some(4), Some("its status speaks of what it was before its last change")),
        ] {
            assert_eq!(fault(&conditions, &ALL, generation).as_deref(), want, "{case}");
        }
    }

    #[test]
    fn a_kind_of_ours_that_the_cluster_does_not_know_is_told_with_what_makes_it_known() {
        let refused = |code: u16| {
            let status = kube::core::Status { code, ..kube::core::Status::default() };
            kube::Error::Api(Box::new(status))
        };
        for (group, code, want) in [
            (GROUP, 404, "cannot list pools: the cluster knows them once manifests/crds/ is applied"),
            (GROUP, 403, "cannot list pools"),
            ("networking.k8s.io", 404, "cannot list pools"),
        ] {
            assert_eq!(cannot_list("pools", group, &refused(code)), want, "{group}, {code}");
        }
    }
}
