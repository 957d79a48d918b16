//! What a saved state of a controller leads to.

use anyhow::Context;
use serde_json::Value;

use crate::route::forecast;

/// What the route room would write, one line each.
///
/// # Errors
/// When the state is not one that [`State::show`](super::state::State::show) made.
pub fn forecast(state: &Value) -> anyhow::Result<String> {
    let part = |name: &str| state.get(name).cloned().unwrap_or_default();
    let observed = part("observed");
    let kinds = ["nodes", "nodeRoutes", "nodeReports"];
    // A standby has no stores: it sees nothing, and would do nothing.
    let is_leading = kinds.iter().all(|kind| observed.get(kind).is_some_and(|objects| !objects.is_null()));
    if !is_leading && observed.is_object() {
        return Ok("this process does not see to routes: it does not lead, or not this controller\n".to_owned());
    }
    let observed = serde_json::from_value(observed).context("observed")?;
    let responsibility = match part("routes") {
        Value::Null => Default::default(),
        routes => serde_json::from_value(routes).context("routes")?,
    };
    Ok(forecast::forecast(observed, responsibility).to_string())
}
