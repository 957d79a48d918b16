//! The guard beside the real kube-proxy, without the rest of Cairn: each keeps to its own packets.

use std::{net::IpAddr, sync::Arc};

use anyhow::{Context, Result, ensure};
use cairn::kernel::guard::{self, GuardState, GuardStatus};
use cairn::model::{Guarded, PortProtocol, ServedPort};
use tokio::sync::watch;

use super::SOON;
use crate::harness::{
    Lab, RouterKind, address,
    client::Unanswered,
    enclosure::inside,
    namespace::Namespace,
    service::{self, ExternalTrafficPolicy, Service},
    wait_for,
};

const UNSERVED: u16 = 81;

#[test]
fn kube_proxy_serves_drops_and_refuses_as_before_and_the_guard_takes_the_rest() {
    inside(async || {
        let mut lab = Lab::builder().nodes(2).router(RouterKind::Bird).client().start().await?;
        for node in lab.nodes() {
            node.initialize_by_hand().await?;
        }
        lab.route_pods_by_hand().await?;
        lab.start_pod("n1", "web-1", "web").await?;
        lab.start_pod("n1", "local-1", "local").await?;
        lab.start_proxies().await?;
        // All come to n2, which has no pod.
        let everywhere = serve(&lab, "web", ExternalTrafficPolicy::Cluster, 10).await?;
        let elsewhere = serve(&lab, "local", ExternalTrafficPolicy::Local, 11).await?;
        let nowhere = serve(&lab, "nothing", ExternalTrafficPolicy::Cluster, 12).await?;
        let addresses = [everywhere, elsewhere, nowhere].concat();
        let port = |address| ServedPort { address, protocol: PortProtocol::Tcp, port: service::PORT };
        let served = addresses.iter().copied().map(port).collect();
        let guarded = Guarded { announced: addresses.iter().copied().collect(), served, ..Guarded::default() };
        let (_wish, mut status) = stand_guard(lab.node("n2")?.namespace(), guarded)?;
        status.wait_for(|status| status.state == GuardState::Standing).await?;

        for address in everywhere {
            answers(&lab, address, service::PORT, |answer| answer.is_ok()).await?;
        }
        for address in elsewhere {
            answers(&lab, address, service::PORT, |answer| *answer == Err(Unanswered::TimedOut)).await?;
        }
        for address in nowhere {
            answers(&lab, address, service::PORT, |answer| *answer == Err(Unanswered::Refused)).await?;
        }
        for address in addresses {
            answers(&lab, address, UNSERVED, |answer| *answer == Err(Unanswered::Refused)).await?;
        }
        Ok(())
    });
}

/// A Service with addresses that the router sends to n2.
async fn serve(lab: &Lab, name: &str, policy: ExternalTrafficPolicy, last: u8) -> Result<[IpAddr; 2]> {
    let addresses = [format!("10.60.0.{last}").parse()?, format!("fd60::{last}").parse()?];
    Service::create(lab.kube(), name, policy).await?.give_addresses_by_hand(addresses).await?;
    for (address, via) in addresses.iter().zip(address::node(2).both()) {
        let prefix = service::host_prefix(*address);
        lab.router()?.namespace().ip(&format!("route add {prefix} via {via}")).await?;
    }
    Ok(addresses)
}

type Wish = watch::Sender<Option<Arc<Guarded>>>;

/// Runs the guard in a node's namespace until the returned wish is dropped.
fn stand_guard(node: &Namespace, guarded: Guarded) -> Result<(Wish, watch::Receiver<GuardStatus>)> {
    let (wish, wished) = watch::channel(Some(Arc::new(guarded)));
    let (told, status) = watch::channel(GuardStatus::default());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("no runtime")?;
    node.spawn_thread(move || runtime.block_on(guard::run(wished, told)))?;
    Ok((wish, status))
}

async fn answers(
    lab: &Lab,
    address: IpAddr,
    port: u16,
    is_right: impl Fn(&Result<String, Unanswered>) -> bool,
) -> Result<()> {
    wait_for(&format!("{address} port {port} is as it should be"), SOON, async || {
        let answer = lab.client()?.http_get(address, port).await?;
        ensure!(is_right(&answer), "{answer:?}");
        Ok(())
    })
    .await
}
