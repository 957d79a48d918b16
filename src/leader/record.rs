//! The Lease as an object: what it says, and what it says after it was taken, renewed or given back.
//!
//! It is edited as it was read, so that fields that this program does not know, such as those of
//! coordinated leader election in newer versions, come back as they were.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::core::{ApiResource, DynamicObject};
use serde_json::{Value, json};

use super::election::LeaseRecord;

/// Who writes what into a Lease.
#[derive(Debug, Clone)]
pub struct Writer {
    /// The Lease's name.
    pub name: String,
    /// The holder's name.
    pub identity: String,
    /// How long others are to wait.
    pub lease_duration: Duration,
}

/// Where Leases are.
pub fn resource() -> ApiResource {
    ApiResource::erase::<Lease>(&())
}

/// What a Lease says.
pub fn record(lease: &DynamicObject) -> LeaseRecord {
    let spec = &lease.data["spec"];
    LeaseRecord {
        version: lease.resource_version().unwrap_or_default(),
        holder: spec["holderIdentity"].as_str().filter(|holder| !holder.is_empty()).map(ToOwned::to_owned),
        lease_duration: Duration::from_secs(spec["leaseDurationSeconds"].as_u64().unwrap_or_default()),
        transitions: spec["leaseTransitions"].as_u64().unwrap_or_default(),
    }
}

impl Writer {
    /// A new Lease, or one that another process held or gave back.
    pub fn taken(&self, known: Option<&DynamicObject>, now: Timestamp) -> DynamicObject {
        let count = known.map(|known| known.data["spec"]["leaseTransitions"].as_i64().unwrap_or_default() + 1);
        self.edited(
            known,
            [
                ("holderIdentity", json!(self.identity)),
                ("leaseDurationSeconds", self.seconds()),
                ("acquireTime", json!(MicroTime(now))),
                ("renewTime", json!(MicroTime(now))),
                ("leaseTransitions", json!(count.unwrap_or_default())),
            ],
        )
    }

    /// A Lease that this process holds.
    pub fn renewed(&self, known: &DynamicObject, now: Timestamp) -> DynamicObject {
        self.edited(Some(known), [("leaseDurationSeconds", self.seconds()), ("renewTime", json!(MicroTime(now)))])
    }

    /// As client-go's `release`: no holder, one second, both times now.
    pub fn released(&self, known: &DynamicObject, now: Timestamp) -> DynamicObject {
        self.edited(
            Some(known),
            [
                ("holderIdentity", json!("")),
                ("leaseDurationSeconds", json!(1)),
                ("acquireTime", json!(MicroTime(now))),
                ("renewTime", json!(MicroTime(now))),
            ],
        )
    }

    fn edited<const N: usize>(&self, known: Option<&DynamicObject>, fields: [(&str, Value); N]) -> DynamicObject {
        let mut lease = known.cloned().unwrap_or_else(|| DynamicObject::new(&self.name, &resource()));
        lease.metadata.managed_fields = None;
        if !lease.data["spec"].is_object() {
            lease.data = json!({ "spec": {} });
        }
        for (field, value) in fields {
            lease.data["spec"][field] = value;
        }
        lease
    }

    /// Whole seconds, rounded up: others may wait longer than this process counts on, never less.
    fn seconds(&self) -> Value {
        let whole = self.lease_duration.as_secs() + u64::from(self.lease_duration.subsec_nanos() > 0);
        json!(i32::try_from(whole).unwrap_or(i32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writer() -> Writer {
        Writer {
            name: "cloud-controller-manager".to_owned(),
            identity: "n1_1".to_owned(),
            lease_duration: Duration::from_secs(15),
        }
    }

    fn time(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).expect("a time")
    }

    fn lease(spec: Value) -> DynamicObject {
        let object = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": { "name": "cloud-controller-manager", "resourceVersion": "7" },
            "spec": spec,
        });
        serde_json::from_value(object).expect("an object")
    }

    /// What another holder, with fields of a later version, left.
    fn of_other() -> DynamicObject {
        lease(json!({
            "holderIdentity": "n2_2", "leaseDurationSeconds": 30, "leaseTransitions": 4,
            "acquireTime": "2026-01-01T00:00:00.000000Z", "renewTime": "2026-01-01T00:01:00.000000Z",
            "strategy": "OldestEmulationVersion", "preferredHolder": "n3_3", "ofAnotherDay": { "x": [1] },
        }))
    }

    #[test]
    fn a_new_lease_has_all_fields_and_no_transitions() {
        let created = writer().taken(None, time(0));
        assert_eq!(created.metadata.resource_version, None);
        assert_eq!(created.metadata.name.as_deref(), Some("cloud-controller-manager"));
        assert_eq!(
            created.data["spec"],
            json!({
                "holderIdentity": "n1_1", "leaseDurationSeconds": 15, "leaseTransitions": 0,
                "acquireTime": "2027-01-15T08:00:00.000000Z", "renewTime": "2027-01-15T08:00:00.000000Z",
            })
        );
    }

    #[test]
    fn taking_over_counts_up_and_keeps_unknown_fields() {
        let taken = writer().taken(Some(&of_other()), time(0));
        assert_eq!(taken.metadata.resource_version.as_deref(), Some("7"), "a guarded write");
        assert_eq!(
            taken.data["spec"],
            json!({
                "holderIdentity": "n1_1", "leaseDurationSeconds": 15, "leaseTransitions": 5,
                "acquireTime": "2027-01-15T08:00:00.000000Z", "renewTime": "2027-01-15T08:00:00.000000Z",
                "strategy": "OldestEmulationVersion", "preferredHolder": "n3_3", "ofAnotherDay": { "x": [1] },
            })
        );
    }

    #[test]
    fn a_lease_made_by_hand_without_a_spec_can_be_taken() {
        for spec in [json!(null), json!({})] {
            let bare = lease(spec);
            assert_eq!(record(&bare).holder, None);
            assert_eq!(writer().taken(Some(&bare), time(0)).data["spec"]["leaseTransitions"], json!(1));
        }
    }

    #[test]
    fn a_renewal_moves_only_the_renew_time() {
        let held = writer().taken(Some(&of_other()), time(0));
        let renewed = writer().renewed(&held, time(2));
        let mut want = held.data.clone();
        want["spec"]["renewTime"] = json!("2027-01-15T08:00:02.000000Z");
        assert_eq!(renewed.data, want);
    }

    #[test]
    fn a_released_lease_is_free_for_every_candidate_and_keeps_its_count() {
        let held = writer().taken(Some(&of_other()), time(0));
        let released = writer().released(&held, time(5));
        assert_eq!(record(&released).holder, None);
        assert_eq!(record(&released).lease_duration, Duration::from_secs(1));
        assert_eq!(released.data["spec"]["leaseTransitions"], json!(5));
        assert_eq!(released.data["spec"]["ofAnotherDay"], json!({ "x": [1] }));
    }

    #[test]
    fn a_record_is_what_the_holder_says() {
        let want = LeaseRecord {
            version: "7".to_owned(),
            holder: Some("n2_2".to_owned()),
            lease_duration: Duration::from_secs(30),
            transitions: 4,
        };
        assert_eq!(record(&of_other()), want);
    }

    #[test]
    fn a_duration_is_written_in_whole_seconds_rounded_up() {
        for (milliseconds, want) in [(1000, 1), (1001, 2), (1999, 2)] {
            let writer = Writer { lease_duration: Duration::from_millis(milliseconds), ..writer() };
            assert_eq!(writer.taken(None, time(0)).data["spec"]["leaseDurationSeconds"], json!(want));
        }
    }
}
