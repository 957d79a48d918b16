//! Names: newtypes that are checked once, where text enters, and trusted from there on.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Why a text is not a name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NameError {
    /// The text is not an RFC 1123 subdomain, the form Kubernetes asks of object names.
    #[error(
        "{text:?} is not a name: it takes 1 to 253 lower-case letters, digits, '-' and '.', and starts and ends with a letter or digit"
    )]
    NotASubdomain {
        /// The refused text.
        text: String,
    },
    /// The text is not `namespace/name`.
    #[error("{text:?} is not a service: it takes the form namespace/name")]
    NotAServiceKey {
        /// The refused text.
        text: String,
    },
    /// The text does not start with `cairn://`.
    #[error("{text:?} is not a provider ID of this provider: it takes the form cairn://<machine id>")]
    NotAProviderId {
        /// The refused text.
        text: String,
    },
}

/// RFC 1123 subdomain, as `k8s.io/apimachinery` `IsDNS1123Subdomain`.
fn is_subdomain(text: &str) -> bool {
    let label_is_valid = |label: &str| {
        let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
        edge(label.chars().next())
            && edge(label.chars().last())
            && label.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
    };
    text.len() <= 253 && text.split('.').all(label_is_valid)
}

/// Defines a newtype over an RFC 1123 subdomain. Names are keys everywhere: clones share the text.
macro_rules! subdomain_name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = NameError;

            fn from_str(text: &str) -> Result<Self, NameError> {
                if is_subdomain(text) {
                    Ok(Self(text.into()))
                } else {
                    Err(NameError::NotASubdomain { text: text.to_owned() })
                }
            }
        }

        impl TryFrom<String> for $name {
            type Error = NameError;

            fn try_from(text: String) -> Result<Self, NameError> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> String {
                name.0.as_ref().to_owned()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

subdomain_name! {
    /// The name of a Kubernetes Node.
    NodeName
}
subdomain_name! {
    /// The name of an `AddressPool`.
    PoolName
}
subdomain_name! {
    /// The name of an `Advertisement`.
    AdvertisementName
}
subdomain_name! {
    /// The name of a `BgpPeer`.
    PeerName
}
subdomain_name! {
    /// The id of a machine in the inventory; it becomes the node's provider ID and never changes.
    MachineId
}

/// A Service's namespace and name, written `namespace/name`. Clones share the text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ServiceKey(
    /// Both with [`BETWEEN`] between them, so that texts are ordered as the pairs are.
    Arc<str>,
);

/// Lower than whatever is in a name.
const BETWEEN: char = '\0';

impl ServiceKey {
    /// Makes a key of the two halves the API server has already checked.
    pub fn new(namespace: impl AsRef<str>, name: impl AsRef<str>) -> Self {
        Self(format!("{}{BETWEEN}{}", namespace.as_ref(), name.as_ref()).into())
    }

    /// The namespace.
    pub fn namespace(&self) -> &str {
        self.halves().0
    }

    /// The name within the namespace.
    pub fn name(&self) -> &str {
        self.halves().1
    }

    fn halves(&self) -> (&str, &str) {
        self.0.split_once(BETWEEN).unwrap_or_default()
    }
}

impl FromStr for ServiceKey {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        match text.split_once('/') {
            Some((namespace, name)) if is_subdomain(namespace) && is_subdomain(name) => Ok(Self::new(namespace, name)),
            _ => Err(NameError::NotAServiceKey { text: text.to_owned() }),
        }
    }
}

impl TryFrom<String> for ServiceKey {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        text.parse()
    }
}

impl From<ServiceKey> for String {
    fn from(key: ServiceKey) -> String {
        key.to_string()
    }
}

impl fmt::Display for ServiceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (namespace, name) = self.halves();
        write!(f, "{namespace}/{name}")
    }
}

impl fmt::Debug for ServiceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServiceKey({self})")
    }
}

/// `spec.providerID` of a Node that is one of our machines: `cairn://<machine id>`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ProviderId(MachineId);

impl ProviderId {
    /// What every provider ID of ours starts with.
    pub const SCHEME: &str = "cairn://";

    /// The machine it names.
    pub fn machine(&self) -> &MachineId {
        &self.0
    }
}

impl From<MachineId> for ProviderId {
    fn from(machine: MachineId) -> Self {
        Self(machine)
    }
}

impl FromStr for ProviderId {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let refused = || NameError::NotAProviderId { text: text.to_owned() };
        let id = text.strip_prefix(Self::SCHEME).ok_or_else(refused)?;
        id.parse().map(Self).map_err(|_| refused())
    }
}

impl TryFrom<String> for ProviderId {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        text.parse()
    }
}

impl From<ProviderId> for String {
    fn from(id: ProviderId) -> String {
        id.to_string()
    }
}

impl fmt::Display for ProviderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", Self::SCHEME, self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_name_is_an_rfc_1123_subdomain() {
        for (text, is_name) in [
            ("n1", true),
            ("worker-20.example.net", true),
            ("", false),
            ("N1", false),
            ("-n1", false),
            ("n1-", false),
            ("a..b", false),
            ("a_b", false),
            (&"a".repeat(254), false),
        ] {
            assert_eq!(text.parse::<NodeName>().is_ok(), is_name, "{text:?}");
        }
    }

    #[test]
    fn a_provider_id_names_its_machine() {
        let id: ProviderId = "cairn://r12-u20".parse().expect("a provider ID");
        assert_eq!(id.machine().as_str(), "r12-u20");
        assert_eq!(id.to_string(), "cairn://r12-u20");
        for foreign in ["aws:///i-1", "cairn://", "cairn://UPPER", "r12-u20"] {
            assert!(foreign.parse::<ProviderId>().is_err(), "{foreign:?}");
        }
    }

    #[test]
    fn a_service_key_is_written_namespace_slash_name() {
        let key: ServiceKey = "default/web".parse().expect("a service key");
        assert_eq!((key.namespace(), key.name()), ("default", "web"));
        assert_eq!(key.to_string(), "default/web");
        assert!("web".parse::<ServiceKey>().is_err());
    }

    #[test]
    fn service_keys_are_ordered_by_namespace_and_then_by_name() {
        let ordered = [("a", "z"), ("a-b", "a"), ("a-b", "a-b"), ("a.b", "a"), ("ab", "a")];
        let keys = ordered.map(|(namespace, name)| ServiceKey::new(namespace, name));
        assert!(keys.is_sorted(), "{keys:?}");
    }
}
