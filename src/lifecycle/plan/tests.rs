//! Tests of the lifecycle plan: every row of upstream's `MonitorNodes` (the contract's section 10.6), and what always
//! holds.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::lifecycle::brake::Deletions;
use crate::model::Moment;
use crate::model::cases;
use crate::model::views::UNINITIALIZED;

fn taint(key: &str, effect: &str) -> Taint {
    Taint { key: key.to_owned(), value: None, effect: effect.to_owned(), time_added: None }
}

fn shutdown() -> Taint {
    taint(SHUTDOWN, NO_SCHEDULE)
}

/// An initialized Node that is not Ready.
pub(in crate::lifecycle) fn node(name: &str) -> NodeView {
    NodeView { provider_id: Some(format!("cairn://m-{name}")), ready: Some(Truth::False), ..cases::node(name) }
}

fn acknowledged(name: &str) -> NodeView {
    NodeView { annotations: [(brake::ACKNOWLEDGED.to_owned(), "true".to_owned())].into(), ..node(name) }
}

fn observed(nodes: impl IntoIterator<Item = (NodeView, ObservedMachine)>) -> Observed {
    let nodes: BTreeMap<_, _> = nodes
        .into_iter()
        .map(|(view, machine)| (view.name.clone(), ObservedNode { view: Arc::new(view), machine }))
        .collect();
    Observed { machine_nodes: nodes.len(), nodes, recently_deleted: BTreeSet::new() }
}

fn unknown() -> ObservedMachine {
    ObservedMachine::Unknown("the inventory is on fire".to_owned())
}

fn unknown_note() -> Note {
    Note::MachineUnknown { why: "the inventory is on fire".to_owned() }
}

/// What one plan says of one Node.
#[derive(Debug, PartialEq)]
enum Want {
    Kept,
    Held(Note),
    Deleted,
    Taints(Vec<Taint>),
}

fn plan_one(view: NodeView, machine: ObservedMachine) -> Want {
    let Plan { mut actions, mut notes } = plan(&observed([(view, machine)]));
    match (actions.pop_first(), notes.pop_first()) {
        (None, None) => Want::Kept,
        (None, Some((_, note))) => Want::Held(note),
        (Some((_, Action::Delete)), Some((_, Note::NodeDeleting { .. }))) => Want::Deleted,
        (Some((_, Action::WriteTaints(taints))), None) => Want::Taints(taints),
        other => panic!("{other:?}"),
    }
}

struct Case {
    name: &'static str,
    view: NodeView,
    machine: ObservedMachine,
    want: Want,
}

fn check(cases: impl IntoIterator<Item = Case>) {
    for Case { name, view, machine, want } in cases {
        assert_eq!(plan_one(view, machine), want, "{name}");
    }
}

fn nameless(name: &str) -> NodeView {
    NodeView { provider_id: None, ..node(name) }
}

fn with_ready(ready: Option<Truth>) -> NodeView {
    NodeView { ready, ..node("n1") }
}

#[test]
fn nodes_that_are_not_ready_are_deleted_only_when_their_machine_is_gone() {
    use ObservedMachine::{Active, Decommissioned};
    check([
        Case {
            name: "not ready and does not exist: deleted",
            view: with_ready(Some(Truth::False)),
            machine: Decommissioned,
            want: Want::Deleted,
        },
        Case {
            name: "not ready and existence is an error: kept, and told why",
            view: with_ready(Some(Truth::False)),
            machine: unknown(),
            want: Want::Held(unknown_note()),
        },
        Case {
            name: "not ready and exists: kept",
            view: with_ready(Some(Truth::False)),
            machine: Active(Power::On),
            want: Want::Kept,
        },
        Case {
            name: "ready unknown and does not exist: deleted",
            view: with_ready(Some(Truth::Unknown)),
            machine: Decommissioned,
            want: Want::Deleted,
        },
        Case {
            name: "no condition ready counts as unknown, and does not exist: deleted",
            view: with_ready(None),
            machine: Decommissioned,
            want: Want::Deleted,
        },
        Case {
            name: "ready unknown, exists and is not shut down: kept",
            view: with_ready(Some(Truth::Unknown)),
            machine: Active(Power::Unknown),
            want: Want::Kept,
        },
        Case {
            name: "ready and does not exist: kept",
            view: with_ready(Some(Truth::True)),
            machine: Decommissioned,
            want: Want::Kept,
        },
    ]);
}

#[test]
fn nodes_that_are_not_ready_are_tainted_when_their_machine_is_off() {
    use ObservedMachine::{Active, Decommissioned};
    check([
        Case {
            name: "not ready, shut down and exists: kept with the taint",
            view: node("n1"),
            machine: Active(Power::Off),
            want: Want::Taints(vec![shutdown()]),
        },
        Case {
            name: "the same with an empty provider ID, found by name: tainted",
            view: nameless("n1"),
            machine: Active(Power::Off),
            want: Want::Taints(vec![shutdown()]),
        },
        Case {
            name: "deviation: empty provider ID and unknown to the inventory: kept, and told why",
            view: nameless("n1"),
            machine: unknown(),
            want: Want::Held(unknown_note()),
        },
        Case {
            name: "empty provider ID, and looking it up is an error: not tainted, not deleted",
            view: NodeView { taints: vec![taint("other", NO_SCHEDULE)], ..nameless("n1") },
            machine: unknown(),
            want: Want::Held(unknown_note()),
        },
        Case {
            name: "empty provider ID, found by name to be decommissioned: deleted",
            view: nameless("n1"),
            machine: Decommissioned,
            want: Want::Deleted,
        },
        Case {
            name: "power unreadable and does not exist: existence comes first, deleted",
            view: NodeView { taints: vec![shutdown()], ..node("n1") },
            machine: Decommissioned,
            want: Want::Deleted,
        },
        Case {
            name: "power unreadable and exists: kept",
            view: node("n1"),
            machine: Active(Power::Unknown),
            want: Want::Kept,
        },
    ]);
}

#[test]
fn the_shutdown_taint_stays_until_the_node_is_ready() {
    use ObservedMachine::{Active, Decommissioned, Maintenance};
    let others = || vec![taint("other", NO_SCHEDULE), taint(SHUTDOWN, "NoExecute"), taint("last", "NoExecute")];
    let tainted = |ready| NodeView { taints: [others(), vec![shutdown()]].concat(), ready: Some(ready), ..node("n1") };
    check([
        Case {
            name: "other taints stay in front when it is added",
            view: NodeView { taints: others(), ..node("n1") },
            machine: Active(Power::Off),
            want: Want::Taints([others(), vec![shutdown()]].concat()),
        },
        Case { name: "it is there", view: tainted(Truth::False), machine: Active(Power::Off), want: Want::Kept },
        Case {
            name: "it is there, with a value",
            view: NodeView { taints: vec![Taint { value: Some("x".to_owned()), ..shutdown() }], ..node("n1") },
            machine: Active(Power::Off),
            want: Want::Kept,
        },
        Case { name: "powered again", view: tainted(Truth::False), machine: Active(Power::On), want: Want::Kept },
        Case {
            name: "ready",
            view: tainted(Truth::True),
            machine: Active(Power::Unknown),
            want: Want::Taints(others()),
        },
        Case {
            name: "ready in maintenance",
            view: tainted(Truth::True),
            machine: Maintenance,
            want: Want::Taints(others()),
        },
        Case {
            name: "ready though decommissioned",
            view: tainted(Truth::True),
            machine: Decommissioned,
            want: Want::Taints(others()),
        },
        Case {
            name: "ready, its inventory lost",
            view: tainted(Truth::True),
            machine: unknown(),
            want: Want::Taints(others()),
        },
        Case {
            name: "ready and another provider's",
            view: NodeView { provider_id: Some("aws:///i-1".to_owned()), ..tainted(Truth::True) },
            machine: unknown(),
            want: Want::Kept,
        },
        Case {
            name: "ready and nobody's",
            view: NodeView { provider_id: None, ..tainted(Truth::True) },
            machine: unknown(),
            want: Want::Kept,
        },
    ]);
}

#[test]
fn maintenance_holds_everything() {
    let off_before = NodeView { taints: vec![shutdown()], ..node("n1") };
    for view in [node("n1"), with_ready(Some(Truth::Unknown)), acknowledged("n1"), off_before] {
        let want = Want::Held(Note::MachineInMaintenance);
        assert_eq!(plan_one(view.clone(), ObservedMachine::Maintenance), want, "{view:?}");
    }
}

#[test]
fn nodes_of_others_are_left_alone_without_a_word() {
    let foreign = NodeView { provider_id: Some("aws:///i-1".to_owned()), ..node("n1") };
    let deleting = NodeView { is_deleting: true, ..node("n1") };
    check([
        Case { name: "another provider's", view: foreign.clone(), machine: unknown(), want: Want::Kept },
        Case { name: "going already", view: deleting, machine: ObservedMachine::Decommissioned, want: Want::Kept },
        Case {
            name: "another provider's, but a machine names it",
            view: foreign,
            machine: ObservedMachine::Decommissioned,
            want: Want::Deleted,
        },
    ]);
}

#[test]
fn a_node_that_waits_to_be_initialized_is_treated_as_any_other() {
    let view = || NodeView { taints: vec![taint(UNINITIALIZED, NO_SCHEDULE)], ..nameless("n1") };
    check([
        Case { name: "gone", view: view(), machine: ObservedMachine::Decommissioned, want: Want::Deleted },
        Case {
            name: "off",
            view: view(),
            machine: ObservedMachine::Active(Power::Off),
            want: Want::Taints(vec![taint(UNINITIALIZED, NO_SCHEDULE), shutdown()]),
        },
        Case { name: "unknown, which the node controller tells", view: view(), machine: unknown(), want: Want::Kept },
    ]);
}

fn doomed(views: impl IntoIterator<Item = NodeView>, machine_nodes: usize) -> Observed {
    let nodes = views.into_iter().map(|view| (view, ObservedMachine::Decommissioned));
    Observed { machine_nodes, ..observed(nodes) }
}

fn deleted(plan: &Plan) -> Vec<&str> {
    let deletions = plan.actions.iter().filter(|(_, action)| **action == Action::Delete);
    deletions.map(|(name, _)| name.as_str()).collect()
}

#[test]
fn more_than_the_limit_at_once_deletes_none() {
    for (name, views, machine_nodes, recent, want) in [
        ("one of three", vec![node("n1")], 3, vec![], vec!["n1"]),
        ("two of three", vec![node("n1"), node("n2")], 3, vec![], vec![]),
        ("two of twenty", vec![node("n1"), node("n2")], 20, vec![], vec!["n1", "n2"]),
        ("one of twenty after another", vec![node("n2")], 19, vec!["uid-n1"], vec!["n2"]),
        ("one of three after another", vec![node("n2")], 2, vec!["uid-n1"], vec![]),
        ("a delete that was not answered", vec![node("n1")], 2, vec!["uid-n1"], vec!["n1"]),
        ("one of two is acknowledged", vec![node("n1"), acknowledged("n2")], 3, vec![], vec!["n1", "n2"]),
        ("one of three is", vec![node("n1"), acknowledged("n2"), node("n3")], 9, vec![], vec!["n2"]),
    ] {
        let observed = Observed {
            recently_deleted: recent.iter().map(ToString::to_string).collect(),
            ..doomed(views, machine_nodes)
        };
        let plan = plan(&observed);
        assert_eq!(deleted(&plan), want, "{name}");
        let told = plan.notes.iter().filter(|(_, note)| **note == Note::DeletionsHeld { limit: 1 });
        assert_eq!(told.count(), observed.nodes.len() - want.len(), "{name}: each held node says so");
    }
}

#[test]
fn only_true_acknowledges() {
    for (value, want) in [("true", true), ("True", true), ("1", true), ("", false), ("yes", false), ("false", false)] {
        let view = NodeView { annotations: [(brake::ACKNOWLEDGED.to_owned(), value.to_owned())].into(), ..node("n1") };
        assert_eq!(is_acknowledged(&view), want, "{value:?}");
    }
}

fn any_machine() -> impl Strategy<Value = ObservedMachine> {
    let power = prop_oneof![Just(Power::On), Just(Power::Off), Just(Power::Unknown)];
    prop_oneof![
        power.prop_map(ObservedMachine::Active),
        Just(ObservedMachine::Maintenance),
        Just(ObservedMachine::Decommissioned),
        Just(unknown()),
    ]
}

fn any_node(name: String) -> impl Strategy<Value = NodeView> {
    let ready = prop_oneof![Just(Some(Truth::True)), Just(Some(Truth::False)), Just(Some(Truth::Unknown)), Just(None)];
    let provider_id = prop_oneof![Just(None), Just(Some(format!("cairn://{name}"))), Just(Some("aws:///i".to_owned()))];
    let taints = prop::sample::subsequence(vec![taint(UNINITIALIZED, NO_SCHEDULE), shutdown(), taint("a", "b")], 0..=3);
    (ready, provider_id, taints, any::<bool>(), prop::bool::weighted(0.1)).prop_map(
        move |(ready, provider_id, taints, is_acknowledged, is_deleting)| {
            let view = if is_acknowledged { acknowledged(&name) } else { node(&name) };
            NodeView { ready, provider_id, taints, is_deleting, ..view }
        },
    )
}

fn any_observed() -> impl Strategy<Value = Observed> {
    let node = |index: usize| (any_node(format!("n{index}")), any_machine());
    ((0..12_usize).prop_flat_map(move |count| (0..count).map(node).collect::<Vec<_>>()), 0..60_usize).prop_map(
        |(nodes, more)| {
            let observed = observed(nodes);
            Observed { machine_nodes: observed.nodes.len() + more, ..observed }
        },
    )
}

/// The cluster after the plan.
fn applied(mut observed: Observed, plan: &Plan) -> Observed {
    for (name, action) in &plan.actions {
        let node = observed.nodes.get_mut(name).expect("a node that is there");
        match action {
            Action::WriteTaints(taints) => Arc::make_mut(&mut node.view).taints.clone_from(taints),
            Action::Delete => {
                if !is_acknowledged(&node.view) {
                    observed.recently_deleted.insert(node.view.uid.clone());
                }
                observed.nodes.remove(name);
                observed.machine_nodes -= 1;
            }
        }
    }
    observed
}

/// Ten seconds in the life of a cluster.
#[derive(Debug, Clone)]
struct Tick {
    passed: u64,
    dies: Vec<usize>,
    is_answered: bool,
}

fn any_ticks() -> impl Strategy<Value = Vec<Tick>> {
    let tick = (1..400_u64, prop::collection::vec(0..80_usize, 0..4), any::<bool>());
    prop::collection::vec(tick.prop_map(|(passed, dies, is_answered)| Tick { passed, dies, is_answered }), 1..60)
}

proptest! {
    #[test]
    fn only_a_decommissioned_machine_that_is_not_ready_is_deleted(observed in any_observed()) {
        for name in deleted(&plan(&observed)) {
            let node = &observed.nodes[&name.parse().expect("a name")];
            prop_assert_eq!(&node.machine, &ObservedMachine::Decommissioned);
            prop_assert!(node.view.ready != Some(Truth::True) && !node.view.is_deleting);
        }
    }

    #[test]
    fn an_unknown_machine_leads_to_no_delete_and_no_new_taint(observed in any_observed()) {
        let plan = plan(&observed);
        for (name, _) in observed.nodes.iter().filter(|(_, node)| node.machine == unknown()) {
            match plan.actions.get(name) {
                None => {}
                Some(Action::WriteTaints(taints)) => prop_assert!(!taints.contains(&shutdown())),
                Some(Action::Delete) => prop_assert!(false, "{name} is deleted"),
            }
        }
    }

    #[test]
    fn planning_after_applying_yields_nothing(observed in any_observed()) {
        let first = plan(&observed);
        let after = applied(observed, &first);
        prop_assert_eq!(plan(&after).actions, BTreeMap::new());
    }

    #[test]
    fn no_more_than_the_limit_goes_in_any_ten_minutes(count in 1..80_usize, ticks in any_ticks()) {
        let mut cluster: BTreeMap<usize, NodeView> = (0..count).map(|n| (n, node(&format!("n{n}")))).collect();
        let mut dead = BTreeSet::new();
        let (mut now, mut memory) = (Moment::default(), Deletions::default());
        let mut gone = Vec::new();
        for tick in ticks {
            now = now + Duration::from_secs(tick.passed);
            dead.extend(tick.dies);
            let doomed_now = cluster.iter().filter(|(n, _)| dead.contains(*n)).map(|(_, view)| view.clone());
            let recently_deleted = memory.recent(now);
            let still_counted = cluster.values().filter(|view| !recently_deleted.contains(&view.uid)).count();
            let observed = Observed { recently_deleted, ..doomed(doomed_now, still_counted) };
            for name in deleted(&plan(&observed)) {
                memory.remember(format!("uid-{name}"), now);
                // A delete that was not answered may have happened, or not.
                let n = name[1..].parse().expect("a number");
                if tick.is_answered && cluster.remove(&n).is_some() {
                    gone.push(now);
                }
            }
        }
        for end in &gone {
            let within = gone.iter().filter(|then| *then <= end && end.since(**then) < brake::WINDOW);
            prop_assert!(within.count() <= brake::limit(count));
        }
    }
}
