//! Leader migration with an older kube-controller-manager that still runs a cloud's loops, there and back.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Service};
use kube::Api;

use super::SOON;
use crate::harness::{
    Lab,
    control_plane::ApiRequest,
    enclosure::{WORK, inside},
    kubernetes::Kubernetes,
    namespace::Program,
    wait::stays,
    wait_for,
};

const LEASE: &str = "cloud-provider-extraction-migration";
/// Shorter than by default, so that what is not given back has run out soon.
const TIMES: [&str; 3] =
    ["--leader-elect-lease-duration=6s", "--leader-elect-renew-deadline=4s", "--leader-elect-retry-period=1s"];
/// Longer than a lease, and the wait of a candidate after it.
const RUN_OUT: Duration = Duration::from_secs(30);
/// Longer than what a candidate needs to take what is free.
const A_WHILE: Duration = Duration::from_secs(4);

#[test]
fn a_clouds_loops_move_from_kube_controller_manager_to_cairn_and_back() {
    inside(async || loops_move_there_and_back(Kubernetes::default()).await);
}

/// The partner holds the second Lease, then Cairn does, then the partner again, while Nodes join.
pub(super) async fn loops_move_there_and_back(kubernetes: Kubernetes) -> Result<()> {
    let mut lab = Lab::builder().kubernetes(kubernetes).start().await?;
    let migration = Migration::prepare(&mut lab).await?;

    let partner = migration.spawn_partner(&lab)?;
    migration.wait_until(&lab, "the partner holds the second Lease", Holder::Partner).await?;
    let first = migration.service(&lab, "first").await?;
    // One that a kubelet of those days initialized; the inventory knows it by its provider ID.
    lab.add_node(6).await?;
    lab.node("n6")?.initialize_by_hand().await?;
    lab.add_node(1).await?;

    migration.spawn_cairn(&mut lab)?;
    // Without rights on the second Lease the main controllers run, and say what is missing.
    lab.node("n1")?.wait_until_initialized().await?;
    let controller = lab.controller()?;
    wait_for("Cairn says that it may not read the second Lease", SOON, async || {
        let log = controller.log()?;
        ensure!(log.contains("cannot reach the lease"), "its log: {log}");
        Ok(())
    })
    .await?;
    lab.cairn()?.allow_leader_migration(lab.control_plane()).await?;
    lab.add_node(2).await?;
    lab.node("n2")?.wait_until_initialized().await?;
    stays("Cairn waits for the second Lease", A_WHILE, async || migration.is_held_by(&lab, Holder::Partner).await)
        .await?;

    partner.signal(rustix::process::Signal::TERM)?;
    lab.add_node(3).await?;
    migration.wait_until(&lab, "Cairn holds the second Lease", Holder::Cairn).await?;
    let second = migration.service(&lab, "second").await?;
    lab.node("n3")?.wait_until_initialized().await?;

    let mut partner = migration.spawn_partner(&lab)?;
    lab.add_node(4).await?;
    lab.node("n4")?.wait_until_initialized().await?;
    stays("the partner waits for the second Lease", A_WHILE, async || {
        partner.ensure_running()?;
        migration.is_held_by(&lab, Holder::Cairn).await
    })
    .await?;

    let status = lab.controller()?.terminate(Duration::from_secs(4)).await?;
    ensure!(status.success(), "Cairn ended with {status}");
    lab.add_node(5).await?;
    migration.wait_until(&lab, "the partner holds the second Lease", Holder::Partner).await?;
    let third = migration.service(&lab, "third").await?;

    migration.spawn_cairn(&mut lab)?;
    lab.node("n5")?.wait_until_initialized().await?;
    stays("Cairn waits for the second Lease", A_WHILE, async || migration.is_held_by(&lab, Holder::Partner).await)
        .await?;

    let shown = lab.control_plane().kubectl(["get", "machine", "m6", "-o", "jsonpath={.status.node}"]).await?;
    ensure!(shown == "n6", "Machine m6 is node {shown:?}");
    let spec = lab.node("n6")?.object().await?.spec.unwrap_or_default();
    ensure!(spec.provider_id.as_deref() == Some("lab://n6"), "{spec:?}");
    for (name, address) in [("first", first), ("second", second), ("third", third)] {
        let now = address_of(&lab, name).await?;
        ensure!(now == address, "Service {name} had {address} and has {now}");
    }
    let requests = lab.control_plane().requests()?;
    only_the_holder_wrote(&requests)?;
    every_node_was_initialized_once(&requests)
}

#[test]
fn another_lease_name_in_the_partners_file_is_told_and_stops_nothing() {
    inside(async || {
        let mut lab = Lab::builder().start().await?;
        let migration = Migration::prepare(&mut lab).await?;
        lab.cairn()?.allow_leader_migration(lab.control_plane()).await?;
        let theirs = migration.with_another_lease("another-name")?;
        let _partner = theirs.spawn_partner(&lab)?;
        let leases: Api<Lease> = Api::namespaced(lab.kube().clone(), "kube-system");
        wait_for("the partner holds its own second Lease", SOON, async || {
            let spec = leases.get("another-name").await?.spec;
            ensure!(spec.and_then(|spec| spec.holder_identity).is_some_and(|holder| !holder.is_empty()), "not held");
            Ok(())
        })
        .await?;
        migration.spawn_cairn(&mut lab)?;
        let controller = lab.controller()?;
        wait_for("Cairn says which name differs from which", SOON, async || {
            let log = controller.log()?;
            let is_told = |line: &str| line.contains("holds Lease another-name as well") && line.contains(LEASE);
            ensure!(log.lines().any(is_told), "its log: {log}");
            Ok(())
        })
        .await?;
        lab.add_node(1).await?;
        lab.node("n1")?.wait_until_initialized().await
    });
}

/// Who holds the second Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    Partner,
    Cairn,
}

/// The two components' flags and files.
#[derive(Clone)]
pub(super) struct Migration {
    file: PathBuf,
    /// What the partner runs of the controllers that both have.
    of_partner: String,
    /// More flags, which both understand.
    flags: Vec<String>,
}

impl Migration {
    /// Installs Cairn with six machines and the partner's addresses.
    async fn prepare(lab: &mut Lab) -> Result<Self> {
        lab.install_cairn().await?;
        let cairn = lab.cairn()?;
        cairn.edit("pool.yaml", "10.60.0.10-10.60.0.250", "198.18.0.0/24")?;
        std::fs::write(cairn.configuration().join("inventory.yaml"), inventory())?;
        lab.apply_pool_and_peer().await?;
        Self::of(&["service-lb-controller", "node-route-controller", "cloud-node-lifecycle-controller"], &[])
    }

    /// Of these controllers; both components get these flags as well.
    pub(super) fn of(controllers: &[&str], flags: &[&str]) -> Result<Self> {
        let file = Path::new(WORK).join("migration.yaml");
        let entries: String =
            controllers.iter().map(|name| format!("- {{name: {name}, component: \"*\"}}\n")).collect();
        std::fs::write(
            &file,
            format!(
                "apiVersion: controllermanager.config.k8s.io/v1\n\
                 kind: LeaderMigrationConfiguration\n\
                 leaderName: {LEASE}\n\
                 controllerLeaders:\n\
                 {entries}"
            ),
        )?;
        // The partner's cloud has no routes.
        let of_partner: Vec<_> = controllers.iter().copied().filter(|name| *name != "node-route-controller").collect();
        let flags = flags.iter().map(ToString::to_string).collect();
        Ok(Self { file, of_partner: of_partner.join(","), flags })
    }

    /// The same with a copy of the file that names another Lease.
    fn with_another_lease(&self, name: &str) -> Result<Self> {
        let file = Path::new(WORK).join("another-migration.yaml");
        std::fs::write(&file, std::fs::read_to_string(&self.file)?.replace(LEASE, name))?;
        Ok(Self { file, ..self.clone() })
    }

    pub(super) fn spawn_partner(&self, lab: &Lab) -> Result<Program> {
        let flags = self.flags();
        let flags: Vec<_> = flags.iter().map(String::as_str).collect();
        lab.control_plane().spawn_migration_partner(&self.of_partner, &flags)
    }

    pub(super) fn spawn_cairn(&self, lab: &mut Lab) -> Result<()> {
        let flags = self.flags();
        let flags: Vec<_> = flags.iter().map(String::as_str).collect();
        lab.spawn_controller_with(&flags)
    }

    fn flags(&self) -> Vec<String> {
        let file = format!("--leader-migration-config={}", self.file.display());
        let common = ["--enable-leader-migration".to_owned(), file].into_iter();
        common.chain(TIMES.map(str::to_owned)).chain(self.flags.iter().cloned()).collect()
    }

    async fn holder(&self, lab: &Lab) -> Result<Option<Holder>> {
        let leases: Api<Lease> = Api::namespaced(lab.kube().clone(), "kube-system");
        let holder = async |name: &str| {
            let spec = leases.get_opt(name).await?.and_then(|lease| lease.spec);
            anyhow::Ok(spec.and_then(|spec| spec.holder_identity).filter(|holder| !holder.is_empty()))
        };
        let Some(migration) = holder(LEASE).await? else { return Ok(None) };
        // A process has one name in both of its Leases.
        match holder("cloud-controller-manager").await? == Some(migration) {
            true => Ok(Some(Holder::Cairn)),
            false => Ok(Some(Holder::Partner)),
        }
    }

    pub(super) async fn is_held_by(&self, lab: &Lab, wanted: Holder) -> Result<()> {
        let holder = self.holder(lab).await?;
        ensure!(holder == Some(wanted), "{holder:?} holds it");
        Ok(())
    }

    pub(super) async fn wait_until(&self, lab: &Lab, what: &str, wanted: Holder) -> Result<()> {
        wait_for(what, RUN_OUT, async || self.is_held_by(lab, wanted).await).await
    }

    /// Makes a Service and returns the address that it gets.
    async fn service(&self, lab: &Lab, name: &str) -> Result<String> {
        lab.control_plane().kubectl(["create", "service", "loadbalancer", name, "--tcp=80:8080"]).await?;
        wait_for(&format!("Service {name} has an address"), SOON, async || address_of(lab, name).await).await
    }
}

fn inventory() -> String {
    let machine = |(number, key)| {
        format!(
            "- {{id: m{number}, state: active, match: {{{key}}}, \
             addresses: [{{type: InternalIP, address: 10.90.0.1{number}}}]}}\n"
        )
    };
    let by_name = (1..=5).map(|number| (number, format!("nodeName: n{number}")));
    let list: String = by_name.chain([(6, "providerID: \"lab://n6\"".to_owned())]).map(machine).collect();
    format!("apiVersion: inventory.cairn.dev/v1\nkind: Inventory\nmachines:\n{list}")
}

async fn address_of(lab: &Lab, name: &str) -> Result<String> {
    let services: Api<Service> = Api::default_namespaced(lab.kube().clone());
    let balancer = services.get(name).await?.status.and_then(|status| status.load_balancer);
    let ingress = balancer.and_then(|balancer| balancer.ingress).unwrap_or_default();
    let first = ingress.into_iter().next().and_then(|ingress| ingress.ip);
    first.with_context(|| format!("Service {name} has no address"))
}

/// Whoever wrote to a Service had written the second Lease last.
fn only_the_holder_wrote(requests: &[ApiRequest]) -> Result<()> {
    let mut holder = None;
    let mut writes = BTreeMap::<_, usize>::new();
    for request in requests.iter().filter(|request| request.is_write() && request.is_accepted()) {
        let writer = if request.is_by_cairn() { Holder::Cairn } else { Holder::Partner };
        if request.name == LEASE {
            holder = Some(writer);
        } else if request.resource.starts_with("services") {
            ensure!(holder == Some(writer), "{request:?} while {holder:?} held the second Lease");
            *writes.entry(format!("{writer:?}")).or_default() += 1;
        }
    }
    ensure!(writes.len() == 2, "both had something to do: {writes:?}");
    Ok(())
}

/// Its taint and provider ID are one write.
fn every_node_was_initialized_once(requests: &[ApiRequest]) -> Result<()> {
    let mut times = BTreeMap::<&str, usize>::new();
    for request in requests.iter().filter(|request| request.is_write() && request.is_accepted()) {
        if request.resource == "nodes" && request.is_by_cairn() && request.name != "n6" {
            *times.entry(&request.name).or_default() += 1;
        }
    }
    let want = ["n1", "n2", "n3", "n4", "n5"].map(|name| (name, 1)).into();
    ensure!(times == want, "writes to Nodes: {times:?}");
    Ok(())
}
