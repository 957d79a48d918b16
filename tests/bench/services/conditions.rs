//! What it costs to say on each Service whether it has its addresses and whether they are announced.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Result, ensure};

use super::{
    harness::{Lab, Stopwatch, control_plane::ApiRequest, wait::wait_every},
    product::Product,
};

/// Longer than what is to be said has to stay the same before it is written.
const QUIET: Duration = Duration::from_secs(4);
/// Twenty a second, and as much again.
const PER_SERVICE: Duration = Duration::from_millis(100);

pub(crate) struct Conditions {
    /// From the end of the burst until each Service says what is so.
    pub(crate) settled: Duration,
    pub(crate) writes: usize,
    pub(crate) most_for_one: usize,
}

/// Waits until nothing more is said of `count` Services that were served a moment ago.
pub(crate) async fn measure(lab: &Lab, count: usize) -> Result<Conditions> {
    let began = Stopwatch::start();
    let within = Duration::from_secs(60) + PER_SERVICE * u32::try_from(count)?;
    let mut before = None;
    let writes = wait_every(QUIET, "every Service says how it is", within, async || {
        let all = Product::Cairn.all_writes(lab)?.into_iter();
        let writes: Vec<ApiRequest> = all.filter(ApiRequest::is_of_service_conditions).collect();
        let earlier = before.replace(writes.len());
        ensure!(writes.len() >= count && earlier == before, "{} writes, {earlier:?} before", writes.len());
        Ok(writes)
    })
    .await?;
    let mut by_service = BTreeMap::<_, usize>::new();
    writes.iter().for_each(|write| *by_service.entry(&write.name).or_default() += 1);
    let most_for_one = by_service.into_values().max().unwrap_or_default();
    Ok(Conditions { settled: began.elapsed(), writes: writes.len(), most_for_one })
}
