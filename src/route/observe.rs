//! What came, changed or went since the planner last heard of it.

use std::sync::Arc;

use super::Context;
use super::plan::{ObservedRoute, Planner};
use crate::cluster::changes::Changes;
use crate::cluster::store::Store;
use crate::cluster::written::Written;
use crate::model::NodeName;
use crate::model::views::NodeView;

/// Tells the planner what the stores have, or what was written since.
pub(super) fn observe(
    context: &mut Context,
    planner: &mut Planner,
    nodes: &mut Written<NodeName, NodeView>,
    routes: &mut Written<NodeName, ObservedRoute>,
) {
    for (name, view) in news(&mut context.nodes, |planner| planner.observed().nodes.keys(), planner) {
        let view = nodes.newest(&name, view);
        planner.node(&name, view);
    }
    for (name, route) in news(&mut context.routes, |planner| planner.observed().node_routes.keys(), planner) {
        let route = routes.newest(&name, route);
        planner.route(&name, route);
    }
    for (name, report) in news(&mut context.reports, |planner| planner.observed().node_reports.keys(), planner) {
        planner.report(&name, report);
    }
}

/// The objects that may have changed, those that are gone as `None`.
fn news<'a, V, K>(
    store: &mut Store<V>,
    known: impl FnOnce(&'a Planner) -> K,
    planner: &'a Planner,
) -> Vec<(NodeName, Option<Arc<V>>)>
where
    V: PartialEq + Send + Sync + 'static,
    K: Iterator<Item = &'a NodeName>,
{
    match store.take_changes() {
        Changes::Keys(keys) => keys.into_iter().filter_map(|key| Some((key.parse().ok()?, store.get(&key)))).collect(),
        Changes::All => {
            let all = store.snapshot();
            let gone = known(planner).filter(|name| !all.contains_key(name.as_str()));
            let gone: Vec<_> = gone.map(|name| (name.clone(), None)).collect();
            let here = all.into_iter().filter_map(|(name, view)| Some((name.parse().ok()?, Some(view))));
            here.chain(gone).collect()
        }
    }
}
