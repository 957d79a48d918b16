//! The API server goes and comes back; nobody leads for a while.

use anyhow::{Result, ensure};
use cairn::{api::AddressPool, model::Scope};
use k8s_openapi::api::events::v1::Event;
use kube::{
    Api,
    api::{DeleteParams, ListParams},
};
use serde_json::json;

use super::{
    BURST, BURST_SERVED_WITHIN, QUICK_LEASE, SOON, addresses, all_is_sound, comes_to_have, create, create_burst,
    create_pool, delete, gone, has, in_the_middle_of_it, lab, patch, served, wait_for,
};
use crate::harness::{Lab, cairn::answers, enclosure::inside};

#[test]
fn an_api_server_that_restarts_in_a_burst_costs_nobody_an_address() {
    inside(async || {
        let mut lab = lab().await?;
        create_pool(&lab, "public", "10.60.0.0/22").await?;
        create_burst(&lab).await?;
        lab.spawn_controller()?;
        in_the_middle_of_it(&lab).await?;
        lab.control_plane_mut().kill_api_server().await?;
        lab.control_plane_mut().restart_api_server().await?;
        wait_for("all Services have addresses", BURST_SERVED_WITHIN, async || {
            lab.keep_controller()?;
            let served = served(&lab).await?;
            ensure!(served == BURST, "{served} have");
            Ok(())
        })
        .await?;
        all_is_sound(&lab, Scope::Default).await
    });
}

#[test]
fn what_changes_while_nobody_leads_is_seen_to_by_the_next_leader() {
    inside(async || {
        let mut lab = lab().await?;
        create_pool(&lab, "public", "10.60.0.10-10.60.0.15").await?;
        lab.spawn_controller_with(&QUICK_LEASE)?;
        for (name, address) in [
            ("deleted", "10.60.0.10"),
            ("internal", "10.60.0.11"),
            ("moved", "10.60.0.12"),
            ("kept", "10.60.0.13"),
            ("again", "10.60.0.14"),
        ] {
            create(&lab, name, json!({})).await?;
            comes_to_have(&lab, name, &[address]).await?;
        }
        lab.controller()?.kill().await?;
        delete(&lab, "deleted").await?;
        patch(&lab, "internal", json!({ "spec": { "type": "ClusterIP", "allocateLoadBalancerNodePorts": null } }))
            .await?;
        patch(&lab, "moved", json!({ "metadata": { "annotations": { "cairn.dev/load-balancer-ips": "10.60.0.15" } } }))
            .await?;
        // Gone at once: somebody took the finalizer away, and made it anew.
        delete(&lab, "again").await?;
        patch(&lab, "again", json!({ "metadata": { "finalizers": null } })).await?;
        create(&lab, "again", json!({})).await?;
        create(&lab, "new-1", json!({})).await?;
        create(&lab, "new-2", json!({})).await?;
        // The API server itself empties the status of one that is no load balancer any more.
        ensure!(served(&lab).await? == 3, "{} are served", served(&lab).await?);
        lab.spawn_controller_with(&QUICK_LEASE)?;
        gone(&lab, "deleted").await?;
        comes_to_have(&lab, "moved", &["10.60.0.15"]).await?;
        comes_to_have(&lab, "internal", &[]).await?;
        for name in ["again", "new-1", "new-2"] {
            wait_for(name, SOON, async || {
                let addresses = addresses(&lab, name).await?;
                ensure!(addresses.len() == 1, "Service {name} has {addresses:?}");
                Ok(())
            })
            .await?;
        }
        has(&lab, "kept", &["10.60.0.13"]).await?;
        all_is_sound(&lab, Scope::Default).await
    });
}

#[test]
fn holders_keep_their_addresses_through_restarts_and_what_is_given_up_goes_to_those_that_wait() {
    inside(async || {
        const RESTARTS: usize = 5;
        let mut lab = lab().await?;
        create_pool(&lab, "one", "192.168.10.100/32").await?;
        create_pool(&lab, "two", "192.168.20.200/32").await?;
        lab.spawn_controller()?;
        for (name, address) in [("a", "192.168.10.100"), ("b", "192.168.20.200")] {
            create(&lab, name, json!({})).await?;
            comes_to_have(&lab, name, &[address]).await?;
        }
        create(&lab, "c", json!({})).await?;
        create(&lab, "d", json!({})).await?;
        for _ in 0..RESTARTS {
            lab.controller()?.terminate(SOON).await?;
            let written = writes_to_services(&lab)?;
            lab.spawn_controller()?;
            all_is_sound(&lab, Scope::Default).await?;
            for (name, addresses) in
                [("a", &["192.168.10.100"][..]), ("b", &["192.168.20.200"]), ("c", &[]), ("d", &[])]
            {
                has(&lab, name, addresses).await?;
            }
            ensure!(writes_to_services(&lab)? == written, "a restart wrote to Services that have what they had");
        }
        patch(&lab, "a", json!({ "spec": { "type": "ClusterIP", "allocateLoadBalancerNodePorts": null } })).await?;
        comes_to_have(&lab, "c", &["192.168.10.100"]).await?;
        delete(&lab, "b").await?;
        comes_to_have(&lab, "d", &["192.168.20.200"]).await?;
        // Pods that come and go are no news to whoever does not ask for them; EndpointSlices are
        // asked for what conditions say.
        let asked = lab.control_plane().requests_by_cairn()?;
        let of_pods: Vec<_> =
            asked.iter().filter(|request| ["pods", "endpoints"].contains(&&*request.resource)).collect();
        ensure!(of_pods.is_empty(), "{of_pods:#?}");
        all_is_sound(&lab, Scope::Default).await
    });
}

fn writes_to_services(lab: &Lab) -> Result<usize> {
    let all = lab.control_plane().writes_by_cairn()?;
    // What conditions say is written when it has settled, which no restart waits for.
    let of_addresses = all.iter().filter(|request| !request.is_of_service_conditions());
    Ok(of_addresses.filter(|request| request.resource == "services/status").count())
}

#[test]
fn whoever_has_an_address_of_a_pool_that_is_deleted_keeps_it_and_hears_what_can_be_done() {
    inside(async || {
        let mut lab = lab().await?;
        create_pool(&lab, "public", "10.60.0.10/32").await?;
        lab.spawn_controller()?;
        create(&lab, "web", json!({})).await?;
        comes_to_have(&lab, "web", &["10.60.0.10"]).await?;
        let pools: Api<AddressPool> = Api::all(lab.kube().clone());
        pools.delete("public", &DeleteParams::default()).await?;
        let words = "10.60.0.10 is kept although no AddressPool has it: make one that has it, or annotate the service \
                     with cairn.dev/readdress=true to get another one";
        wait_for("an Event says so", SOON, async || {
            let events = Api::<Event>::default_namespaced(lab.kube().clone()).list(&ListParams::default()).await?;
            let told: Vec<_> = events.items.into_iter().filter_map(|event| event.note).collect();
            ensure!(told.iter().any(|note| note == words), "{told:#?}");
            Ok(())
        })
        .await?;
        has(&lab, "web", &["10.60.0.10"]).await?;
        answers(lab.control_plane(), &["explain", "service", "default/web"], &[words]).await?;
        create(&lab, "late", json!({})).await?;
        // The pool again, and nobody gets the address twice.
        create_pool(&lab, "again", "10.60.0.10/31").await?;
        comes_to_have(&lab, "late", &["10.60.0.11"]).await?;
        all_is_sound(&lab, Scope::Default).await
    });
}
