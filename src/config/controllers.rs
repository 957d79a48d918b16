//! The controllers by name, and which of them `--controllers` enables.
//!
//! Names, aliases and the order of precedence are those of Kubernetes' cloud-controller-manager.

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;
use thiserror::Error;

/// One of the loops of a cloud-controller-manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Controller {
    /// Initializes Nodes and follows their addresses.
    Node,
    /// Deletes Nodes whose machine is gone.
    NodeLifecycle,
    /// Gives Services their addresses.
    Service,
    /// Sees to routes between pods.
    Route,
    /// Gives Nodes their pod CIDRs.
    NodeIpam,
}

impl Controller {
    /// Every controller.
    pub const ALL: [Self; 5] = [Self::Node, Self::NodeLifecycle, Self::Service, Self::Route, Self::NodeIpam];

    /// The name since Kubernetes 1.28, which ends in `-controller`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Node => "cloud-node-controller",
            Self::NodeLifecycle => "cloud-node-lifecycle-controller",
            Self::Service => "service-lb-controller",
            Self::Route => "node-route-controller",
            Self::NodeIpam => "node-ipam-controller",
        }
    }

    /// The name before Kubernetes 1.28, still accepted; also the one in metrics.
    pub const fn alias(self) -> &'static str {
        match self {
            Self::Node => "cloud-node",
            Self::NodeLifecycle => "cloud-node-lifecycle",
            Self::Service => "service",
            Self::Route => "route",
            Self::NodeIpam => "nodeipam",
        }
    }

    /// The ServiceAccount in `kube-system` that it writes as with `--use-service-account-credentials`.
    pub const fn account(self) -> &'static str {
        match self {
            Self::Node | Self::NodeLifecycle | Self::NodeIpam => "node-controller",
            Self::Service => "service-controller",
            Self::Route => "route-controller",
        }
    }

    /// The controller of this name or alias.
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|controller| controller.name() == name || controller.alias() == name)
    }
}

impl fmt::Display for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Serialize for Controller {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// A name in `--controllers` that is no controller's. The first half of what is said is upstream's.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{name:?} is not in the list of known controllers: they are {}, and * for all",
    Controller::ALL.map(Controller::name).join(", ")
)]
pub struct UnknownController {
    /// The name, without a leading `-`.
    pub name: String,
}

/// What `--controllers` says, in its order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    entries: Vec<Entry>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entry {
    All,
    On(Controller),
    Off(Controller),
}

impl Selection {
    /// Reads entries: `*`, a name or alias, or either with a leading `-`.
    ///
    /// # Errors
    /// Every name that is unknown.
    pub fn read<S: AsRef<str>>(entries: &[S]) -> Result<Self, Vec<UnknownController>> {
        let mut read = Vec::new();
        let mut unknown = Vec::new();
        for entry in entries.iter().map(AsRef::as_ref).filter(|entry| !entry.is_empty()) {
            let (name, is_off) = entry.strip_prefix('-').map_or((entry, false), |name| (name, true));
            match (Controller::find(name), is_off) {
                _ if entry == "*" => read.push(Entry::All),
                (Some(controller), false) => read.push(Entry::On(controller)),
                (Some(controller), true) => read.push(Entry::Off(controller)),
                (None, _) => unknown.push(UnknownController { name: name.to_owned() }),
            }
        }
        if unknown.is_empty() { Ok(Self { entries: read }) } else { Err(unknown) }
    }

    /// Whether a controller is to run: the first entry that names it decides, else `*`.
    pub fn is_enabled(&self, controller: Controller) -> bool {
        let named = self.entries.iter().find_map(|entry| match entry {
            Entry::On(name) if *name == controller => Some(true),
            Entry::Off(name) if *name == controller => Some(false),
            _ => None,
        });
        named.unwrap_or_else(|| self.entries.contains(&Entry::All))
    }

    /// The controllers that are to run.
    pub fn enabled(&self) -> BTreeSet<Controller> {
        Controller::ALL.into_iter().filter(|controller| self.is_enabled(*controller)).collect()
    }

    /// The entries under canonical names.
    pub fn names(&self) -> Vec<String> {
        let name = |entry: &Entry| match entry {
            Entry::All => "*".to_owned(),
            Entry::On(controller) => controller.to_string(),
            Entry::Off(controller) => format!("-{controller}"),
        };
        self.entries.iter().map(name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use regex_lite::Regex;

    fn enabled(entries: &[&str]) -> Vec<&'static str> {
        Selection::read(entries).expect("known names").enabled().into_iter().map(Controller::alias).collect()
    }

    #[test]
    fn the_first_entry_that_names_a_controller_decides_and_then_the_star() {
        for (entries, want) in [
            (&["*"][..], &["cloud-node", "cloud-node-lifecycle", "service", "route", "nodeipam"][..]),
            (&[], &[]),
            (&[""], &[]),
            (&["cloud-node"], &["cloud-node"]),
            (&["*", "-route"], &["cloud-node", "cloud-node-lifecycle", "service", "nodeipam"]),
            (&["-route", "route", "*"], &["cloud-node", "cloud-node-lifecycle", "service", "nodeipam"]),
            (&["*", "-node-ipam-controller", "nodeipam"], &["cloud-node", "cloud-node-lifecycle", "service", "route"]),
            (&["route", "-route"], &["route"]),
            (&["*", "-cloud-node", "service"], &["cloud-node-lifecycle", "service", "route", "nodeipam"]),
            (&["-service"], &[]),
        ] {
            assert_eq!(enabled(entries), want, "{entries:?}");
        }
    }

    #[test]
    fn aliases_are_accepted_in_both_forms_and_rewritten_to_canonical_names() {
        let entries = ["service-lb-controller", "-service", "route", "-cloud-node-lifecycle-controller"];
        let want = [
            "service-lb-controller",
            "-service-lb-controller",
            "node-route-controller",
            "-cloud-node-lifecycle-controller",
        ];
        assert_eq!(Selection::read(&entries).expect("known names").names(), want);
    }

    #[test]
    fn generic_validation_knows_every_name_it_accepts() {
        for (name, entries, want) in [
            ("the star", &["*"][..], &[][..]),
            ("an empty list", &[], &[]),
            ("a known one", &["cloud-node-controller"], &[]),
            ("the star and known ones", &["*", "-service-lb-controller", "cloud-node-controller"], &[]),
            ("aliases", &["cloud-node", "-route"], &[]),
            ("an unknown one", &["red-controller"], &["\"red-controller\" is not in the list of known controllers"]),
            (
                "unknown ones among aliases",
                &["service", "-grey-controller", "x"],
                &[
                    "\"grey-controller\" is not in the list of known controllers",
                    "\"x\" is not in the list of known controllers",
                ],
            ),
            ("a negated star", &["-*"], &["\"*\" is not in the list of known controllers"]),
        ] {
            let faults: Vec<_> = match Selection::read(entries) {
                Ok(_) => Vec::new(),
                Err(unknown) => unknown.iter().map(ToString::to_string).collect(),
            };
            let known = ": they are cloud-node-controller, cloud-node-lifecycle-controller, service-lb-controller, \
                         node-route-controller, node-ipam-controller, and * for all";
            assert_eq!(faults, want.iter().map(|fault| format!("{fault}{known}")).collect::<Vec<_>>(), "{name}");
        }
    }

    #[test]
    fn names_are_lower_case_words_that_end_in_controller() {
        let form = Regex::new("^[a-z]([-a-z]*[a-z])?$").expect("a pattern");
        for controller in Controller::ALL {
            assert!(form.is_match(controller.name()) && controller.name().ends_with("-controller"), "{controller}");
            assert_eq!(Controller::find(controller.name()), Some(controller));
            assert_eq!(Controller::find(controller.alias()), Some(controller));
        }
    }
}
