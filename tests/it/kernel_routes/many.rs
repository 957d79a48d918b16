//! Many routes, many changes, and changes that nobody could hear.

use std::sync::{Arc, Barrier};

use cairn::model::FibRoute;
use tokio::task::JoinSet;

use super::{LAN, ROUTES, Room, both, has_both, route};
use crate::netns::{self, sh, until};

/// Deletes a thousand routes of ours, each drawn by lot from those there are at that moment.
const HOSTILE: &str = "
    for round in $(seq 20); do
        { ip -4 route show proto 202; ip -6 route show proto 202; } | shuf -n 50 --random-source=/dev/zero |
            sed 's/^/route del /; s/ metric.*//' | ip -force -batch - 2>/dev/null || true
    done";

#[test]
fn a_thousand_routes_deleted_at_random_come_back_and_nobody_elses_is_touched() {
    netns::inside(async || {
        sh(LAN);
        sh("for i in $(seq 100); do echo route add 10.245.$i.0/24 via 10.90.0.50 proto static; done | ip -batch -");
        let others = "ip route show table all | grep -v 'proto 202'";
        let before = sh(others);
        let many: Vec<FibRoute> = (0..200u32)
            .flat_map(|node| {
                [
                    route(&format!("10.100.{node}.0/24"), "10.90.0.12"),
                    route(&format!("fd00:244:{node:x}::/64"), "fd90::12"),
                ]
            })
            .collect();
        let mut room = Room::start();
        room.want(&many);
        room.status(|status| status.installed() == many.len()).await;
        sh(HOSTILE);
        until("{ ip -4 route show proto 202; ip -6 route show proto 202; } | wc -l", |count| count.trim() == "400")
            .await;
        room.status(|status| status.installed() == many.len() && status.repaired_total >= 500).await;
        assert_eq!(sh(others), before);
        room.end().await;
    });
}

#[test]
fn ten_thousand_routes_go_in_and_come_back() {
    netns::inside(async || {
        sh(LAN);
        let many: Vec<FibRoute> = (0..5000u32)
            .flat_map(|node| {
                let (high, low, host) = (node / 256, node % 256, node % 200 + 20);
                [
                    route(&format!("10.{}.{low}.0/24", 100 + high), &format!("10.90.0.{host}")),
                    route(&format!("fd00:244:{node:x}::/64"), &format!("fd90::{host}")),
                ]
            })
            .collect();
        let mut room = Room::start();
        room.want(&many);
        room.status(|status| status.installed() == many.len()).await;
        sh("ip route flush proto 202");
        until("ip route show proto 202 | wc -l", |count| count.trim() == "5000").await;
        room.end().await;
    });
}

/// Does something while neither of the runtime's two workers runs: what the room should read waits meanwhile.
async fn while_nobody_reads(work: impl FnOnce()) {
    let gate = Arc::new(Barrier::new(3));
    let mut sleepers = JoinSet::new();
    for _ in 0..2 {
        let gate = Arc::clone(&gate);
        sleepers.spawn(async move {
            gate.wait();
            gate.wait();
        });
    }
    gate.wait();
    work();
    gate.wait();
    while sleepers.join_next().await.is_some() {}
}

#[test]
fn when_events_are_lost_everything_is_read_again() {
    /// What the kernel did not get into the sockets of this namespace.
    fn dropped() -> u64 {
        let sockets = sh("cat /proc/net/netlink");
        let drops = sockets.lines().skip(1).filter_map(|line| line.split_whitespace().nth(8)?.parse::<u64>().ok());
        drops.sum()
    }
    netns::inside(async || {
        sh(LAN);
        let mut room = Room::start();
        room.want(&both());
        room.status(|status| status.installed() == 2).await;
        assert_eq!(dropped(), 0);
        while_nobody_reads(|| {
            // More than the socket holds, and at the end of it what matters.
            sh("seq 0 19999 | awk '{ printf \"route add 10.%d.%d.0/24 via 10.90.0.19 proto static\\n\", 100 + $1 / 256, $1 % 256 }' > /run/routes
                ip -batch /run/routes
                ip route del 10.244.2.0/24 proto 202
                ip -6 route change fd00:244:2::/64 via fd90::99 proto 202 metric 1024");
            assert!(dropped() > 0, "{}", sh("cat /proc/net/netlink"));
        })
        .await;
        until(ROUTES, has_both).await;
        let status = room.status(|status| status.repaired_total >= 2).await;
        assert_eq!((status.installed(), status.repaired_total), (2, 2));
        assert_eq!(sh("ip route show proto static").lines().count(), 20_000, "nobody else's is touched");
        // And events are heard again.
        sh("ip route del 10.244.2.0/24 proto 202");
        room.status(|status| status.repaired_total == 3).await;
        assert!(has_both(&sh(ROUTES)));
        room.end().await;
    });
}
