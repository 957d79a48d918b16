//! Selectors of labels, checked.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{Fault, Faults, FieldPath, label};
use crate::api::{LabelOperator, LabelRequirement, LabelSelector};

/// Labels of an object, or labels that an object has to have.
pub type Labels = BTreeMap<String, String>;

/// Which objects are meant, by their labels; the default one means every object.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Selector(Vec<Demand>);

/// What one label has to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Demand {
    key: String,
    what: What,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum What {
    OneOf(BTreeSet<String>),
    NoneOf(BTreeSet<String>),
    Present,
    Absent,
}

impl Selector {
    /// Checks a selector that stands at `field`.
    ///
    /// # Errors
    /// Every fault of its keys and values.
    pub fn check(selector: &LabelSelector, field: &FieldPath) -> Result<Self, Faults> {
        let LabelSelector { match_labels, match_expressions } = selector;
        let mut faults: Faults = label_faults(match_labels, &field.field("matchLabels")).into_iter().collect();
        let mut demands: Vec<_> = exact(match_labels).collect();
        for (index, requirement) in match_expressions.iter().enumerate() {
            demands.extend(faults.take(demand(requirement, &field.field("matchExpressions").entry(index))));
        }
        faults.or(Self(demands))
    }

    /// The selector of objects that have these very labels.
    pub fn of_labels(labels: &Labels) -> Self {
        Self(exact(labels).collect())
    }

    /// Whether an object with these labels is meant.
    pub fn matches(&self, labels: &Labels) -> bool {
        self.0.iter().all(|demand| {
            let value = labels.get(&demand.key);
            match &demand.what {
                What::OneOf(values) => value.is_some_and(|value| values.contains(value)),
                What::NoneOf(values) => value.is_none_or(|value| !values.contains(value)),
                What::Present => value.is_some(),
                What::Absent => value.is_none(),
            }
        })
    }

    /// Whether some object may be meant by both, as far as each label by itself shows.
    pub fn may_meet(&self, other: &Self) -> bool {
        self.0
            .iter()
            .all(|mine| other.0.iter().filter(|theirs| theirs.key == mine.key).all(|theirs| mine.allows(theirs)))
    }
}

impl Demand {
    fn allows(&self, other: &Self) -> bool {
        use What::{Absent, NoneOf, OneOf, Present};
        match (&self.what, &other.what) {
            (OneOf(mine), OneOf(theirs)) => !mine.is_disjoint(theirs),
            (OneOf(some), NoneOf(none)) | (NoneOf(none), OneOf(some)) => !some.is_subset(none),
            (OneOf(_) | Present, Absent) | (Absent, OneOf(_) | Present) => false,
            _ => true,
        }
    }
}

/// What is wrong with labels that an object has to have.
pub fn label_faults(labels: &Labels, field: &FieldPath) -> Vec<Fault> {
    let wrong = |(key, value): (&String, &String)| {
        let message = label::key_fault(key).or_else(|| label::value_fault(value))?;
        Some(Fault::new(field.field(key), message))
    };
    labels.iter().filter_map(wrong).collect()
}

fn exact(labels: &Labels) -> impl Iterator<Item = Demand> + '_ {
    let only = |value: &String| What::OneOf(BTreeSet::from([value.clone()]));
    labels.iter().map(move |(key, value)| Demand { key: key.clone(), what: only(value) })
}

fn demand(requirement: &LabelRequirement, field: &FieldPath) -> Result<Demand, Faults> {
    let LabelRequirement { key, operator, values } = requirement;
    let mut faults = Faults::NONE;
    faults.extend(label::key_fault(key).map(|message| Fault::new(field.field("key"), message)));
    let in_values = field.field("values");
    for (index, value) in values.iter().enumerate() {
        faults.extend(label::value_fault(value).map(|message| Fault::new(in_values.entry(index), message)));
    }
    let takes_values = matches!(operator, LabelOperator::In | LabelOperator::NotIn);
    if takes_values && values.is_empty() {
        faults.push(Fault::new(
            in_values,
            format!("is empty: with the operator {operator:?} it takes at least one value"),
        ));
    } else if !takes_values && !values.is_empty() {
        faults.push(Fault::new(in_values, format!("is not empty: the operator {operator:?} takes no values")));
    }
    let values: BTreeSet<_> = values.iter().cloned().collect();
    let what = match operator {
        LabelOperator::In => What::OneOf(values),
        LabelOperator::NotIn => What::NoneOf(values),
        LabelOperator::Exists => What::Present,
        LabelOperator::DoesNotExist => What::Absent,
    };
    faults.or(Demand { key: key.clone(), what })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn expression(key: &str, operator: LabelOperator, values: &[&str]) -> LabelSelector {
        let values = values.iter().map(ToString::to_string).collect();
        let requirement = LabelRequirement { key: key.to_owned(), operator, values };
        LabelSelector { match_expressions: vec![requirement], ..LabelSelector::default() }
    }

    fn check(selector: &LabelSelector) -> Result<Selector, String> {
        Selector::check(selector, &FieldPath::of("spec").field("poolSelector")).map_err(|faults| faults.to_string())
    }

    use LabelOperator::{DoesNotExist, Exists, In, NotIn};

    #[test]
    fn each_operator_means_what_it_means_in_kubernetes() {
        for (operator, values, of_edge, of_core, of_none) in [
            (In, &["edge", "rim"][..], true, false, false),
            (NotIn, &["edge"], false, true, true),
            (Exists, &[], true, true, false),
            (DoesNotExist, &[], false, false, true),
        ] {
            let selector = check(&expression("tier", operator, values)).expect("a selector");
            let got = [&[("tier", "edge")][..], &[("tier", "core")], &[]].map(|pairs| selector.matches(&labels(pairs)));
            assert_eq!(got, [of_edge, of_core, of_none], "{operator:?}");
        }
        assert!(check(&LabelSelector::default()).expect("a selector").matches(&labels(&[])));
        let both = LabelSelector { match_labels: labels(&[("a", "1")]), ..expression("b", Exists, &[]) };
        let both = check(&both).expect("a selector");
        assert!(both.matches(&labels(&[("a", "1"), ("b", "")])) && !both.matches(&labels(&[("a", "1")])));
    }

    #[test]
    fn all_faults_of_a_selector_are_told() {
        let mut selector = expression("a b", In, &[]);
        selector.match_expressions.extend(expression("tier", Exists, &["x y"]).match_expressions);
        selector.match_labels = labels(&[("tier", "-")]);
        let told = check(&selector).expect_err("faults");
        for want in [
            "spec.poolSelector.matchLabels.tier: \"-\" is not the value of a label",
            "spec.poolSelector.matchExpressions[0].key: \"a b\" is not the key of a label",
            "spec.poolSelector.matchExpressions[0].values: is empty: with the operator In it takes at least one value",
            "spec.poolSelector.matchExpressions[1].values: is not empty: the operator Exists takes no values",
            "spec.poolSelector.matchExpressions[1].values[0]: \"x y\" is not the value of a label",
        ] {
            assert!(told.contains(want), "{want} is not in\n{told}");
        }
    }

    #[test]
    fn selectors_meet_unless_one_label_shows_that_they_cannot() {
        let of = |operator, values: &[&str]| check(&expression("tier", operator, values)).expect("a selector");
        for (one, other, want) in [
            (of(In, &["a", "b"]), of(In, &["b"]), true),
            (of(In, &["a"]), of(In, &["b"]), false),
            (of(In, &["a"]), of(NotIn, &["a"]), false),
            (of(In, &["a", "b"]), of(NotIn, &["a"]), true),
            (of(Exists, &[]), of(DoesNotExist, &[]), false),
            (of(In, &["a"]), of(DoesNotExist, &[]), false),
            (of(NotIn, &["a"]), of(DoesNotExist, &[]), true),
            (of(In, &["a"]), Selector::default(), true),
        ] {
            assert_eq!((one.may_meet(&other), other.may_meet(&one)), (want, want), "{one:?} {other:?}");
        }
    }
}
