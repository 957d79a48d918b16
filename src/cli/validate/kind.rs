//! What a document turns out to be: one of ours, or an object of Kubernetes itself.

use std::path::Path;

use kube::Resource;

use crate::api::{AddressPool, Advertisement, BgpPeer};
use crate::config::document::Node;
use crate::config::nearest::nearest;
use crate::config::object::Head;
use crate::config::{CloudConfig, Fault, FieldPath, schema};
use crate::inventory::Inventory;
use crate::leader::migration;

/// The kinds that can be checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    CloudConfig,
    Inventory,
    LeaderMigration,
    AddressPool,
    Advertisement,
    BgpPeer,
}

impl Kind {
    pub(super) const ALL: [Self; 6] = [
        Self::CloudConfig,
        Self::Inventory,
        Self::LeaderMigration,
        Self::AddressPool,
        Self::Advertisement,
        Self::BgpPeer,
    ];

    pub(super) fn api_version(self) -> String {
        match self {
            Self::CloudConfig => CloudConfig::API_VERSION.to_owned(),
            Self::Inventory => Inventory::API_VERSION.to_owned(),
            Self::LeaderMigration => migration::API_VERSION.to_owned(),
            Self::AddressPool => AddressPool::api_version(&()).into_owned(),
            Self::Advertisement => Advertisement::api_version(&()).into_owned(),
            Self::BgpPeer => BgpPeer::api_version(&()).into_owned(),
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::CloudConfig => CloudConfig::KIND,
            Self::Inventory => Inventory::KIND,
            Self::LeaderMigration => migration::KIND,
            Self::AddressPool => "AddressPool",
            Self::Advertisement => "Advertisement",
            Self::BgpPeer => "BgpPeer",
        }
    }

    /// Whether it is the API server that has it, not a file that a flag or a cloud config names.
    pub(super) fn is_object(self) -> bool {
        match self {
            Self::CloudConfig | Self::Inventory | Self::LeaderMigration => false,
            Self::AddressPool | Self::Advertisement | Self::BgpPeer => true,
        }
    }

    /// Versions that are read as well.
    fn older_versions(self) -> &'static [&'static str] {
        match self {
            Self::LeaderMigration => &migration::OLDER_VERSIONS,
            Self::CloudConfig | Self::Inventory | Self::AddressPool | Self::Advertisement | Self::BgpPeer => &[],
        }
    }
}

/// What a document turns out to be.
pub(super) enum Recognised {
    Ours(Kind),
    /// A List, whose items are objects: of any kind, or of this one.
    List(Option<Kind>),
    /// An object of Kubernetes itself, for the API server to check.
    Kubernetes,
}

/// The group of MetalLB's objects.
const METALLB: &str = "metallb.io";

/// What becomes of an object of MetalLB's.
fn of_metallb(kind: &str) -> String {
    let ours = match kind {
        "IPAddressPool" => Some(Kind::AddressPool),
        "BGPPeer" => Some(Kind::BgpPeer),
        "BGPAdvertisement" | "L2Advertisement" => Some(Kind::Advertisement),
        _ => None,
    };
    let becomes = match ours {
        Some(ours) => format!("is what {} of {} is here", ours.name(), ours.api_version()),
        None => "has no object in its place here".to_owned(),
    };
    format!("MetalLB's {kind} {becomes}: \"Coming from MetalLB\" in README.md says what becomes of its fields")
}

fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

/// Says what a document is, by its `apiVersion` and `kind`.
pub(super) fn recognise(file: &Path, document: &Node, head: &Head) -> Result<Recognised, Fault> {
    let group = group_of(&head.api_version);
    let fault = |field: &str, message: String| {
        let field = FieldPath::of(field);
        let position = document.position_of(&field);
        Err(Fault::new(field, message).in_file(file).at(position))
    };
    let Head { api_version, kind, .. } = head;
    if let Some(ours) = Kind::ALL.into_iter().find(|ours| ours.name() == kind) {
        return match ours.api_version() {
            right if right == *api_version => Ok(Recognised::Ours(ours)),
            _ if ours.older_versions().contains(&api_version.as_str()) => Ok(Recognised::Ours(ours)),
            right => fault("apiVersion", format!("{api_version:?} is not that of {kind} here: it takes {right}")),
        };
    }
    if api_version == "v1" && kind == "List" {
        return Ok(Recognised::List(None));
    }
    let of_list = kind.strip_suffix("List").and_then(|of| Kind::ALL.into_iter().find(|ours| ours.name() == of));
    if let Some(ours) = of_list.filter(|ours| ours.is_object() && ours.api_version() == *api_version) {
        return Ok(Recognised::List(Some(ours)));
    }
    if group == METALLB {
        return fault("kind", of_metallb(kind));
    }
    if let Some(near) = nearest(kind, Kind::ALL.map(Kind::name)) {
        return fault("kind", format!("{kind:?} is not a kind: did you mean {near}?"));
    }
    let is_ours = Kind::ALL.into_iter().any(|ours| group_of(&ours.api_version()) == group);
    if !is_ours && (!group.contains('.') || group.ends_with(".k8s.io")) {
        return Ok(Recognised::Kubernetes);
    }
    let known: Vec<_> = Kind::ALL.map(|kind| format!("{} of {}", kind.name(), kind.api_version())).to_vec();
    let takes = schema::one_of(known.iter().map(String::as_str));
    fault("kind", format!("{kind} of {api_version} is none that can be checked: it takes {takes}"))
}
