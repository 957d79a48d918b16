use super::super::codec::{GracefulRestart, Refresh, Update};
use super::super::desired::HoldTimeError;
use super::*;
use crate::config::peer::Import;

fn at(milliseconds: u64) -> Moment {
    Moment::since_boot(Duration::from_millis(milliseconds))
}

fn config(local_asn: u32, hold_time: u16) -> PeerConfig {
    PeerConfig {
        name: "tor".parse().unwrap(),
        local_asn: local_asn.try_into().unwrap(),
        peer_asn: 65000.try_into().unwrap(),
        address: [10, 99, 0, 2].into(),
        port: 179,
        hold_time: hold_time.try_into().unwrap(),
        import: Import::default(),
    }
}

fn router_id(last: u8) -> RouterId {
    std::net::Ipv4Addr::new(10, 99, 0, last).try_into().unwrap()
}

fn peer_open(asn: u32, hold_time: u16) -> Open {
    Open::ours(asn.try_into().unwrap(), router_id(2), hold_time.try_into().unwrap())
}

fn received(message: Message) -> Input {
    Input::Received(message)
}

/// The machine with these inputs behind it, all at 0 ms.
fn machine(inputs: &[Input]) -> Fsm {
    let mut fsm = Fsm::new(&config(4_200_000_001, 9), router_id(1), 7);
    for input in inputs {
        fsm.step(input.clone(), at(0));
    }
    fsm
}

/// The outputs as words.
fn words(outputs: &[Output]) -> String {
    let word = |output: &Output| match output {
        Output::Dial => "dial".to_owned(),
        Output::SendOpen(_) => "OPEN".to_owned(),
        Output::SendKeepalive => "KEEPALIVE".to_owned(),
        Output::SendNotification(notification) => {
            let (code, subcode) = notification.reason.codes();
            format!("N{code}/{subcode}")
        }
        Output::HangUp => "hang-up".to_owned(),
        Output::Up(_) => "up".to_owned(),
        Output::Resend(family) => format!("resend-{family}"),
        Output::Failed(_) => "failed".to_owned(),
    };
    outputs.iter().map(word).collect::<Vec<_>>().join(" ")
}

#[test]
fn every_state_answers_every_input() {
    let open = || received(Message::Open(peer_open(65000, 9)));
    let keepalive = || received(Message::Keepalive);
    let to_connect = vec![Input::Start];
    let to_open_sent = [to_connect.clone(), vec![Input::Connected]].concat();
    let to_open_confirm = [to_open_sent.clone(), vec![open()]].concat();
    let to_established = [to_open_confirm.clone(), vec![keepalive()]].concat();
    let to_resting = [to_connect.clone(), vec![Input::ConnectFailed(ConnectError::Refused)]].concat();
    let states = [
        ("stopped", vec![]),
        ("resting", to_resting),
        ("Connect", to_connect),
        ("OpenSent", to_open_sent),
        ("OpenConfirm", to_open_confirm),
        ("Established", to_established),
    ];
    let (early, late) = (1, 3_600_000);
    // What each state does, in the order above. "" is nothing.
    #[rustfmt::skip]
    let table: [(&str, Input, u64, [&str; 6]); 17] = [
        ("start", Input::Start, early,
            ["dial", "", "", "", "", ""]),
        ("stop", Input::Stop(Reason::AdministrativeShutdown.into()), early,
            ["", "", "hang-up", "N6/2 hang-up", "N6/2 hang-up", "N6/2 hang-up"]),
        ("an early tick", Input::Tick, early,
            ["", "", "", "", "", ""]),
        ("a late tick", Input::Tick, late,
            ["", "dial", "failed hang-up", "N4/0 failed hang-up", "N4/0 failed hang-up", "N4/0 failed hang-up"]),
        ("connected", Input::Connected, early,
            ["", "", "OPEN", "", "", ""]),
        ("cannot connect", Input::ConnectFailed(ConnectError::Refused), early,
            ["", "", "failed hang-up", "", "", ""]),
        ("closed", Input::Closed, early,
            ["", "", "", "failed hang-up", "failed hang-up", "failed hang-up"]),
        ("malformed", Input::Malformed(Reason::BadMessageType.into()), early,
            ["", "", "", "N1/3 failed hang-up", "N1/3 failed hang-up", "N1/3 failed hang-up"]),
        ("send hold timer", Input::SendHoldExpired, early,
            ["", "", "", "N8/0 failed hang-up", "N8/0 failed hang-up", "N8/0 failed hang-up"]),
        ("OPEN", open(), early,
            ["", "", "", "KEEPALIVE", "N5/2 failed hang-up", "N5/3 failed hang-up"]),
        ("OPEN of a wrong AS", received(Message::Open(peer_open(65001, 9))), early,
            ["", "", "", "N2/2 failed hang-up", "N5/2 failed hang-up", "N5/3 failed hang-up"]),
        ("KEEPALIVE", keepalive(), early,
            ["", "", "", "N5/1 failed hang-up", "up", ""]),
        ("UPDATE", received(Message::Update(Update::default())), early,
            ["", "", "", "N5/1 failed hang-up", "N5/2 failed hang-up", ""]),
        ("NOTIFICATION", received(Message::Notification(Reason::BadPeerAs.into())), early,
            ["", "", "", "failed hang-up", "failed hang-up", "failed hang-up"]),
        ("ROUTE-REFRESH", received(Message::RouteRefresh(Refresh::of(Family::V6))), early,
            ["", "", "", "N5/1 failed hang-up", "N5/2 failed hang-up", "resend-IPv6"]),
        ("ROUTE-REFRESH of VPLS", received(Message::RouteRefresh(Refresh { afi: 25, subtype: 0, safi: 65 })), early,
            ["", "", "", "N5/1 failed hang-up", "N5/2 failed hang-up", ""]),
        ("begin of a refresh's answer", received(Message::RouteRefresh(Refresh { afi: 1, subtype: 1, safi: 1 })), early,
            ["", "", "", "N5/1 failed hang-up", "N5/2 failed hang-up", ""]),
    ];
    for (name, input, milliseconds, wants) in table {
        for ((state, way), want) in states.iter().zip(wants) {
            let got = machine(way).step(input.clone(), at(milliseconds));
            assert_eq!(words(&got), want, "{name} in state {state}");
        }
    }
}

#[test]
fn a_failed_attempt_rests_from_one_second_up_to_thirty() {
    let mut fsm = machine(&[]);
    let mut now = at(0);
    assert_eq!(words(&fsm.step(Input::Start, now)), "dial", "the first attempt starts at once");
    for seconds in [1, 2, 4, 8, 16, 30, 30, 30] {
        fsm.step(Input::ConnectFailed(ConnectError::Refused), now);
        let rest = fsm.deadline().expect("it rests").since(now).as_secs_f64();
        let nominal = f64::from(seconds);
        assert!((nominal * 0.75..=nominal * 1.25).contains(&rest), "{rest} s instead of about {nominal} s");
        now = fsm.deadline().expect("it rests");
        assert_eq!(words(&fsm.step(Input::Tick, now)), "dial");
    }
}

#[test]
fn rests_are_different_from_peer_to_peer() {
    let rest = |seed| {
        let mut fsm = Fsm::new(&config(4_200_000_001, 9), router_id(1), seed);
        fsm.step(Input::Start, at(0));
        fsm.step(Input::ConnectFailed(ConnectError::Refused), at(0));
        fsm.deadline()
    };
    assert_eq!(rest(1), rest(1));
    assert_ne!(rest(1), rest(2));
}

#[test]
fn only_a_session_that_stood_forgets_its_failures() {
    for (stood, is_long_rest) in [(1_000, true), (60_000, false)] {
        let mut fsm = machine(&[]);
        fsm.failures = 5;
        for input in [Input::Start, Input::Connected] {
            fsm.step(input, at(0));
        }
        fsm.step(received(Message::Open(peer_open(65000, 90))), at(0));
        fsm.step(received(Message::Keepalive), at(0));
        assert_eq!(fsm.established_at(), Some(at(0)));
        fsm.step(Input::Closed, at(stood));
        let rest = fsm.deadline().expect("it rests").since(at(stood));
        assert_eq!(rest > Duration::from_secs(2), is_long_rest, "{rest:?} after a session of {stood} ms");
    }
}

#[test]
fn the_smaller_hold_time_holds_and_zero_is_never() {
    let established = |ours: u16, theirs: u16| {
        let mut fsm = Fsm::new(&config(4_200_000_001, ours), router_id(1), 7);
        for input in [Input::Start, Input::Connected, received(Message::Open(peer_open(65000, theirs)))] {
            fsm.step(input, at(0));
        }
        fsm.step(received(Message::Keepalive), at(0));
        fsm
    };
    for (ours, theirs, hold_seconds) in [(90, 9, 9_u16), (9, 90, 9), (3, 3, 3)] {
        let mut fsm = established(ours, theirs);
        let first = fsm.deadline().expect("a keepalive is due").since(at(0)).as_secs_f64();
        let third = f64::from(hold_seconds) / 3.0;
        assert!((third * 0.75..=third).contains(&first), "a keepalive after {first} s of {hold_seconds} s");
        let end = u64::from(hold_seconds) * 1000;
        assert_eq!(words(&fsm.step(Input::Tick, at(end - 1))), "KEEPALIVE");
        assert_eq!(words(&fsm.step(Input::Tick, at(end))), "N4/0 failed hang-up");
    }
    for (ours, theirs) in [(0, 90), (90, 0), (0, 0)] {
        let mut fsm = established(ours, theirs);
        assert_eq!(fsm.deadline(), None);
        assert_eq!(words(&fsm.step(Input::Tick, at(1_000_000))), "");
    }
}

#[test]
fn a_peer_that_does_not_accept_our_open_is_given_up_whatever_the_hold_time() {
    for hold_time in [0, 9] {
        let mut fsm = machine(&[Input::Start, Input::Connected]);
        fsm.step(received(Message::Open(peer_open(65000, hold_time))), at(0));
        let deadline = fsm.deadline().expect("it is not waited for without end");
        assert!(deadline <= at(60_000), "{deadline:?} with hold time {hold_time}");
        assert_eq!(words(&fsm.step(Input::Tick, at(60_000))), "N4/0 failed hang-up", "hold time {hold_time}");
    }
}

#[test]
fn what_the_peer_says_restarts_the_hold_timer() {
    for message in
        [Message::Keepalive, Message::Update(Update::default()), Message::RouteRefresh(Refresh::of(Family::V4))]
    {
        let mut fsm = machine(&[
            Input::Start,
            Input::Connected,
            received(Message::Open(peer_open(65000, 9))),
            received(Message::Keepalive),
        ]);
        fsm.step(received(message.clone()), at(8_000));
        assert_eq!(words(&fsm.step(Input::Tick, at(16_999))), "KEEPALIVE", "{message:?}");
        assert_eq!(words(&fsm.step(Input::Tick, at(17_000))), "N4/0 failed hang-up", "{message:?}");
    }
}

#[test]
fn an_open_is_refused_by_who_sends_it() {
    let narrow = |two_octet_asn| Open { two_octet_asn, capabilities: vec![], ..peer_open(65000, 9) };
    let same_id = |asn: u32| Open { router_id: router_id(1), ..peer_open(asn, 9) };
    for (name, local_asn, open, want) in [
        ("the AS we expect", 65001, peer_open(65000, 9), "KEEPALIVE"),
        ("another AS", 65001, peer_open(65002, 9), "N2/2 failed hang-up"),
        ("a two-octet speaker", 65001, narrow(65000), "KEEPALIVE"),
        ("a two-octet speaker of another AS", 65001, narrow(23456), "N2/2 failed hang-up"),
        ("our router id from another AS", 65001, same_id(65000), "KEEPALIVE"),
        ("our router id from our AS", 65000, same_id(65000), "N2/3 failed hang-up"),
    ] {
        let mut fsm = Fsm::new(&config(local_asn, 9), router_id(1), 7);
        fsm.step(Input::Start, at(0));
        fsm.step(Input::Connected, at(0));
        assert_eq!(words(&fsm.step(received(Message::Open(open)), at(0))), want, "{name}");
    }
}

#[test]
fn a_session_is_as_able_as_the_peer() {
    let capabilities = |capabilities: Vec<Capability>| Open { capabilities, ..peer_open(65000, 9) };
    for (name, open, four_octet_as, v4, v6) in [
        ("our own equal", peer_open(65000, 9), true, true, true),
        ("an old speaker", capabilities(vec![]), false, true, false),
        ("IPv6 alone", capabilities(vec![Capability::unicast(Family::V6)]), false, false, true),
        (
            "another family alone",
            capabilities(vec![Capability::Multiprotocol { afi: 25, safi: 65 }]),
            false,
            false,
            false,
        ),
    ] {
        let mut fsm = machine(&[Input::Start, Input::Connected]);
        fsm.step(received(Message::Open(open)), at(0));
        let want = Context { four_octet_as, peering: Peering::External, families: Families { v4, v6 } };
        assert_eq!(fsm.context(), want, "{name}");
    }
}

#[test]
fn what_becomes_of_routes_while_the_peer_restarts_is_what_its_last_capability_says() {
    let family = |afi, safi, flags| PreservedFamily { afi, safi, flags };
    let restart = |restart_time_seconds, families: &[PreservedFamily]| {
        let (flags, families) = (0x8, families.to_vec());
        Capability::GracefulRestart(GracefulRestart { flags, restart_time_seconds, families })
    };
    let (v4, v6, vpn) = (family(1, 1, 0x80), family(2, 1, 0), family(1, 128, 0x80));
    let mut only_v4 = vec![Capability::unicast(Family::V4)];
    only_v4.push(restart(30, &[v4, v6]));
    for (name, capabilities, want) in [
        ("none", vec![], None),
        ("no family", vec![restart(120, &[])], Some((120, "", ""))),
        ("both, one forwarding", vec![restart(30, &[v4, v6])], Some((30, "v4 v6", "v4"))),
        ("one that is not carried", only_v4, Some((30, "v4", "v4"))),
        ("another kind of routes", vec![restart(30, &[vpn])], Some((30, "", ""))),
        ("several", vec![restart(30, &[v4]), restart(40, &[v6])], Some((40, "v6", ""))),
    ] {
        let mut open = peer_open(65000, 9);
        open.capabilities.retain(|capability| !matches!(capability, Capability::GracefulRestart(_)));
        if capabilities.iter().any(|capability| matches!(capability, Capability::Multiprotocol { .. })) {
            open.capabilities.clear();
            open.capabilities.push(Capability::FourOctetAs(65000));
        }
        open.capabilities.extend(capabilities);
        let mut fsm = machine(&[Input::Start, Input::Connected, received(Message::Open(open))]);
        let outputs = fsm.step(received(Message::Keepalive), at(0));
        let [Output::Up(negotiated)] = &outputs[..] else { panic!("{name}: {outputs:?}") };
        let names = |Families { v4, v6 }: Families| {
            [v4.then_some("v4"), v6.then_some("v6")].into_iter().flatten().collect::<Vec<_>>().join(" ")
        };
        let got = negotiated
            .restart
            .map(|Restart { time, kept, forwarding }| (time.as_secs(), names(kept), names(forwarding)));
        let want = want.map(|(time, kept, forwarding)| (time, kept.to_owned(), forwarding.to_owned()));
        assert_eq!(got, want, "{name}");
    }
}

#[test]
fn a_new_hold_time_is_proposed_in_the_next_open() -> Result<(), HoldTimeError> {
    let mut fsm = machine(&[Input::Start]);
    fsm.propose(30_u16.try_into()?);
    let outputs = fsm.step(Input::Connected, at(0));
    assert!(matches!(&outputs[..], [Output::SendOpen(open)] if open.hold_time.seconds() == 30), "{outputs:?}");
    Ok(())
}
