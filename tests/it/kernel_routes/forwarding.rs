//! What the host has to grant, that routes carry anything.

use std::sync::Arc;

use cairn::api::{ForwardingFault, ForwardingReason};
use cairn::kernel::{Place, PodNetwork, Sysctls, host};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{LAN, index_of, wait_for};
use crate::netns::{self, DEADLINE, sh, until};

#[test]
fn what_keeps_the_host_from_forwarding_is_told_and_set_only_when_asked_for() {
    netns::inside(async || {
        sh(LAN);
        sh("sysctl -qw net.ipv4.ip_forward=0 net.ipv6.conf.all.forwarding=1
            ip link add cni type bridge && ip link set cni up && ip addr add 10.244.0.1/24 dev cni
            ip link set lan mtu 1400");
        let own = vec!["10.244.0.0/24".parse().expect("a prefix")];
        let network = PodNetwork { own, interfaces: [index_of("lan")].into(), place: Place::default() };
        let watch_host = |sysctls| {
            let (wish, wanted) = watch::channel(Some(Arc::new(network.clone())));
            let (told, faults) = watch::channel(Vec::new());
            let mut tasks = JoinSet::new();
            tasks.spawn(host::run(wanted, sysctls, told));
            (wish, faults, tasks)
        };
        let reasons = |faults: &Vec<ForwardingFault>| faults.iter().map(|fault| fault.reason).collect::<Vec<_>>();
        use ForwardingReason::{FirewallUnseen, ForwardDrop, MtuMismatch, NotForwarding};
        let (wish, mut faults, mut tasks) = watch_host(Sysctls::Told);
        wait_for(&mut faults, |told| reasons(told) == [NotForwarding, MtuMismatch]).await;
        assert_eq!(sh("sysctl -n net.ipv4.ip_forward").trim(), "0");
        // Each of these is heard of, none is looked for.
        sh("ip link set lan mtu 1500");
        wait_for(&mut faults, |told| reasons(told) == [NotForwarding]).await;
        sh(
            "nft add table ip filter; nft add chain ip filter FORWARD '{ type filter hook forward priority 0; policy drop; }'",
        );
        wait_for(&mut faults, |told| reasons(told) == [NotForwarding, ForwardDrop]).await;
        sh("nft delete table ip filter; iptables-nft -P FORWARD DROP");
        wait_for(&mut faults, |told| {
            told.iter().any(|fault| fault.message.contains("chain FORWARD of nftables table ip filter"))
        })
        .await;
        sh("iptables-nft -P FORWARD ACCEPT");
        wait_for(&mut faults, |told| reasons(told) == [NotForwarding]).await;
        sh("sysctl -qw net.ipv4.ip_forward=1");
        wait_for(&mut faults, |told| told.is_empty()).await;
        sh("sysctl -qw net.ipv4.ip_forward=0");
        wait_for(&mut faults, |told| reasons(told) == [NotForwarding]).await;
        // The older iptables has no events: it is seen with whatever else changes, or after a while.
        sh("iptables-legacy -P FORWARD DROP && sysctl -qw net.ipv4.ip_forward=1");
        wait_for(&mut faults, |told| {
            reasons(told) == [FirewallUnseen] && told[0].message.contains("`iptables-legacy -S FORWARD` shows it")
        })
        .await;
        drop(wish);
        let ended = timeout(DEADLINE, tasks.join_next()).await.expect("it ends with its wish");
        ended.expect("one task").expect("it does not panic").expect("it ends well");

        sh("sysctl -qw net.ipv4.ip_forward=0");
        let (_wish, mut faults, _tasks) = watch_host(Sysctls::Managed);
        until("sysctl -n net.ipv4.ip_forward", |value| value.trim() == "1").await;
        wait_for(&mut faults, |told| reasons(told) == [FirewallUnseen]).await;
    });
}

#[test]
fn a_table_that_no_rule_leads_to_is_told() {
    netns::inside(async || {
        sh(LAN);
        sh("sysctl -qw net.ipv4.ip_forward=1");
        let own = vec!["10.244.0.0/24".parse().expect("a prefix")];
        let place = Place::new(1000, 1024).expect("a place");
        let (_wish, wanted) = watch::channel(Some(Arc::new(PodNetwork { own, interfaces: [].into(), place })));
        let (told, mut faults) = watch::channel(Vec::new());
        let mut tasks = JoinSet::new();
        tasks.spawn(host::run(wanted, Sysctls::Told, told));
        let is_missing = |told: &Vec<ForwardingFault>| {
            told.iter().map(|fault| fault.reason).eq([ForwardingReason::TableNotConsulted])
        };
        wait_for(&mut faults, is_missing).await;
        sh("ip rule add priority 32000 table 1000");
        wait_for(&mut faults, |told| told.is_empty()).await;
    });
}
