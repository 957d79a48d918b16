//! Routers of three makes on the LAN, each waiting for the nodes to call, and what they say of a route.

use std::{
    collections::BTreeSet,
    net::IpAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::{
    address::{LanHost, NODE_ASN},
    enclosure::WORK,
    namespace::{Namespace, Program},
    wait::wait_for,
};

const STARTS_WITHIN: Duration = Duration::from_secs(20);
const BGPD: &str = "/usr/lib/frr/bgpd";

/// Who made the router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Make {
    Bird,
    Frr,
    GoBgp,
}

/// A router beside the lab's own.
pub(crate) struct Uplink {
    make: Make,
    host: LanHost,
    asn: u32,
    namespace: Namespace,
    folder: PathBuf,
    program: Program,
}

/// What a router has heard of one prefix from one node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Heard {
    pub(crate) next_hop: Option<IpAddr>,
    /// As `64512:1`, `64512:1:2`.
    pub(crate) communities: BTreeSet<String>,
    pub(crate) local_preference: Option<u32>,
    pub(crate) med: Option<u32>,
    pub(crate) as_path: Vec<u32>,
}

impl Uplink {
    /// Starts a router at `host`, which is plugged into the LAN already. It announces `originated` by itself.
    pub(crate) async fn start(
        make: Make,
        namespace: Namespace,
        host: LanHost,
        asn: u32,
        originated: &[&str],
    ) -> Result<Self> {
        let folder = Path::new(WORK).join(namespace.name());
        std::fs::create_dir_all(&folder)?;
        let program = match make {
            Make::Bird => start_bird(&namespace, &folder, host, asn, originated)?,
            Make::Frr => start_frr(&namespace, &folder, host, asn, originated)?,
            Make::GoBgp => start_gobgp(&namespace, &folder, host, asn)?,
        };
        let mut uplink = Self { make, host, asn, namespace, folder, program };
        wait_for(&format!("{make:?} answers"), STARTS_WITHIN, async || {
            uplink.program.ensure_running()?;
            uplink.greet().await
        })
        .await?;
        if make == Make::GoBgp {
            for prefix in originated {
                uplink.ask(&format!("global rib add {prefix}")).await?;
            }
        }
        Ok(uplink)
    }

    /// Tells the nodes no longer of a prefix of its own.
    pub(crate) async fn withdraw(&self, prefix: &str) -> Result<()> {
        match self.make {
            Make::Bird => {
                let file = self.folder.join("bird.conf");
                let config = std::fs::read_to_string(&file)?.replace(&format!("route {prefix} blackhole; "), "");
                std::fs::write(&file, config)?;
                let answer = self.ask("configure").await?;
                ensure!(answer.contains("econfigur"), "{answer}");
            }
            Make::Frr => {
                let folder = self.folder.display().to_string();
                let router = format!("router bgp {}", self.asn);
                let words = ["configure terminal", &router, &format!("no network {prefix}")];
                let orders = words.iter().flat_map(|order| ["-c", order]);
                let all: Vec<&str> = ["vtysh", "--vty_socket", &folder].into_iter().chain(orders).collect();
                self.namespace.exec(<[&str; 9]>::try_from(all).map_err(|all| anyhow::anyhow!("{all:?}"))?).await?;
            }
            Make::GoBgp => drop(self.ask(&format!("global rib del {prefix}")).await?),
        }
        Ok(())
    }

    pub(crate) fn make(&self) -> Make {
        self.make
    }

    pub(crate) fn host(&self) -> LanHost {
        self.host
    }

    pub(crate) fn asn(&self) -> u32 {
        self.asn
    }

    pub(crate) fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Whether it is of the nodes' own AS.
    pub(crate) fn is_internal(&self) -> bool {
        self.asn == NODE_ASN
    }

    pub(crate) async fn kill(&mut self) -> Result<()> {
        self.program.kill().await
    }

    async fn greet(&self) -> Result<String> {
        let question = match self.make {
            Make::Bird => "show status",
            Make::Frr => "show version",
            Make::GoBgp => "global",
        };
        self.ask(question).await
    }

    /// A question in the router's own words; of GoBGP, what follows `gobgp -j`.
    pub(crate) async fn ask(&self, question: &str) -> Result<String> {
        let folder = self.folder.display().to_string();
        match self.make {
            Make::Bird => {
                // It fails when there is no such route as well, and says no more about it.
                let words = format!("birdc -s {folder}/ctl '{question}' || birdc -s {folder}/ctl 'show status'");
                self.namespace.exec(["sh", "-c", &words]).await
            }
            Make::Frr => self.namespace.exec(["vtysh", "--vty_socket", &folder, "-c", question]).await,
            Make::GoBgp => {
                let words = question.split_whitespace().collect::<Vec<_>>().join(" ");
                self.namespace.exec(["sh", "-c", &format!("gobgp -j {words}")]).await
            }
        }
    }

    /// What it has heard of a prefix, from each node.
    pub(crate) async fn heard(&self, prefix: &str) -> Result<Vec<Heard>> {
        match self.make {
            Make::Bird => Ok(heard_by_bird(&self.ask(&format!("show route {prefix} all")).await?)),
            Make::Frr => {
                let family = if prefix.contains(':') { "ipv6" } else { "ipv4" };
                heard_by_frr(&self.ask(&format!("show bgp {family} unicast {prefix} json")).await?)
            }
            Make::GoBgp => {
                let family = if prefix.contains(':') { "ipv6" } else { "ipv4" };
                match self.ask(&format!("global rib {prefix} -a {family}")).await {
                    Ok(answer) => heard_by_gobgp(&answer),
                    Err(error) if format!("{error:#}").contains("Network not in table") => Ok(Vec::new()),
                    Err(error) => Err(error),
                }
            }
        }
    }

    /// Waits until it has heard of a prefix from exactly `nodes` nodes, and this of each of them.
    pub(crate) async fn wait_until_heard(
        &self,
        prefix: &str,
        nodes: usize,
        wanted: impl Fn(&Heard) -> bool,
        deadline: Duration,
    ) -> Result<()> {
        wait_for(&format!("{:?} of AS {} has {prefix} from {nodes} nodes", self.make, self.asn), deadline, async || {
            let heard = self.heard(prefix).await?;
            if heard.len() != nodes || !heard.iter().all(&wanted) {
                bail!("{heard:?}");
            }
            Ok(())
        })
        .await
    }
}

fn start_bird(namespace: &Namespace, folder: &Path, host: LanHost, asn: u32, originated: &[&str]) -> Result<Program> {
    let (address, v6) = (host.v4(), host.v6());
    let routes = |is_v6: bool| {
        let of_family = originated.iter().filter(|prefix| prefix.contains(':') == is_v6);
        of_family.map(|prefix| format!("route {prefix} blackhole; ")).collect::<String>()
    };
    let config = format!(
        "log stderr all;\nrouter id {address};\nprotocol device {{}}\n\
         protocol static s4 {{ ipv4; {} }}\nprotocol static s6 {{ ipv6; {} }}\n\
         protocol bgp nodes {{\n  local as {asn};\n  neighbor range 10.90.0.0/24 as {NODE_ASN};\n  dynamic name \"node\";\n  \
         passive on;\n  hold time 3;\n  ipv4 {{ import all; export where source = RTS_STATIC; }};\n  \
         ipv6 {{ import all; export where source = RTS_STATIC; next hop address {v6}; }};\n}}\n",
        routes(false),
        routes(true),
    );
    std::fs::write(folder.join("bird.conf"), config)?;
    let mut command = namespace.command("bird");
    command.arg("-f").arg("-c").arg(folder.join("bird.conf")).arg("-s").arg(folder.join("ctl"));
    namespace.spawn(&format!("bird-{}", namespace.name()), command)
}

fn start_frr(namespace: &Namespace, folder: &Path, host: LanHost, asn: u32, originated: &[&str]) -> Result<Program> {
    let address = host.v4();
    let networks: String = originated.iter().map(|prefix| format!(" network {prefix}\n")).collect();
    let config = format!(
        "hostname {name}\nrouter bgp {asn}\n bgp router-id {address}\n no bgp ebgp-requires-policy\n \
         no bgp network import-check\n{networks} neighbor NODES peer-group\n neighbor NODES remote-as {NODE_ASN}\n neighbor NODES passive\n neighbor NODES timers 1 3\n \
         bgp listen range 10.90.0.0/24 peer-group NODES\n address-family ipv6 unicast\n  neighbor NODES activate\n \
         exit-address-family\n",
        name = namespace.name(),
    );
    std::fs::write(folder.join("bgpd.conf"), config)?;
    let mut command = namespace.command(BGPD);
    // Without zebra, and without another user: the lab's own is the only one here.
    command.args(["-Z", "-n", "-S", "-A", "127.0.0.1", "-P", "0", "--log", "stdout", "--vty_socket"]).arg(folder);
    command.arg("-f").arg(folder.join("bgpd.conf")).arg("-i").arg(folder.join("bgpd.pid"));
    namespace.spawn(&format!("frr-{}", namespace.name()), command)
}

fn start_gobgp(namespace: &Namespace, folder: &Path, host: LanHost, asn: u32) -> Result<Program> {
    // It sends End-of-RIB only of families that it would keep over a restart.
    let family = |name: &str| {
        format!(
            "  [[peer-groups.afi-safis]]\n    [peer-groups.afi-safis.config]\n      afi-safi-name = \"{name}\"\n    \
             [peer-groups.afi-safis.mp-graceful-restart.config]\n      enabled = true\n"
        )
    };
    let config = format!(
        "[global.config]\n  as = {asn}\n  router-id = \"{}\"\n[[peer-groups]]\n  [peer-groups.config]\n    \
         peer-group-name = \"nodes\"\n    peer-as = {NODE_ASN}\n  [peer-groups.timers.config]\n    hold-time = 3\n    \
         keepalive-interval = 1\n  [peer-groups.graceful-restart.config]\n    enabled = true\n    restart-time = 20\n\
         {}{}[[dynamic-neighbors]]\n  [dynamic-neighbors.config]\n    prefix = \"10.90.0.0/24\"\n    \
         peer-group = \"nodes\"\n",
        host.v4(),
        family("ipv4-unicast"),
        family("ipv6-unicast"),
    );
    std::fs::write(folder.join("gobgpd.toml"), config)?;
    let mut command = namespace.command("gobgpd");
    command.arg("-f").arg(folder.join("gobgpd.toml")).args(["--api-hosts", "127.0.0.1:50051", "--log-plain"]);
    namespace.spawn(&format!("gobgp-{}", namespace.name()), command)
}

/// `show route PREFIX all`: a paragraph a path, each attribute on a line of its own.
fn heard_by_bird(answer: &str) -> Vec<Heard> {
    let mut all = Vec::<Heard>::new();
    for line in answer.lines() {
        let line = line.trim();
        if line.starts_with("Type: BGP") {
            all.push(Heard::default());
        }
        let (Some(heard), Some((name, value))) = (all.last_mut(), line.split_once(": ")) else { continue };
        match name {
            "BGP.as_path" => heard.as_path = value.split_whitespace().filter_map(|asn| asn.parse().ok()).collect(),
            "BGP.next_hop" => heard.next_hop = value.split_whitespace().next().and_then(|hop| hop.parse().ok()),
            "BGP.local_pref" => heard.local_preference = value.parse().ok(),
            "BGP.med" => heard.med = value.parse().ok(),
            "BGP.community" | "BGP.large_community" => {
                let written = value.split(") ").map(|one| one.trim_matches(['(', ')']).replace([',', ' '], ":"));
                heard.communities.extend(written.map(|one| one.replace("::", ":")));
            }
            _ => {}
        }
    }
    all
}

fn heard_by_frr(answer: &str) -> Result<Vec<Heard>> {
    let answer: Value = serde_json::from_str(answer).with_context(|| answer.to_owned())?;
    let paths = answer["paths"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let heard = |path: &Value| {
        let communities = [text(&path["community"]["string"]), text(&path["largeCommunity"]["string"])];
        Heard {
            next_hop: path["nexthops"]
                .as_array()
                .and_then(|hops| hops.first())
                .and_then(|hop| hop["ip"].as_str()?.parse().ok()),
            communities: communities.iter().flat_map(|all| all.split_whitespace()).map(ToOwned::to_owned).collect(),
            local_preference: number(&path["locPrf"]),
            med: number(&path["metric"]),
            as_path: text(&path["aspath"]["string"]).split_whitespace().filter_map(|asn| asn.parse().ok()).collect(),
        }
    };
    Ok(paths.iter().map(heard).collect())
}

fn heard_by_gobgp(answer: &str) -> Result<Vec<Heard>> {
    let answer: Value = serde_json::from_str(answer).with_context(|| answer.to_owned())?;
    // A table of prefixes, or the paths of one.
    let paths = match &answer {
        Value::Array(paths) => paths.clone(),
        Value::Object(table) => table.values().filter_map(Value::as_array).flatten().cloned().collect(),
        _ => Vec::new(),
    };
    Ok(paths.iter().map(path_of_gobgp).collect())
}

fn path_of_gobgp(path: &Value) -> Heard {
    let mut heard = Heard::default();
    for attribute in path["attrs"].as_array().into_iter().flatten() {
        match attribute["type"].as_u64() {
            Some(2) => {
                let segments = attribute["as_paths"].as_array().into_iter().flatten();
                let asns = segments.flat_map(|segment| segment["asns"].as_array().cloned().unwrap_or_default());
                heard.as_path = asns.filter_map(|asn| number(&asn)).collect();
            }
            Some(3 | 14) => heard.next_hop = attribute["nexthop"].as_str().and_then(|hop| hop.parse().ok()),
            Some(4) => heard.med = number(&attribute["metric"]),
            Some(5) => heard.local_preference = number(&attribute["value"]),
            Some(8) => {
                let all = attribute["communities"].as_array().into_iter().flatten().filter_map(number);
                heard.communities.extend(all.map(|community| format!("{}:{}", community >> 16, community & 0xffff)));
            }
            Some(32) => {
                let all = attribute["value"].as_array().into_iter().flatten();
                heard.communities.extend(all.filter_map(|one| {
                    let part = |name: &str| number(&one[name]);
                    Some(format!("{}:{}:{}", part("ASN")?, part("LocalData1")?, part("LocalData2")?))
                }));
            }
            _ => {}
        }
    }
    heard
}

fn number(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|number| u32::try_from(number).ok())
}
