//! What an `AddressPool` says and what is said of it: pure.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::allocator::PoolReport;
use crate::api::{
    AddressCounts, AddressPoolStatus, Condition, ConditionReason, ConditionStatus, ConditionType, CoolingAddress,
};
use crate::config::{AddressBlock, Faults, Pool};
use crate::model::ServiceKey;

/// An `AddressPool` as the API server has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObservedPool {
    /// `metadata.resourceVersion`.
    pub resource_version: String,
    /// `metadata.creationTimestamp` in seconds since 1970: of two that claim the same, the older has it.
    pub created_seconds: i64,
    /// `metadata.generation`.
    pub generation: Option<i64>,
    /// Whether it has a deletion timestamp: then it gives nothing out any more.
    pub is_deleting: bool,
    /// What it says, or everything that is wrong with it.
    pub check: Result<Pool, Faults>,
    /// `status.blocks`, those that parse.
    pub blocks: Vec<AddressBlock>,
    /// `status.draining`, those that parse.
    pub draining: Vec<AddressBlock>,
    /// `status.cooling`, those that parse.
    pub cooling: Vec<ObservedCooling>,
    /// All of `status`, as it stands.
    pub status: AddressPoolStatus,
}

/// An entry of `status.cooling`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObservedCooling {
    /// The address.
    pub address: IpAddr,
    /// Who had it.
    pub by: ServiceKey,
    /// When it was given back, in seconds since 1970.
    pub freed_seconds: i64,
}

/// The status to write, when the pool has another one; `time` writes seconds since 1970 as RFC 3339.
pub fn status(
    pool: &ObservedPool,
    report: &PoolReport,
    now_seconds: i64,
    time: impl Fn(i64) -> String,
) -> Option<AddressPoolStatus> {
    let kinds = [ready(pool, report), references(pool, report), conflict(pool, report), draining(report)];
    let conditions = kinds.map(|(kind, status, reason, message)| {
        let known = pool.status.conditions.iter().find(|known| known.kind == kind);
        let since = known.filter(|known| known.status == status).map(|known| known.last_transition_time.clone());
        Condition {
            kind,
            status,
            reason,
            message,
            last_transition_time: since.unwrap_or_else(|| time(now_seconds)),
            observed_generation: pool.generation,
        }
    });
    let texts = |blocks: &[AddressBlock]| blocks.iter().map(ToString::to_string).collect();
    let cooling = report.cooling.iter().map(|(address, by, freed_seconds)| CoolingAddress {
        address: address.to_string(),
        service: by.to_string(),
        freed_at: time(*freed_seconds),
    });
    let status = AddressPoolStatus {
        conditions: conditions.into(),
        ipv4: report.v4.map(counts),
        ipv6: report.v6.map(counts),
        blocks: texts(&report.ground),
        draining: texts(&report.draining),
        cooling: cooling.collect(),
    };
    (status != pool.status).then_some(status)
}

type Said = (ConditionType, ConditionStatus, ConditionReason, String);

fn ready(pool: &ObservedPool, report: &PoolReport) -> Said {
    use ConditionStatus::{False, True};
    let kind = ConditionType::Ready;
    match &pool.check {
        Err(faults) => (kind, False, ConditionReason::Invalid, faults.in_one_line()),
        Ok(_) if pool.is_deleting => {
            (kind, False, ConditionReason::Deleting, "the pool is being deleted: it gives nothing out".to_owned())
        }
        Ok(says) if report.blocks != says.blocks => {
            let blocks: Vec<_> = report.blocks.iter().map(ToString::to_string).collect();
            let in_use = match blocks.is_empty() {
                true => "none of its addresses is in use".to_owned(),
                false => format!("of its addresses only {} are in use", blocks.join(", ")),
            };
            let message = format!("{in_use}: see the condition Conflict");
            (kind, False, ConditionReason::AddressesTaken, message)
        }
        Ok(_) => (kind, True, ConditionReason::Valid, "the pool is valid and in use".to_owned()),
    }
}

fn references(pool: &ObservedPool, report: &PoolReport) -> Said {
    let kind = ConditionType::ResolvedRefs;
    match &pool.check {
        Err(_) => {
            let message = "what it serves is not looked at while it has faults".to_owned();
            (kind, ConditionStatus::Unknown, ConditionReason::Invalid, message)
        }
        Ok(_) if report.idle.is_empty() => {
            let message = "the namespaces that it serves are there".to_owned();
            (kind, ConditionStatus::True, ConditionReason::Resolved, message)
        }
        Ok(_) => (kind, ConditionStatus::False, ConditionReason::ReferenceNotFound, joined(&report.idle)),
    }
}

fn conflict(pool: &ObservedPool, report: &PoolReport) -> Said {
    let kind = ConditionType::Conflict;
    match (&pool.check, report.conflicts.is_empty()) {
        (Err(_), true) => {
            let message = "the pool cannot be compared with others before it is valid".to_owned();
            (kind, ConditionStatus::Unknown, ConditionReason::Invalid, message)
        }
        (_, false) => (kind, ConditionStatus::True, ConditionReason::AddressesTaken, joined(&report.conflicts)),
        (Ok(_), true) => {
            let message = "nobody else has any of its addresses".to_owned();
            (kind, ConditionStatus::False, ConditionReason::NoConflict, message)
        }
    }
}

/// The first few of many sentences.
fn joined(sentences: &[String]) -> String {
    const MOST: usize = 10;
    let first = sentences.iter().take(MOST).cloned().collect::<Vec<_>>().join("; ");
    match sentences.len().checked_sub(MOST) {
        None | Some(0) => first,
        Some(more) => format!("{first}; and {more} more"),
    }
}

fn draining(report: &PoolReport) -> Said {
    let kind = ConditionType::Draining;
    let Some((service, address)) = &report.first_kept else {
        let message = "no Service keeps an address that the pool would not give it".to_owned();
        return (kind, ConditionStatus::False, ConditionReason::NothingKept, message);
    };
    let who = match report.kept {
        1 => format!("Service {service} keeps {address}, which the pool would not give it today"),
        count => format!(
            "{count} Services keep addresses that the pool would not give them today, the first is {service} with {address}"
        ),
    };
    let message = format!("{who}: annotate a Service with cairn.dev/readdress=true to have it moved, or let it be");
    (kind, ConditionStatus::True, ConditionReason::AddressesKept, message)
}

/// Numbers as the API has them: one beyond its range stands for all.
fn counts((total, used, free): (u128, usize, u128)) -> AddressCounts {
    let most = |number: u128| i64::try_from(number).unwrap_or(i64::MAX);
    AddressCounts { total: most(total), used: most(used as u128), free: most(free) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::AddressPoolSpec;
    use crate::service::cases;

    #[test]
    fn a_pool_that_is_not_used_as_a_whole_says_what_of_it_is() {
        let addresses = vec!["10.60.0.0/31".to_owned(), "10.61.0.0/31".to_owned()];
        let pool = cases::observed_pool("public", &AddressPoolSpec { addresses, ..AddressPoolSpec::default() });
        let blocks = |texts: &[&str]| texts.iter().map(|text| text.parse().expect("a block")).collect();
        for (in_use, want) in [
            (&["10.60.0.0/31", "10.61.0.0/31"][..], "the pool is valid and in use"),
            (&["10.61.0.0/31"], "of its addresses only 10.61.0.0/31 are in use: see the condition Conflict"),
            (&[], "none of its addresses is in use: see the condition Conflict"),
        ] {
            let report = PoolReport { blocks: blocks(in_use), ..PoolReport::default() };
            assert_eq!(ready(&pool, &report).3, want, "{in_use:?}");
        }
    }
}
