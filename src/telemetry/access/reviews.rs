//! What the API server says: whose token this is, and whether someone may see a page.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};
use thiserror::Error;

use super::user::User;
use crate::model::Moment;

/// As upstream: half a second, then half as much again, all within ten seconds.
const TRIES: u32 = 5;
const FIRST_RETRY: Duration = Duration::from_millis(500);
const TIMEOUT: Duration = Duration::from_secs(10);

/// Why the API server gave no answer.
#[derive(Debug, Error)]
pub enum ReviewError {
    /// It refused, or could not be reached.
    #[error("the API server did not take the review")]
    Refused(#[source] Box<kube::Error>),
    /// Nothing came.
    #[error("the API server did not answer within {} s", TIMEOUT.as_secs())]
    TimedOut,
}

/// Asks whose token this is; `None` when it is nobody's.
pub async fn token(client: &Client, token: &str) -> Result<Option<User>, ReviewError> {
    let review = TokenReview {
        spec: TokenReviewSpec { token: token.to_owned(), ..TokenReviewSpec::default() },
        ..TokenReview::default()
    };
    let (api, parameters): (Api<TokenReview>, _) = (Api::all(client.clone()), PostParams::default());
    let answer = persistently(|| api.create(&parameters, &review)).await?;
    let status = answer.status.unwrap_or_default();
    let user = status.user.filter(|_| status.authenticated == Some(true));
    Ok(user.map(|user| User {
        name: user.username.unwrap_or_default(),
        uid: user.uid.unwrap_or_default(),
        groups: user.groups.unwrap_or_default(),
        extra: user.extra.unwrap_or_default(),
    }))
}

/// Asks whether a user may use `verb` on a path.
pub async fn access(client: &Client, user: &User, verb: &str, path: &str) -> Result<bool, ReviewError> {
    let User { name, uid, groups, extra } = user.clone();
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(name),
            uid: Some(uid).filter(|uid| !uid.is_empty()),
            groups: Some(groups),
            extra: Some(extra),
            non_resource_attributes: Some(NonResourceAttributes {
                path: Some(path.to_owned()),
                verb: Some(verb.to_owned()),
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    };
    let (api, parameters): (Api<SubjectAccessReview>, _) = (Api::all(client.clone()), PostParams::default());
    let answer = persistently(|| api.create(&parameters, &review)).await?;
    Ok(answer.status.is_some_and(|status| status.allowed && status.denied != Some(true)))
}

async fn persistently<T, F>(ask: impl Fn() -> F) -> Result<T, ReviewError>
where
    F: Future<Output = Result<T, kube::Error>>,
{
    let tries = async {
        let (mut left, mut wait) = (TRIES, FIRST_RETRY);
        loop {
            left -= 1;
            match ask().await {
                Ok(answer) => return Ok(answer),
                Err(kube::Error::Api(status)) if status.code < 429 => {
                    return Err(ReviewError::Refused(Box::new(kube::Error::Api(status))));
                }
                Err(error) if left == 0 => return Err(ReviewError::Refused(Box::new(error))),
                Err(_) => crate::cluster::clock::until(Some(crate::cluster::clock::now() + wait)).await,
            }
            wait = wait.mul_f64(1.5);
        }
    };
    tokio::time::timeout(TIMEOUT, tries).await.map_err(|_| ReviewError::TimedOut)?
}

/// Answers that hold for a while.
#[derive(Debug)]
pub struct Cache<K, V> {
    answers: BTreeMap<K, (V, Moment)>,
}

/// More askers than a control plane has; beyond it, answers are forgotten.
const MOST: usize = 1024;

impl<K, V> Default for Cache<K, V> {
    fn default() -> Self {
        Self { answers: BTreeMap::new() }
    }
}

impl<K: Ord, V: Clone> Cache<K, V> {
    /// The answer, if it still holds.
    pub fn get(&self, question: &K, now: Moment) -> Option<V> {
        self.answers.get(question).filter(|(_, until)| now < *until).map(|(answer, _)| answer.clone())
    }

    /// Remembers an answer until then.
    pub fn put(&mut self, question: K, answer: V, until: Moment, now: Moment) {
        self.answers.retain(|_, (_, until)| now < *until);
        if self.answers.len() < MOST {
            self.answers.insert(question, (answer, until));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_holds_until_its_time_and_memory_stays_bounded() {
        let at = |seconds| Moment::since_boot(Duration::from_secs(seconds));
        let mut cache = Cache::default();
        cache.put("token", 7, at(20), at(10));
        assert_eq!((cache.get(&"token", at(19)), cache.get(&"token", at(20))), (Some(7), None));
        let mut cache = Cache::default();
        for question in 0..2 * MOST {
            cache.put(question, (), at(20), at(10));
        }
        assert_eq!(cache.answers.len(), MOST);
        cache.put(0, (), at(40), at(30));
        assert_eq!(cache.answers.len(), 1, "what holds no more is forgotten");
    }
}
