//! Who asks, and how a request says so.

use std::collections::BTreeMap;
use std::path::PathBuf;

use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, HeaderName};

use super::subject::Subject;

/// Whoever asks without saying who.
const ANONYMOUS: &str = "system:anonymous";
const UNAUTHENTICATED: &str = "system:unauthenticated";
const AUTHENTICATED: &str = "system:authenticated";
/// Members may do everything.
pub const MASTERS: &str = "system:masters";

/// A user as Kubernetes knows one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct User {
    /// The name.
    pub name: String,
    /// The UID, or nothing.
    pub uid: String,
    /// The groups.
    pub groups: Vec<String>,
    /// What else an authenticator says.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// Somebody.
    pub fn anonymous() -> Self {
        Self { name: ANONYMOUS.to_owned(), groups: vec![UNAUTHENTICATED.to_owned()], ..Self::default() }
    }

    /// Somebody who has proven who he is.
    pub fn authenticated(mut self) -> Self {
        if !self.groups.iter().any(|group| group == AUTHENTICATED) {
            self.groups.push(AUTHENTICATED.to_owned());
        }
        self
    }
}

impl From<Subject> for User {
    fn from(subject: Subject) -> Self {
        Self { name: subject.common_name, groups: subject.organizations, ..Self::default() }
    }
}

/// The token of a request with `Authorization: Bearer …`.
pub fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.trim().split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// How a proxy says who asks (`--requestheader-*`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RequestHeader {
    /// The authorities of such proxies.
    pub ca_file: Option<PathBuf>,
    /// Their common names; empty is any.
    pub allowed_names: Vec<String>,
    /// Headers with the name; the first that is there counts.
    pub username: Vec<String>,
    /// Headers with the UID; the first that is there counts.
    pub uid: Vec<String>,
    /// Headers with groups; all count.
    pub group: Vec<String>,
    /// Beginnings of headers with more.
    pub extra_prefix: Vec<String>,
}

impl RequestHeader {
    /// The user that a proxy with this certificate speaks for.
    pub fn user(&self, proxy: &Subject, headers: &HeaderMap) -> Option<User> {
        if !self.allowed_names.is_empty() && !self.allowed_names.contains(&proxy.common_name) {
            return None;
        }
        let first = |names: &[String]| {
            let values = names.iter().filter_map(|name| headers.get(name.as_str())?.to_str().ok());
            values.map(str::to_owned).find(|value| !value.is_empty())
        };
        let texts = |name: &HeaderName| {
            headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).map(str::to_owned).collect::<Vec<_>>()
        };
        let groups = self.group.iter().filter_map(|name| HeaderName::try_from(name.as_str()).ok());
        let extra = headers.keys().filter_map(|name| {
            let mut prefixes = self.extra_prefix.iter();
            let key = prefixes.find_map(|prefix| name.as_str().strip_prefix(&prefix.to_ascii_lowercase()))?;
            Some((key.to_owned(), texts(name)))
        });
        Some(User {
            name: first(&self.username)?,
            uid: first(&self.uid).unwrap_or_default(),
            groups: groups.flat_map(|name| texts(&name)).collect(),
            extra: extra.collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn a_bearer_token_is_read_whatever_the_case_of_its_scheme() {
        for (value, want) in
            [("Bearer abc", Some("abc")), ("bearer  abc ", Some("abc")), ("Basic abc", None), ("Bearer ", None)]
        {
            assert_eq!(bearer(&headers(&[("authorization", value)])), want, "{value}");
        }
    }

    #[test]
    fn a_proxy_with_an_allowed_name_speaks_for_the_user_in_its_headers() {
        let rules = RequestHeader {
            ca_file: None,
            allowed_names: vec!["front-proxy".to_owned()],
            username: vec!["X-Remote-User".to_owned()],
            uid: vec!["X-Remote-Uid".to_owned()],
            group: vec!["X-Remote-Group".to_owned()],
            extra_prefix: vec!["X-Remote-Extra-".to_owned()],
        };
        let proxy = |name: &str| Subject { common_name: name.to_owned(), organizations: vec![] };
        let all = headers(&[
            ("x-remote-user", "zoe"),
            ("x-remote-group", "a"),
            ("x-remote-group", "b"),
            ("x-remote-extra-scopes", "s"),
        ]);
        let want = User {
            name: "zoe".to_owned(),
            uid: String::new(),
            groups: vec!["a".to_owned(), "b".to_owned()],
            extra: BTreeMap::from([("scopes".to_owned(), vec!["s".to_owned()])]),
        };
        assert_eq!(rules.user(&proxy("front-proxy"), &all), Some(want));
        assert_eq!(rules.user(&proxy("someone"), &all), None);
        assert_eq!(rules.user(&proxy("front-proxy"), &headers(&[("x-remote-group", "a")])), None);
        let any = RequestHeader { allowed_names: vec![], ..rules };
        assert!(any.user(&proxy("someone"), &all).is_some());
    }
}
