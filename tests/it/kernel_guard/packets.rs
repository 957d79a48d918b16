//! What becomes of packets.

use std::io::{Read, Write};
use std::net::TcpListener;

use cairn::model::{Guarded, PortProtocol};
use tokio::task::JoinSet;

use super::{Room, TABLE, address, guarded, limit, network};
use crate::netns::{self, sh, try_sh, until};

/// A client, and this node as its router to the load-balancer addresses; what the node does not
/// translate it would send back to where it came from.
const CLIENT: &str = "
    sysctl -qw net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.default.accept_dad=0
    sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1
    ip netns add client
    ip link add lan type veth peer name lan netns client
    ip addr add 10.90.0.11/24 dev lan
    ip addr add fd90::11/64 dev lan nodad
    ip link set lan up
    ip -n client addr add 10.90.0.1/24 dev lan
    ip -n client addr add fd90::1/64 dev lan nodad
    ip -n client link set lan up
    ip -n client route add 10.60.0.0/24 via 10.90.0.11
    ip -n client route add fd60::/64 via fd90::11
    ip route add default via 10.90.0.1
    ip -6 route add default via fd90::1";

/// `curl`'s exit codes.
const REFUSED: i32 = 7;
const TIMED_OUT: i32 = 28;
const ANSWERED: i32 = 0;

/// An answer of either kind comes at once; only a failure waits so long.
const PATIENCE_SECONDS: u8 = 10;
/// Who is not answered by then is not.
const SILENCE_SECONDS: u8 = 2;

fn curl(host: &str) -> Option<i32> {
    curl_for(PATIENCE_SECONDS, host)
}

fn curl_for(seconds: u8, host: &str) -> Option<i32> {
    try_sh(&format!("ip netns exec client curl -s --max-time {seconds} http://{host}/")).status.code()
}

/// `timeout`'s.
const TIMED_OUT_BY_TIMEOUT: i32 = 124;

/// Whether a TCP client is let in, as bash's exit code.
fn connect(host: &str, port: u16) -> Option<i32> {
    connect_for(PATIENCE_SECONDS, host, port)
}

fn connect_for(seconds: u8, host: &str, port: u16) -> Option<i32> {
    try_sh(&format!("timeout {seconds} ip netns exec client bash -c 'exec 3<>/dev/tcp/{host}/{port}'")).status.code()
}

/// What a UDP client hears after its first packet.
fn udp(host: &str, port: u16) -> String {
    let script = format!("exec 3<>/dev/udp/{host}/{port}; echo hello >&3; read -t 1 -u 3 answer");
    let output = try_sh(&format!("ip netns exec client bash -c '{script}'"));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn port_of(server: &TcpListener) -> u16 {
    server.local_addr().expect("it is bound").port()
}

#[test]
fn packets_to_a_port_nobody_serves_are_refused_and_others_go_their_way() {
    netns::inside(async || {
        sh(CLIENT);
        let mut room = Room::start();
        room.guard(guarded());
        room.stands().await;
        assert_eq!(curl("10.60.0.10:81"), Some(REFUSED));
        assert_eq!(curl("[fd60::10]:81"), Some(REFUSED));
        assert!(udp("10.60.0.10", 54).contains("refused"), "{}", udp("10.60.0.10", 54));
        assert!(udp("fd60::10", 53).contains("refused"), "{}", udp("fd60::10", 53));

        // A port that is served and not (yet) translated is dropped: the client tries again.
        assert_eq!(curl_for(SILENCE_SECONDS, "10.60.0.10:80"), Some(TIMED_OUT));
        assert_eq!(udp("10.60.0.10", 53), "");

        // What a Service's translation takes away passes.
        let server = TcpListener::bind("10.90.0.11:0").expect("a port");
        let server6 = TcpListener::bind("[fd90::11]:0").expect("a port");
        let (port, port6) = (port_of(&server), port_of(&server6));
        sh(&format!(
            "nft -f - <<'END'
            table inet proxy {{
                chain pre {{
                    type nat hook prerouting priority dstnat
                    ip daddr 10.60.0.10 tcp dport 80 dnat to 10.90.0.11:{port}
                    ip6 daddr fd60::10 tcp dport 80 dnat to [fd90::11]:{port6}
                }}
            }}
END"
        ));
        let mut servers = JoinSet::new();
        for server in [server, server6] {
            servers.spawn_blocking(move || {
                let mut client = server.accept().expect("a client").0;
                let _ = client.read(&mut [0; 1024]).expect("a request");
                client.write_all(b"HTTP/1.0 204 No Content\r\n\r\n").expect("an answer");
            });
        }
        assert_eq!(curl("10.60.0.10:80"), Some(ANSWERED));
        assert_eq!(curl("[fd60::10]:80"), Some(ANSWERED));
        while servers.join_next().await.is_some() {}

        // An address nobody announces here is none of ours.
        assert_eq!(curl_for(SILENCE_SECONDS, "10.60.0.99:81"), Some(TIMED_OUT));
        room.end().await;
    });
}

#[test]
fn only_who_is_admitted_gets_through_and_any_ranges_can_follow_any_others() {
    netns::inside(async || {
        sh(CLIENT);
        let server = TcpListener::bind("[::]:0").expect("a port");
        let port = port_of(&server);
        sh(&format!(
            "nft -f - <<'END'
            table inet proxy {{
                chain pre {{
                    type nat hook prerouting priority dstnat
                    ip daddr 10.60.0.10 tcp dport {{ 80, 443 }} dnat to 10.90.0.11:{port}
                    ip6 daddr fd60::10 tcp dport {{ 80, 443 }} dnat to [fd90::11]:{port}
                }}
            }}
END"
        ));
        let mut room = Room::start();
        let mut wish = guarded();
        /// What it is, the ranges of each family, and how a client of each fares.
        type Step = (&'static str, &'static [&'static str], &'static [&'static str], [Option<i32>; 2]);
        let steps: [Step; 6] = [
            ("both are outside", &["192.0.2.0/24"], &["2001:db8::/32"], [Some(TIMED_OUT_BY_TIMEOUT); 2]),
            ("IPv4 is inside", &["192.0.2.0/24", "10.90.0.0/24"], &[], [Some(0), Some(TIMED_OUT_BY_TIMEOUT)]),
            ("in a wider range", &["10.0.0.0/8"], &["fd90::/64"], [Some(0); 2]),
            ("in a narrower one", &["10.90.0.1/32"], &["fd90::1/128"], [Some(0); 2]),
            ("beside it", &["10.90.0.0/32", "10.90.0.2/31"], &["fd90::2/127"], [Some(TIMED_OUT_BY_TIMEOUT); 2]),
            ("nobody is", &[], &[], [Some(TIMED_OUT_BY_TIMEOUT); 2]),
        ];
        for (name, v4, v6, want) in steps {
            limit(&mut wish, "10.60.0.10", PortProtocol::Tcp, 80, v4);
            limit(&mut wish, "fd60::10", PortProtocol::Tcp, 80, v6);
            room.guard(wish.clone());
            for range in v4.iter().chain(v6) {
                let shown = format!(". 80 . {}", range.trim_end_matches("/32").trim_end_matches("/128"));
                until(TABLE, |table| table.contains(&shown) || table.contains(&format!(". 80 . {range}"))).await;
            }
            until(TABLE, |table| table.matches(". 80 . ").count() == v4.len() + v6.len()).await;
            for (host, want) in ["10.60.0.10", "fd60::10"].into_iter().zip(want) {
                let patience = if want == Some(0) { PATIENCE_SECONDS } else { SILENCE_SECONDS };
                assert_eq!(connect_for(patience, host, 80), want, "{name}: {}", sh(TABLE));
            }
            assert_eq!(["10.60.0.10", "fd60::10"].map(|host| connect(host, 443)), [Some(0); 2], "{name}: another port");
        }
        wish.limited = [].into();
        room.guard(wish);
        until(TABLE, |table| !table.contains(". tcp . 80 . ")).await;
        assert_eq!(["10.60.0.10", "fd60::10"].map(|host| connect(host, 80)), [Some(0); 2], "everyone again");
        assert_eq!(room.status(|_| true).await.restored_total, 0);
        room.end().await;
    });
}

#[test]
fn announced_networks_follow_whatever_they_become() {
    netns::inside(async || {
        let mut room = Room::start();
        // Wider, narrower, side by side, one within another, and those that only touch the old ones.
        for (networks, want) in [
            (&["10.60.0.0/25"][..], "{ 10.60.0.0/25 }"),
            (&["10.60.0.0/24"], "{ 10.60.0.0/24 }"),
            (&["10.60.0.0/26", "10.60.0.128/26"], "{ 10.60.0.0/26, 10.60.0.128/26 }"),
            (&["10.60.0.64/26", "10.60.0.192/26"], "{ 10.60.0.64/26, 10.60.0.192/26 }"),
            (&["10.60.0.0/16", "10.60.0.64/26"], "{ 10.60.0.0/16 }"),
            (&["255.255.255.0/24"], "{ 255.255.255.0/24 }"),
            (&["10.60.0.0/24"], "{ 10.60.0.0/24 }"),
        ] {
            room.guard(Guarded { aggregated: networks.iter().copied().map(network).collect(), ..Guarded::default() });
            let is_shown = |set: &str| set.split_whitespace().collect::<Vec<_>>().join(" ").contains(want);
            until("nft list set inet cairn aggregated4", is_shown).await;
        }
        room.stands().await;
        assert_eq!(room.status(|_| true).await.restored_total, 0);
        room.end().await;
    });
}

#[test]
fn an_address_of_an_announced_network_that_nobody_has_is_unreachable() {
    netns::inside(async || {
        sh(CLIENT);
        let mut all = guarded();
        all.aggregated = ["10.60.0.0/24", "fd60::/64"].map(network).into();
        all.assigned = ["10.60.0.10", "10.60.0.20", "fd60::10", "fd60::20"].map(address).into();
        let mut room = Room::start();
        room.guard(all);
        room.stands().await;
        for host in ["10.60.0.99", "[fd60::99]"] {
            // An answer that is back before `connect` has returned counts only when the SYN is sent again, a second later.
            assert_eq!(curl(host), Some(REFUSED), "{host}");
        }
        // Told so at once, not when its time is up.
        let counters = sh("ip netns exec client cat /proc/net/snmp6");
        let counted = |name: &str| {
            let line = counters.lines().find(|line| line.starts_with(name));
            line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u32>().ok())
        };
        assert!(counted("Icmp6InDestUnreachs ").is_some_and(|count| count > 0), "{counters}");
        assert_eq!(counted("Icmp6InTimeExcds "), Some(0), "{counters}");
        // One that a Service has, and nobody takes yet, is dropped: the client tries again.
        assert_eq!(curl_for(SILENCE_SECONDS, "10.60.0.20"), Some(TIMED_OUT));
        assert_eq!(curl_for(SILENCE_SECONDS, "[fd60::20]"), Some(TIMED_OUT));
        // One of this host, be it on another interface.
        sh("ip addr add 10.60.0.30/32 dev lo");
        let here = TcpListener::bind("10.60.0.30:0").expect("a port");
        assert_eq!(connect("10.60.0.30", port_of(&here)), Some(0));
        room.end().await;
    });
}

#[test]
fn an_announced_address_on_another_interface_is_guarded_and_the_nodes_own_is_not() {
    netns::inside(async || {
        sh(CLIENT);
        sh("ip addr add 10.60.0.10/32 dev lo; ip addr add fd60::10/128 dev lo nodad");
        let everywhere = TcpListener::bind("[::]:0").expect("a port");
        let port = port_of(&everywhere);
        let mut room = Room::start();
        room.guard(guarded());
        room.stands().await;
        assert_eq!(curl(&format!("10.60.0.10:{port}")), Some(REFUSED));
        assert_eq!(curl(&format!("[fd60::10]:{port}")), Some(REFUSED));
        // An address of the interface it came by is the node's own, even if a pool holds it.
        sh("ip addr add 10.60.0.11/32 dev lan; ip addr add fd60::11/128 dev lan nodad");
        let mut own = guarded();
        own.announced.extend(["10.60.0.11", "fd60::11"].map(address));
        room.guard(own);
        until(TABLE, |table| table.contains("10.60.0.11") && table.contains("fd60::11")).await;
        assert_eq!(connect("10.60.0.11", port), Some(0));
        assert_eq!(connect("fd60::11", port), Some(0));
        // The node itself reaches what it runs.
        sh(&format!("exec 3<>/dev/tcp/10.60.0.10/{port}"));
        // A served port is left to what takes it there: here nothing listens, and the host says so.
        assert_eq!(curl("10.60.0.10:80"), Some(REFUSED));
        room.end().await;
    });
}
