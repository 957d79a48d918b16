//! What the figures of a run are called, and what they are held to.

use std::{collections::BTreeMap, time::Duration};

use serde_json::{Value, json};

use super::{
    Measured, Other, Rung,
    burst::Burst,
    harness::control_plane::ApiRequest,
    objects::NAMESPACE,
    targets::{self, Target, build, megabytes, number, rounded, seconds},
};

/// Prints everything for the eye, a missed target like one that is met, and returns all of it as one JSON object.
pub(crate) fn print(measured: &Measured) -> Value {
    let mut all = figures(measured);
    if let Some(metallb) = &measured.metallb {
        all["metallb"] = other(metallb);
    }
    targets::print(all, &targets(measured))
}

fn figures(measured: &Measured) -> Value {
    let Measured { count, floor, cairn, metallb: _ } = measured;
    let rungs: Vec<_> = cairn.rungs.iter().map(rung).collect();
    json!({
        "services": count,
        "build": build(),
        "floor_create_seconds": seconds(floor.create),
        "floor_one_write_seconds": seconds(floor.write),
        "start_to_lease_held_seconds": seconds(cairn.burst.start),
        "lease_held_to_first_served_seconds": seconds(cairn.burst.first),
        "lease_held_to_all_served_seconds": seconds(cairn.burst.all),
        "served_per_second": rounded(number(*count) / cairn.burst.all.as_secs_f64()),
        "writes_by_kind": by_kind(&cairn.burst.writes),
        "writes_refused": cairn.burst.writes.iter().filter(|write| write.code >= 400).count(),
        "controller_cpu_for_the_burst_seconds": seconds(cairn.burst.processor),
        "conditions_settled_seconds": seconds(cairn.conditions.settled),
        "conditions_settled_of_services": cairn.conditions.services,
        "most_condition_writes_for_one_service": cairn.conditions.most_for_one,
        "one_service_among_others": rungs,
    })
}

fn rung(rung: &Rung) -> Value {
    json!({
        "present": rung.present,
        "created_to_served_p50_ms": milliseconds(rung.latency.median),
        "created_to_served_p95_ms": milliseconds(rung.latency.ninety_fifth),
        "controller_cpu_per_change_us": rounded(rung.processor_per_change.as_secs_f64() * 1e6),
    })
}

fn other(other: &Other) -> Value {
    json!({
        "services": other.present,
        "start_to_first_served_seconds": seconds(other.burst.first),
        "start_to_all_served_seconds": seconds(other.burst.all),
        "served_per_second": rounded(number(other.present) / other.burst.all.as_secs_f64()),
        "writes_per_service": rounded(number(other.burst.writes.len()) / number(other.present)),
        "controller_cpu_for_the_burst_seconds": seconds(other.burst.processor),
        "created_to_served_p50_ms": milliseconds(other.latency.median),
        "created_to_served_p95_ms": milliseconds(other.latency.ninety_fifth),
        "restart_to_a_new_service_served_seconds": seconds(other.restart.first),
        "restart_writes_about_the_others": other.restart.writes,
        "controller_peak_resident_megabytes": rounded(megabytes(other.peak_resident_kib)),
    })
}

fn targets(measured: &Measured) -> Vec<Target> {
    let Measured { count, floor, cairn, metallb: _ } = measured;
    let Burst { all, settled, writes, .. } = &cairn.burst;
    let most = writes_by_service(writes).into_values().max().unwrap_or_default();
    let of_kind = |kind: &str, namespace: &str| {
        number(writes.iter().filter(|write| write.resource == kind && write.namespace == namespace).count())
    };
    let median = cairn.rungs.first().map(|rung| rung.latency.median).unwrap_or_default();
    [
        ("lease_held_to_all_served_over_floor_ratio", 1.15, ratio(*all, floor.write)),
        ("most_writes_for_one_service", 2.0, number(most)),
        ("condition_writes_per_service", 1.0, number(cairn.conditions.writes) / number(cairn.conditions.services)),
        ("events_per_service", 1.0, of_kind("events", NAMESPACE) / number(*count)),
        ("pool_status_writes_per_second", 1.0, of_kind("addresspools/status", "") / settled.as_secs_f64()),
        ("restart_lease_held_to_a_new_service_served_seconds", 1.0, cairn.restart.first.as_secs_f64()),
        ("restart_writes_about_the_others", 0.0, number(cairn.restart.writes)),
        ("created_to_served_p50_ms", 5.0, milliseconds(median)),
        ("writes_about_services_when_a_node_comes_and_goes", 0.0, number(cairn.node.writes)),
        ("cpu_per_change_with_all_over_with_fewest_ratio", 2.0, growth(&cairn.rungs)),
        ("controller_peak_resident_megabytes", 60.0, megabytes(cairn.peak_resident_kib)),
    ]
    .map(|(name, at_most, figure)| Target { name, at_most, figure })
    .into()
}

/// How much more a change costs among most Services than among fewest.
fn growth(rungs: &[Rung]) -> f64 {
    match (rungs.first(), rungs.last()) {
        (Some(most), Some(fewest)) if rungs.len() > 1 => ratio(most.processor_per_change, fewest.processor_per_change),
        _ => 1.0,
    }
}

/// How many writes each Service saw, of itself or of its status.
fn writes_by_service(writes: &[ApiRequest]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for write in writes.iter().filter(|write| matches!(write.resource.as_str(), "services" | "services/status")) {
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

fn milliseconds(duration: Duration) -> f64 {
    rounded(duration.as_secs_f64() * 1e3)
}

fn ratio(one: Duration, other: Duration) -> f64 {
    one.as_secs_f64() / other.as_secs_f64()
}
