//! What is not wrong and most likely not meant: an entry that a list has already.
//!
//! Nothing is refused for it, since saying a thing twice means it once. Each is told all the same.

use std::collections::BTreeMap;

use super::{Fault, Faults, FieldPath};
use crate::api::advertisement::AdvertisementSpec;
use crate::api::{BgpPeerSpec, LabelSelector};
use crate::model::{Community, Prefix};

/// What an `Advertisement` says twice.
pub fn of_advertisement(spec: &AdvertisementSpec) -> Faults {
    let at = FieldPath::of("spec");
    let mut remarks = Vec::new();
    if let Some(services) = &spec.services {
        let at = at.field("services");
        remarks.extend(twice(&services.pools, &at.field("pools"), String::clone));
        remarks.extend(of_selector(services.pool_selector.as_ref(), &at.field("poolSelector")));
        remarks.extend(twice(&services.namespaces, &at.field("namespaces"), String::clone));
        remarks.extend(of_selector(services.service_selector.as_ref(), &at.field("serviceSelector")));
    }
    if let Some(bgp) = &spec.bgp {
        let at = at.field("bgp");
        remarks.extend(twice(&bgp.peers, &at.field("peers"), String::clone));
        remarks.extend(of_selector(bgp.peer_selector.as_ref(), &at.field("peerSelector")));
        let community = |text: &String| text.parse::<Community>().map_err(|_| text.clone());
        remarks.extend(twice(&bgp.communities, &at.field("communities"), community));
    }
    if let Some(l2) = &spec.l2 {
        remarks.extend(twice(&l2.interfaces, &at.field("l2").field("interfaces"), String::clone));
    }
    remarks.into_iter().collect()
}

/// What a `BgpPeer` says twice.
pub fn of_peer(spec: &BgpPeerSpec) -> Faults {
    let at = FieldPath::of("spec").field("import").field("prefixes");
    let prefixes = spec.import.iter().flat_map(|import| &import.prefixes);
    let routes =
        prefixes.map(|said| (said.prefix.parse::<Prefix>().map_err(|_| said.prefix.clone()), said.ge, said.le));
    twice(&routes.collect::<Vec<_>>(), &at, Clone::clone).into_iter().collect()
}

fn of_selector(selector: Option<&LabelSelector>, at: &FieldPath) -> Vec<Fault> {
    let expressions = selector.into_iter().flat_map(|selector| &selector.match_expressions).enumerate();
    let in_values = expressions.map(|(index, expression)| {
        let at = at.field("matchExpressions").entry(index).field("values");
        twice(&expression.values, &at, String::clone)
    });
    in_values.flatten().collect()
}

/// The entries that say what an earlier one says; `meaning` is what two spellings of one thing share.
fn twice<T, M: Ord>(entries: &[T], at: &FieldPath, meaning: impl Fn(&T) -> M) -> Vec<Fault> {
    let mut first = BTreeMap::new();
    let mut remarks = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        let earlier = *first.entry(meaning(entry)).or_insert(index);
        if earlier != index {
            let message = format!("says what {} says already: leave one of the two", at.entry(earlier));
            remarks.push(Fault::new(at.entry(index), message));
        }
    }
    remarks
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn what_a_list_says_twice_is_told_with_both_places() {
        let advertisement = |spec: Value| of_advertisement(&serde_json::from_value(spec).expect("a spec")).to_string();
        let bgp = |bgp: Value| advertisement(json!({ "services": {}, "bgp": bgp }));
        let services = |services: Value| advertisement(json!({ "services": services, "bgp": {} }));
        let expression = json!({ "key": "a", "operator": "In", "values": ["x", "x"] });
        for (told, want) in [
            (bgp(json!({ "peers": ["a", "b"], "communities": ["no-export", "64512:1"] })), ""),
            (
                bgp(json!({ "peers": ["a", "b", "a"] })),
                "spec.bgp.peers[2]: says what spec.bgp.peers[0] says already: leave one of the two",
            ),
            (
                bgp(json!({ "communities": ["no-export", "65535:65281"] })),
                "spec.bgp.communities[1]: says what spec.bgp.communities[0] says already: leave one of the two",
            ),
            (
                services(json!({ "pools": ["a", "a"], "namespaces": ["b", "b", "b"] })),
                "spec.services.pools[1]: says what spec.services.pools[0] says already: leave one of the two\n\
                 spec.services.namespaces[1]: says what spec.services.namespaces[0] says already: leave one of the two\n\
                 spec.services.namespaces[2]: says what spec.services.namespaces[0] says already: leave one of the two",
            ),
            (
                services(json!({ "serviceSelector": { "matchExpressions": [expression] } })),
                "spec.services.serviceSelector.matchExpressions[0].values[1]: says what \
                 spec.services.serviceSelector.matchExpressions[0].values[0] says already: leave one of the two",
            ),
        ] {
            assert_eq!(told, want);
        }
        let prefixes = json!([
            { "prefix": "fd00::/8" }, { "prefix": "fd00::/8", "le": 64 }, { "prefix": "fd00:0::/8" },
        ]);
        let peer = json!({ "localAsn": 1, "peerAsn": 2, "address": "10.0.0.1", "import": { "prefixes": prefixes } });
        let told = of_peer(&serde_json::from_value(peer).expect("a spec")).to_string();
        let want = "spec.import.prefixes[2]: says what spec.import.prefixes[0] says already: leave one of the two";
        assert_eq!(told, want);
    }
}
