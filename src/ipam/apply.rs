//! The requests to the API server.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client};
use serde_json::json;

use super::assignment::{Answer, Assignment, End, Progress, Request, Step};
use super::claim::{self, Claim, NAMESPACE};
use super::lease;
use super::plan::{Availability, Release};
use crate::cluster::patch::{FIELD_MANAGER, WriteError, merge, within};
use crate::model::NodeName;
use crate::model::views::POD_CIDR_UNAVAILABLE;

/// What came of one object's requests.
#[derive(Debug)]
pub(super) enum Ended {
    /// What was wanted is so.
    Done,
    /// It is not, or nobody knows.
    Failed(WriteError),
    /// A Node was to get blocks.
    Assigned {
        /// Which.
        assignment: Assignment,
        /// The claims that answers told of.
        learnt: Vec<Claim>,
        /// What came of it, and the last request.
        end: (End, Request),
        /// Why it failed, if it did.
        error: Option<WriteError>,
    },
}

/// Claims the blocks of one Node and writes them to it.
pub(super) async fn assign(client: Client, assignment: Assignment) -> Ended {
    let (mut progress, mut step) = Progress::begin(&assignment);
    let mut error = None;
    let end = loop {
        match step {
            Step::End(end) => break end,
            Step::Ask(request) => {
                let answer = ask(&client, &assignment, request).await.unwrap_or_else(|failure| {
                    error = Some(failure);
                    Answer::Failed
                });
                step = progress.step(answer);
            }
        }
    };
    let request = progress.request();
    Ended::Assigned { assignment, learnt: progress.learnt(), end: (end, request), error }
}

async fn ask(client: &Client, assignment: &Assignment, request: Request) -> Result<Answer, WriteError> {
    let claims: Api<Lease> = Api::namespaced(client.clone(), NAMESPACE);
    match request {
        Request::Claim(block) => {
            let parameters = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
            match within(claims.create(&parameters, &lease::of(block, &assignment.holder))).await {
                Ok(lease) => Ok(lease::claim_of(&lease).map_or(Answer::NoClaim, Answer::Claim)),
                Err(WriteError::Conflict) => Ok(Answer::Exists),
                Err(error) => Err(error),
            }
        }
        Request::Look(block) => {
            let lease = within(claims.get_opt(&claim::name(block))).await?;
            Ok(lease.as_ref().and_then(lease::claim_of).map_or(Answer::NoClaim, Answer::Claim))
        }
        Request::Assign => {
            let nodes: Api<Node> = Api::all(client.clone());
            let blocks = &assignment.blocks;
            // By its uid: a Node that was registered again under this name is another one. What else
            // changed does not matter, so no resource version: pod CIDRs that someone else has
            // written meanwhile cannot be changed, the API server sees to that.
            let body = json!({
                "metadata": { "uid": assignment.holder.uid },
                "spec": { "podCIDR": blocks.first(), "podCIDRs": blocks },
            });
            match merge(&nodes, assignment.holder.node.as_str(), &body).await {
                Ok(_) => Ok(Answer::Assigned),
                Err(error) if is_other_node_or_cidr(&error) => Err(WriteError::Conflict),
                Err(error) => Err(error),
            }
        }
    }
}

/// Whether the Node is not the same any more, or has pod CIDRs: the store will show it.
fn is_other_node_or_cidr(error: &WriteError) -> bool {
    match error {
        WriteError::Conflict | WriteError::Gone => true,
        WriteError::Refused(error) => matches!(&**error, kube::Error::Api(status) if status.code == 422),
        WriteError::TimedOut => false,
    }
}

/// Deletes a claim that nobody needs.
pub(super) async fn release(client: Client, release: Release) -> Ended {
    match try_release(&client, &release).await {
        Ok(()) | Err(WriteError::Gone) => Ended::Done,
        Err(error) => Ended::Failed(error),
    }
}

async fn try_release(client: &Client, Release { claim, unless_there }: &Release) -> Result<(), WriteError> {
    if let Some(holder) = unless_there {
        let nodes: Api<Node> = Api::all(client.clone());
        let node = within(nodes.get_metadata_opt(holder.node.as_str())).await?;
        if node.is_some_and(|node| node.metadata.uid.as_ref() == Some(&holder.uid)) {
            // The Node is new and the store will show it.
            return Err(WriteError::Conflict);
        }
    }
    let claims: Api<Lease> = Api::namespaced(client.clone(), NAMESPACE);
    let preconditions =
        Preconditions { uid: Some(claim.uid.clone()), resource_version: Some(claim.resource_version.clone()) };
    let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    within(claims.delete(&claim::name(claim.block), &parameters)).await.map(drop)
}

impl Availability {
    /// Status, reason and message of the condition.
    fn words(&self) -> (&'static str, &'static str, &str) {
        match self {
            Self::Assigned => ("False", "CIDRAssigned", "the node has its pod CIDRs"),
            Self::NotAvailable(words) => ("True", "CIDRNotAvailable", words),
        }
    }
}

/// Writes the condition of one Node.
pub(super) async fn condition(client: Client, node: NodeName, availability: Availability) -> Ended {
    let (status, reason, message) = availability.words();
    let now = Timestamp::now();
    let condition = json!({
        "type": POD_CIDR_UNAVAILABLE,
        "status": status,
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": Time(now),
        "lastTransitionTime": Time(now),
    });
    let body = json!({ "status": { "conditions": [condition] } });
    let nodes: Api<Node> = Api::all(client);
    // Strategic: conditions are merged by their type, the kubelet's stay.
    let parameters = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    match within(nodes.patch_status(node.as_str(), &parameters, &Patch::Strategic(&body))).await {
        Ok(_) => Ended::Done,
        Err(error) => Ended::Failed(error),
    }
}
