//! Routes in a real kernel.
#![expect(clippy::disallowed_methods, reason = "shell: the tests own the tasks they start")]

mod forwarding;
mod many;

use std::fmt::Debug;
use std::sync::Arc;

use cairn::kernel::addresses::watch_addresses;
use cairn::kernel::{NetlinkError, Place, RouteFailure, RouteStatus, netlink};
use cairn::model::{FibRoute, FibWish, Hop, Hops, LocalAddress};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::netns::{self, DEADLINE, sh, until};

/// A LAN: one end is this node's, the other only makes it a link.
const LAN: &str = "
    sysctl -qw net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.default.accept_dad=0
    ip link add lan type veth peer name far
    ip addr add 10.90.0.11/24 dev lan
    ip addr add fd90::11/64 dev lan nodad
    ip link set lan up
    ip link set far up";

const ROUTES: &str = "ip -4 route show table main; ip -6 route show table main";

/// The room at work on wishes of the test.
struct Room {
    wanted: watch::Sender<Option<Arc<FibWish>>>,
    status: watch::Receiver<RouteStatus>,
    tasks: JoinSet<Result<(), NetlinkError>>,
}

impl Room {
    fn start() -> Self {
        Self::start_in(Place::default())
    }

    fn start_in(place: Place) -> Self {
        let (wanted, wish) = watch::channel(None);
        let (told, status) = watch::channel(RouteStatus::default());
        let mut tasks = JoinSet::new();
        tasks.spawn(netlink::run(place, wish, told));
        Self { wanted, status, tasks }
    }

    fn want(&self, routes: &[FibRoute]) {
        self.wanted.send_replace(Some(Arc::new(routes.iter().cloned().collect())));
    }

    async fn status(&mut self, holds: impl Fn(&RouteStatus) -> bool) -> RouteStatus {
        wait_for(&mut self.status, holds).await
    }

    /// Ends the room as the agent does, by dropping its wish.
    async fn end(self) {
        let Self { wanted, mut tasks, status: _status } = self;
        drop(wanted);
        let ended = timeout(DEADLINE, tasks.join_next()).await.expect("it ends with its wish");
        ended.expect("one task").expect("it does not panic").expect("it ends well");
    }
}

async fn wait_for<T: Clone + Debug>(values: &mut watch::Receiver<T>, holds: impl Fn(&T) -> bool) -> T {
    let seen = timeout(DEADLINE, values.wait_for(|value| holds(value))).await.map(|value| value.map(|v| v.clone()));
    match seen {
        Ok(value) => value.expect("the room is at work"),
        Err(_) => panic!("last seen: {:?}", *values.borrow()),
    }
}

fn route(destination: &str, gateway: &str) -> FibRoute {
    let hop = Hop { gateway: gateway.parse().expect("an address"), interface: None };
    FibRoute::direct(destination.parse().expect("a prefix"), hop)
}

fn both() -> [FibRoute; 2] {
    [route("10.244.2.0/24", "10.90.0.12"), route("fd00:244:2::/64", "fd90::12")]
}

const BOTH_V4: &str = "10.244.2.0/24 via 10.90.0.12 dev lan proto 202 metric 1024";
const BOTH_V6: &str = "fd00:244:2::/64 via fd90::12 dev lan proto 202 metric 1024";

fn has_both(routes: &str) -> bool {
    routes.contains(BOTH_V4) && routes.contains(BOTH_V6)
}

#[test]
fn wanted_routes_are_made_in_both_families_and_stay_when_the_room_ends() {
    netns::inside(async || {
        sh(LAN);
        let mut room = Room::start();
        room.want(&both());
        let status = room.status(|status| status.installed() == 2).await;
        assert_eq!((status.failed.len(), status.repaired_total), (0, 0));
        assert!(has_both(&sh(ROUTES)), "{}", sh(ROUTES));
        room.end().await;
        assert!(has_both(&sh(ROUTES)), "{}", sh(ROUTES));
    });
}

#[test]
fn routes_of_an_earlier_run_go_and_those_of_others_stay() {
    netns::inside(async || {
        sh(LAN);
        sh("ip route add 10.244.7.0/24 via 10.90.0.17 proto 202
            ip route add 10.244.7.0/24 via 10.90.0.18 proto 202 metric 1024
            ip route add blackhole 10.244.8.0/24 proto 202
            ip route add 10.244.2.0/24 via 10.90.0.99 proto 202 metric 1024
            ip -6 route add fd00:244:7::/64 via fd90::17 proto 202
            ip -6 route append fd00:244:2::/64 via fd90::98 proto 202
            ip -6 route append fd00:244:2::/64 via fd90::99 proto 202
            ip route add 10.244.9.0/24 via 10.90.0.19 proto static
            ip route add 10.244.7.0/24 via 10.90.0.17 proto 202 table 100
            ip -6 route add fd00:244:9::/64 via fd90::19 proto static");
        let before = sh(ROUTES);
        let mut room = Room::start();
        // While the wish is not known nothing is touched: a known one comes after the room is up.
        assert_eq!(sh(ROUTES), before);
        room.want(&both());
        room.status(|status| status.installed() == 2).await;
        let after = sh(ROUTES);
        assert!(has_both(&after), "{after}");
        assert_eq!(after.matches("proto 202").count(), 2, "{after}");
        assert_eq!(after.matches("proto static").count(), 2, "{after}");
        // Ours by an earlier configuration, wherever it is.
        assert!(!sh("ip route show table all").contains("table 100"));
        room.want(&[]);
        until(ROUTES, |routes| !routes.contains("proto 202") && routes.matches("proto static").count() == 2).await;
        room.end().await;
    });
}

#[test]
fn a_new_gateway_replaces_the_old_one() {
    netns::inside(async || {
        sh(LAN);
        let mut room = Room::start();
        room.want(&both());
        room.status(|status| status.installed() == 2).await;
        let moved = [route("10.244.2.0/24", "10.90.0.13"), route("fd00:244:2::/64", "fd90::13")];
        room.want(&moved);
        let status = room.status(|status| status.is_installed(&moved[0])).await;
        assert!(moved.iter().all(|route| status.is_installed(route)));
        assert_eq!(status.repaired_total, 0);
        assert_eq!(sh(ROUTES).matches("proto 202").count(), 2, "{}", sh(ROUTES));
        room.end().await;
    });
}

#[test]
fn routes_that_others_delete_or_change_come_back() {
    netns::inside(async || {
        sh(LAN);
        let mut room = Room::start();
        room.want(&both());
        room.status(|status| status.installed() == 2).await;
        for (harm, repairs) in [
            ("ip route del 10.244.2.0/24", 1),
            ("ip -6 route del fd00:244:2::/64", 2),
            ("ip route replace 10.244.2.0/24 via 10.90.0.77 proto 202 metric 1024", 3),
            ("ip -6 route append fd00:244:2::/64 via fd90::77 proto 202", 4),
        ] {
            sh(harm);
            room.status(|status| status.repaired_total >= repairs).await;
            until(ROUTES, |routes| has_both(routes) && routes.matches("proto 202").count() == 2).await;
        }
        // A whole table at once.
        sh("ip route flush proto 202; ip -6 route flush proto 202");
        until(ROUTES, has_both).await;
        room.end().await;
    });
}

#[test]
fn routes_come_back_after_their_interface_was_down() {
    netns::inside(async || {
        sh(LAN);
        let mut room = Room::start();
        room.want(&both());
        room.status(|status| status.installed() == 2).await;
        sh("ip link set lan down");
        let unreachable = |status: &RouteStatus| {
            status.failed.len() == 2 && status.failed.values().all(|failure| *failure == RouteFailure::Unreachable)
        };
        room.status(unreachable).await;
        sh("ip link set lan up && ip addr replace fd90::11/64 dev lan nodad");
        room.status(|status| status.installed() == 2).await;
        until(ROUTES, has_both).await;
        room.end().await;
    });
}

#[test]
fn an_unreachable_gateway_is_told_and_heals_when_its_network_comes() {
    netns::inside(async || {
        sh(LAN);
        let mut room = Room::start();
        let far = [route("10.244.3.0/24", "10.91.0.13"), route("fd00:244:3::/64", "fd91::13")];
        room.want(&[both(), far.clone()].concat());
        let status = room.status(|status| status.failed.len() == 2).await;
        assert!(both().iter().all(|route| status.is_installed(route)));
        assert_eq!(*status.failed, far.map(|route| (route, RouteFailure::Unreachable)).into());
        sh("ip addr add 10.91.0.11/24 dev lan && ip addr add fd91::11/64 dev lan nodad");
        let status = room.status(|status| status.installed() == 4).await;
        assert!(status.failed.is_empty());
        assert_eq!(status.repaired_total, 0);
        room.end().await;
    });
}

#[test]
fn a_route_of_another_is_told_and_left_alone() {
    netns::inside(async || {
        sh(LAN);
        sh("ip route add 10.244.2.0/24 via 10.90.0.50 proto static
            ip -6 route add fd00:244:2::/64 via fd90::50 proto static");
        let mut room = Room::start();
        room.want(&both());
        let owned = RouteFailure::OwnedByOther { protocol: 4 };
        room.status(|status| *status.failed == both().map(|route| (route, owned.clone())).into()).await;
        let routes = sh(ROUTES);
        assert!(routes.contains("10.244.2.0/24 via 10.90.0.50 dev lan proto static"), "{routes}");
        assert!(routes.contains("fd00:244:2::/64 via fd90::50 dev lan proto static metric 1024"), "{routes}");
        // When the other one goes, ours carries at once.
        sh("ip route del 10.244.2.0/24 proto static; ip -6 route del fd00:244:2::/64 proto static");
        let status = room.status(|status| status.installed() == 2).await;
        assert!(status.failed.is_empty());
        until(ROUTES, has_both).await;
        room.end().await;
    });
}

#[test]
fn without_rights_every_route_is_denied() {
    netns::inside_without_rights(async || {
        let mut room = Room::start();
        room.want(&both());
        room.status(|status| *status.failed == both().map(|route| (route, RouteFailure::Denied)).into()).await;
        room.end().await;
    });
}

/// A second network of this node, with an interface of its own.
const SECOND_LAN: &str = "
    ip link add lan2 type veth peer name far2
    ip addr add 10.91.0.11/24 dev lan2
    ip addr add fd91::11/64 dev lan2 nodad
    ip link set lan2 up
    ip link set far2 up";

fn index_of(interface: &str) -> u32 {
    let index = sh(&format!("cat /sys/class/net/{interface}/ifindex 2>/dev/null || ip -o link show {interface}"));
    index.split(':').next().and_then(|index| index.trim().parse().ok()).expect("an index")
}

fn hop(gateway: &str, interface: &str) -> Hop {
    Hop { gateway: gateway.parse().expect("an address"), interface: Some(index_of(interface)) }
}

#[test]
fn several_next_hops_share_and_are_kept_as_they_are() {
    netns::inside(async || {
        sh(LAN);
        sh(SECOND_LAN);
        let learned = |destination: &str, hops: [Hop; 2]| {
            FibRoute::learned(destination.parse().expect("a prefix"), Hops::new(hops).expect("hops"))
        };
        let routes = [
            learned("10.8.0.0/16", [hop("10.90.0.1", "lan"), hop("10.91.0.1", "lan2")]),
            learned("fd08::/32", [hop("fd90::1", "lan"), hop("fd91::1", "lan2")]),
        ];
        let mut room = Room::start();
        room.want(&routes);
        room.status(|status| status.installed() == 2).await;
        let are_whole =
            |shown: &str| shown.matches("nexthop via").count() == 4 && shown.matches("metric 1025").count() == 2;
        until(ROUTES, are_whole).await;
        for harm in [
            "ip route replace 10.8.0.0/16 via 10.90.0.1 dev lan proto 202 metric 1025",
            "ip -6 route del fd08::/32 via fd91::1 dev lan2",
            "ip -6 route append fd08::/32 via fd90::77 dev lan proto 202 metric 1025",
            "ip route change 10.8.0.0/16 proto 202 metric 1025 \
                nexthop via 10.90.0.1 dev lan weight 3 nexthop via 10.91.0.1 dev lan2",
            "ip route flush proto 202; ip -6 route flush proto 202",
        ] {
            sh(harm);
            until(ROUTES, |shown| are_whole(shown) && !shown.contains("weight 3")).await;
        }
        room.want(&[learned("10.8.0.0/16", [hop("10.90.0.1", "lan"), hop("10.90.0.2", "lan")])]);
        until(ROUTES, |shown| shown.matches("nexthop via").count() == 2 && shown.contains("10.90.0.2")).await;
        room.end().await;
    });
}

#[test]
fn the_last_resort_stands_behind_a_bridge_of_the_same_prefix() {
    netns::inside(async || {
        sh(LAN);
        let last =
            ["10.244.1.0/24", "fd00:244:1::/64"].map(|cidr| FibRoute::last_resort(cidr.parse().expect("a prefix")));
        let mut room = Room::start();
        room.want(&last);
        room.status(|status| status.installed() == 2).await;
        until("ip route get 10.244.1.5 2>&1 || true", |answer| answer.contains("Invalid argument")).await;
        sh("ip link add cni type bridge && ip link set cni up
            ip addr add 10.244.1.1/24 dev cni && ip addr add fd00:244:1::1/64 dev cni nodad");
        until("ip route get 10.244.1.5; ip -6 route get fd00:244:1::5", |answer| {
            answer.matches("dev cni").count() == 2
        })
        .await;
        room.status(|status| status.failed.is_empty()).await;
        until("ip route show proto 202; ip -6 route show proto 202", |shown| shown.matches("blackhole").count() == 2)
            .await;
        room.want(&[]);
        until("ip route show proto 202; ip -6 route show proto 202", |shown| shown.is_empty()).await;
        room.end().await;
    });
}

#[test]
fn an_ipv4_destination_goes_by_an_ipv6_neighbour() {
    netns::inside(async || {
        sh("ip link add lan type veth peer name far && ip link set lan up && ip link set far up
            ip addr add fd90::11/64 dev lan nodad");
        let wanted = FibRoute::direct("10.244.2.0/24".parse().expect("a prefix"), hop("fd90::12", "lan"));
        let mut room = Room::start();
        room.want(&[wanted]);
        room.status(|status| status.installed() == 1).await;
        let is_there = |shown: &str| shown.contains("10.244.2.0/24 via inet6 fd90::12 dev lan proto 202");
        until(ROUTES, is_there).await;
        sh("ip route del 10.244.2.0/24");
        until(ROUTES, is_there).await;
        room.end().await;
    });
}

#[test]
fn a_table_and_a_metric_of_ones_own_are_used_and_what_was_elsewhere_goes() {
    netns::inside(async || {
        sh(LAN);
        let mut room = Room::start();
        room.want(&both());
        room.status(|status| status.installed() == 2).await;
        room.end().await;
        let mut room = Room::start_in(Place::new(1000, 77).expect("a place"));
        room.want(&both());
        room.status(|status| status.installed() == 2).await;
        let all = "ip -4 route show table all proto 202; ip -6 route show table all proto 202";
        let moved = |shown: &str| shown.matches("table 1000").count() == 2 && shown.matches("metric 77").count() == 2;
        until(all, |shown| moved(shown) && shown.lines().count() == 2).await;
        sh("ip route flush table 1000");
        until(all, moved).await;
        room.end().await;
    });
}

#[test]
fn a_route_whose_link_has_no_carrier_is_not_installed() {
    netns::inside(async || {
        sh(LAN);
        let wanted =
            [("10.244.2.0/24", "10.90.0.12"), ("fd00:244:2::/64", "fd90::12")].map(|(destination, gateway)| {
                FibRoute::direct(destination.parse().expect("a prefix"), hop(gateway, "lan"))
            });
        let mut room = Room::start();
        room.want(&wanted);
        room.status(|status| status.installed() == 2).await;
        // The other end goes down: the link stays up, and nothing gets out.
        sh("ip link set far down");
        let is_cut_off =
            |status: &RouteStatus| status.failed.values().all(|failure| *failure == RouteFailure::NoCarrier);
        room.status(|status| status.failed.len() == 2 && is_cut_off(status)).await;
        until(ROUTES, |shown| shown.matches("proto 202").count() == 2).await;
        sh("ip link set far up");
        room.status(|status| status.installed() == 2).await;
        room.end().await;
    });
}

#[test]
fn routes_follow_an_address_that_goes_and_comes_back() {
    netns::inside(async || {
        sh(LAN);
        let mut room = Room::start();
        room.want(&both());
        room.status(|status| status.installed() == 2).await;
        // The last address of the interface: the kernel takes the IPv4 routes with it, without a word.
        sh("ip addr del 10.90.0.11/24 dev lan");
        room.status(|status| status.failed.len() == 1).await;
        sh("ip addr add 10.90.0.14/24 dev lan");
        room.status(|status| status.installed() == 2).await;
        until(ROUTES, has_both).await;
        room.end().await;
    });
}

#[test]
fn what_happens_on_other_interfaces_costs_no_route() {
    netns::inside(async || {
        sh(LAN);
        let mut room = Room::start();
        room.want(&both());
        room.status(|status| status.installed() == 2).await;
        sh("for i in $(seq 20); do
                ip link add pod$i type veth peer name in$i && ip link set pod$i up
                ip route add 10.244.1.$i/32 dev pod$i && ip link del pod$i
            done");
        sh("ip route del 10.244.2.0/24");
        let status = room.status(|status| status.repaired_total == 1).await;
        assert_eq!(status.installed(), 2);
        until(ROUTES, |shown| has_both(shown) && shown.matches("proto 202").count() == 2).await;
        room.end().await;
    });
}

#[test]
fn who_carries_what_is_on_no_network_of_this_node_is_told() {
    netns::inside(async || {
        sh(LAN);
        let asked = ["10.244.7.0/24", "fd00:244:7::/64"].map(|cidr| cidr.parse().expect("a prefix"));
        let mut wish: FibWish = both().into_iter().collect();
        asked.into_iter().for_each(|cidr| wish.ask(cidr));
        let mut room = Room::start();
        room.wanted.send_replace(Some(Arc::new(wish)));
        room.status(|status| status.installed() == 2 && status.carried.is_empty()).await;
        let carried =
            |status: &RouteStatus| -> Vec<String> { status.carried.values().map(ToString::to_string).collect() };
        for (change, want) in [
            (
                "ip route add default via 10.90.0.1; ip -6 route add default via fd90::1",
                [
                    "the default route via 10.90.0.1 of protocol 3 (boot)",
                    "the default route via fd90::1 of protocol 3 (boot)",
                ],
            ),
            (
                "ip route add 10.244.0.0/16 via 10.90.0.2 proto bird; ip -6 route add fd00:244::/32 via fd90::2 proto bird",
                [
                    "the route 10.244.0.0/16 via 10.90.0.2 of protocol 12 (bird)",
                    "the route fd00:244::/32 via fd90::2 of protocol 12 (bird)",
                ],
            ),
            (
                "ip route del 10.244.0.0/16; ip -6 route del fd00:244::/32",
                [
                    "the default route via 10.90.0.1 of protocol 3 (boot)",
                    "the default route via fd90::1 of protocol 3 (boot)",
                ],
            ),
        ] {
            sh(change);
            room.status(|status| carried(status) == want).await;
        }
        // A route that drops packets carries none.
        sh("ip route add unreachable 10.244.7.0/24; ip -6 route add unreachable fd00:244:7::/64");
        room.status(|status| status.carried.is_empty()).await;
        room.end().await;
    });
}

#[test]
fn cleaning_up_removes_our_routes_of_every_table_and_nothing_else() {
    netns::inside(async || {
        sh(LAN);
        sh("ip route add 10.244.2.0/24 via 10.90.0.12 proto 202 metric 1024
            ip route add 10.244.2.0/24 via 10.90.0.12 proto 202 metric 7
            ip route add 10.244.3.0/24 via 10.90.0.13 proto 202 table 1000
            ip route add blackhole 10.244.1.0/24 proto 202 metric 4294967295
            ip -6 route add blackhole fd00:244:1::/64 proto 202 metric 4294967295
            ip -6 route add fd00:244:2::/64 proto 202 nexthop via fd90::12 dev lan nexthop via fd90::13 dev lan
            ip route add 10.8.0.0/16 proto 202 nexthop via 10.90.0.1 dev lan nexthop via 10.90.0.2 dev lan
            ip route add 10.244.9.0/24 via 10.90.0.19 proto static
            ip -6 route add fd00:244:9::/64 via fd90::19 proto bird table 1000");
        let all = "ip -4 route show table all; ip -6 route show table all";
        let others = |shown: &str| -> Vec<String> {
            let is_ours = |line: &&str| line.contains("proto 202") || line.trim_start().starts_with("nexthop");
            shown.lines().filter(|line| !is_ours(line)).map(str::to_owned).collect()
        };
        let before = sh(all);
        assert!(netlink::remove_all().await.expect("it may") >= 7);
        let after = sh(all);
        assert!(!after.contains("proto 202"), "{after}");
        assert_eq!(others(&after), others(&before));
        assert_eq!(netlink::remove_all().await.expect("it may"), 0, "a second time there is nothing");
    });
}

#[test]
fn addresses_follow_the_interfaces() {
    netns::inside(async || {
        sh(LAN);
        let (told, mut addresses) = watch::channel(None);
        let mut tasks = JoinSet::new();
        tasks.spawn(watch_addresses(told));
        let texts = |known: &Option<Arc<Vec<LocalAddress>>>| -> Vec<String> {
            let known = known.as_deref().map(Vec::as_slice).unwrap_or_default();
            let of_lan = known.iter().filter(|local| !local.prefix.to_string().starts_with("fe80"));
            of_lan.map(|local| format!("{} {} {}", local.interface, local.address, local.prefix)).collect()
        };
        let first = ["lan 10.90.0.11 10.90.0.0/24", "lan fd90::11 fd90::/64"];
        wait_for(&mut addresses, |known| texts(known) == first).await;
        sh("ip addr add 10.91.0.11/24 dev lan");
        wait_for(&mut addresses, |known| texts(known).len() == 3).await;
        sh("ip link set lan down");
        wait_for(&mut addresses, |known| known.is_some() && texts(known).is_empty()).await;
        sh("ip link set lan up && ip link set lan name lan1");
        wait_for(&mut addresses, |known| texts(known).contains(&"lan1 10.90.0.11 10.90.0.0/24".to_owned())).await;
        drop(addresses);
        let ended = timeout(DEADLINE, tasks.join_next()).await.expect("it ends with its listeners");
        ended.expect("one task").expect("it does not panic").expect("it ends well");
    });
}
