//! Writes what the plan says, some objects at a time.

use std::collections::BTreeMap;

use futures_util::FutureExt;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::jiff::Timestamp;
use kube::{Api, Client};
use serde_json::{Value, json};

use super::observe;
use super::plan::{Action, Observed, ObservedPool, PoolCondition};
use crate::api::{AddressPool, Condition, ConditionType};
use crate::cluster::patch::{self, WriteError, side_by_side};
use crate::cluster::views;
use crate::model::views::ServiceView;
use crate::model::{PoolName, ServiceKey};

/// Carries out the actions; answers with each Service as it is afterwards.
pub(super) async fn services(
    client: &Client,
    actions: &BTreeMap<ServiceKey, Action>,
) -> Vec<(ServiceKey, Result<ServiceView, WriteError>)> {
    let writes = actions.iter().map(|(key, action)| {
        async move {
            let api: Api<Service> = Api::namespaced(client.clone(), key.namespace());
            // Finalizers go through the status as well, so that the right to change Services is not needed.
            let written = patch::merge_status(&api, key.name(), &service_body(action)).await;
            let view = written.and_then(|service| views::service(&service).ok_or(WriteError::Gone));
            (key.clone(), view)
        }
        .boxed()
    });
    side_by_side(writes.collect()).await
}

fn service_body(action: &Action) -> Value {
    let ingress: Vec<_> = action.ingress.iter().map(|ip| json!({ "ip": ip, "ipMode": "VIP" })).collect();
    let ingress = if ingress.is_empty() { Value::Null } else { ingress.into() };
    let mut body = json!({
        "metadata": { "resourceVersion": action.resource_version },
        "status": { "loadBalancer": { "ingress": ingress } },
    });
    if let Some(finalizers) = &action.finalizers {
        body["metadata"]["finalizers"] = json!(finalizers);
    }
    body
}

/// Writes the conditions; answers with each pool as it is afterwards.
pub(super) async fn pools(
    client: &Client,
    observed: &Observed,
    conditions: &BTreeMap<PoolName, PoolCondition>,
) -> Vec<(PoolName, Result<ObservedPool, WriteError>)> {
    let api: Api<AddressPool> = Api::all(client.clone());
    let writes = conditions.iter().filter_map(|(name, condition)| {
        let version = &observed.pools.get(name)?.resource_version;
        let (api, body) = (&api, pool_body(version, condition, Timestamp::now()));
        Some(
            async move {
                let written = patch::merge_status(api, name.as_str(), &body).await;
                (name.clone(), written.and_then(|pool| observe::pool(&pool).ok_or(WriteError::Gone)))
            }
            .boxed(),
        )
    });
    side_by_side(writes.collect()).await
}

fn pool_body(version: &str, condition: &PoolCondition, now: Timestamp) -> Value {
    let PoolCondition { status, reason, message, observed_generation, since } = condition.clone();
    let condition = Condition {
        kind: ConditionType::Ready,
        status,
        reason,
        message,
        last_transition_time: since.unwrap_or_else(|| now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()),
        observed_generation,
    };
    json!({ "metadata": { "resourceVersion": version }, "status": { "conditions": [condition] } })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{ConditionReason, ConditionStatus};

    fn action(finalizers: Option<&[&str]>, ips: &[&str]) -> Action {
        Action {
            resource_version: "7".to_owned(),
            finalizers: finalizers.map(|all| all.iter().map(ToString::to_string).collect()),
            ingress: ips.iter().map(|ip| ip.parse().expect("an address")).collect(),
            note: None,
        }
    }

    #[test]
    fn one_write_puts_finalizer_and_addresses_in_place() {
        assert_eq!(
            service_body(&action(Some(&["a", "b"]), &["10.60.0.1", "fd60::1"])),
            json!({
                "metadata": { "resourceVersion": "7", "finalizers": ["a", "b"] },
                "status": { "loadBalancer": { "ingress": [
                    { "ip": "10.60.0.1", "ipMode": "VIP" },
                    { "ip": "fd60::1", "ipMode": "VIP" },
                ] } },
            })
        );
    }

    #[test]
    fn one_write_takes_both_away() {
        assert_eq!(
            service_body(&action(Some(&[]), &[])),
            json!({
                "metadata": { "resourceVersion": "7", "finalizers": [] },
                "status": { "loadBalancer": { "ingress": null } },
            })
        );
    }

    #[test]
    fn a_condition_keeps_the_time_of_its_status() {
        let condition = PoolCondition {
            status: ConditionStatus::True,
            reason: ConditionReason::Valid,
            message: "fine".to_owned(),
            observed_generation: Some(2),
            since: None,
        };
        let now = Timestamp::from_second(1_800_000_000).expect("a time");
        let time = |condition: &PoolCondition| {
            pool_body("3", condition, now)["status"]["conditions"][0]["lastTransitionTime"].clone()
        };
        assert_eq!(time(&condition), "2027-01-15T08:00:00Z");
        let since = Some("2026-01-01T00:00:00Z".to_owned());
        assert_eq!(time(&PoolCondition { since, ..condition }), "2026-01-01T00:00:00Z");
    }
}
