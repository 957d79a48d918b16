#![expect(clippy::disallowed_methods, reason = "shell: owns the task that renews a token")]
//! A controller's own ServiceAccount: its token by TokenRequest, renewed before it runs out.

use std::time::Duration;

use axum::http::HeaderValue;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use thiserror::Error;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::{info, warn};

use super::told::Told;

/// Where the accounts are, as upstream's.
pub const NAMESPACE: &str = "kube-system";
const LIFE: Duration = Duration::from_secs(3600);
/// A new one at 80 % of a token's life.
const RENEWED_AFTER: Duration = Duration::from_secs(LIFE.as_secs() * 8 / 10);
const TIMEOUT: Duration = Duration::from_secs(10);
const RETRY: Duration = Duration::from_secs(1);

/// Why there is no token.
#[derive(Debug, Error)]
enum TokenError {
    #[error("the API server refused it")]
    Refused(#[from] kube::Error),
    #[error("the API server did not answer within {} s", TIMEOUT.as_secs())]
    TimedOut(#[from] tokio::time::error::Elapsed),
    #[error("the API server's answer has no token that can be sent")]
    NoToken,
}

/// Keeps a token of `account`; `None` until there is the first. The task ends with `tasks`.
pub fn keep(root: Client, account: &'static str, tasks: &mut JoinSet<()>) -> watch::Receiver<Option<HeaderValue>> {
    let (sender, token) = watch::channel(None);
    tasks.spawn(async move {
        let api: Api<ServiceAccount> = Api::namespaced(root, NAMESPACE);
        let mut is_away = false;
        loop {
            let wait = match request(&api, account).await {
                Ok(token) => {
                    if std::mem::take(&mut is_away) {
                        info!(account, "the controller has a token again");
                    }
                    sender.send_replace(Some(token));
                    RENEWED_AFTER
                }
                Err(error) => {
                    if !std::mem::replace(&mut is_away, true) {
                        let error = Told(&error);
                        warn!(account, %error, "no token for the controller's ServiceAccount; trying again");
                    }
                    RETRY.mul_f64(0.5 + fastrand::f64())
                }
            };
            tokio::time::sleep(wait).await;
        }
    });
    token
}

async fn request(api: &Api<ServiceAccount>, account: &str) -> Result<HeaderValue, TokenError> {
    let asked = TokenRequest {
        spec: Some(TokenRequestSpec {
            expiration_seconds: i64::try_from(LIFE.as_secs()).ok(),
            ..TokenRequestSpec::default()
        }),
        ..TokenRequest::default()
    };
    let parameters = PostParams::default();
    let answer = match timeout(TIMEOUT, api.create_token_request(account, &parameters, &asked)).await? {
        // Made when missing, as upstream does; the manifests bring it along.
        Err(kube::Error::Api(status)) if status.code == 404 => {
            timeout(TIMEOUT, create(api, account)).await??;
            timeout(TIMEOUT, api.create_token_request(account, &parameters, &asked)).await??
        }
        other => other?,
    };
    let token = answer.status.and_then(|status| status.token).ok_or(TokenError::NoToken)?;
    let mut header = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| TokenError::NoToken)?;
    header.set_sensitive(true);
    Ok(header)
}

async fn create(api: &Api<ServiceAccount>, account: &str) -> Result<(), kube::Error> {
    let account = ServiceAccount {
        metadata: ObjectMeta { name: Some(account.to_owned()), ..ObjectMeta::default() },
        ..ServiceAccount::default()
    };
    match api.create(&PostParams::default(), &account).await {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        other => other.map(drop),
    }
}
