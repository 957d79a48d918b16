#![expect(clippy::disallowed_methods, reason = "shell: reads files and a ConfigMap again and again")]
//! Whose certificates are believed: from flags, else from the ConfigMap that every API server keeps.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use rustls::RootCertStore;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use thiserror::Error;
use tokio::sync::watch;
use tracing::{info, warn};

use super::AccessOptions;
use super::subject::{Subject, subject};
use super::user::RequestHeader;

const NAMESPACE: &str = "kube-system";
const CONFIG_MAP: &str = "extension-apiserver-authentication";
const TIMEOUT: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_secs(60);
const RETRY: Duration = Duration::from_secs(2);

/// Why authorities are not known.
#[derive(Debug, Error)]
pub enum AuthoritiesError {
    /// A flag's file cannot be read.
    #[error("cannot read {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// What was read holds no certificate, or one that cannot be an authority.
    #[error("{from} holds no certificates of authorities")]
    Certificates {
        /// Where it was read.
        from: String,
    },
    /// The ConfigMap cannot be read.
    #[error(
        "cannot read ConfigMap {NAMESPACE}/{CONFIG_MAP}: bind Role extension-apiserver-authentication-reader, \
         or give --authentication-skip-lookup or --authentication-tolerate-lookup-failure"
    )]
    Lookup(#[source] Box<kube::Error>),
    /// The API server does not answer.
    #[error("the API server did not answer within {} s", TIMEOUT.as_secs())]
    TimedOut,
}

/// A set of authorities.
#[derive(Debug, Clone)]
pub struct Authority {
    pem: String,
    verifier: Arc<dyn ClientCertVerifier>,
}

impl PartialEq for Authority {
    fn eq(&self, other: &Self) -> bool {
        self.pem == other.pem
    }
}

impl Authority {
    /// Authorities from PEM; `from` names where they are.
    ///
    /// # Errors
    /// When there is none, or one that cannot be used.
    pub fn read(pem: &str, from: &str) -> Result<Self, AuthoritiesError> {
        let fault = || AuthoritiesError::Certificates { from: from.to_owned() };
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
            roots.add(certificate.map_err(|_| fault())?).map_err(|_| fault())?;
        }
        let provider = Arc::new(ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
        Ok(Self { pem: pem.to_owned(), verifier: verifier.map_err(|_| fault())? })
    }

    /// Whom a certificate is about, if these authorities vouch for it now.
    pub fn vouches(&self, chain: &[CertificateDer<'static>]) -> Option<Subject> {
        let (end_entity, intermediates) = chain.split_first()?;
        self.verifier.verify_client_cert(end_entity, intermediates, UnixTime::now()).ok()?;
        subject(end_entity).filter(|subject| !subject.common_name.is_empty())
    }
}

/// All that certificates are checked by.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Authorities {
    /// Those of users.
    pub client: Option<Authority>,
    /// Those of proxies, and how these speak.
    pub proxy: Option<(Authority, RequestHeader)>,
}

/// Keeps the authorities up to date until the future is dropped.
///
/// # Errors
/// When they are wrong, or the ConfigMap may not be read, at the first look.
pub async fn follow(
    client: Client,
    options: AccessOptions,
    authorities: watch::Sender<Option<Authorities>>,
) -> Result<(), AuthoritiesError> {
    let api: Api<ConfigMap> = Api::namespaced(client, NAMESPACE);
    let mut is_faulty = false;
    loop {
        let wait = match look(&api, &options).await {
            Ok(found) => {
                if std::mem::take(&mut is_faulty) {
                    info!("the authorities of client certificates can be read again");
                }
                authorities.send_if_modified(|known| {
                    let is_new = known.as_ref() != Some(&found);
                    *known = Some(found);
                    is_new
                });
                LOOK_EVERY
            }
            Err(error) if is_refused(&error) && authorities.borrow().is_none() && !options.tolerates_lookup_failure => {
                return Err(error);
            }
            Err(error) => {
                if !std::mem::replace(&mut is_faulty, true) {
                    let error = &error as &dyn std::error::Error;
                    warn!(error, "cannot read the authorities of client certificates; trying again");
                }
                RETRY.mul_f64(0.5 + fastrand::f64())
            }
        };
        tokio::time::sleep(wait).await;
    }
}

/// Whether trying again is in vain until someone does something. An API server that is away is not.
fn is_refused(error: &AuthoritiesError) -> bool {
    match error {
        AuthoritiesError::Lookup(error) => matches!(&**error, kube::Error::Api(status) if status.code < 429),
        AuthoritiesError::File { .. } | AuthoritiesError::Certificates { .. } => true,
        AuthoritiesError::TimedOut => false,
    }
}

async fn look(api: &Api<ConfigMap>, options: &AccessOptions) -> Result<Authorities, AuthoritiesError> {
    let read = |path: &PathBuf| {
        let text = std::fs::read_to_string(path);
        let text = text.map_err(|source| AuthoritiesError::File { path: path.clone(), source })?;
        Authority::read(&text, &path.display().to_string())
    };
    let mut found = Authorities {
        client: options.client_ca_file.as_ref().map(read).transpose()?,
        proxy: match &options.request_header.ca_file {
            Some(path) => Some((read(path)?, options.request_header.clone())),
            None => None,
        },
    };
    if options.skips_lookup || (found.client.is_some() && found.proxy.is_some()) {
        return Ok(found);
    }
    let map = tokio::time::timeout(TIMEOUT, api.get(CONFIG_MAP)).await.map_err(|_| AuthoritiesError::TimedOut)?;
    let map = map.map_err(|error| AuthoritiesError::Lookup(Box::new(error)))?;
    let text = |key: &str| map.data.as_ref().and_then(|data| data.get(key)).filter(|text| !text.is_empty());
    let authority = |key: &str| {
        text(key).map(|pem| Authority::read(pem, &format!("{key} of ConfigMap {NAMESPACE}/{CONFIG_MAP}"))).transpose()
    };
    if found.client.is_none() {
        found.client = authority("client-ca-file")?;
    }
    if found.proxy.is_none() {
        let names = |key| text(key).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        let rules = RequestHeader {
            ca_file: None,
            allowed_names: names("requestheader-allowed-names"),
            username: names("requestheader-username-headers"),
            uid: names("requestheader-uid-headers"),
            group: names("requestheader-group-headers"),
            extra_prefix: names("requestheader-extra-headers-prefix"),
        };
        found.proxy = authority("requestheader-client-ca-file")?.map(|authority| (authority, rules));
    }
    Ok(found)
}
