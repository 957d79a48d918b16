//! Writes to the API server: one request each, with a timeout, and with what went wrong told apart.

use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{StreamExt, stream};
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::Request;
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

use super::traffic::{Fenced, IN_FLIGHT, Unanswered};

/// Who writes, in `metadata.managedFields`.
pub const FIELD_MANAGER: &str = "cairn-controller";
/// A write waits for its turn, and then for the API server's answer ([`Unanswered`] says how long);
/// only an answer that breaks off takes longer than both.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Why a write did not happen, or may not have happened.
#[derive(Debug, Error)]
pub enum WriteError {
    /// The object changed since it was read: it has to be looked at anew.
    #[error("the object changed in the meantime")]
    Conflict,
    /// The object is gone.
    #[error("the object is gone")]
    Gone,
    /// The API server refused the write or could not be reached.
    #[error("the API server did not take the write")]
    Refused(#[source] Box<kube::Error>),
    /// No answer came: the write may have happened.
    #[error("the API server did not answer in time")]
    TimedOut,
}

impl WriteError {
    /// Whether the API server failed or refused: nobody else was first, and this process may still write.
    pub fn is_failure(&self) -> bool {
        match self {
            Self::Conflict | Self::Gone => false,
            Self::Refused(error) => !matches!(&**error, kube::Error::Service(cause) if cause.is::<Fenced>()),
            Self::TimedOut => true,
        }
    }
}

/// Waits for a write, and for no longer than is reasonable.
///
/// # Errors
/// See [`WriteError`].
pub async fn within<T>(write: impl Future<Output = Result<T, kube::Error>>) -> Result<T, WriteError> {
    match tokio::time::timeout(TIMEOUT, write).await {
        Ok(Ok(written)) => Ok(written),
        Ok(Err(kube::Error::Api(status))) if status.code == 409 => Err(WriteError::Conflict),
        Ok(Err(kube::Error::Api(status))) if status.code == 404 => Err(WriteError::Gone),
        Ok(Err(kube::Error::Service(error))) if error.is::<Unanswered>() => Err(WriteError::TimedOut),
        Ok(Err(error)) => Err(WriteError::Refused(Box::new(error))),
        Err(_) => Err(WriteError::TimedOut),
    }
}

/// Makes writes side by side, up to 50 at a time, and answers in the order in which they end.
///
/// A burst then waits for the API server and not for us, and still leaves it room for others.
pub async fn side_by_side<T>(writes: Vec<BoxFuture<'_, T>>) -> Vec<T> {
    stream::iter(writes).buffer_unordered(IN_FLIGHT).collect().await
}

/// Changes an object by a JSON merge patch (RFC 7396), which replaces lists as a whole.
///
/// With `metadata.resourceVersion` in the body the write is refused when the object has changed.
///
/// # Errors
/// See [`WriteError`].
pub async fn merge<K, B>(api: &Api<K>, name: &str, body: &B) -> Result<K, WriteError>
where
    K: Clone + DeserializeOwned + Debug,
    B: Serialize + Debug,
{
    within(api.patch(name, &parameters(), &Patch::Merge(body))).await
}

/// As [`merge`], on the status subresource.
///
/// # Errors
/// See [`WriteError`].
pub async fn merge_status<K, B>(api: &Api<K>, name: &str, body: &B) -> Result<K, WriteError>
where
    K: Clone + DeserializeOwned + Debug,
    B: Serialize + Debug,
{
    within(api.patch_status(name, &parameters(), &Patch::Merge(body))).await
}

/// Creates an object; `A` is what is read of the answer. One that is there already is a [`WriteError::Conflict`].
///
/// # Errors
/// See [`WriteError`].
pub async fn create<K, A>(client: &Client, namespace: Option<&str>, object: &K) -> Result<A, WriteError>
where
    K: Resource<DynamicType = ()> + Serialize,
    A: DeserializeOwned,
{
    // As `Api::create`, which would take the whole answer apart.
    let parameters = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
    let created = async {
        let body = serde_json::to_vec(object).map_err(kube::Error::SerdeError)?;
        let request = Request::new(K::url_path(&(), namespace)).create(&parameters, body);
        client.request(request.map_err(kube::Error::BuildRequest)?).await
    };
    within(created).await
}

fn parameters() -> PatchParams {
    PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() }
}
