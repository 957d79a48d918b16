//! A cluster in which nothing happens is left alone.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::{SOON, cluster_with_cairn};
use crate::harness::{
    Lab,
    enclosure::inside,
    service::{ExternalTrafficPolicy, Service},
    wait::stays,
    wait_for,
};

/// Longer than agents keep back a report that nobody waits for.
const SETTLED_AFTER: Duration = Duration::from_secs(12);
/// Longer than the period in which agents may report.
const WATCHED: Duration = Duration::from_secs(15);

#[test]
fn an_idle_cluster_sees_no_writes_but_lease_renewals() {
    inside(async || {
        let mut lab = cluster_with_cairn().await?;
        lab.start_pod("n1", "web-1", "web").await?;
        let web = Service::create(lab.kube(), "web", ExternalTrafficPolicy::Cluster).await?;
        web.wait_for_addresses(SOON).await?;
        wait_for("Cairn has settled", 3 * SOON, async || no_write_for(&lab, SETTLED_AFTER).await).await?;
        no_write_for(&lab, WATCHED).await
    });
}

async fn no_write_for(lab: &Lab, period: Duration) -> Result<()> {
    let writes = || -> Result<Vec<_>> {
        let all = lab.control_plane().writes_by_cairn()?;
        Ok(all.into_iter().filter(|write| write.resource != "leases").collect())
    };
    let before = writes()?.len();
    stays("Cairn writes nothing", period, async || {
        let all = writes()?;
        let new = all.get(before..).unwrap_or_default();
        ensure!(new.is_empty(), "{new:?}");
        Ok(())
    })
    .await
}
