//! Another component that migrates its controllers under another Lease: pure.
//!
//! Both components must name the same Lease in their files; otherwise each holds one of its own, and
//! runs the controllers that should run once. A process has one name in all its Leases, so a second
//! Lease of kube-controller-manager's leader gives it away.

use serde::Serialize;

use crate::model::Note;

/// The Lease of the other component's own leader.
pub const OF_OTHER_COMPONENT: &str = "kube-controller-manager";

/// A Lease, as far as it matters here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Held {
    /// Its name.
    pub name: String,
    /// Who holds it; `None` when nobody does.
    pub holder: Option<String>,
}

/// The Lease that kube-controller-manager's leader holds besides its own, if it is not the one we
/// stand for; `leases` are those of one namespace.
pub fn other_lease(leases: &[Held], ours: &str) -> Option<Note> {
    let leader = leases.iter().find(|lease| lease.name == OF_OTHER_COMPONENT)?.holder.as_ref()?;
    let second =
        leases.iter().filter(|lease| lease.name != OF_OTHER_COMPONENT && lease.holder.as_ref() == Some(leader));
    let mut second = second.map(|lease| lease.name.as_str()).peekable();
    second.peek()?;
    let others: Vec<_> = second.collect();
    if others.contains(&ours) {
        return None;
    }
    let (lease, ours) = (others[0].to_owned(), ours.to_owned());
    Some(Note::OtherMigrationLease { holder: leader.clone(), lease, ours })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_lease_of_the_other_component_is_told_unless_it_is_ours() {
        let ours = "cloud-provider-extraction-migration";
        for (name, leases, want) in [
            ("nobody but us", vec![("cloud-controller-manager", "us")], None),
            ("it does not migrate", vec![(OF_OTHER_COMPONENT, "it"), ("scheduler", "s")], None),
            ("it holds the shared one", vec![(OF_OTHER_COMPONENT, "it"), (ours, "it")], None),
            ("it waits for the shared one", vec![(OF_OTHER_COMPONENT, "it"), (ours, "us")], None),
            (
                "it holds another",
                vec![(OF_OTHER_COMPONENT, "it"), ("migration", "it"), (ours, "us")],
                Some("migration"),
            ),
            ("another, given back", vec![(OF_OTHER_COMPONENT, "it"), ("migration", "")], None),
            ("nobody leads it", vec![(OF_OTHER_COMPONENT, ""), ("migration", "")], None),
        ] {
            let held = |(name, holder): (&str, &str)| Held {
                name: name.to_owned(),
                holder: Some(holder.to_owned()).filter(|holder| !holder.is_empty()),
            };
            let leases: Vec<_> = leases.into_iter().map(held).collect();
            let told = other_lease(&leases, ours).map(|note| match note {
                Note::OtherMigrationLease { lease, .. } => lease,
                other => panic!("{other:?}"),
            });
            assert_eq!(told.as_deref(), want, "{name}");
        }
    }
}
