//! Who may see what on the secure port, as in every component of Kubernetes.
//!
//! Who: a client certificate of an authority, a proxy that says so in headers, a bearer token (the
//! API server is asked whose), else `system:anonymous`. May he: always for some paths and for
//! `system:masters`, else the API server is asked (SubjectAccessReview on the path).
//!
//! It never lets anyone in because nobody could be asked.

mod authorities;
mod reviews;
mod subject;
mod user;

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use axum::http::{HeaderMap, Method};
use kube::Client;
use rustls::pki_types::CertificateDer;
use thiserror::Error;
use tokio::sync::watch;

pub use authorities::{Authorities, AuthoritiesError};
pub use reviews::ReviewError;
pub use user::{RequestHeader, User};

use crate::cluster::clock;
use reviews::Cache;
use user::MASTERS;

/// Who may ask, from flags.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AccessOptions {
    /// How to reach the API server for TokenReviews and the ConfigMap, if not as for everything else.
    pub authentication_kubeconfig: Option<PathBuf>,
    /// How to reach it for SubjectAccessReviews, if not as for everything else.
    pub authorization_kubeconfig: Option<PathBuf>,
    /// How long the answer to a TokenReview holds.
    pub token_ttl: Duration,
    /// How long a permission holds.
    pub authorized_ttl: Duration,
    /// How long a refusal holds.
    pub unauthorized_ttl: Duration,
    /// Whether to do without the ConfigMap with the cluster's authorities.
    pub skips_lookup: bool,
    /// Whether to go on when it cannot be read.
    pub tolerates_lookup_failure: bool,
    /// Authorities of client certificates, in place of the ConfigMap's.
    pub client_ca_file: Option<PathBuf>,
    /// Paths that everyone may see; with a final `*`, all that begin so.
    pub always_allowed: Vec<String>,
    /// Proxies that speak for users.
    pub request_header: RequestHeader,
}

/// Why a page is not shown.
#[derive(Debug, Error)]
pub enum AccessError {
    /// The token is nobody's.
    #[error("Unauthorized")]
    Unauthorized,
    /// The user may not.
    #[error("forbidden: User {user:?} cannot {verb} path {path:?}")]
    Forbidden {
        /// The user's name.
        user: String,
        /// The method, in lower case.
        verb: String,
        /// The path.
        path: String,
    },
    /// The API server did not say.
    #[error("the API server could not be asked")]
    Review(#[from] ReviewError),
}

/// Decides who may see what.
pub struct Access {
    options: AccessOptions,
    authentication: Client,
    authorization: Client,
    authorities: watch::Receiver<Option<Authorities>>,
    tokens: Mutex<Cache<String, Option<User>>>,
    permissions: Mutex<Cache<(User, String, String), bool>>,
}

impl Access {
    /// Decides by the flags; the second value keeps the authorities up to date and must be run.
    pub fn new(
        options: AccessOptions,
        authentication: Client,
        authorization: Client,
    ) -> (Self, impl Future<Output = Result<(), AuthoritiesError>> + Send) {
        let (sender, authorities) = watch::channel(None);
        let follow = authorities::follow(authentication.clone(), options.clone(), sender);
        let (tokens, permissions) = (Mutex::default(), Mutex::default());
        (Self { options, authentication, authorization, authorities, tokens, permissions }, follow)
    }

    /// Whether whoever sent these headers over a connection with this certificate may see `path`.
    ///
    /// # Errors
    /// When not, or when nobody could be asked.
    pub async fn check(
        &self,
        certificate: &[CertificateDer<'static>],
        headers: &HeaderMap,
        method: &Method,
        path: &str,
    ) -> Result<(), AccessError> {
        if self.options.always_allowed.iter().any(|allowed| covers(allowed, path)) {
            return Ok(());
        }
        let user = self.identify(certificate, headers).await?;
        if user.groups.iter().any(|group| group == MASTERS) {
            return Ok(());
        }
        let verb = method.as_str().to_ascii_lowercase();
        if self.may(&user, &verb, path).await? {
            return Ok(());
        }
        Err(AccessError::Forbidden { user: user.name, verb, path: path.to_owned() })
    }

    async fn identify(
        &self,
        certificate: &[CertificateDer<'static>],
        headers: &HeaderMap,
    ) -> Result<User, AccessError> {
        let authorities = self.authorities.borrow().clone().unwrap_or_default();
        if let Some((authority, rules)) = &authorities.proxy
            && let Some(proxy) = authority.vouches(certificate)
            && let Some(user) = rules.user(&proxy, headers)
        {
            return Ok(user.authenticated());
        }
        if let Some(subject) = authorities.client.and_then(|authority| authority.vouches(certificate)) {
            return Ok(User::from(subject).authenticated());
        }
        let Some(token) = user::bearer(headers) else { return Ok(User::anonymous()) };
        let known = lock(&self.tokens).get(&token.to_owned(), clock::now());
        let user = match known {
            Some(user) => user,
            None => {
                let user = reviews::token(&self.authentication, token).await?;
                let now = clock::now();
                lock(&self.tokens).put(token.to_owned(), user.clone(), now + self.options.token_ttl, now);
                user
            }
        };
        user.map(User::authenticated).ok_or(AccessError::Unauthorized)
    }

    async fn may(&self, user: &User, verb: &str, path: &str) -> Result<bool, ReviewError> {
        let question = (user.clone(), verb.to_owned(), path.to_owned());
        if let Some(known) = lock(&self.permissions).get(&question, clock::now()) {
            return Ok(known);
        }
        let may = reviews::access(&self.authorization, user, verb, path).await?;
        let now = clock::now();
        let ttl = if may { self.options.authorized_ttl } else { self.options.unauthorized_ttl };
        lock(&self.permissions).put(question, may, now + ttl, now);
        Ok(may)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn covers(allowed: &str, path: &str) -> bool {
    allowed.strip_suffix('*').map_or(allowed == path, |prefix| path.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::{HeaderValue, Request, Response, StatusCode, header};
    use kube::client::Body;
    use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
    use serde_json::{Value, json};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tower::service_fn;

    /// An API server that knows one token, and lets one user see one page.
    fn api_server(asked: &Arc<AtomicUsize>) -> Client {
        let asked = Arc::clone(asked);
        let service = service_fn(move |request: Request<Body>| {
            asked.fetch_add(1, Ordering::SeqCst);
            async move {
                let bytes = request.into_body().collect_bytes().await.expect("a body");
                let mut review: Value = serde_json::from_slice(&bytes).expect("JSON");
                review["status"] = match review["kind"].as_str() {
                    Some("TokenReview") if review["spec"]["token"] == "good" => {
                        json!({ "authenticated": true, "user": { "username": "prometheus", "groups": ["monitoring"] } })
                    }
                    Some("TokenReview") => json!({ "authenticated": false }),
                    _ => json!({ "allowed": review["spec"]["user"] == "prometheus"
                        && review["spec"]["nonResourceAttributes"] == json!({ "path": "/metrics", "verb": "get" }) }),
                };
                let body = Body::from(serde_json::to_vec(&review).expect("JSON"));
                Ok::<_, kube::Error>(Response::builder().status(StatusCode::CREATED).body(body).expect("a response"))
            }
        });
        Client::new(service, "default")
    }

    fn access(authorities: Authorities, asked: &Arc<AtomicUsize>) -> Access {
        let options = AccessOptions {
            token_ttl: Duration::from_secs(10),
            authorized_ttl: Duration::from_secs(10),
            unauthorized_ttl: Duration::from_secs(10),
            always_allowed: ["/healthz", "/open/*"].map(str::to_owned).to_vec(),
            ..AccessOptions::default()
        };
        let client = api_server(asked);
        let (mut access, _follow) = Access::new(options, client.clone(), client);
        access.authorities = watch::channel(Some(authorities)).1;
        access
    }

    async fn ask(access: &Access, token: Option<&'static str>, path: &str) -> String {
        let mut headers = HeaderMap::new();
        if let Some(token) = token {
            headers.insert(header::AUTHORIZATION, HeaderValue::from_static(token));
        }
        match access.check(&[], &headers, &Method::GET, path).await {
            Ok(()) => "ok".to_owned(),
            Err(error) => error.to_string(),
        }
    }

    #[tokio::test]
    async fn a_token_shows_who_asks_and_the_api_server_says_what_for() {
        let asked = Arc::default();
        let access = access(Authorities::default(), &asked);
        let (good, bad) = (Some("Bearer good"), Some("Bearer bad"));
        for (token, path, want) in [
            (good, "/metrics", "ok"),
            (good, "/configz", "forbidden: User \"prometheus\" cannot get path \"/configz\""),
            (bad, "/metrics", "Unauthorized"),
            (None, "/metrics", "forbidden: User \"system:anonymous\" cannot get path \"/metrics\""),
            (None, "/healthz", "ok"),
            (None, "/healthz/ping", "forbidden: User \"system:anonymous\" cannot get path \"/healthz/ping\""),
            (None, "/open/door", "ok"),
            (bad, "/healthz", "ok"),
        ] {
            assert_eq!(ask(&access, token, path).await, want, "{token:?} {path}");
        }
        let before = asked.load(Ordering::SeqCst);
        assert_eq!(ask(&access, good, "/metrics").await, "ok");
        assert_eq!(asked.load(Ordering::SeqCst), before, "the answers still hold");
    }

    struct Ca(Issuer<'static, KeyPair>, Authority);
    use super::authorities::Authority;

    fn ca() -> Ca {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("a certificate").pem();
        Ca(Issuer::new(params, key), Authority::read(&pem, "a test").expect("an authority"))
    }

    fn certificate(ca: &Ca, name: &str, group: &str) -> CertificateDer<'static> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.distinguished_name.push(DnType::OrganizationName, group);
        params.extended_key_usages.push(rcgen::ExtendedKeyUsagePurpose::ClientAuth);
        params.signed_by(&KeyPair::generate().expect("a key"), &ca.0).expect("a certificate").der().clone()
    }

    #[tokio::test]
    async fn certificates_count_when_one_of_the_authorities_vouches_for_them() {
        let (users, proxies, strangers) = (ca(), ca(), ca());
        let rules = RequestHeader { username: vec!["x-remote-user".to_owned()], ..RequestHeader::default() };
        let authorities = Authorities { client: Some(users.1.clone()), proxy: Some((proxies.1.clone(), rules)) };
        let access = access(authorities, &Arc::default());
        let mut headers = HeaderMap::new();
        headers.insert("x-remote-user", HeaderValue::from_static("zoe"));
        let none = HeaderMap::new();
        for (name, certificate, headers, want) in [
            ("an administrator", certificate(&users, "admin", "system:masters"), &none, Ok(())),
            ("a user", certificate(&users, "ann", "staff"), &none, Err("ann")),
            ("a user who says he is another", certificate(&users, "ann", "staff"), &headers, Err("ann")),
            ("a proxy", certificate(&proxies, "front", "x"), &headers, Err("zoe")),
            ("a proxy for nobody", certificate(&proxies, "front", "system:masters"), &none, Err("system:anonymous")),
            ("a stranger", certificate(&strangers, "admin", "system:masters"), &none, Err("system:anonymous")),
        ] {
            let answer = access.check(&[certificate], headers, &Method::GET, "/state").await;
            let answer = answer.map_err(|error| match error {
                AccessError::Forbidden { user, .. } => user,
                other => other.to_string(),
            });
            assert_eq!(answer, want.map_err(str::to_owned), "{name}");
        }
    }
}
