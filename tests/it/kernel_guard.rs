//! The guard table in a real kernel, read back by `nft` and tried with packets.
#![expect(clippy::disallowed_methods, reason = "shell: the tests own the tasks they start")]

use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener};
use std::sync::Arc;

use cairn::kernel::NetlinkError;
use cairn::kernel::guard::{self, GuardState, GuardStatus};
use cairn::model::{Admission, Guarded, PortProtocol, Prefix, ServedPort};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::netns::{self, DEADLINE, sh, try_sh, until};

const TABLE: &str = "nft list table inet cairn";

struct Room {
    guarded: watch::Sender<Option<Arc<Guarded>>>,
    status: watch::Receiver<GuardStatus>,
    tasks: JoinSet<Result<(), NetlinkError>>,
}

impl Room {
    fn start() -> Self {
        let (guarded, wish) = watch::channel(None);
        let (told, status) = watch::channel(GuardStatus::default());
        let mut tasks = JoinSet::new();
        tasks.spawn(guard::run(wish, told));
        Self { guarded, status, tasks }
    }

    fn guard(&self, guarded: Guarded) {
        self.guarded.send_replace(Some(Arc::new(guarded)));
    }

    async fn status(&mut self, holds: impl Fn(&GuardStatus) -> bool) -> GuardStatus {
        let seen = timeout(DEADLINE, self.status.wait_for(|status| holds(status))).await.map(|told| told.map(|s| *s));
        match seen {
            Ok(status) => status.expect("the room is at work"),
            Err(_) => panic!("last seen: {:?}", *self.status.borrow()),
        }
    }

    async fn stands(&mut self) {
        self.status(|status| status.state == GuardState::Standing).await;
    }

    async fn end(self) {
        let Self { guarded, mut tasks, status: _status } = self;
        drop(guarded);
        let ended = timeout(DEADLINE, tasks.join_next()).await.expect("it ends with its wish");
        ended.expect("one task").expect("it does not panic").expect("it ends well");
    }
}

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn network(text: &str) -> Prefix {
    text.parse().expect("a prefix")
}

fn guarded() -> Guarded {
    let port = |text, protocol, port| ServedPort { address: address(text), protocol, port };
    Guarded {
        announced: ["10.60.0.10", "fd60::10"].map(address).into(),
        served: [
            port("10.60.0.10", PortProtocol::Tcp, 80),
            port("10.60.0.10", PortProtocol::Udp, 53),
            port("fd60::10", PortProtocol::Tcp, 80),
        ]
        .into(),
        ..Guarded::default()
    }
}

/// Admits to a port only who is within `ranges`.
fn limit(guarded: &mut Guarded, text: &str, protocol: PortProtocol, port: u16, ranges: &[&str]) {
    let to = ServedPort { address: address(text), protocol, port };
    guarded.limited.insert(to);
    guarded.admitted.retain(|admission| admission.to != to);
    guarded.admitted.extend(ranges.iter().map(|range| Admission { to, from: range.parse().expect("a range") }));
}

/// What `nft` should show before any packet came.
const WANT: &str = "table inet cairn {
	set announced4 {
		type ipv4_addr
		elements = { 10.60.0.10 }
	}

	set announced6 {
		type ipv6_addr
		elements = { fd60::10 }
	}

	set served4 {
		type ipv4_addr . inet_proto . inet_service
		elements = { 10.60.0.10 . udp . 53 }
	}

	set served6 {
		type ipv6_addr . inet_proto . inet_service
		elements = { fd60::10 . tcp . 80 }
	}

	set limited4 {
		type ipv4_addr . inet_proto . inet_service
		elements = { 10.60.0.10 . udp . 53 }
	}

	set limited6 {
		type ipv6_addr . inet_proto . inet_service
		elements = { fd60::10 . tcp . 80 }
	}

	set admitted4 {
		type ipv4_addr . inet_proto . inet_service . ipv4_addr
		flags interval
		elements = { 10.60.0.10 . udp . 53 . 192.0.2.0/24 }
	}

	set admitted6 {
		type ipv6_addr . inet_proto . inet_service . ipv6_addr
		flags interval
		elements = { fd60::10 . tcp . 80 . 2001:db8::/32 }
	}

	set aggregated4 {
		type ipv4_addr
		flags interval
		elements = { 10.60.0.0/24, 10.61.0.0/25,
			     10.61.0.192/26 }
	}

	set aggregated6 {
		type ipv6_addr
		flags interval
		elements = { fd60::/112 }
	}

	set assigned4 {
		type ipv4_addr
		elements = { 10.60.0.20 }
	}

	set assigned6 {
		type ipv6_addr
	}

	chain refuse {
		ct state invalid drop
		ct state new meta l4proto tcp limit rate 100/second burst 20 packets counter packets 0 bytes 0 reject with tcp reset
		ct state new meta l4proto tcp drop
		ct state new limit rate 100/second burst 20 packets counter packets 0 bytes 0 reject
		ct state new drop
	}

	chain unassigned {
		fib daddr type local accept
		ip daddr @assigned4 accept
		ip6 daddr @assigned6 accept
		ct state new limit rate 100/second burst 20 packets counter packets 0 bytes 0 reject with icmpx host-unreachable
		ct state invalid,new drop
	}

	chain admission {
		type filter hook prerouting priority dstnat - 10; policy accept;
		meta iiftype loopback accept
		ip daddr . meta l4proto . th dport @limited4 ip daddr . meta l4proto . th dport . ip saddr != @admitted4 counter packets 0 bytes 0 drop
		ip6 daddr . meta l4proto . th dport @limited6 ip6 daddr . meta l4proto . th dport . ip6 saddr != @admitted6 counter packets 0 bytes 0 drop
	}

	chain prerouting {
		type filter hook prerouting priority filter + 10; policy accept;
		meta iiftype loopback accept
		fib daddr . iif type local accept
		ip daddr . meta l4proto . th dport @served4 accept
		ip6 daddr . meta l4proto . th dport @served6 accept
		ip daddr @announced4 jump refuse
		ip6 daddr @announced6 jump refuse
		ip daddr @aggregated4 jump unassigned
		ip6 daddr @aggregated6 jump unassigned
	}

	chain forward {
		type filter hook forward priority filter + 10; policy accept;
		ip daddr @announced4 ct state invalid,new drop
		ip6 daddr @announced6 ct state invalid,new drop
		ip daddr @aggregated4 ct state invalid,new drop
		ip6 daddr @aggregated6 ct state invalid,new drop
	}
}
";

#[test]
fn the_table_reads_back_as_it_was_meant() {
    netns::inside(async || {
        let mut room = Room::start();
        let mut one_each = guarded();
        one_each.served.pop_first();
        one_each.aggregated = ["10.60.0.0/24", "10.61.0.0/25", "10.61.0.192/26", "fd60::/112"].map(network).into();
        one_each.assigned = [address("10.60.0.20")].into();
        limit(&mut one_each, "10.60.0.10", PortProtocol::Udp, 53, &["192.0.2.0/24"]);
        limit(&mut one_each, "fd60::10", PortProtocol::Tcp, 80, &["2001:db8::/32"]);
        room.guard(one_each);
        room.stands().await;
        assert_eq!(sh(TABLE), WANT);
        room.end().await;
    });
}

#[test]
fn elements_follow_and_the_table_stays_when_the_room_ends() {
    netns::inside(async || {
        let mut room = Room::start();
        room.guard(Guarded::default());
        room.stands().await;
        assert!(!sh(TABLE).contains("elements"), "{}", sh(TABLE));
        sh("nft add counter inet cairn witness");
        room.status(|status| status.restored_total == 1).await;
        room.guard(guarded());
        until(TABLE, |table| table.contains("{ 10.60.0.10 }") && table.contains("fd60::10 . tcp . 80")).await;
        let mut fewer = guarded();
        fewer.announced.pop_first();
        fewer.served.pop_first();
        room.guard(fewer);
        until(TABLE, |table| !table.contains("{ 10.60.0.10 }") && !table.contains("10.60.0.10 . tcp . 80")).await;
        assert!(sh(TABLE).contains("10.60.0.10 . udp . 53"), "{}", sh(TABLE));
        let status = room.status(|_| true).await;
        assert_eq!(status.restored_total, 1);
        room.end().await;
        assert!(sh(TABLE).contains("10.60.0.10 . udp . 53"), "{}", sh(TABLE));

        // The next run takes over what it finds, and touches nothing before it knows better.
        let next = Room::start();
        assert!(sh(TABLE).contains("10.60.0.10 . udp . 53"), "{}", sh(TABLE));
        next.guard(guarded());
        until(TABLE, |table| table.contains("10.60.0.10 . tcp . 80")).await;
        next.end().await;
        guard::remove().await.expect("the table can be removed");
        assert!(!try_sh(TABLE).status.success());
        guard::remove().await.expect("removing what is not there is no fault");
    });
}

#[test]
fn a_flushed_or_changed_table_comes_back_and_others_tables_are_left_alone() {
    netns::inside(async || {
        let mut room = Room::start();
        room.guard(guarded());
        room.stands().await;
        let meant = sh(TABLE);
        for (harm, restored) in [
            ("nft flush ruleset", 1),
            ("nft delete table inet cairn", 2),
            ("nft flush chain inet cairn refuse", 3),
            ("nft delete element inet cairn announced4 '{ 10.60.0.10 }'", 4),
            ("nft add element inet cairn served4 '{ 10.60.0.10 . tcp . 81 }'", 5),
        ] {
            sh(harm);
            room.status(|status| status.restored_total >= restored).await;
            until("nft list tables; nft list table inet cairn", |table| table.ends_with(&meant)).await;
        }
        sh("nft add table inet other; nft add chain inet other c; nft add table ip cairn");
        room.guard(Guarded::default());
        until(TABLE, |table| !table.contains("elements")).await;
        assert_eq!(room.status(|_| true).await.restored_total, 5);
        assert_eq!(sh("nft list tables").lines().count(), 3);
        room.end().await;
    });
}

#[test]
fn ten_thousand_dual_stack_services_fit() {
    netns::inside(async || {
        let mut all = guarded();
        for service in 0..10_000u32 {
            let [_, _, high, low] = service.to_be_bytes();
            for text in [format!("10.61.{high}.{low}"), format!("fd61::{service:x}")] {
                let address = address(&text);
                all.announced.insert(address);
                all.served.insert(ServedPort { address, protocol: PortProtocol::Tcp, port: 443 });
            }
        }
        let mut room = Room::start();
        room.guard(all);
        room.stands().await;
        let count = sh("nft list set inet cairn served6 | grep -o 'tcp . 443' | wc -l");
        assert_eq!(count.trim(), "10000");
        // The events of our own changes are not taken for others'.
        assert_eq!(room.status(|_| true).await.restored_total, 0);
        sh("nft flush ruleset");
        until("nft list set inet cairn announced6 2>&1 | grep -o fd61:: | wc -l", |count| count.trim() == "10000")
            .await;
        room.end().await;
    });
}

#[test]
fn without_rights_the_status_says_so() {
    netns::inside_without_rights(async || {
        let mut room = Room::start();
        room.guard(guarded());
        room.status(|status| status.state == GuardState::Denied).await;
        room.end().await;
    });
}

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

fn curl(host: &str) -> Option<i32> {
    curl_for(1, host)
}

fn curl_for(seconds: u8, host: &str) -> Option<i32> {
    try_sh(&format!("ip netns exec client curl -s --max-time {seconds} http://{host}/")).status.code()
}

/// `timeout`'s.
const TIMED_OUT_BY_TIMEOUT: i32 = 124;

/// Whether a TCP client is let in, as bash's exit code.
fn connect(host: &str, port: u16) -> Option<i32> {
    try_sh(&format!("timeout 2 ip netns exec client bash -c 'exec 3<>/dev/tcp/{host}/{port}'")).status.code()
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
        assert_eq!(curl("10.60.0.10:80"), Some(TIMED_OUT));
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
        assert_eq!(curl("10.60.0.99:81"), Some(TIMED_OUT));
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
            let got = ["10.60.0.10", "fd60::10"].map(|host| connect(host, 80));
            assert_eq!(got, want, "{name}: {}", sh(TABLE));
            assert_eq!(["10.60.0.10", "fd60::10"].map(|host| connect(host, 443)), [Some(0); 2], "{name}: another port");
        }
        wish.limited.clear();
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
            assert_eq!(curl_for(4, host), Some(REFUSED), "{host}");
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
        assert_eq!(curl("10.60.0.20"), Some(TIMED_OUT));
        assert_eq!(curl("[fd60::20]"), Some(TIMED_OUT));
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
