//! One write to one object.

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::jiff::Timestamp;
use kube::{Api, Client};
use serde_json::{Value, json};

use super::observe;
use super::plan::Action;
use super::pool_status::ObservedPool;
use crate::api::{AddressPool, AddressPoolStatus};
use crate::cluster::lean::Lean;
use crate::cluster::patch::{self, WriteError};
use crate::cluster::views;
use crate::model::claim::ALLOCATION;
use crate::model::views::ServiceView;
use crate::model::{PoolName, ServiceKey};

/// Carries out an action; answers with the Service as it is afterwards.
pub(super) async fn service(client: &Client, key: &ServiceKey, action: &Action) -> Result<ServiceView, WriteError> {
    let api: Api<Lean<Service>> = Api::namespaced(client.clone(), key.namespace());
    // Finalizers go through the status as well, so that the right to change Services is not needed.
    let written = patch::merge_status(&api, key.name(), &service_body(action)).await?;
    views::service(&written.0).ok_or(WriteError::Gone)
}

/// Writes a Service's conditions, all of them; answers with the Service as it is afterwards.
pub(super) async fn conditions(
    client: &Client,
    key: &ServiceKey,
    version: &str,
    list: &Value,
) -> Result<ServiceView, WriteError> {
    let api: Api<Lean<Service>> = Api::namespaced(client.clone(), key.namespace());
    let body = json!({ "metadata": { "resourceVersion": version }, "status": { "conditions": list } });
    let written = patch::merge_status(&api, key.name(), &body).await?;
    views::service(&written.0).ok_or(WriteError::Gone)
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
    if let Some(others) = &action.conditions {
        body["status"]["conditions"] = if others.is_empty() { Value::Null } else { json!(others) };
    }
    if action.ingress.is_empty() {
        body["metadata"]["annotations"][ALLOCATION] = Value::Null;
    } else if let Some(term) = action.term {
        body["metadata"]["annotations"][ALLOCATION] = json!(term);
    }
    body
}

/// Writes a pool's status; answers with the pool as it is afterwards.
pub(super) async fn pool(
    client: &Client,
    name: &PoolName,
    version: &str,
    status: &AddressPoolStatus,
) -> Result<ObservedPool, WriteError> {
    let api: Api<AddressPool> = Api::all(client.clone());
    let written = patch::merge_status(&api, name.as_str(), &pool_body(version, status)).await?;
    observe::pool(&written).ok_or(WriteError::Gone)
}

/// A merge patch leaves alone what it does not name: what is empty has to be taken away.
fn pool_body(version: &str, status: &AddressPoolStatus) -> Value {
    let mut said = json!(status);
    if let Some(fields) = said.as_object_mut() {
        for field in ["ipv4", "ipv6", "blocks", "draining", "cooling"] {
            fields.entry(field).or_insert(Value::Null);
        }
    }
    json!({ "metadata": { "resourceVersion": version }, "status": said })
}

/// Seconds since 1970 as the API writes times.
pub(super) fn time(seconds: i64) -> String {
    Timestamp::from_second(seconds).unwrap_or_default().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::model::Term;

    fn action(finalizers: Option<&[&str]>, ips: &[&str]) -> Action {
        Action {
            resource_version: "7".to_owned(),
            finalizers: finalizers.map(|all| all.iter().map(ToString::to_string).collect()),
            ingress: ips.iter().map(|ip| ip.parse().expect("an address")).collect(),
            frees: BTreeSet::new(),
            conditions: None,
            term: None,
            note: None,
        }
    }

    #[test]
    fn one_write_puts_finalizer_and_addresses_in_place() {
        assert_eq!(
            service_body(&Action {
                term: Some(Term { lease: 4, number: 117 }),
                ..action(Some(&["a", "b"]), &["10.60.0.1", "fd60::1"])
            }),
            json!({
                "metadata": {
                    "resourceVersion": "7",
                    "finalizers": ["a", "b"],
                    "annotations": { "cairn.dev/allocation": "4.117" },
                },
                "status": { "loadBalancer": { "ingress": [
                    { "ip": "10.60.0.1", "ipMode": "VIP" },
                    { "ip": "fd60::1", "ipMode": "VIP" },
                ] } },
            })
        );
    }

    #[test]
    fn one_write_takes_all_of_it_away() {
        assert_eq!(
            service_body(&Action { conditions: Some(Vec::new()), ..action(Some(&[]), &[]) }),
            json!({
                "metadata": {
                    "resourceVersion": "7",
                    "finalizers": [],
                    "annotations": { "cairn.dev/allocation": null },
                },
                "status": { "loadBalancer": { "ingress": null }, "conditions": null },
            })
        );
    }

    #[test]
    fn what_a_pool_no_longer_says_is_taken_away() {
        let status = AddressPoolStatus { blocks: vec!["10.60.0.0/24".to_owned()], ..AddressPoolStatus::default() };
        assert_eq!(
            pool_body("3", &status),
            json!({
                "metadata": { "resourceVersion": "3" },
                "status": {
                    "conditions": [], "ipv4": null, "ipv6": null,
                    "blocks": ["10.60.0.0/24"], "draining": null, "cooling": null,
                },
            })
        );
        assert_eq!(time(1_800_000_000), "2027-01-15T08:00:00Z");
    }
}
