#![expect(clippy::disallowed_methods, reason = "shell: the speaker under test is a task")]
//! The speaker against a minimal passive router over loopback sockets.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinHandle;

use crate::config::peer::{Import, ImportRule};
use crate::model::{Adverts, Family, NextHops};

use super::super::codec::{
    self, AsPath, Attributes, Capability, Context, Families, GracefulRestart, Message, Notification, Open, Origin,
    PreservedFamily, Reason, Refresh, SegmentKind, Update, encode_keepalive, encode_open, frame_length, pack,
};
use super::super::{ConnectError, HoldTime, PeerConfig, PeerError, PeerStatus, Peering, SessionState};
use super::*;

const LIMIT: Duration = Duration::from_secs(10);

/// A router that waits to be dialled.
struct Router {
    listener: TcpListener,
}

impl Router {
    async fn new(loopback: &str) -> Self {
        let address: IpAddr = loopback.parse().unwrap();
        Self { listener: TcpListener::bind((address, 0)).await.unwrap() }
    }

    fn peer(&self, name: &str) -> PeerConfig {
        let address = self.listener.local_addr().unwrap();
        PeerConfig {
            name: name.parse().unwrap(),
            local_asn: 4_200_000_001.try_into().unwrap(),
            peer_asn: 65000.try_into().unwrap(),
            address: address.ip(),
            port: address.port(),
            hold_time: HoldTime::DEFAULT,
            import: Import::default(),
        }
    }

    async fn accept(&self) -> Conversation {
        let (stream, _) = timeout(LIMIT, self.listener.accept()).await.expect("a connection in time").unwrap();
        Conversation { stream, inbound: Vec::new() }
    }

    /// Accepts a connection and brings the session up.
    async fn establish(&self, asn: u32) -> Conversation {
        let mut conversation = self.accept().await;
        assert!(matches!(conversation.next().await, Some(Message::Open(_))));
        conversation.say_open(asn).await;
        assert_eq!(conversation.next().await, Some(Message::Keepalive));
        conversation
    }

    /// The same of one that says how it restarts, if it does.
    async fn establish_one_that_restarts(&self, restart_time_seconds: Option<u16>) -> Conversation {
        let mut conversation = self.accept().await;
        assert!(matches!(conversation.next().await, Some(Message::Open(_))));
        conversation.say_open_that_restarts(65000, restart_time_seconds).await;
        conversation
    }
}

struct Conversation {
    stream: TcpStream,
    inbound: Vec<u8>,
}

impl Conversation {
    /// The next message, or `None` at the connection's end.
    async fn next(&mut self) -> Option<Message> {
        let families = Families { v4: true, v6: true };
        let context = Context { four_octet_as: true, peering: Peering::External, families };
        loop {
            if let Some(length) = frame_length(&self.inbound).unwrap().filter(|length| *length <= self.inbound.len()) {
                let frame: Vec<u8> = self.inbound.drain(..length).collect();
                return Some(Message::decode(&frame, &context).unwrap());
            }
            let read = timeout(LIMIT, self.stream.read_buf(&mut self.inbound)).await;
            if read.expect("a message in time").unwrap() == 0 {
                return None;
            }
        }
    }

    async fn next_update(&mut self) -> Update {
        match self.next().await {
            Some(Message::Update(update)) => update,
            other => panic!("not an UPDATE: {other:?}"),
        }
    }

    /// Everything up to both End-of-RIB markers: the prefixes announced.
    async fn first_routes(&mut self) -> Vec<String> {
        let mut announced = Vec::new();
        loop {
            let update = self.next_update().await;
            announced.extend(update.announced.iter().map(ToString::to_string));
            if update.end_of_rib == Some(Family::V6) {
                return announced;
            }
        }
    }

    async fn last_words(&mut self) -> Notification {
        match self.next().await {
            Some(Message::Notification(notification)) => {
                assert_eq!(self.next().await, None, "nothing comes after a NOTIFICATION");
                notification
            }
            other => panic!("not a NOTIFICATION: {other:?}"),
        }
    }

    async fn say(&mut self, octets: &[u8]) {
        self.stream.write_all(octets).await.unwrap();
    }

    async fn say_open(&mut self, asn: u32) {
        self.say_open_that_restarts(asn, None).await;
    }

    /// Says how it restarts, for IPv4.
    async fn say_open_that_restarts(&mut self, asn: u32, restart_time_seconds: Option<u16>) {
        let mut out = Vec::new();
        let router_id = Ipv4Addr::new(10, 99, 0, 2).try_into().unwrap();
        let mut open = Open::ours(asn.try_into().unwrap(), router_id, HoldTime::DEFAULT);
        if let Some(restart_time_seconds) = restart_time_seconds {
            let families = vec![PreservedFamily { afi: 1, safi: 1, flags: 0x80 }];
            let restart = GracefulRestart { flags: 0, restart_time_seconds, families };
            open.capabilities.push(Capability::GracefulRestart(restart));
        }
        encode_open(&open, &mut out);
        encode_keepalive(&mut out);
        self.say(&out).await;
    }
}

/// The agent's side.
struct Agent {
    desired: watch::Sender<Arc<Desired>>,
    status: watch::Receiver<SpeakerStatus>,
    speaker: JoinHandle<()>,
}

impl Agent {
    fn start(peers: &[PeerConfig], adverts: &[&str]) -> Self {
        let wish = Desired {
            router_id: Ipv4Addr::new(10, 99, 0, 1).try_into().unwrap(),
            next_hops: NextHops { v4: Some([10, 99, 0, 1].into()), v6: Some("fd99::1".parse().unwrap()) },
            peers: peers.iter().map(|peer| (peer.name.clone(), peer.clone())).collect(),
            adverts: peers.iter().map(|peer| (peer.name.clone(), set(adverts))).collect(),
            complete: true,
        };
        let (desired, wished) = watch::channel(Arc::new(wish));
        let (told, status) = watch::channel(SpeakerStatus::default());
        Self { desired, status, speaker: tokio::spawn(run(wished, told)) }
    }

    fn change(&self, change: impl FnOnce(&mut Desired)) {
        self.desired.send_modify(|desired| change(Arc::make_mut(desired)));
    }

    /// Waits until the peer's status is as said.
    async fn sees(&mut self, name: &str, is_so: impl Fn(&PeerStatus) -> bool) -> PeerStatus {
        let name = name.parse().unwrap();
        let wait = self.status.wait_for(|status| status.peers.get(&name).is_some_and(&is_so));
        let status = timeout(LIMIT, wait).await.expect("the status in time").unwrap();
        status.peers[&name].clone()
    }

    async fn stop(self) {
        drop(self.desired);
        timeout(Duration::from_secs(1), self.speaker).await.expect("all sessions end within a second").unwrap();
    }
}

fn set(prefixes: &[&str]) -> Arc<Adverts> {
    Arc::new(prefixes.iter().map(|prefix| (prefix.parse().unwrap(), Arc::default())).collect())
}

/// Announces these to every peer.
fn announce(desired: &mut Desired, prefixes: &[&str]) {
    desired.adverts = desired.peers.keys().map(|peer| (peer.clone(), set(prefixes))).collect();
}

#[tokio::test]
async fn announces_both_families_and_says_goodbye() {
    for loopback in ["127.0.0.1", "::1"] {
        let router = Router::new(loopback).await;
        let mut agent = Agent::start(&[router.peer("tor")], &["10.60.0.1/32", "fd60::1/128"]);
        let mut session = router.establish(65000).await;
        assert_eq!(session.first_routes().await, ["10.60.0.1/32", "fd60::1/128"], "over {loopback}");
        let status = agent.sees("tor", |peer| peer.advertised == 2).await;
        assert_eq!((status.state, status.last_error), (SessionState::Established, None));
        assert!(status.established_at.is_some());

        agent.change(|desired| announce(desired, &["10.60.0.1/32", "10.60.0.2/32"]));
        let withdrawal = session.next_update().await.withdrawn;
        assert_eq!(withdrawal.iter().map(ToString::to_string).collect::<Vec<_>>(), ["fd60::1/128"]);
        let announcement = session.next_update().await.announced;
        assert_eq!(announcement.iter().map(ToString::to_string).collect::<Vec<_>>(), ["10.60.0.2/32"]);

        let (_, farewell) = tokio::join!(agent.stop(), session.last_words());
        assert_eq!(farewell.reason, Reason::AdministrativeShutdown);
        assert_eq!(farewell.shutdown_text(), Some("the Cairn agent on this node is stopping"));
    }
}

#[tokio::test]
async fn an_unchanged_peer_keeps_its_session_while_others_come_and_go() {
    let (left, right) = (Router::new("127.0.0.1").await, Router::new("127.0.0.1").await);
    let agent = Agent::start(&[left.peer("left"), right.peer("right")], &["10.60.0.1/32"]);
    let (mut left_session, mut right_session) = (left.establish(65000).await, right.establish(65000).await);
    left_session.first_routes().await;
    right_session.first_routes().await;

    agent.change(|desired| {
        desired.peers.get_mut(&"right".parse().unwrap()).unwrap().local_asn = 4_200_000_002.try_into().unwrap();
    });
    assert_eq!(right_session.last_words().await.reason, Reason::OtherConfigurationChange);
    let mut right_session = right.establish(65000).await;
    right_session.first_routes().await;

    agent.change(|desired| {
        desired.peers.remove(&"right".parse().unwrap());
    });
    assert_eq!(right_session.last_words().await.reason, Reason::PeerDeconfigured);

    agent.change(|desired| announce(desired, &["10.60.0.2/32"]));
    let update = left_session.next_update().await;
    assert_eq!(update.withdrawn.len(), 1, "the other session heard of none of that: {update:?}");
    agent.stop().await;
}

#[tokio::test]
async fn a_removed_peer_leaves_the_status_and_comes_back() {
    let router = Router::new("127.0.0.1").await;
    let peer = router.peer("tor");
    let mut agent = Agent::start(std::slice::from_ref(&peer), &[]);
    let mut session = router.establish(65000).await;
    session.first_routes().await;
    agent.change(|desired| desired.peers.clear());
    session.last_words().await;
    drop(session);
    timeout(LIMIT, agent.status.wait_for(|status| status.peers.is_empty())).await.expect("in time").unwrap();
    agent.change(|desired| {
        desired.peers.insert(peer.name.clone(), peer);
    });
    router.establish(65000).await.first_routes().await;
    agent.stop().await;
}

#[tokio::test]
async fn a_wrong_as_number_is_refused_and_shown() {
    let router = Router::new("127.0.0.1").await;
    let mut agent = Agent::start(&[router.peer("tor")], &[]);
    let mut session = router.accept().await;
    session.next().await;
    session.say_open(65009).await;
    let refusal = session.last_words().await;
    assert_eq!(refusal, Notification::new(Reason::BadPeerAs, 65009_u32.to_be_bytes()));
    let status = agent.sees("tor", |peer| peer.last_error.is_some()).await;
    assert_eq!(status.last_error, Some(PeerError::Sent(refusal)));

    // It tries again; a mere hang-up does not replace the reason.
    drop(session);
    drop(router.accept().await);
    agent.sees("tor", |peer| peer.state == SessionState::Idle).await;
    let mut session = router.accept().await;
    let status = agent.sees("tor", |peer| peer.state != SessionState::Idle).await;
    assert!(matches!(status.last_error, Some(PeerError::Sent(_))), "{status:?}");
    session.next().await;
    session.say_open(65000).await;
    let status = agent.sees("tor", |peer| peer.state == SessionState::Established).await;
    assert_eq!(status.last_error, None, "what is over is forgotten");
    agent.stop().await;
}

#[tokio::test]
async fn hostile_octets_end_that_session_alone() {
    let (evil, good) = (Router::new("127.0.0.1").await, Router::new("127.0.0.1").await);
    let mut agent = Agent::start(&[evil.peer("evil"), good.peer("good")], &["10.60.0.1/32"]);
    let mut good_session = good.establish(65000).await;
    let mut evil_session = evil.establish(65000).await;
    evil_session.first_routes().await;
    evil_session.say(&[0xa5; 5000]).await;
    assert_eq!(evil_session.last_words().await.reason, Reason::NotSynchronized);
    agent.sees("evil", |peer| peer.state == SessionState::Idle).await;
    assert_eq!(good_session.first_routes().await, ["10.60.0.1/32"]);
    agent.stop().await;
}

/// One worker thread: whoever keeps it stops everybody else.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_peer_that_never_stops_talking_does_not_stop_the_others() {
    let (evil, good) = (Router::new("127.0.0.1").await, Router::new("127.0.0.1").await);
    let adverts: Vec<_> = (0..1000).map(|n| format!("10.60.{}.{}/32", n / 250, n % 250)).collect();
    let adverts: Vec<_> = adverts.iter().map(String::as_str).collect();
    let agent = Agent::start(&[evil.peer("evil")], &adverts);
    let evil_session = evil.establish(65000).await;
    let mut flood = Vec::new();
    for _ in 0..1000 {
        codec::encode_refresh(Refresh::of(Family::V4), &mut flood);
    }
    // On a thread of its own, and for some seconds at most, so that a failure ends. It reads nothing.
    let mut stream = evil_session.stream.into_std().unwrap();
    stream.set_nonblocking(false).unwrap();
    let listens = Arc::new(());
    let heard = Arc::downgrade(&listens);
    let flooding = std::thread::spawn(move || {
        (0..4000).all(|_| heard.strong_count() > 0 && stream.write_all(&flood).is_ok());
    });

    let peer = good.peer("good");
    agent.change(|desired| {
        desired.peers.insert(peer.name.clone(), peer);
        announce(desired, &adverts);
    });
    let mut good_session = good.establish(65000).await;
    assert_eq!(good_session.first_routes().await.len(), adverts.len());
    assert!(!flooding.is_finished(), "the others had to wait for its end");
    agent.stop().await;
    drop(listens);
}

#[tokio::test]
async fn a_refresh_is_answered_with_all_routes() {
    let router = Router::new("127.0.0.1").await;
    let agent = Agent::start(&[router.peer("tor")], &["10.60.0.1/32", "fd60::1/128"]);
    let mut session = router.establish(65000).await;
    session.first_routes().await;
    let mut out = Vec::new();
    codec::encode_refresh(Refresh::of(Family::V6), &mut out);
    session.say(&out).await;
    assert_eq!(session.next_update().await.announced, ["fd60::1/128".parse().unwrap()]);
    agent.stop().await;
}

#[tokio::test]
async fn an_incomplete_wish_ends_no_rib_until_it_is_complete() {
    let router = Router::new("127.0.0.1").await;
    let agent = Agent::start(&[], &[]);
    let peer = router.peer("tor");
    agent.change(|desired| {
        desired.complete = false;
        desired.peers.insert(peer.name.clone(), peer);
        announce(desired, &["10.60.0.1/32"]);
    });
    let mut session = router.establish(65000).await;
    assert_eq!(session.next_update().await.announced, ["10.60.0.1/32".parse().unwrap()]);
    agent.change(|desired| announce(desired, &["10.60.0.2/32"]));
    assert_eq!(session.next_update().await.announced, ["10.60.0.2/32".parse().unwrap()]);
    agent.change(|desired| desired.complete = true);
    assert_eq!(session.next_update().await.withdrawn, ["10.60.0.1/32".parse().unwrap()]);
    assert_eq!(session.next_update().await.end_of_rib, Some(Family::V4));
    agent.stop().await;
}

#[tokio::test]
async fn a_router_that_does_not_listen_is_shown_to_refuse() {
    let router = Router::new("127.0.0.1").await;
    // Bound and not listening: the port stays this test's own, and connections are refused.
    let silent = TcpSocket::new_v4().unwrap();
    silent.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let peer = PeerConfig { port: silent.local_addr().unwrap().port(), ..router.peer("tor") };
    let mut agent = Agent::start(&[peer], &[]);
    let status = agent.sees("tor", |peer| peer.last_error.is_some()).await;
    assert_eq!(status.last_error, Some(PeerError::CannotConnect(ConnectError::Refused)));
    agent.stop().await;
}

#[tokio::test]
async fn a_session_that_crashed_is_started_anew_after_a_rest() {
    let router = Router::new("127.0.0.1").await;
    let peer = router.peer("tor");
    let agent = Agent::start(std::slice::from_ref(&peer), &[]);
    let wished = agent.desired.subscribe();
    let (told, mut status) = watch::channel(SpeakerStatus::default());
    let mut speaker = Speaker { desired: wished, status: told, tasks: JoinSet::new(), names: BTreeMap::new() };
    let id = speaker.tasks.spawn(async { panic!("a crash on purpose") }).id();
    speaker.names.insert(id, peer.name.clone());
    let crash = speaker.tasks.join_next_with_id().await.expect("a task");
    speaker.ended(crash);
    let is_shown = |status: &SpeakerStatus| {
        status.peers.get(&peer.name).is_some_and(|peer| peer.last_error == Some(PeerError::Crashed))
    };
    timeout(LIMIT, status.wait_for(is_shown)).await.expect("in time").unwrap();
    agent.stop().await;
}

/// An UPDATE of a router for some IPv4 networks.
fn told(prefixes: &[&str]) -> Vec<u8> {
    let attributes = Attributes {
        origin: Some(Origin::Igp),
        as_path: Some(AsPath(vec![(SegmentKind::Sequence, vec![65000])])),
        next_hops: NextHops { v4: Some([10, 99, 0, 2].into()), v6: None },
        ..Attributes::default()
    };
    let context =
        Context { four_octet_as: true, peering: Peering::External, families: Families { v4: true, v6: true } };
    let prefixes: Vec<_> = prefixes.iter().map(|text| text.parse().unwrap()).collect();
    let mut out = Vec::new();
    assert_eq!(pack::announce(&attributes, &context, Family::V4, &prefixes, &mut out), prefixes.len());
    out
}

/// A router whose routes are taken.
fn importing(router: &Router) -> PeerConfig {
    let rule = ImportRule::new("192.0.0.0/8".parse().unwrap(), Some(8), None).unwrap();
    PeerConfig { import: Import { rules: vec![rule], max_prefixes: 10, allow_own_as: 0 }, ..router.peer("tor") }
}

#[tokio::test]
async fn routes_of_a_router_that_restarts_stay_and_go_when_it_has_told_the_others_again() {
    let router = Router::new("127.0.0.1").await;
    let mut agent = Agent::start(&[importing(&router)], &[]);
    let has = |peer: &PeerStatus, routes: usize, stale: usize, is_up: bool| {
        let is_established = peer.state == SessionState::Established;
        (peer.learned.len(), peer.stale, is_established) == (routes, stale, is_up)
    };

    // It said that it may be away for an hour.
    let mut first = router.establish_one_that_restarts(Some(3600)).await;
    first.say(&told(&["192.0.2.0/24", "192.0.3.0/24"])).await;
    agent.sees("tor", |peer| has(peer, 2, 0, true)).await;
    drop(first);
    agent.sees("tor", |peer| has(peer, 2, 2, false)).await;
    let mut second = router.establish_one_that_restarts(Some(3600)).await;
    second.say(&told(&["192.0.2.0/24"])).await;
    agent.sees("tor", |peer| has(peer, 2, 1, true)).await;
    let mut end = Vec::new();
    pack::end_of_rib(Family::V4, &mut end);
    second.say(&end).await;
    agent.sees("tor", |peer| has(peer, 1, 0, true)).await;

    drop((second, router));
    agent.stop().await;
}

#[tokio::test]
async fn routes_go_with_a_session_that_ends_otherwise_or_is_not_followed_by_another_in_time() {
    let mut goodbye = Vec::new();
    codec::encode_notification(&Reason::AdministrativeShutdown.into(), &mut goodbye);
    for (name, restart_time, last_words) in [
        ("it says why it ends the session", Some(3600), goodbye),
        ("it has not said that it would restart", None, Vec::new()),
        ("it stays away for longer than it said", Some(1), Vec::new()),
    ] {
        let router = Router::new("127.0.0.1").await;
        let mut agent = Agent::start(&[importing(&router)], &[]);
        let mut session = router.establish_one_that_restarts(restart_time).await;
        session.say(&told(&["192.0.2.0/24"])).await;
        agent.sees("tor", |peer| peer.learned.len() == 1).await;
        let speaks_last = !last_words.is_empty();
        session.say(&last_words).await;
        drop(router);
        // Who closes at once may take back what was not read yet.
        let _open = speaks_last.then_some(session);
        let is_gone = |peer: &PeerStatus| peer.learned.is_empty() && peer.state != SessionState::Established;
        assert_eq!(agent.sees("tor", is_gone).await.stale, 0, "{name}");
        agent.stop().await;
    }
}
