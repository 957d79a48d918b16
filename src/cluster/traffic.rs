#![expect(clippy::disallowed_methods, reason = "shell: a write outlives whoever asked for it")]
//! What holds for every request to the API server.
//!
//! - At most 50 writes are on their way at a time, and of each client no more than it may have.
//! - What is only told ([`Lane::Later`]), and what is of use only after something else ([`Lane::Next`]),
//!   waits while there is something to do ([`Lane::First`]), but not for ever.
//! - A leader's write is over before another process can lead: it is asked last before it is sent how
//!   long that is ([`Fence`]), given up then, and the server is told not to take longer either.
//! - A write that was sent is waited for to its answer, also when nobody waits any more: so
//!   [`Traffic::settled`] can say when nothing is on its way, and only then a Lease is given back.
//! - A server that says 429 is left alone for as long as it says.
//! - With `--kube-api-qps`, requests wait for their turn.

use std::any::Any;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::http::header::{AUTHORIZATION, HeaderValue, RETRY_AFTER};
use axum::http::uri::PathAndQuery;
use axum::http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use futures_util::future::BoxFuture;
use kube::client::Body;
use thiserror::Error;
use tokio::sync::{AcquireError, Semaphore, watch};
use tower::{BoxError, Service};

use super::clock;
use super::metrics::Metrics;
use super::throttle::Throttle;
use crate::model::Moment;

/// Writes of the whole process on their way at the same time.
pub const IN_FLIGHT: usize = 50;
/// The API server answers a write in milliseconds; one that takes this long is not coming. It is
/// told so, and gives up as well.
const ANSWERED_WITHIN: Duration = Duration::from_secs(5);
/// By then the API server itself has given up (its `--request-timeout`).
const OVER_AFTER: Duration = Duration::from_secs(61);
/// How long a write of another lane than the first lets others go first. With as many of the next lane
/// as may be on their way, a burst leaves them twenty-five a second.
const COURTESY_NEXT: Duration = Duration::from_secs(2);
/// Of these only a few wait at a time.
const COURTESY_LATER: Duration = Duration::from_secs(1);
/// What a 429 without `Retry-After` means, as in client-go.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// No answer to a write came: it may have happened.
#[derive(Debug, Clone, Copy, Error)]
#[error("the API server did not answer within {} s", ANSWERED_WITHIN.as_secs())]
pub struct Unanswered;

/// Which of the writes go first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// What somebody waits for.
    First,
    /// What somebody waits for, but something else first: routes to Nodes.
    Next,
    /// What is only told: Events, and what is shown of machines.
    Later,
}

/// Shared by all clients of one process but the election's.
#[derive(Debug)]
pub struct Traffic {
    writes: Arc<Semaphore>,
    /// Writes of the first lane that wait or are on their way.
    first: watch::Sender<usize>,
    paused_until: Mutex<Moment>,
    throttle: Option<Mutex<Throttle>>,
}

impl Traffic {
    /// No request yet. `rate` is requests a second and how many of them at once.
    pub fn new(rate: Option<(f64, u32)>) -> Self {
        let throttle = rate.map(|(rate, burst)| Mutex::new(Throttle::new(rate, burst, clock::now())));
        let (writes, first) = (Arc::new(Semaphore::new(IN_FLIGHT)), watch::Sender::new(0));
        Self { writes, first, paused_until: Mutex::default(), throttle }
    }

    /// Lets writes of the first lane pass, or is one of them until it is dropped.
    async fn keep_lane(self: &Arc<Self>, lane: Lane) -> Option<Passing> {
        let courtesy = match lane {
            Lane::First => return Some(Passing::new(Arc::clone(self))),
            Lane::Next => COURTESY_NEXT,
            Lane::Later => COURTESY_LATER,
        };
        let mut first = self.first.subscribe();
        let _ = tokio::time::timeout(courtesy, first.wait_for(|passing| *passing == 0)).await;
        None
    }

    /// Waits until every write has been answered, and lets no other be sent from now on.
    pub async fn settled(&self) {
        let all = u32::try_from(IN_FLIGHT).expect("fifty");
        // Waiters queue up in order: writes that wait already are overtaken by the closing only.
        if let Ok(permits) = self.writes.acquire_many(all).await {
            permits.forget();
        }
        self.writes.close();
    }

    /// Notes how long the server wants to be left alone.
    fn heed(&self, status: StatusCode, headers: &HeaderMap) {
        if status != StatusCode::TOO_MANY_REQUESTS {
            return;
        }
        let seconds = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
        let pause = seconds.map_or(PAUSE, Duration::from_secs).min(LONGEST_PAUSE);
        let mut until = self.paused_until.lock().unwrap_or_else(PoisonError::into_inner);
        *until = (*until).max(clock::now() + pause);
    }

    /// Waits for the turn of one request.
    async fn turn(&self) {
        if let Some(throttle) = &self.throttle {
            let turn = throttle.lock().unwrap_or_else(PoisonError::into_inner).turn(clock::now());
            clock::until(Some(turn)).await;
        }
        loop {
            let until = *self.paused_until.lock().unwrap_or_else(PoisonError::into_inner);
            if until <= clock::now() {
                return;
            }
            clock::until(Some(until)).await;
        }
    }
}

/// A write of the first lane, from when it is asked for until it is answered.
struct Passing(Arc<Traffic>);

impl Passing {
    fn new(traffic: Arc<Traffic>) -> Self {
        // Who lets others go first has only to hear that there is none any more.
        traffic.first.send_if_modified(|passing| {
            *passing += 1;
            false
        });
        Self(traffic)
    }
}

impl Drop for Passing {
    fn drop(&mut self) {
        self.0.first.send_if_modified(|passing| {
            *passing -= 1;
            *passing == 0
        });
    }
}

/// How long a write may take that begins now, if it may begin: asked last before it is sent.
#[derive(Clone)]
pub struct Fence(Arc<dyn Fn() -> Option<Duration> + Send + Sync>);

impl Fence {
    /// A fence that is open for as long as `time_left` says.
    pub fn new(time_left: impl Fn() -> Option<Duration> + Send + Sync + 'static) -> Self {
        Self(Arc::new(time_left))
    }

    /// A fence that is always open.
    pub fn open() -> Self {
        Self::new(|| Some(Duration::MAX))
    }
}

impl std::fmt::Debug for Fence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Fence").field(&(self.0)()).finish()
    }
}

/// A write was not sent: this process does not lead any more.
#[derive(Debug, Clone, Copy, Error)]
#[error("this process does not lead any more")]
pub struct Fenced;

/// The rules of one client.
#[derive(Debug, Clone)]
pub struct Rules {
    /// What it shares with others; `None` for the election, which waits for nobody.
    pub traffic: Option<Arc<Traffic>>,
    /// Writes of this client on their way at the same time.
    pub writes: Arc<Semaphore>,
    /// Whether they go first.
    pub lane: Lane,
    /// Whether they may begin.
    pub fence: Fence,
    /// As whom, if not as the process itself; requests wait for the first token.
    pub token: Option<watch::Receiver<Option<HeaderValue>>>,
    /// Where requests are counted.
    pub metrics: Metrics,
    /// The server, for the metrics.
    pub host: String,
}

/// The layer around a client that keeps the rules.
#[derive(Debug)]
pub struct Ruled<S> {
    inner: S,
    rules: Rules,
}

impl<S> Ruled<S> {
    /// Puts `inner` under the rules.
    pub fn new(inner: S, rules: Rules) -> Self {
        Self { inner, rules }
    }
}

impl<S, B> Service<Request<Body>> for Ruled<S>
where
    S: Service<Request<Body>, Response = Response<B>, Error = BoxError>,
    S::Future: Send + 'static,
    B: Send + 'static,
{
    type Response = Response<B>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<B>, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let rules = self.rules.clone();
        if let Some(token) = rules.token.as_ref().and_then(|token| token.borrow().clone()) {
            request.headers_mut().insert(AUTHORIZATION, token);
        } else if rules.token.is_some() {
            return Box::pin(async { Err(NoToken.into()) });
        }
        let method = request.method().clone();
        let is_read = method == Method::GET || method == Method::HEAD;
        if !is_read {
            limit(request.uri_mut());
        }
        // Nothing is sent before the future is polled.
        let answer = self.inner.call(request);
        Box::pin(async move {
            if is_read {
                if let Some(traffic) = &rules.traffic {
                    traffic.turn().await;
                }
                return observed(&rules, &method, answer).await;
            }
            write(rules, method, answer).await
        })
    }
}

/// The ServiceAccount of a controller has no token yet.
#[derive(Debug, Clone, Copy, Error)]
#[error("there is no token yet for this controller's ServiceAccount")]
pub struct NoToken;

async fn write<B: Send + 'static>(
    rules: Rules,
    method: Method,
    answer: impl Future<Output = Result<Response<B>, BoxError>> + Send + 'static,
) -> Result<Response<B>, BoxError> {
    let closed = |_: AcquireError| BoxError::from("the process is ending");
    let own = Arc::clone(&rules.writes).acquire_owned().await.map_err(closed)?;
    let shared = match &rules.traffic {
        Some(traffic) => {
            let passing = traffic.keep_lane(rules.lane).await;
            traffic.turn().await;
            Some((passing, Arc::clone(&traffic.writes).acquire_owned().await.map_err(closed)?))
        }
        None => None,
    };
    let begun = clock::now();
    let left = (rules.fence.0)().ok_or(Fenced)?;
    let limit = left.min(OVER_AFTER);
    let answer = async move { tokio::time::timeout(limit, observed(&rules, &method, answer)).await.ok() };
    let sent = Sent { answer: Some(Box::pin(answer)), begun, permits: Some(Box::new((own, shared))) };
    match tokio::time::timeout(ANSWERED_WITHIN, sent).await {
        Ok(Some(answer)) => answer,
        Ok(None) | Err(_) => Err(Unanswered.into()),
    }
}

/// What a write holds until it can take effect no more.
type Permits = Box<dyn Any + Send>;

/// A write that was sent; `None` when it was given up. It may take effect until it is answered, so it is
/// not aborted with whoever asked: what is left of it goes on by itself.
struct Sent<A: 'static> {
    answer: Option<BoxFuture<'static, Option<A>>>,
    begun: Moment,
    permits: Option<Permits>,
}

impl<A> Future for Sent<A> {
    type Output = Option<A>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<A>> {
        let Some(answer) = &mut self.answer else { return Poll::Ready(None) };
        let answer = std::task::ready!(answer.as_mut().poll(context));
        self.answer = None;
        match &answer {
            Some(_) => self.permits = None,
            None => keep_until(self.begun + OVER_AFTER, self.permits.take()),
        }
        Poll::Ready(answer)
    }
}

impl<A> Drop for Sent<A> {
    fn drop(&mut self) {
        let (Some(answer), permits) = (self.answer.take(), self.permits.take()) else { return };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let begun = self.begun;
            runtime.spawn(async move {
                if answer.await.is_none() {
                    keep_until(begun + OVER_AFTER, permits);
                }
            });
        }
    }
}

/// Lets nobody say that nothing is on its way: a connection was closed, but the server may have the write.
fn keep_until(over: Moment, permits: Option<Permits>) {
    tokio::spawn(async move {
        clock::until(Some(over)).await;
        drop(permits);
    });
}

/// Tells the server to give up when this client does (`?timeout=`, honoured for all but watches).
fn limit(uri: &mut Uri) {
    let path = uri.path_and_query().map_or("/", PathAndQuery::as_str);
    let mark = if path.contains('?') { '&' } else { '?' };
    let limited = format!("{path}{mark}timeout={}s", ANSWERED_WITHIN.as_secs());
    let mut parts = std::mem::take(uri).into_parts();
    parts.path_and_query = limited.parse().ok();
    *uri = Uri::from_parts(parts).expect("a URI with another query is a URI");
}

async fn observed<B>(
    rules: &Rules,
    method: &Method,
    answer: impl Future<Output = Result<Response<B>, BoxError>>,
) -> Result<Response<B>, BoxError> {
    let begun = clock::now();
    let answer = answer.await;
    let status = answer.as_ref().ok().map(Response::status);
    rules.metrics.observe(&rules.host, method, status, clock::now().since(begun));
    if let (Some(traffic), Ok(response)) = (&rules.traffic, &answer) {
        traffic.heed(response.status(), response.headers());
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::task::JoinSet;
    use tower::{ServiceExt, service_fn};

    fn rules(traffic: &Arc<Traffic>, own: usize) -> Rules {
        Rules {
            traffic: Some(Arc::clone(traffic)),
            writes: Arc::new(Semaphore::new(own)),
            lane: Lane::First,
            fence: Fence::open(),
            token: None,
            metrics: Metrics::default(),
            host: "api".to_owned(),
        }
    }

    fn request(method: Method) -> Request<Body> {
        Request::builder().method(method).body(Body::empty()).expect("a request")
    }

    /// How many requests are in the server at once, at the most.
    async fn most_at_once(own: usize) -> usize {
        let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let traffic = Arc::new(Traffic::new(None));
        let shared = rules(&traffic, own);
        let mut tasks = JoinSet::new();
        for _ in 0..200 {
            let (now, most) = (Arc::clone(&now), Arc::clone(&most));
            let server = service_fn(move |_| {
                let (now, most) = (Arc::clone(&now), Arc::clone(&most));
                async move {
                    most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    tokio::task::yield_now().await;
                    now.fetch_sub(1, Ordering::SeqCst);
                    Ok::<_, BoxError>(Response::new(()))
                }
            });
            tasks.spawn(Ruled::new(server, shared.clone()).oneshot(request(Method::PATCH)));
        }
        while let Some(answer) = tasks.join_next().await {
            answer.expect("no panic").expect("an answer");
        }
        most.load(Ordering::SeqCst)
    }

    #[tokio::test]
    async fn no_more_writes_are_on_their_way_than_fifty_and_than_a_client_may_have() {
        assert_eq!(most_at_once(1000).await, IN_FLIGHT);
        assert_eq!(most_at_once(7).await, 7);
    }

    #[tokio::test]
    async fn a_write_nobody_waits_for_is_still_on_its_way_and_none_is_sent_after_the_last() {
        let traffic = Arc::new(Traffic::new(None));
        let (answer, answered) = watch::channel(false);
        let server = service_fn(move |_| {
            let mut answered = answered.clone();
            async move {
                let _ = answered.wait_for(|answered| *answered).await;
                Ok::<_, BoxError>(Response::new(()))
            }
        });
        let mut write = Box::pin(Ruled::new(server.clone(), rules(&traffic, 50)).oneshot(request(Method::PUT)));
        tokio::select! {
            _ = &mut write => panic!("nobody has answered"),
            () = tokio::task::yield_now() => {}
        }
        drop(write);
        let mut settled = Box::pin(traffic.settled());
        tokio::select! {
            () = &mut settled => panic!("a write is on its way"),
            () = tokio::task::yield_now() => {}
        }
        answer.send_replace(true);
        settled.await;
        let late = Ruled::new(server, rules(&traffic, 50)).oneshot(request(Method::PUT)).await;
        assert_eq!(late.expect_err("it is too late").to_string(), "the process is ending");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_of_use_later_lets_others_go_first_but_not_for_ever() {
        for (lane, courtesy) in [(Lane::Next, COURTESY_NEXT), (Lane::Later, COURTESY_LATER)] {
            lets_others_go_first(lane, courtesy).await;
        }
    }

    async fn lets_others_go_first(lane: Lane, courtesy: Duration) {
        let traffic = Arc::new(Traffic::new(None));
        let (answer, answered) = watch::channel(false);
        let slow = service_fn(move |_| {
            let mut answered = answered.clone();
            async move {
                let _ = answered.wait_for(|answered| *answered).await;
                Ok::<_, BoxError>(Response::new(()))
            }
        });
        let quick = service_fn(|_| async { Ok::<_, BoxError>(Response::new(())) });
        let later = || Ruled::new(quick, Rules { lane, ..rules(&traffic, 8) }).oneshot(request(Method::POST));
        let begun = tokio::time::Instant::now();
        later().await.expect("nobody else writes");
        assert_eq!(begun.elapsed(), Duration::ZERO);
        let mut first = Box::pin(Ruled::new(slow, rules(&traffic, 50)).oneshot(request(Method::PATCH)));
        let mut told = Box::pin(later());
        tokio::select! {
            biased;
            _ = &mut first => panic!("nobody has answered"),
            told = &mut told => drop(told.expect("an answer")),
        }
        assert_eq!(begun.elapsed(), courtesy, "the write before it has no answer yet");
        let begun = tokio::time::Instant::now();
        let (first, told) = tokio::join!(first, async {
            answer.send_replace(true);
            later().await
        });
        first.and(told).expect("answers");
        assert_eq!(begun.elapsed(), Duration::ZERO, "the one before it is done");
    }

    #[tokio::test]
    async fn a_write_that_waited_too_long_for_its_turn_is_not_sent() {
        let traffic = Arc::new(Traffic::new(None));
        let server = service_fn(|_| async { Ok::<_, BoxError>(Response::new(())) });
        let fence = Fence::new(|| None);
        let rules = || Rules { fence: fence.clone(), ..rules(&traffic, 50) };
        let answer = Ruled::new(server, rules()).oneshot(request(Method::PATCH)).await;
        assert!(answer.expect_err("it does not lead").is::<Fenced>());
        Ruled::new(server, rules()).oneshot(request(Method::GET)).await.expect("whoever does not lead may read");
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_without_an_answer_is_told_as_such() {
        let traffic = Arc::new(Traffic::new(None));
        let server = service_fn(|_| std::future::pending::<Result<Response<()>, BoxError>>());
        let answer = Ruled::new(server, rules(&traffic, 50)).oneshot(request(Method::POST)).await;
        assert!(answer.expect_err("no answer").is::<Unanswered>());
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_is_given_up_before_another_process_can_lead() {
        let traffic = Arc::new(Traffic::new(None));
        let connections = Arc::new(());
        let alive = Arc::downgrade(&connections);
        let server = service_fn(move |_| {
            let alive = alive.upgrade();
            async move {
                std::future::pending::<()>().await;
                drop(alive);
                Ok::<_, BoxError>(Response::new(()))
            }
        });
        let fence = Fence::new(|| Some(Duration::from_secs(3)));
        let begun = tokio::time::Instant::now();
        let answer = Ruled::new(server, Rules { fence, ..rules(&traffic, 50) }).oneshot(request(Method::PATCH)).await;
        assert!(answer.expect_err("no answer").is::<Unanswered>());
        assert_eq!(begun.elapsed(), Duration::from_secs(3));
        assert_eq!(Arc::strong_count(&connections), 1, "its connection is closed");
        assert!(
            tokio::time::timeout(Duration::from_secs(50), traffic.settled()).await.is_err(),
            "the server may have it"
        );
    }

    #[tokio::test]
    async fn a_server_is_told_when_a_write_is_given_up_and_of_reads_nothing() {
        for (method, path, want) in [
            (
                Method::PATCH,
                "/api/v1/nodes/n1/status?fieldManager=x",
                "/api/v1/nodes/n1/status?fieldManager=x&timeout=5s",
            ),
            (Method::DELETE, "/api/v1/nodes/n1", "/api/v1/nodes/n1?timeout=5s"),
            (Method::GET, "/api/v1/nodes?watch=true", "/api/v1/nodes?watch=true"),
        ] {
            let server = service_fn(|request: Request<Body>| async move {
                Ok::<_, BoxError>(Response::new(request.uri().to_string()))
            });
            let request = Request::builder().method(method).uri(path).body(Body::empty()).expect("a request");
            let traffic = Arc::new(Traffic::new(None));
            let answer = Ruled::new(server, rules(&traffic, 50)).oneshot(request).await.expect("an answer");
            assert_eq!(answer.into_body(), want);
        }
    }

    #[tokio::test]
    async fn a_server_that_says_429_is_left_alone_for_as_long_as_it_says() {
        for (header, want) in [(Some("7"), 7), (None, 1), (Some("soon"), 1), (Some("86400"), 60)] {
            let traffic = Traffic::new(None);
            let mut headers = HeaderMap::new();
            if let Some(header) = header {
                headers.insert(RETRY_AFTER, HeaderValue::from_static(header));
            }
            let before = clock::now();
            traffic.heed(StatusCode::OK, &headers);
            assert_eq!(*traffic.paused_until.lock().expect("not poisoned"), Moment::default(), "{header:?}");
            traffic.heed(StatusCode::TOO_MANY_REQUESTS, &headers);
            let pause = traffic.paused_until.lock().expect("not poisoned").since(before);
            assert_eq!(pause.as_secs(), want, "{header:?}");
        }
    }
}
