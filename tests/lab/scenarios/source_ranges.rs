//! `spec.loadBalancerSourceRanges` and its annotation: who is outside gets no answer, by either policy.

use std::net::IpAddr;

use anyhow::{Result, ensure};
use futures_util::future::try_join_all;
use k8s_openapi::api::core::v1::Service as ServiceObject;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::json;

use super::{SOON, cluster_with_cairn};
use crate::harness::{
    Lab,
    client::Unanswered,
    enclosure::inside,
    service::{self, ExternalTrafficPolicy, Service},
    wait_for,
};

const ANNOTATION: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";
/// Where the client is, and where it is not.
const HERE: [&str; 2] = ["10.91.0.0/24", "fd91::/64"];
const ELSEWHERE: [&str; 2] = ["192.0.2.0/24", "2001:db8::/32"];
/// Requests at once: the router spreads them over the nodes.
const REQUESTS: usize = 8;

/// Whether the client gets an answer, over IPv4 and over IPv6.
type Admitted = [bool; 2];

#[test]
fn a_client_outside_the_ranges_gets_no_answer_from_a_service_of_policy_cluster() {
    inside(async || follows_its_ranges(ExternalTrafficPolicy::Cluster).await);
}

#[test]
fn a_client_outside_the_ranges_gets_no_answer_from_a_service_of_policy_local() {
    inside(async || follows_its_ranges(ExternalTrafficPolicy::Local).await);
}

async fn follows_its_ranges(policy: ExternalTrafficPolicy) -> Result<()> {
    let mut lab = cluster_with_cairn().await?;
    lab.start_pod("n1", "web-1", "web").await?;
    lab.start_pod("n2", "web-2", "web").await?;
    let addresses = Service::create(lab.kube(), "web", policy).await?.wait_for_addresses(SOON).await?;
    let services: Api<ServiceObject> = Api::default_namespaced(lab.kube().clone());
    let says = async |field: &[&str], annotation: Option<&str>| {
        let change = json!({
            "metadata": { "annotations": { ANNOTATION: annotation } },
            "spec": { "loadBalancerSourceRanges": field },
        });
        services.patch("web", &PatchParams::default(), &Patch::Merge(change)).await
    };
    admits(&lab, "names no ranges", addresses, [true, true]).await?;
    let annotated = |ranges: [&str; 2]| format!(" {} , {}", ranges[0], ranges[1]);
    let steps: [(&str, &[&str], Option<String>, Admitted); 9] = [
        ("names others in the field", &ELSEWHERE, None, [false, false]),
        ("names the client in the field", &HERE, None, [true, true]),
        ("names others in the annotation", &[], Some(annotated(ELSEWHERE)), [false, false]),
        ("names the client in the annotation", &[], Some(annotated(HERE)), [true, true]),
        ("names the client in the field, which wins", &HERE, Some(annotated(ELSEWHERE)), [true, true]),
        ("names one family in the field", &HERE[..1], None, [true, false]),
        ("names one family in the annotation", &[], Some(HERE[1].to_owned()), [false, true]),
        ("names everyone", &["0.0.0.0/0"], None, [true, true]),
        ("names others once more", &ELSEWHERE, None, [false, false]),
    ];
    for (what, field, annotation, want) in steps {
        says(field, annotation.as_deref()).await?;
        admits(&lab, what, addresses, want).await?;
    }
    for (field, annotation) in [(&["10.91.0.0/33"][..], None), (&[], Some("10.91.0.0/24;fd91::/64"))] {
        let refused = says(field, annotation).await;
        ensure!(refused.is_err(), "the API server takes {field:?} and {annotation:?}");
    }
    admits(&lab, "keeps what it named", addresses, [false, false]).await?;
    says(&[], None).await?;
    admits(&lab, "names no ranges any more", addresses, [true, true]).await?;
    let service = services.get("web").await?;
    let ingress = service.status.and_then(|status| status.load_balancer?.ingress).unwrap_or_default();
    let held: Vec<_> = ingress.iter().filter_map(|entry| entry.ip.as_deref()?.parse::<IpAddr>().ok()).collect();
    ensure!(held == addresses, "it had {addresses:?} and has {held:?}");
    Ok(())
}

/// Waits until all requests over each family have the answer they should.
async fn admits(lab: &Lab, what: &str, addresses: [IpAddr; 2], want: Admitted) -> Result<()> {
    wait_for(&format!("Service web {what}: the client is let in {want:?}"), SOON, async || {
        let client = lab.client()?;
        let both = addresses.into_iter().zip(want).map(async |(address, is_admitted)| {
            let answers = (0..REQUESTS).map(|_| client.http_get(address, service::PORT));
            for answer in try_join_all(answers).await? {
                let is_right = if is_admitted { answer.is_ok() } else { answer == Err(Unanswered::TimedOut) };
                ensure!(is_right, "{address}: {answer:?}");
            }
            Ok(())
        });
        try_join_all(both).await.map(drop)
    })
    .await
}
