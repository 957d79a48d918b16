//! Annotations of Cairn's own that no Service has: most likely a slip of the fingers, and told as one.

use crate::config::nearest::nearest;
use crate::model::claim::{ALLOCATION, SHARING};
use crate::model::scope::IGNORE;
use crate::model::views::ServiceView;

use super::request::{ADDRESSES, POOL, READDRESS};

/// What the names of Cairn's own annotations begin with.
const OWN: &str = "cairn.dev/";
/// Those that a Service may have.
const OF_SERVICES: [&str; 6] = [ADDRESSES[0], POOL[0], SHARING[0], READDRESS, ALLOCATION, IGNORE];

/// What is to be said of the first such annotation, if a Service has one.
pub fn told(service: &ServiceView) -> Option<String> {
    let is_none = |name: &&String| name.starts_with(OWN) && !OF_SERVICES.contains(&name.as_str());
    let name = service.annotations.iter().map(|(name, _)| name).find(is_none)?;
    let word = |name: &'static str| name.strip_prefix(OWN).unwrap_or(name);
    let meant = nearest(&name[OWN.len()..], OF_SERVICES.map(word));
    let meant = meant.map(|meant| format!(": did you mean {OWN}{meant}?")).unwrap_or_default();
    Some(format!("its annotation {name} has no meaning on a Service{meant}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::cases;

    #[test]
    fn an_annotation_that_no_service_has_is_told_with_what_was_meant() {
        for (names, want) in [
            (&[][..], None),
            (&OF_SERVICES, None),
            (
                &["cairn.dev/ingore"],
                Some("its annotation cairn.dev/ingore has no meaning on a Service: did you mean cairn.dev/ignore?"),
            ),
            (
                &["cairn.dev/ignore", "cairn.dev/adress-pool"],
                Some(
                    "its annotation cairn.dev/adress-pool has no meaning on a Service: did you mean cairn.dev/address-pool?",
                ),
            ),
            (&["cairn.dev/machine"], Some("its annotation cairn.dev/machine has no meaning on a Service")),
            (&["cairn.dev/"], Some("its annotation cairn.dev/ has no meaning on a Service")),
            (&["metallb.io/ip-allocated-from-pool"], None),
        ] {
            let annotations = names.iter().map(|name| ((*name).to_owned(), "true".to_owned())).collect();
            let service = ServiceView { annotations, ..cases::service("web") };
            assert_eq!(told(&service).as_deref(), want, "{names:?}");
        }
    }
}
