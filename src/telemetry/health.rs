//! Health checks, answered as Kubernetes' components answer.

use std::fmt;
use std::fmt::Write as _;
use std::sync::{PoisonError, RwLock};

use axum::http::StatusCode;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// One thing that may be well or not.
struct Check {
    name: String,
    is_well: Box<dyn Fn() -> bool + Send + Sync>,
}

/// The checks of a process, and how often each went well.
#[derive(Default)]
pub struct Health {
    checks: RwLock<Vec<Check>>,
    latest: Family<Checked, Gauge>,
    total: Family<Counted, Counter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Checked {
    name: String,
    r#type: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Counted {
    name: String,
    r#type: String,
    status: String,
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Health").finish_non_exhaustive()
    }
}

impl Health {
    /// Checks whose outcomes `slis` shows, as `kubernetes_healthcheck` and `kubernetes_healthchecks_total`.
    pub fn register(slis: &mut Registry) -> Self {
        let health = Self::default();
        let help = "1 when the check went well the last time";
        slis.register("kubernetes_healthcheck", help, health.latest.clone());
        slis.register("kubernetes_healthchecks", "Checks by outcome", health.total.clone());
        health
    }

    /// Adds a check.
    pub fn add(&self, name: &str, is_well: impl Fn() -> bool + Send + Sync + 'static) {
        let check = Check { name: name.to_owned(), is_well: Box::new(is_well) };
        self.checks.write().unwrap_or_else(PoisonError::into_inner).push(check);
    }

    /// Answers `/healthz`, `/readyz` or `/livez` (`kind` without the slash) with its query.
    pub fn answer(&self, kind: &str, query: &str) -> (StatusCode, String) {
        let parameter = |name| {
            let pairs = query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
            pairs.filter(move |(key, _)| *key == name).map(|(_, value)| value)
        };
        let mut excluded: Vec<_> = parameter("exclude").filter(|name| !name.is_empty()).collect();
        let (mut report, mut is_well) = (String::new(), true);
        for check in &*self.checks.read().unwrap_or_else(PoisonError::into_inner) {
            let count = excluded.len();
            excluded.retain(|name| *name != check.name);
            let (sign, told) = if excluded.len() < count {
                ('+', "excluded: ok")
            } else if self.run(check, kind) {
                ('+', "ok")
            } else {
                is_well = false;
                ('-', "failed: reason withheld")
            };
            let _ = writeln!(report, "[{sign}]{} {told}", check.name);
        }
        if !excluded.is_empty() {
            let names: Vec<_> = excluded.iter().map(|name| format!("{name:?}")).collect();
            let _ = writeln!(report, "warn: some health checks cannot be excluded: no matches for {}", names.join(","));
        }
        match (is_well, parameter("verbose").next()) {
            (false, _) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{report}{kind} check failed\n")),
            (true, None) => (StatusCode::OK, "ok".to_owned()),
            (true, Some(_)) => (StatusCode::OK, format!("{report}{kind} check passed\n")),
        }
    }

    fn run(&self, check: &Check, kind: &str) -> bool {
        let is_well = (check.is_well)();
        let (name, r#type) = (check.name.clone(), kind.to_owned());
        let status = if is_well { "success" } else { "error" }.to_owned();
        self.total.get_or_create(&Counted { name: name.clone(), r#type: r#type.clone(), status }).inc();
        self.latest.get_or_create(&Checked { name, r#type }).set(is_well.into());
        is_well
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::encoding::text::encode;

    #[test]
    fn probes_are_answered_as_upstream_answers_them() {
        let health = Health::default();
        health.add("ping", || true);
        health.add("leaderElection", || false);
        let failed = "[+]ping ok\n[-]leaderElection failed: reason withheld\nhealthz check failed\n";
        let excluded = "[+]ping ok\n[+]leaderElection excluded: ok\nhealthz check passed\n";
        let unmatched = "[+]ping ok\n[+]leaderElection excluded: ok\n\
            warn: some health checks cannot be excluded: no matches for \"x\"\nhealthz check passed\n";
        for (query, want) in [
            ("", (500, failed)),
            ("verbose", (500, failed)),
            ("exclude=leaderElection", (200, "ok")),
            ("verbose&exclude=leaderElection", (200, excluded)),
            ("exclude=leaderElection&verbose=1&exclude=x", (200, unmatched)),
        ] {
            let (status, text) = health.answer("healthz", query);
            assert_eq!((status.as_u16(), text.as_str()), want, "{query}");
        }
    }

    #[test]
    fn outcomes_are_counted_under_upstreams_names() {
        let mut registry = Registry::default();
        let health = Health::register(&mut registry);
        health.add("ping", || true);
        health.answer("livez", "");
        let mut text = String::new();
        encode(&mut text, &registry).expect("text");
        assert!(text.contains("kubernetes_healthcheck{name=\"ping\",type=\"livez\"} 1\n"), "{text}");
        let counted = "kubernetes_healthchecks_total{name=\"ping\",type=\"livez\",status=\"success\"} 1\n";
        assert!(text.contains(counted), "{text}");
    }
}
