//! Leader migration (KEP-2436): which controller runs under which lock.
//!
//! While the loops of a cloud move from kube-controller-manager to a cloud-controller-manager, both
//! are there, each with a leader of its own. Controllers that both can run are named in a file and
//! run under a second Lease, which the leader of either component stands for while it leads. So
//! nobody runs them twice, and nobody has to stop the cluster.
//!
//! DEVIATION(KEP-2436): upstream compares the names of the file with canonical ones only, so that its
//! own default, and the names its documentation gives, leave the route and the service controller
//! under the main lock, where both components run them. Here every name that upstream has used means
//! the controller. An entry for a controller twice, or for an unknown component, is refused: upstream
//! lets the last one win, and runs what belongs to an unknown component nowhere.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::nearest::nearest;
use crate::config::object::{self, Head};
use crate::config::{Controller, Fault, Faults, FieldPath, document};

/// `kind` of the file.
pub const KIND: &str = "LeaderMigrationConfiguration";
/// `apiVersion` of the file since Kubernetes 1.24.
pub const API_VERSION: &str = "controllermanager.config.k8s.io/v1";
/// Its versions before that, which also name the kind of lock.
pub const OLDER_VERSIONS: [&str; 2] =
    ["controllermanager.config.k8s.io/v1beta1", "controllermanager.config.k8s.io/v1alpha1"];
/// The second Lease, where no file names another.
const LEASE: &str = "cloud-provider-extraction-migration";

/// Where a controller of this process runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Placement {
    /// Under the main lock: the file does not name it.
    Main,
    /// Under the migration lock.
    Migration,
    /// In the other component, never here.
    Elsewhere,
}

/// Who runs a controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Component {
    /// The component that the controllers come from.
    KubeControllerManager,
    /// A cloud provider's own, such as this one.
    CloudControllerManager,
    /// Whichever of the two holds the migration lock.
    #[serde(rename = "*")]
    Any,
}

/// What a LeaderMigrationConfiguration says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Migration {
    /// Name of the second Lease; it is in the namespace of the first, with the same times.
    pub lease: String,
    /// The controllers that the file names.
    pub components: BTreeMap<Controller, Component>,
    /// What is not wrong, but most likely not meant: entries without effect.
    #[serde(skip)]
    pub warnings: Faults,
}

impl Default for Migration {
    /// Kubernetes' own: whichever component holds the lock runs the loops that both have.
    fn default() -> Self {
        let shared = [Controller::Route, Controller::Service, Controller::NodeLifecycle];
        let components = shared.map(|controller| (controller, Component::Any)).into();
        Self { lease: LEASE.to_owned(), components, warnings: Faults::NONE }
    }
}

impl Migration {
    /// Reads the text of a file, YAML or JSON; `file` is the name that faults get.
    ///
    /// # Errors
    /// Every fault of the file.
    pub fn parse(file: &Path, text: &str) -> Result<Self, Faults> {
        let parsed = document::parse(file, text);
        let mut faults = parsed.faults;
        let [only] = parsed.documents.as_slice() else {
            if !parsed.documents.is_empty() {
                faults.push(Fault::of_file(file, format!("has several documents: it takes one {KIND}")));
            }
            return Err(faults);
        };
        match faults.take(Self::check(file, only)) {
            Some(migration) => faults.or(migration),
            None => Err(faults),
        }
    }

    /// Where a controller of this process, a cloud-controller-manager, runs.
    pub fn placement(&self, controller: Controller) -> Placement {
        self.placement_in(Component::CloudControllerManager, controller)
    }

    /// Those of the controllers that run here at this place.
    pub fn placed(&self, at: Placement, controllers: &BTreeSet<Controller>) -> BTreeSet<Controller> {
        controllers.iter().copied().filter(|controller| self.placement(*controller) == at).collect()
    }

    fn placement_in(&self, me: Component, controller: Controller) -> Placement {
        match self.components.get(&controller) {
            None => Placement::Main,
            Some(component) if *component == me || *component == Component::Any => Placement::Migration,
            Some(_) => Placement::Elsewhere,
        }
    }

    /// Checks a document of `file`.
    ///
    /// # Errors
    /// Every fault of the document.
    pub fn check(file: &Path, document: &document::Node) -> Result<Self, Faults> {
        let written = Head::read(file, document)?.api_version;
        if OLDER_VERSIONS.contains(&written.as_str()) {
            Head::expect(file, document, &written, KIND)?;
            return object::read(file, document)?.check(|raw| Self::of_older(raw, file, document));
        }
        Head::expect(file, document, API_VERSION, KIND)?;
        object::read(file, document)?.check(|raw| Self::of_raw(raw, file, document))
    }

    fn of_older(raw: RawOlderMigration, file: &Path, document: &document::Node) -> Result<Self, Faults> {
        let RawOlderMigration { api_version, kind, leader_name, resource_lock, controller_leaders } = raw;
        let mut faults = Faults::NONE;
        let message = match resource_lock.as_deref() {
            None | Some("leases") => None,
            Some("endpoints") => Some("endpoints lock is removed, migrate to leases".to_owned()),
            Some(other) => Some(format!("{other:?} is no resource lock: it takes leases")),
        };
        if let Some(message) = message {
            faults.push(fault(file, document, FieldPath::of("resourceLock"), message));
        }
        let raw = RawMigration { api_version, kind, leader_name, controller_leaders };
        match faults.take(Self::of_raw(raw, file, document)) {
            Some(migration) => faults.or(migration),
            None => Err(faults),
        }
    }

    fn of_raw(raw: RawMigration, file: &Path, document: &document::Node) -> Result<Self, Faults> {
        let RawMigration { api_version: _, kind: _, leader_name, controller_leaders } = raw;
        let mut faults = Faults::NONE;
        if leader_name.is_empty() {
            let message =
                format!("leaderName must be set: it is the name of the Lease that both components share, {LEASE}");
            faults.push(fault(file, document, FieldPath::of("leaderName"), message));
        }
        let mut migration = Self { lease: leader_name, components: BTreeMap::new(), warnings: Faults::NONE };
        for (index, leader) in controller_leaders.into_iter().enumerate() {
            let field = FieldPath::of("controllerLeaders").entry(index);
            let place = |inner: &str, message: String| fault(file, document, field.field(inner), message);
            let component =
                faults.take(component(&leader.component).map_err(|message| place("component", message).into()));
            if leader.name.is_empty() {
                faults.push(place("name", "name must be set: it is the name of a controller".to_owned()));
                continue;
            }
            let Some(controller) = controller(&leader.name) else {
                migration.warnings.push(place("name", without_effect(&leader.name)));
                continue;
            };
            let is_second =
                component.is_some_and(|component| migration.components.insert(controller, component).is_some());
            if is_second {
                faults.push(place("name", format!("names {controller} a second time: one entry a controller")));
            }
        }
        faults.or(migration)
    }
}

fn fault(file: &Path, document: &document::Node, field: FieldPath, message: String) -> Fault {
    let position = document.position_of(&field);
    Fault::new(field, message).in_file(file).at(position)
}

/// The controller of this name, of its alias, or of the names that upstream's default file has.
fn controller(name: &str) -> Option<Controller> {
    match name {
        "route-controller" => Some(Controller::Route),
        "service-controller" => Some(Controller::Service),
        name => Controller::find(name),
    }
}

fn without_effect(name: &str) -> String {
    let known = Controller::ALL.iter().flat_map(|controller| [controller.name(), controller.alias()]);
    match nearest(name, known) {
        Some(meant) => {
            format!("{name:?} is no controller of Cairn, the entry has no effect here: did you mean {meant}?")
        }
        None => format!("{name:?} is no controller of Cairn: the entry has no effect here"),
    }
}

fn component(name: &str) -> Result<Component, String> {
    match name {
        "" => Err("component must be set: it takes kube-controller-manager, cloud-controller-manager or *".to_owned()),
        "*" => Ok(Component::Any),
        "kube-controller-manager" => Ok(Component::KubeControllerManager),
        "cloud-controller-manager" => Ok(Component::CloudControllerManager),
        other => {
            Err(format!("{other:?} is no component: it takes kube-controller-manager, cloud-controller-manager or *"))
        }
    }
}

/// The file's shape since `v1`. What is missing is as good as empty, in upstream's words too.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawMigration {
    api_version: String,
    kind: String,
    #[serde(default)]
    leader_name: String,
    #[serde(default)]
    controller_leaders: Vec<RawLeader>,
}

/// The file's shape before `v1`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawOlderMigration {
    api_version: String,
    kind: String,
    #[serde(default)]
    leader_name: String,
    resource_lock: Option<String>,
    #[serde(default)]
    controller_leaders: Vec<RawLeader>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RawLeader {
    #[serde(default)]
    name: String,
    #[serde(default)]
    component: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use Controller::{Node, NodeIpam, NodeLifecycle, Route, Service};
    use Placement::{Elsewhere, Main, Migration as Second};

    const HEAD: &str = "apiVersion: controllermanager.config.k8s.io/v1\nkind: LeaderMigrationConfiguration\n";

    fn parse(text: &str) -> Result<Migration, String> {
        Migration::parse(Path::new("m.yaml"), text).map_err(|faults| faults.to_string())
    }

    /// A file with one entry a line: `name component`.
    fn of(entries: &[&str]) -> Migration {
        let entries: Vec<_> = entries.iter().filter_map(|entry| entry.split_once(' ')).collect();
        let lines = entries.iter().map(|(name, component)| format!("- {{name: {name}, component: \"{component}\"}}\n"));
        let list = lines.collect::<String>();
        let list = if list.is_empty() { " []".to_owned() } else { format!("\n{list}") };
        parse(&format!("{HEAD}leaderName: m\ncontrollerLeaders:{list}")).expect("a file without faults")
    }

    #[test]
    fn without_a_file_the_loops_that_both_components_have_are_shared() {
        let migration = Migration::default();
        assert_eq!(migration.lease, "cloud-provider-extraction-migration");
        for (controller, want) in
            [(Node, Main), (NodeLifecycle, Second), (Service, Second), (Route, Second), (NodeIpam, Main)]
        {
            assert_eq!(migration.placement(controller), want, "{controller}");
        }
    }

    #[test]
    fn the_filter_is_not_listed_listed_for_me_listed_for_another() {
        for (entries, want) in [
            (&[][..], Main),
            (&["service-lb-controller *"], Main),
            (&["node-route-controller *"], Second),
            (&["node-route-controller cloud-controller-manager"], Second),
            (&["node-route-controller kube-controller-manager"], Elsewhere),
        ] {
            assert_eq!(of(entries).placement(Route), want, "{entries:?}");
        }
    }

    #[test]
    fn every_name_that_upstream_has_used_means_the_controller() {
        for (name, want) in [
            ("route", Route),
            ("route-controller", Route),
            ("node-route-controller", Route),
            ("service", Service),
            ("service-controller", Service),
            ("service-lb-controller", Service),
            ("cloud-node-lifecycle", NodeLifecycle),
            ("cloud-node-lifecycle-controller", NodeLifecycle),
            ("cloud-node", Node),
            ("cloud-node-controller", Node),
            ("nodeipam", NodeIpam),
            ("node-ipam-controller", NodeIpam),
        ] {
            let migration = of(&[&format!("{name} *")]);
            assert_eq!(migration.components, BTreeMap::from([(want, Component::Any)]), "{name}");
            assert!(migration.warnings.is_empty(), "{name}");
        }
    }

    #[test]
    fn controllers_are_divided_among_the_locks() {
        let migration = of(&["route *", "cloud-node-lifecycle kube-controller-manager"]);
        let all = Controller::ALL.into();
        for (at, want) in
            [(Main, vec![Node, Service, NodeIpam]), (Second, vec![Route]), (Elsewhere, vec![NodeLifecycle])]
        {
            assert_eq!(migration.placed(at, &all), want.into_iter().collect(), "{at:?}");
        }
    }

    #[test]
    fn files_of_all_versions_are_read() {
        for (name, text) in [
            ("v1", HEAD.to_owned()),
            ("v1beta1 with a lock", HEAD.replace("v1", "v1beta1") + "resourceLock: leases\n"),
            ("v1beta1 without one", HEAD.replace("v1", "v1beta1")),
            ("v1alpha1", HEAD.replace("v1", "v1alpha1") + "resourceLock: leases\n"),
        ] {
            let read = parse(&(text + "leaderName: m\n"));
            let want = Migration { lease: "m".to_owned(), components: BTreeMap::new(), warnings: Faults::NONE };
            assert_eq!(read, Ok(want), "{name}");
        }
    }

    #[test]
    fn json_is_read_as_well() {
        let text = r#"{"apiVersion": "controllermanager.config.k8s.io/v1", "kind": "LeaderMigrationConfiguration",
            "leaderName": "m", "controllerLeaders": [{"name": "route", "component": "*"}]}"#;
        assert_eq!(parse(text).map(|migration| migration.placement(Route)), Ok(Second));
    }

    #[test]
    fn a_mixed_list_and_one_with_controllers_of_others_are_read() {
        let migration = of(&[
            "garbage-collector-controller *",
            "node-route-controller cloud-controller-manager",
            "service-lb-controller kube-controller-manager",
            "node-ipam-controller *",
        ]);
        let want = [
            (Route, Component::CloudControllerManager),
            (Service, Component::KubeControllerManager),
            (NodeIpam, Component::Any),
        ];
        assert_eq!(migration.components, want.into());
        assert_eq!(
            migration.warnings.to_string(),
            "m.yaml:5:10: controllerLeaders[0].name: \"garbage-collector-controller\" is no controller of Cairn: the entry has no effect here"
        );
    }

    #[test]
    fn a_misspelt_controller_is_told_with_what_was_meant() {
        let told = of(&["service-lb-controler *"]).warnings.to_string();
        assert!(told.ends_with("did you mean service-lb-controller?"), "{told}");
    }

    #[test]
    fn a_file_that_is_wrong_is_refused_with_place_and_reason() {
        let with = |rest: &str| format!("{HEAD}{rest}");
        for (name, text, want) in [
            ("empty", String::new(), "m.yaml: is empty: it takes at least one YAML document"),
            (
                "another kind",
                "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n".to_owned(),
                "m.yaml:1:13: apiVersion: \"kubelet.config.k8s.io/v1beta1\" is not right in this file: it takes \
                 controllermanager.config.k8s.io/v1\n\
                 m.yaml:2:7: kind: \"KubeletConfiguration\" is not right in this file: it takes LeaderMigrationConfiguration",
            ),
            ("an unknown field", with("leaderName: m\nfoo: 1\n"), "m.yaml:4:1: foo: is not a field"),
            ("a lock in v1", with("leaderName: m\nresourceLock: leases\n"), "m.yaml:4:1: resourceLock: is not a field"),
            (
                "a field twice",
                with("leaderName: m\nleaderName: n\n"),
                "m.yaml:4:1: leaderName: is already there at line 3",
            ),
            ("no name", with("controllerLeaders: []\n"), "m.yaml:1:1: leaderName: leaderName must be set"),
            ("an empty name", with("leaderName: \"\"\n"), "m.yaml:3:13: leaderName: leaderName must be set"),
            (
                "an entry without a name",
                with("leaderName: m\ncontrollerLeaders: [{component: \"*\"}]\n"),
                "m.yaml:4:21: controllerLeaders[0].name: name must be set",
            ),
            (
                "an entry without a component",
                with("leaderName: m\ncontrollerLeaders: [{name: route}]\n"),
                "m.yaml:4:21: controllerLeaders[0].component: component must be set",
            ),
            (
                "an unknown component",
                with("leaderName: m\ncontrollerLeaders: [{name: route, component: kubelet}]\n"),
                "m.yaml:4:46: controllerLeaders[0].component: \"kubelet\" is no component",
            ),
            (
                "a controller twice, under two of its names",
                with(
                    "leaderName: m\ncontrollerLeaders:\n- {name: route, component: \"*\"}\n- {name: node-route-controller, component: \"*\"}\n",
                ),
                "m.yaml:6:10: controllerLeaders[1].name: names node-route-controller a second time",
            ),
            (
                "a lock on endpoints",
                HEAD.replace("v1", "v1beta1") + "leaderName: m\nresourceLock: endpoints\n",
                "m.yaml:4:15: resourceLock: endpoints lock is removed, migrate to leases",
            ),
            (
                "an unknown lock",
                HEAD.replace("v1", "v1alpha1") + "leaderName: m\nresourceLock: invalid\n",
                "m.yaml:4:15: resourceLock: \"invalid\" is no resource lock: it takes leases",
            ),
            (
                "two documents",
                with("leaderName: m\n---\n") + &with("leaderName: n\n"),
                "m.yaml: has several documents: it takes one LeaderMigrationConfiguration",
            ),
        ] {
            let told = parse(&text).expect_err(name);
            assert!(told.starts_with(want), "{name}: {told}");
        }
    }

    /// What a leader of a component runs; `None` is one without the flag, which runs all it has.
    fn runs(migration: Option<&Migration>, me: Component, holds_second: bool, controller: Controller) -> bool {
        let is_known = me == Component::CloudControllerManager || controller != Node;
        let placement = migration.map_or(Main, |migration| migration.placement_in(me, controller));
        is_known && (placement == Main || placement == Second && holds_second)
    }

    /// What comes of files that do not fit each other (KEP-2436, its table of failures).
    #[test]
    fn what_the_files_of_two_components_mean_together() {
        const BOTH: &str = "run twice";
        const NOBODY: &str = "run by nobody";
        const ONE: &str = "run by one";
        let star = of(&["route *"]);
        let kcm = of(&["route kube-controller-manager"]);
        let ccm = of(&["route cloud-controller-manager"]);
        let renamed = Migration { lease: "another".to_owned(), ..star.clone() };
        let unlisted = of(&["service *"]);
        for (name, of_kcm, of_ccm, want) in [
            ("both share", Some(&star), Some(&star), [ONE, ONE]),
            ("each names itself", Some(&kcm), Some(&ccm), [ONE, ONE]),
            ("each names the other", Some(&ccm), Some(&kcm), [NOBODY, NOBODY]),
            ("both name kube-controller-manager", Some(&kcm), Some(&kcm), [ONE, NOBODY]),
            ("both name cloud-controller-manager", Some(&ccm), Some(&ccm), [NOBODY, ONE]),
            ("only one has the flag", Some(&kcm), None, [BOTH, ONE]),
            ("one does not list it", Some(&star), Some(&unlisted), [BOTH, ONE]),
            ("neither lists it", Some(&unlisted), Some(&unlisted), [BOTH, BOTH]),
            ("two Leases", Some(&star), Some(&renamed), [BOTH, BOTH]),
        ] {
            let is_one_lease = of_kcm.zip(of_ccm).is_none_or(|(one, other)| one.lease == other.lease);
            // First kube-controller-manager holds the second lock, then the cloud-controller-manager does.
            let told = [true, false].map(|kcm_holds| {
                let ccm_holds = !kcm_holds || !is_one_lease;
                let kcm_holds = kcm_holds || !is_one_lease;
                let running = [
                    runs(of_kcm, Component::KubeControllerManager, kcm_holds, Route),
                    runs(of_ccm, Component::CloudControllerManager, ccm_holds, Route),
                ];
                match running.into_iter().filter(|runs| *runs).count() {
                    0 => NOBODY,
                    1 => ONE,
                    _ => BOTH,
                }
            });
            assert_eq!(told, want, "{name}");
        }
    }
}
