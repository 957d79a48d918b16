//! Services of type LoadBalancer in a namespace of their own, made and deleted many at a time.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Namespace, Service};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, PostParams, WatchParams},
};
use serde_json::json;

use super::{
    crowd::each,
    harness::{Lab, wait_for},
    product::SETTLED_WITHIN,
    watches::{Events, watch},
};

pub(crate) const NAMESPACE: &str = "bench";
/// As many writes as the controller has on their way at most.
pub(crate) const WORKERS: usize = 50;
/// Those that many clients make at once.
const CREATING_CLIENTS: usize = 32;

pub(crate) async fn prepare(lab: &Lab) -> Result<()> {
    let namespace = serde_json::from_value(json!({ "metadata": { "name": NAMESPACE } }))?;
    Api::<Namespace>::all(lab.kube().clone()).create(&PostParams::default(), &namespace).await?;
    Ok(())
}

pub(crate) fn services(lab: &Lab) -> Api<Service> {
    Api::namespaced(lab.kube().clone(), NAMESPACE)
}

pub(crate) fn service(name: &str, class: Option<&str>) -> Result<Service> {
    let object = json!({
        "metadata": { "name": name },
        "spec": {
            "type": "LoadBalancer",
            "loadBalancerClass": class,
            // There are fewer node ports than Services here.
            "allocateLoadBalancerNodePorts": false,
            "ports": [{ "port": 80 }],
        },
    });
    Ok(serde_json::from_value(object)?)
}

/// Makes `count` of them, which nobody serves yet.
pub(crate) async fn create(lab: &Lab, stem: &'static str, class: Option<&'static str>, count: usize) -> Result<()> {
    let api = services(lab);
    each(CREATING_CLIENTS, count, move |number| {
        let api = api.clone();
        async move {
            let service = service(&format!("{stem}-{number:05}"), class)?;
            api.create(&PostParams::default(), &service).await.context("create a Service")?;
            anyhow::Ok(())
        }
    })
    .await
}

/// Deletes Services until only so many are left, and waits until they are gone.
pub(crate) async fn delete_all_but(lab: &Lab, left: usize) -> Result<()> {
    let api = services(lab);
    let names: Vec<_> = names(&api).await?.into_iter().skip(left).collect();
    let count = names.len();
    let deleting = api.clone();
    each(WORKERS, count, move |number| {
        let (api, name) = (deleting.clone(), names[number - 1].clone());
        async move {
            api.delete(&name, &DeleteParams::default()).await?;
            anyhow::Ok(())
        }
    })
    .await?;
    wait_for("the deleted Services are gone", SETTLED_WITHIN, async || {
        let now = names_of(&api).await?.len();
        ensure!(now == left, "{now} are there");
        Ok(())
    })
    .await
}

/// Everything that happens to them from now on.
pub(crate) async fn watch_all(lab: &Lab) -> Result<Events<Service>> {
    watch(&services(lab), WatchParams::default()).await
}

pub(crate) fn is_served(service: &Service) -> bool {
    let balancer = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    balancer.and_then(|balancer| balancer.ingress.as_ref()).is_some_and(|ingress| !ingress.is_empty())
}

async fn names(api: &Api<Service>) -> Result<Vec<String>> {
    let mut names = names_of(api).await?;
    names.sort();
    Ok(names)
}

async fn names_of(api: &Api<Service>) -> Result<Vec<String>> {
    Ok(api.list_metadata(&ListParams::default()).await?.items.into_iter().map(|item| item.name_any()).collect())
}
