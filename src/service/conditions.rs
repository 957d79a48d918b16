//! What a Service's conditions are to say: pure.
//!
//! `cairn.dev/AddressAssigned` and `cairn.dev/Announced`, with reasons of a closed set. Nothing in them
//! counts or names what follows the node set: a Node that comes or goes writes no Service.

use std::borrow::Cow;
use std::fmt;

use serde::Serialize;
use serde_json::{Value, json};

use super::announced::Announcement;
use super::misspelt;
use crate::model::Note;
use crate::model::views::{
    ADDRESS_ASSIGNED, ANNOUNCED, Condition, ServiceCondition, ServiceConditions, ServiceView, Truth,
};

/// The reason of one that has all that it asks for.
pub const ASSIGNED: &str = "Assigned";

/// What both conditions are to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    address_assigned: Saying,
    announced: Saying,
}

/// What one condition is to say.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Saying {
    status: Truth,
    reason: &'static str,
    message: Cow<'static, str>,
}

/// What has to stay the same for a while before it is written: status and reason of each condition.
pub type Gist = [(Truth, &'static str); 2];

impl Wanted {
    /// What is to be said of a Service of ours that is as it is because of this note, if of any.
    pub fn of(service: &ServiceView, note: Option<&Note>, announcement: Announcement) -> Self {
        let has_addresses = service.ingress.iter().any(|entry| entry.ip.is_some());
        let (reason, message): (_, Cow<'_, _>) = match (note, has_addresses) {
            (Some(note), _) => (note.reason(), note.to_string().into()),
            (None, true) => (ASSIGNED, "it has its addresses".into()),
            (None, false) => ("Pending", "it waits for its addresses".into()),
        };
        let message = match misspelt::told(service) {
            Some(told) => format!("{message}; {told}").into(),
            None => message,
        };
        let status = if has_addresses { Truth::True } else { Truth::False };
        let announced = Saying {
            status: announcement.status(),
            reason: announcement.reason(),
            message: announcement.message().into(),
        };
        Self { address_assigned: Saying { status, reason, message }, announced }
    }

    /// What is not written before it has stayed the same for a while.
    pub fn gist(&self) -> Gist {
        [&self.address_assigned, &self.announced].map(|saying| (saying.status, saying.reason))
    }
}

/// What a condition is to say, and what it says, for people to read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Told {
    #[serde(rename = "type")]
    kind: &'static str,
    status: Truth,
    reason: &'static str,
    message: Cow<'static, str>,
    /// Since when it says so; `None` when it does not.
    since: Option<String>,
    /// What it says instead.
    says_instead: Option<Instead>,
}

/// What a condition says that is to say something else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Instead {
    status: Truth,
    reason: String,
}

/// What both conditions are to say, and what they say. `time` writes seconds since 1970.
pub fn told(said: &ServiceConditions, wanted: &Wanted, time: impl Fn(i64) -> String) -> [Told; 2] {
    let told = |kind, said: &Option<ServiceCondition>, saying: &Saying| {
        let Saying { status, reason, ref message } = *saying;
        let (same, other): (Vec<_>, Vec<_>) =
            said.iter().partition(|said| said.says.status == status && said.says.reason == reason);
        Told {
            kind,
            status,
            reason,
            message: message.clone(),
            since: same.first().map(|said| time(said.since_seconds)),
            says_instead: other
                .first()
                .map(|said| Instead { status: said.says.status, reason: said.says.reason.clone() }),
        }
    };
    [
        told(ADDRESS_ASSIGNED, &said.address_assigned, &wanted.address_assigned),
        told(ANNOUNCED, &said.announced, &wanted.announced),
    ]
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, {}: {}", self.status, self.reason, self.message)?;
        match (&self.since, &self.says_instead) {
            (Some(since), _) => write!(f, ", since {since}"),
            (None, Some(Instead { status, reason })) => write!(f, " (its condition still says {status:?}, {reason})"),
            (None, None) => f.write_str(" (its status does not say so yet)"),
        }
    }
}

/// Whether a Service's conditions say something else; a Service that is not ours has none of ours.
pub fn differ(said: &ServiceConditions, wanted: Option<&Wanted>) -> bool {
    let Some(wanted) = wanted else { return said.has_ours() };
    let pairs = [(&said.address_assigned, &wanted.address_assigned), (&said.announced, &wanted.announced)];
    pairs.into_iter().any(|(said, saying)| said.as_ref().is_none_or(|said| !is_said(said, saying)))
}

fn is_said(said: &ServiceCondition, saying: &Saying) -> bool {
    let Condition { status, reason, message } = &said.says;
    (*status, reason.as_str(), message.as_str()) == (saying.status, saying.reason, &*saying.message)
}

/// All of `status.conditions` with these in place of ours.
///
/// A merge patch replaces the list as a whole, so those of others come along as they are. A condition
/// whose status stays keeps its time. `time` writes seconds since 1970.
pub fn list(
    said: &ServiceConditions,
    wanted: Option<&Wanted>,
    now_seconds: i64,
    time: impl Fn(i64) -> String,
) -> Value {
    let ours = |kind: &str, said: &Option<ServiceCondition>, saying: &Saying| {
        let stays = said.as_ref().filter(|said| said.says.status == saying.status);
        json!({
            "type": kind,
            "status": saying.status,
            "reason": saying.reason,
            "message": saying.message,
            "lastTransitionTime": time(stays.map_or(now_seconds, |said| said.since_seconds)),
        })
    };
    let ours = wanted.map(|Wanted { address_assigned, announced }| {
        [ours(ADDRESS_ASSIGNED, &said.address_assigned, address_assigned), ours(ANNOUNCED, &said.announced, announced)]
    });
    let all: Vec<_> = said.others.iter().map(|other| json!(other)).chain(ours.into_iter().flatten()).collect();
    if all.is_empty() { Value::Null } else { all.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::views::{ForeignCondition, Ingress, IpMode};
    use crate::service::cases;

    fn said(status: Truth, reason: &str, message: &str) -> Option<ServiceCondition> {
        let says = Condition { status, reason: reason.to_owned(), message: message.to_owned() };
        Some(ServiceCondition { says, since_seconds: 7 })
    }

    fn served() -> ServiceView {
        let ingress = vec![Ingress { ip: "10.60.0.1".parse().ok(), ip_mode: IpMode::Vip }];
        ServiceView { ingress, ..cases::service("web") }
    }

    fn foreign() -> ForeignCondition {
        ForeignCondition {
            kind: "example.net/Ready".to_owned(),
            status: "True".to_owned(),
            reason: "Fine".to_owned(),
            message: "yes".to_owned(),
            last_transition_time: "2026-01-01T00:00:00Z".to_owned(),
            observed_generation: Some(3),
        }
    }

    fn time(seconds: i64) -> String {
        format!("@{seconds}")
    }

    #[test]
    fn an_address_is_assigned_or_the_reason_says_why_not() {
        let refused = Note::NoPool;
        let nothing = || cases::service("web");
        for (name, service, note, want) in [
            ("served", served(), None, (Truth::True, "Assigned")),
            ("served, but not as asked", served(), Some(&refused), (Truth::True, "NoPool")),
            ("refused", nothing(), Some(&refused), (Truth::False, "NoPool")),
            ("nothing said yet", nothing(), None, (Truth::False, "Pending")),
        ] {
            let wanted = Wanted::of(&service, note, Announcement::NoSession);
            assert_eq!(wanted.gist(), [want, (Truth::False, "NoSession")], "{name}");
        }
    }

    #[test]
    fn a_misspelt_annotation_is_told_beside_what_else_there_is_to_say() {
        let annotations = [("cairn.dev/ingore".to_owned(), "true".to_owned())].into();
        let service = ServiceView { annotations, ..served() };
        for (note, want) in [(None, "it has its addresses; its annotation"), (Some(&Note::NoPool), "; its annotation")]
        {
            let Saying { message, .. } = Wanted::of(&service, note, Announcement::Bgp).address_assigned;
            assert!(message.contains(want) && message.ends_with("did you mean cairn.dev/ignore?"), "{message}");
        }
    }

    #[test]
    fn conditions_of_others_stay_and_a_status_that_stays_keeps_its_time() {
        let before = ServiceConditions {
            address_assigned: said(Truth::True, "Assigned", "old words"),
            announced: said(Truth::True, "BGP", Announcement::Bgp.message()),
            others: vec![foreign()],
        };
        let wanted = Wanted::of(&served(), None, Announcement::NoSession);
        assert!(differ(&before, Some(&wanted)));
        let after = list(&before, Some(&wanted), 9, time);
        assert_eq!(
            after,
            json!([
                foreign(),
                { "type": "cairn.dev/AddressAssigned", "status": "True", "reason": "Assigned",
                  "message": "it has its addresses", "lastTransitionTime": "@7" },
                { "type": "cairn.dev/Announced", "status": "False", "reason": "NoSession",
                  "message": Announcement::NoSession.message(), "lastTransitionTime": "@9" },
            ])
        );
        assert_eq!(list(&before, None, 9, time), json!([foreign()]), "ours go, others' stay");
        assert_eq!(list(&ServiceConditions { others: Vec::new(), ..before }, None, 9, time), Value::Null);
    }

    #[test]
    fn what_is_said_is_not_said_again() {
        let wanted = Wanted::of(&served(), None, Announcement::Bgp);
        let right = ServiceConditions {
            address_assigned: said(Truth::True, "Assigned", "it has its addresses"),
            announced: said(Truth::True, "BGP", Announcement::Bgp.message()),
            others: Vec::new(),
        };
        let with = |announced| ServiceConditions { announced, ..right.clone() };
        let none = ServiceConditions { others: vec![foreign()], ..ServiceConditions::default() };
        for (name, said, wanted, want) in [
            ("both say it", right.clone(), Some(&wanted), false),
            ("one is missing", with(None), Some(&wanted), true),
            ("another status", with(said(Truth::Unknown, "BGP", Announcement::Bgp.message())), Some(&wanted), true),
            ("another reason", with(said(Truth::True, "bgp", Announcement::Bgp.message())), Some(&wanted), true),
            ("other words", with(said(Truth::True, "BGP", "")), Some(&wanted), true),
            ("no longer ours", right, None, true),
            ("never ours", none, None, false),
        ] {
            assert_eq!(differ(&said, wanted), want, "{name}");
        }
    }
}
