//! The guard table in a real kernel, read back by `nft` and tried with packets.
#![expect(clippy::disallowed_methods, reason = "shell: the tests own the tasks they start")]

mod packets;

use std::net::IpAddr;
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
    guarded.admitted = guarded.admitted.iter().filter(|admission| admission.to != to).copied().collect();
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
