//! The client behind the router: it knows the cluster's load-balancer addresses and nothing else of it.

use std::{collections::BTreeMap, net::IpAddr};

use anyhow::{Context, Result, bail};

use super::{address::in_url, namespace::Namespace};

const GIVE_UP_SECONDS: &str = "2";

/// A host outside the cluster that speaks HTTP.
pub(crate) struct Client {
    namespace: Namespace,
}

/// Why a request got no answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unanswered {
    /// A reset or an ICMP message came back.
    Refused,
    /// Nothing came back within two seconds.
    TimedOut,
}

impl Client {
    pub(crate) fn new(namespace: Namespace) -> Self {
        Self { namespace }
    }

    pub(crate) fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// One request on a connection of its own; the body of the answer.
    pub(crate) async fn http_get(&self, address: IpAddr, port: u16) -> Result<std::result::Result<String, Unanswered>> {
        let url = format!("http://{}:{port}/", in_url(address));
        let mut command = self.namespace.command("curl");
        command.args(["--silent", "--show-error", "--globoff", "--fail", "--max-time", GIVE_UP_SECONDS, &url]);
        let output = command.output().await.context("cannot run curl")?;
        match output.status.code() {
            Some(0) => Ok(Ok(String::from_utf8(output.stdout)?)),
            Some(7) => Ok(Err(Unanswered::Refused)),
            Some(28) => Ok(Err(Unanswered::TimedOut)),
            _ => bail!("curl {url}: {} {}", output.status, String::from_utf8_lossy(&output.stderr).trim()),
        }
    }

    /// How many of `count` requests each node answered; an error as soon as one gets no answer.
    pub(crate) async fn answers_by_node(
        &self,
        address: IpAddr,
        port: u16,
        count: u32,
    ) -> Result<BTreeMap<String, u32>> {
        let mut answers = BTreeMap::new();
        for number in 1..=count {
            match self.http_get(address, port).await? {
                Ok(answer) => *answers.entry(node_of(&answer)?).or_default() += 1,
                Err(why) => bail!("request {number} to {address} port {port}: {why:?} (before: {answers:?})"),
            }
        }
        Ok(answers)
    }
}

fn node_of(answer: &str) -> Result<String> {
    let word = answer.split_whitespace().find_map(|word| word.strip_prefix("node="));
    Ok(word.with_context(|| format!("the answer names no node: {answer}"))?.to_owned())
}
