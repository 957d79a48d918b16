//! Requests to the API server, counted under client-go's names.

use std::time::Duration;

use axum::http::{Method, StatusCode};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

/// Bounds in seconds, as client-go's.
const BOUNDS: [f64; 11] = [0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Answer {
    code: String,
    host: String,
    method: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Asked {
    host: String,
    verb: String,
}

/// Counts and times of requests.
#[derive(Debug, Clone)]
pub struct Metrics {
    requests: Family<Answer, Counter>,
    durations: Family<Asked, Histogram, fn() -> Histogram>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self { requests: Family::default(), durations: Family::new_with_constructor(|| Histogram::new(BOUNDS)) }
    }
}

impl Metrics {
    /// Metrics that the registry shows.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let help = "Requests to the API server by status code, method and host";
        registry.register("rest_client_requests", help, metrics.requests.clone());
        let help = "Time until the API server answered, by verb and host";
        registry.register_with_unit("rest_client_request_duration", help, Unit::Seconds, metrics.durations.clone());
        metrics
    }

    /// Counts an answer, or that none came.
    pub fn observe(&self, host: &str, method: &Method, status: Option<StatusCode>, time: Duration) {
        let code = status.map_or_else(|| "<error>".to_owned(), |status| status.as_str().to_owned());
        let answer = Answer { code, host: host.to_owned(), method: method.to_string() };
        self.requests.get_or_create(&answer).inc();
        let asked = Asked { host: host.to_owned(), verb: method.to_string() };
        self.durations.get_or_create(&asked).observe(time.as_secs_f64());
    }
}
