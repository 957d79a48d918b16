//! What happens to a node's kernel routes, written down by `ip monitor`.

use anyhow::{Result, ensure};

use super::SOON;
use crate::harness::{Lab, wait_for};

/// What the monitor is called among a node's programs.
const MONITOR: &str = "route-monitor";

/// From here on each change of a node's routes is written down.
pub(super) async fn watch(lab: &mut Lab, name: &str) -> Result<()> {
    let node = lab.node(name)?;
    let mut command = node.namespace().command("ip");
    command.args(["monitor", "route"]);
    node.spawn(MONITOR, command)?;
    // A monitor that listens shows a route of the test's own.
    wait_for("the monitor listens", SOON, async || {
        let node = lab.node(name)?;
        // What is there already is not said again.
        let _ = node.exec(["ip", "route", "del", "192.0.2.0/24"]).await;
        node.exec(["ip", "route", "add", "192.0.2.0/24", "via", "10.90.0.1"]).await?;
        ensure!(lab.node(name)?.program(MONITOR)?.log()?.contains("192.0.2.0/24"), "it shows nothing yet");
        Ok(())
    })
    .await
}

/// What has happened to our routes since, a line each.
pub(super) fn changes_of_ours(lab: &mut Lab, name: &str) -> Result<Vec<String>> {
    let log = lab.node(name)?.program(MONITOR)?.log()?;
    Ok(log.lines().filter(|line| line.contains("proto 202")).map(ToOwned::to_owned).collect())
}
