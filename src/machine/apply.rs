//! Writes what the plan says, one machine at a time.

use kube::api::DeleteParams;
use kube::{Api, Client};
use serde::Serialize;
use serde::de::IgnoredAny;

use super::observe::{MachineObject, object};
use super::plan::Action;
use crate::api::{Machine, MachineSpec, MachineStatus};
use crate::cluster::lean::Lean;
use crate::cluster::patch::{WriteError, create, merge_status, within};
use crate::model::MachineId;

/// Carries out an action; answers with the `Machine` as it is afterwards, `None` when deleted.
pub(super) async fn apply(
    client: Client,
    id: &MachineId,
    action: &Action,
) -> Result<Option<MachineObject>, WriteError> {
    let api: Api<Lean<Machine>> = Api::all(client.clone());
    match action {
        Action::Create(status) => make(&client, &api, id, status).await,
        Action::Update(status) => write_status(&api, id, status).await,
        Action::Delete => delete(&api, id).await.map(|()| None),
    }
}

async fn make(
    client: &Client,
    api: &Api<Lean<Machine>>,
    id: &MachineId,
    status: &MachineStatus,
) -> Result<Option<MachineObject>, WriteError> {
    let machine = Machine::new(id.as_str(), MachineSpec {});
    match create::<Machine, IgnoredAny>(client, None, &machine).await {
        // An earlier try has come through.
        Ok(_) | Err(WriteError::Conflict) => write_status(api, id, status).await,
        Err(error) => Err(error),
    }
}

async fn write_status(
    api: &Api<Lean<Machine>>,
    id: &MachineId,
    status: &MachineStatus,
) -> Result<Option<MachineObject>, WriteError> {
    let written = merge_status(api, id.as_str(), &Body { status }).await?;
    Ok(object(&written.0))
}

#[derive(Debug, Serialize)]
struct Body<'a> {
    status: &'a MachineStatus,
}

async fn delete(api: &Api<Lean<Machine>>, id: &MachineId) -> Result<(), WriteError> {
    match within(api.delete(id.as_str(), &DeleteParams::default())).await {
        Ok(_) | Err(WriteError::Gone) => Ok(()),
        Err(error) => Err(error),
    }
}
