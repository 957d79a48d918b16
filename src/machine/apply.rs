//! Writes what the plan says, a few machines at a time.

use std::collections::BTreeMap;

use futures_util::FutureExt;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;

use super::observe::{MachineObject, object};
use super::plan::Action;
use crate::api::{Machine, MachineSpec, MachineStatus};
use crate::cluster::lean::Lean;
use crate::cluster::patch::{FIELD_MANAGER, WriteError, merge_status, side_by_side, within};
use crate::model::MachineId;

/// Carries out the actions; answers with each `Machine` as it is afterwards, `None` when deleted.
pub(super) async fn apply(
    client: &Client,
    actions: &BTreeMap<MachineId, Action>,
) -> Vec<(MachineId, Result<Option<MachineObject>, WriteError>)> {
    let api: Api<Lean<Machine>> = Api::all(client.clone());
    let api = &api;
    let writes = actions.iter().map(|(id, action)| {
        async move {
            let result = match action {
                Action::Create(status) => create(api, id, status).await,
                Action::Update(status) => write_status(api, id, status).await,
                Action::Delete => delete(api, id).await.map(|()| None),
            };
            (id.clone(), result)
        }
        .boxed()
    });
    side_by_side(writes.collect()).await
}

async fn create(
    api: &Api<Lean<Machine>>,
    id: &MachineId,
    status: &MachineStatus,
) -> Result<Option<MachineObject>, WriteError> {
    let machine = Machine::new(id.as_str(), MachineSpec {});
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    // Applied, so that it does not matter whether an earlier try has come through.
    within(api.patch(id.as_str(), &parameters, &Patch::Apply(&machine))).await?;
    write_status(api, id, status).await
}

async fn write_status(
    api: &Api<Lean<Machine>>,
    id: &MachineId,
    status: &MachineStatus,
) -> Result<Option<MachineObject>, WriteError> {
    let written = merge_status(api, id.as_str(), &json!({ "status": status })).await?;
    Ok(object(&written.0))
}

async fn delete(api: &Api<Lean<Machine>>, id: &MachineId) -> Result<(), WriteError> {
    match within(api.delete(id.as_str(), &DeleteParams::default())).await {
        Ok(_) | Err(WriteError::Gone) => Ok(()),
        Err(error) => Err(error),
    }
}
