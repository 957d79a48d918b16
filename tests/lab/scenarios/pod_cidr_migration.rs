//! Leader migration of the pod CIDRs: from an older kube-controller-manager to Cairn and back, while Nodes join.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Result, ensure};
use kube::Client;

use super::{
    ipam,
    migration::{Holder, Migration},
};
use crate::harness::{Lab, enclosure::inside, kubelet, lab::PodCidrs, wait::stays, wait_for};

/// More than a Lease of six seconds, and what a candidate waits after it.
const SOON: Duration = Duration::from_secs(40);
const A_WHILE: Duration = Duration::from_secs(3);
/// Nodes of one hand-over, and how far apart they join: longer than the hand-over takes.
const JOIN: usize = 30;
const APART: Duration = Duration::from_millis(500);

#[test]
fn pod_cidrs_move_from_kube_controller_manager_to_cairn_and_back_while_nodes_join() {
    inside(async || {
        // Today's kube-controller-manager runs beside them, and gives out none.
        let mut lab = Lab::builder().pod_cidrs(PodCidrs::Others).start().await?;
        ipam::install(&mut lab).await?;
        lab.cairn()?.allow_leader_migration(lab.control_plane()).await?;
        let flags = ["--allocate-node-cidrs", &ipam::cluster_cidr(), &ipam::service_range()];
        let migration = Migration::of(&["node-ipam-controller"], &flags)?;

        let partner = migration.spawn_partner(&lab)?;
        migration.wait_until(&lab, "the partner holds the second Lease", Holder::Partner).await?;
        join(lab.kube().clone(), "a", 3).await?;
        all_have_pod_cidrs(&lab, 3).await?;

        migration.spawn_cairn(&mut lab)?;
        join(lab.kube().clone(), "b", 3).await?;
        all_have_pod_cidrs(&lab, 6).await?;
        stays("Cairn waits for the second Lease", A_WHILE, async || {
            ensure!(ipam::claims(&lab).await?.is_empty(), "claims: {:?}", ipam::claims(&lab).await?);
            migration.is_held_by(&lab, Holder::Partner).await
        })
        .await?;

        let (joined, moved) = tokio::join!(join(lab.kube().clone(), "c", JOIN), async {
            partner.signal(rustix::process::Signal::TERM)?;
            migration.wait_until(&lab, "Cairn holds the second Lease", Holder::Cairn).await
        });
        joined.and(moved)?;
        let by_partner = all_have_pod_cidrs(&lab, 6 + JOIN).await?;
        let claims = ipam::claims(&lab).await?.len();
        ensure!(claims > 0, "Cairn gave out nothing");

        let _partner = migration.spawn_partner(&lab)?;
        let kube = lab.kube().clone();
        let (joined, ended) = tokio::join!(join(kube, "d", JOIN), lab.controller()?.terminate(SOON));
        let (_, status) = (joined?, ended?);
        ensure!(status.success(), "Cairn ended with {status}");
        migration.wait_until(&lab, "the partner holds the second Lease", Holder::Partner).await?;
        join(lab.kube().clone(), "e", 3).await?;
        let all = all_have_pod_cidrs(&lab, 9 + 2 * JOIN).await?;
        for (name, cidrs) in by_partner {
            ensure!(all.get(&name) == Some(&cidrs), "{name} had {cidrs:?} and has {:?}", all.get(&name));
        }
        Ok(())
    });
}

/// Registers so many Nodes, one after the other.
async fn join(client: Client, stem: &str, count: usize) -> Result<()> {
    let mut ticks = tokio::time::interval(APART);
    for number in 0..count {
        ticks.tick().await;
        kubelet::register(&client, &format!("{stem}{number}")).await?;
    }
    Ok(())
}

/// Waits until so many Nodes have pod CIDRs of both families, each its own.
async fn all_have_pod_cidrs(lab: &Lab, count: usize) -> Result<BTreeMap<String, Vec<String>>> {
    let all = wait_for(&format!("{count} Nodes have pod CIDRs"), SOON, async || {
        let all = ipam::with_pod_cidrs(lab).await?;
        ensure!(all.len() == count, "{} have", all.len());
        Ok(all)
    })
    .await?;
    let mut owners = BTreeMap::new();
    for (name, cidrs) in &all {
        ensure!(cidrs.len() == 2, "{name} has {cidrs:?}");
        for cidr in cidrs {
            let other = owners.insert(cidr, name);
            ensure!(other.is_none(), "{cidr} is on {other:?} and on {name}");
        }
    }
    Ok(all)
}
