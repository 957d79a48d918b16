//! What it costs to say on each Service whether it has its addresses and whether they are announced.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Result, ensure};

use super::{
    harness::{Lab, Stopwatch, control_plane::ApiRequest, wait::wait_every},
    product::Product,
};

/// Longer than what is to be said has to stay the same before it is written.
const QUIET: Duration = Duration::from_secs(4);
/// As many are waited for: at twenty a second, all of more would take longer than everything else.
pub(crate) const WAITED_FOR: usize = 1000;
/// Twenty a second, and as much again.
const PER_SERVICE: Duration = Duration::from_millis(100);

pub(crate) struct Conditions {
    /// From the end of the burst until each Service, or as many as are waited for, says what is so.
    pub(crate) settled: Duration,
    pub(crate) writes: usize,
    /// Of as many Services.
    pub(crate) services: usize,
    pub(crate) most_for_one: usize,
}

/// Waits until nothing more is said of `count` Services that were served a moment ago, or enough was said of many.
pub(crate) async fn measure(lab: &Lab, count: usize) -> Result<Conditions> {
    let began = Stopwatch::start();
    let waited_for = count.min(WAITED_FOR);
    let within = Duration::from_secs(60) + PER_SERVICE * u32::try_from(waited_for)?;
    let mut before = None;
    let writes = wait_every(QUIET, "every Service says how it is", within, async || {
        let all = Product::Cairn.all_writes(lab)?.into_iter();
        let writes: Vec<ApiRequest> = all.filter(ApiRequest::is_of_service_conditions).collect();
        let earlier = before.replace(writes.len());
        let is_over = waited_for < count || earlier == before;
        ensure!(writes.len() >= waited_for && is_over, "{} writes, {earlier:?} before", writes.len());
        Ok(writes)
    })
    .await?;
    let mut by_service = BTreeMap::<_, usize>::new();
    writes.iter().for_each(|write| *by_service.entry(&write.name).or_default() += 1);
    let (services, most_for_one) = (by_service.len(), by_service.into_values().max().unwrap_or_default());
    Ok(Conditions { settled: began.elapsed(), writes: writes.len(), services, most_for_one })
}
