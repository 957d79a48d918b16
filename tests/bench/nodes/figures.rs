//! What the figures of a run are called, and what they are held to.

use std::{collections::BTreeMap, time::Duration};

use serde_json::{Value, json};

use super::{
    Measured,
    harness::control_plane::ApiRequest,
    many_nodes::targets::{self, Target, build, megabytes, number, rounded, seconds},
};

/// Prints everything, and returns all of it as one JSON object; `upstream` is what Kubernetes' own framework did, one
/// object a run.
pub(crate) fn print(measured: &Measured, upstream: Vec<Value>) -> Value {
    let mut all = targets::print(figures(measured), &targets(measured));
    for run in &upstream {
        println!("upstream's framework");
        for (name, value) in run.as_object().into_iter().flatten() {
            println!("  {name:<60} {value}");
        }
    }
    all["upstream"] = upstream.into();
    all
}

fn figures(measured: &Measured) -> Value {
    let Measured { count, floor, burst, idle, resident_kib, start, hand_over, .. } = measured;
    let same_requests = floor.register + floor.write;
    json!({
        "nodes": count,
        "build": build(),
        "floor_register_seconds": seconds(floor.register),
        "floor_two_writes_seconds": seconds(floor.write),
        "floor_two_writes_client_cpu_seconds": seconds(floor.processor),
        "first_created_to_last_created_seconds": seconds(burst.register),
        "last_created_to_all_initialized_seconds": seconds(after_last(measured)),
        "first_created_to_all_initialized_seconds": seconds(burst.first_to_all),
        "first_created_to_all_initialized_over_register_and_floor_ratio": rounded(ratio(burst.first_to_all, same_requests)),
        "node_writes_per_node": rounded(number(node_writes(&burst.writes).values().sum()) / number(*count)),
        "writes_by_kind": by_kind(&burst.writes),
        "writes_refused": burst.writes.iter().filter(|write| write.code >= 400).count(),
        "controller_cpu_before_the_burst_seconds": seconds(measured.processor_before_burst),
        "controller_cpu_per_write_of_the_burst_microseconds": rounded(1e6 * burst.processor.as_secs_f64() / number(burst.writes.len())),
        "controller_peak_resident_before_the_burst_megabytes": rounded(megabytes(measured.peak_resident_before_burst_kib)),
        "controller_resident_megabytes": rounded(megabytes(*resident_kib)),
        "idle_watched_seconds": seconds(idle.watched),
        "idle_heartbeats": idle.heartbeats,
        "idle_cpu_per_heartbeat_milliseconds": rounded(1e3 * idle.processor.as_secs_f64() / number(idle.heartbeats)),
        "start_to_lease_held_p50_seconds": seconds(start.lease_held),
        "sigterm_to_lease_held_by_next_p50_seconds": seconds(hand_over.lease_held),
    })
}

fn targets(measured: &Measured) -> Vec<Target> {
    let Measured { count, floor, burst, idle, peak_resident_kib, start, hand_over, .. } = measured;
    let processor = measured.processor_before_burst + burst.processor;
    let most = node_writes(&burst.writes).into_values().max().unwrap_or_default();
    let events = burst.writes.iter().filter(|write| write.resource == "events").count();
    [
        ("last_created_to_all_initialized_over_floor_ratio", 1.15, ratio(after_last(measured), floor.write)),
        ("first_created_to_all_initialized_over_floor_ratio", 1.15, ratio(burst.first_to_all, floor.write)),
        ("most_node_writes_for_one_node", 2.0, number(most)),
        ("events_per_node", 1.0, number(events) / number(*count)),
        ("nodes_without_event", 0.0, number(count.saturating_sub(events))),
        ("controller_cpu_for_the_burst_seconds", 2.5, burst.processor.as_secs_f64()),
        ("controller_cpu_since_start_seconds", 2.5, processor.as_secs_f64()),
        ("controller_peak_resident_megabytes", 60.0, megabytes(*peak_resident_kib)),
        ("idle_writes_but_lease_renewals", 0.0, number(idle.writes)),
        ("idle_cpu_percent", 1.0, 100.0 * ratio(idle.processor, idle.watched)),
        ("start_to_first_node_initialized_p50_seconds", 0.3, start.node_done.as_secs_f64()),
        ("sigterm_to_next_leader_initialized_a_node_p50_seconds", 0.5, hand_over.node_done.as_secs_f64()),
    ]
    .map(|(name, at_most, figure)| Target { name, at_most, figure })
    .into()
}

fn after_last(measured: &Measured) -> Duration {
    measured.burst.first_to_all.saturating_sub(measured.burst.register)
}

/// How many writes each Node saw, of the Node itself or of its status.
fn node_writes(writes: &[ApiRequest]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for write in writes.iter().filter(|write| matches!(write.resource.as_str(), "nodes" | "nodes/status")) {
        *counts.entry(write.name.as_str()).or_default() += 1;
    }
    counts
}

fn by_kind(writes: &[ApiRequest]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for write in writes {
        *counts.entry(format!("{} {}", write.verb, write.resource)).or_default() += 1;
    }
    counts
}

fn ratio(one: Duration, other: Duration) -> f64 {
    one.as_secs_f64() / other.as_secs_f64()
}
