#![expect(clippy::disallowed_methods, reason = "shell: questions of kube-proxy are tasks")]
//! Asks kube-proxy whether it forwards to endpoints on this node (`healthCheckNodePort`).

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

use crate::model::ServiceKey;

const ASK_EVERY: Duration = Duration::from_millis(50);
/// It answers from memory, on the same host.
const ANSWER_WITHIN: Duration = Duration::from_millis(500);

/// Questions that are asked again and again until the answer is yes. Dropping it ends them.
#[derive(Default)]
pub(super) struct ProxyHealth {
    open: BTreeMap<ServiceKey, AbortHandle>,
    tasks: JoinSet<ServiceKey>,
}

impl ProxyHealth {
    /// Asks about these Services at these places, and about no others any more.
    pub(super) fn ask(&mut self, wanted: &BTreeMap<ServiceKey, BTreeSet<SocketAddr>>) {
        self.open.retain(|service, task| {
            let is_wanted = wanted.contains_key(service);
            if !is_wanted {
                task.abort();
            }
            is_wanted
        });
        for (service, places) in wanted {
            if !self.open.contains_key(service) {
                let task = self.tasks.spawn(until_it_forwards(service.clone(), places.clone()));
                self.open.insert(service.clone(), task);
            }
        }
    }

    /// Waits until kube-proxy says of a Service that it forwards; for ever when nothing is asked. Cancel-safe.
    pub(super) async fn forwards(&mut self) -> ServiceKey {
        loop {
            match self.tasks.join_next().await {
                Some(Ok(service)) => {
                    self.open.remove(&service);
                    return service;
                }
                // One that is no longer wanted.
                Some(Err(_)) => {}
                None => std::future::pending().await,
            }
        }
    }
}

/// Every place has to say so once.
async fn until_it_forwards(service: ServiceKey, mut places: BTreeSet<SocketAddr>) -> ServiceKey {
    loop {
        for place in places.clone() {
            if let Ok(Ok(true)) = timeout(ANSWER_WITHIN, is_ok(place)).await {
                places.remove(&place);
            }
        }
        if places.is_empty() {
            return service;
        }
        tokio::time::sleep(ASK_EVERY).await;
    }
}

/// Whether `GET /healthz` is answered with 200.
async fn is_ok(place: SocketAddr) -> std::io::Result<bool> {
    const STATUS: &[u8] = b"HTTP/1.1 200 ";
    let mut stream = TcpStream::connect(place).await?;
    let request = format!("GET /healthz HTTP/1.1\r\nHost: {place}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut status = [0; STATUS.len()];
    stream.read_exact(&mut status).await?;
    Ok(status == STATUS)
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    async fn answer(listener: &TcpListener, status: &str) {
        let (mut stream, _) = listener.accept().await.expect("a question");
        let mut request = [0; 13];
        stream.read_exact(&mut request).await.expect("a request");
        assert_eq!(&request, b"GET /healthz ");
        stream.write_all(format!("HTTP/1.1 {status}\r\n\r\n").as_bytes()).await.expect("an answer");
    }

    #[tokio::test]
    async fn it_is_asked_until_it_says_200_and_no_longer_than_is_wanted() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let other = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let places = [&listener, &other].map(|listener| listener.local_addr().expect("it is bound"));
        let web = ServiceKey::new("default", "web");
        let wanted = BTreeMap::from([(web.clone(), BTreeSet::from(places))]);
        let mut health = ProxyHealth::default();
        health.ask(&wanted);
        // The same again is the same question.
        health.ask(&wanted);
        let answers = async {
            answer(&listener, "503 Service Unavailable").await;
            answer(&listener, "200 OK").await;
        };
        let others = async {
            answer(&other, "200 OK").await;
        };
        let (service, (), ()) = tokio::join!(health.forwards(), answers, others);
        assert_eq!(service, web);
        assert!(health.open.is_empty() && health.tasks.is_empty());

        health.ask(&BTreeMap::from([(web, BTreeSet::from([places[0]]))]));
        answer(&listener, "503 Service Unavailable").await;
        health.ask(&BTreeMap::new());
        assert!(health.open.is_empty());
        assert!(timeout(Duration::from_millis(1), health.forwards()).await.is_err());
        assert!(health.tasks.is_empty(), "nobody asks any more");
    }
}
