//! The router: BIRD 2, waiting for the nodes to call, with every equal next hop in its kernel.

use std::{
    collections::BTreeSet,
    net::IpAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Result, bail, ensure};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::UnixStream,
};

use super::{
    address::{NODE_ASN, ROUTER, ROUTER_ASN},
    enclosure::WORK,
    namespace::{Namespace, Program},
    wait::wait_for,
};

const STARTS_WITHIN: Duration = Duration::from_secs(20);
/// Short, so that a silent death is seen soon.
const HOLD_TIME_SECONDS: u16 = 3;

/// The router of the lab, and what it knows.
pub(crate) struct Router {
    namespace: Namespace,
    control: PathBuf,
    program: Program,
}

impl Router {
    pub(crate) async fn start(namespace: Namespace) -> Result<Self> {
        let config = Path::new(WORK).join("bird.conf");
        let control = Path::new(WORK).join("bird.ctl");
        std::fs::write(&config, configuration())?;
        let mut command = namespace.command("bird");
        command.arg("-f").arg("-c").arg(config).arg("-s").arg(&control);
        let program = namespace.spawn("bird", command)?;
        let mut router = Self { namespace, control, program };
        wait_for("BIRD answers", STARTS_WITHIN, async || {
            router.program.ensure_running()?;
            router.birdc("show status").await
        })
        .await?;
        Ok(router)
    }

    /// A connection for many questions in a row, without a process for each.
    pub(crate) async fn connect(&self) -> Result<BirdConnection> {
        BirdConnection::open(&self.control).await
    }

    pub(crate) fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Asks BIRD, in the words of `birdc`.
    pub(crate) async fn birdc(&self, question: &str) -> Result<String> {
        let control = self.control.display().to_string();
        self.namespace.exec(["birdc", "-r", "-s", &control, question]).await
    }

    /// Ends all sessions with nodes, and lets none begin.
    pub(crate) async fn close_sessions(&self) -> Result<()> {
        // The session of each node is a protocol of its own, named after the one that waits for them.
        self.order("disable \"node*\"").await
    }

    /// Lets sessions begin again.
    pub(crate) async fn open_sessions(&self) -> Result<()> {
        self.order("enable \"node*\"").await
    }

    async fn order(&self, order: &str) -> Result<()> {
        let control = self.control.display().to_string();
        self.namespace.exec(["birdc", "-s", &control, order]).await.map(drop)
    }

    /// The next hops that the nodes have announced for `prefix`.
    pub(crate) async fn next_hops(&self, prefix: &str) -> Result<BTreeSet<IpAddr>> {
        self.connect().await?.next_hops(prefix).await
    }

    /// Waits until exactly `wanted` are the next hops for `prefix`.
    pub(crate) async fn wait_for_next_hops(
        &self,
        prefix: &str,
        wanted: impl IntoIterator<Item = IpAddr>,
        deadline: Duration,
    ) -> Result<()> {
        let wanted: BTreeSet<_> = wanted.into_iter().collect();
        wait_for(&format!("the router has {prefix} via {wanted:?}"), deadline, async || {
            let seen = self.next_hops(prefix).await?;
            if seen != wanted {
                bail!("via {seen:?}");
            }
            Ok(())
        })
        .await
    }

    /// All that BIRD has logged so far.
    pub(crate) fn log(&self) -> Result<String> {
        self.program.log()
    }
}

/// A connection to BIRD's control socket.
pub(crate) struct BirdConnection(BufReader<UnixStream>);

impl BirdConnection {
    async fn open(path: &Path) -> Result<Self> {
        let mut connection = Self(BufReader::new(UnixStream::connect(path).await?));
        connection.read_answer().await?;
        Ok(connection)
    }

    /// The next hops that the nodes have announced for `prefix`.
    pub(crate) async fn next_hops(&mut self, prefix: &str) -> Result<BTreeSet<IpAddr>> {
        self.0.get_mut().write_all(format!("show route {prefix} all\n").as_bytes()).await?;
        Ok(next_hops_in(&self.read_answer().await?))
    }

    /// Reads lines until one begins with a code and a space, which says that it is the last.
    async fn read_answer(&mut self) -> Result<String> {
        let mut answer = String::new();
        loop {
            let begin = answer.len();
            ensure!(self.0.read_line(&mut answer).await? > 0, "BIRD has closed its control socket");
            let line = answer.as_bytes().get(begin..).unwrap_or_default();
            if line.len() > 4 && line[..4].iter().all(u8::is_ascii_digit) && line[4] == b' ' {
                return Ok(answer);
            }
        }
    }
}

fn next_hops_in(answer: &str) -> BTreeSet<IpAddr> {
    let hops = answer.lines().filter_map(|line| line.split_once("BGP.next_hop: "));
    // BIRD names a link-local next hop behind the global one.
    hops.filter_map(|(_, hops)| hops.split_whitespace().next()?.parse().ok()).collect()
}

fn configuration() -> String {
    let address = ROUTER.v4();
    format!(
        r#"log stderr all;
router id {address};
protocol device {{ scan time 5; }}
protocol direct {{ ipv4; ipv6; interface "eth*"; }}
protocol kernel k4 {{ ipv4 {{ import none; export where source = RTS_BGP; }}; merge paths on; }}
protocol kernel k6 {{ ipv6 {{ import none; export where source = RTS_BGP; }}; merge paths on; }}
protocol bgp nodes {{
  local as {ROUTER_ASN};
  neighbor range 10.90.0.0/24 as {NODE_ASN};
  dynamic name "node";
  passive on;
  hold time {HOLD_TIME_SECONDS};
  ipv4 {{ import all; export none; }};
  ipv6 {{ import all; export none; }};
}}
"#
    )
}
