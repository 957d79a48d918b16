//! The controller's port, asked as probes, collectors and people ask it.

use anyhow::{Context, Result, ensure};

use super::SOON;
use crate::harness::{Lab, enclosure::inside, wait_for};

const URL: &str = "https://127.0.0.1:10258";

#[test]
fn probes_need_no_name_and_pages_are_for_whom_the_api_server_lets() {
    inside(async || {
        let mut lab = Lab::builder().nodes(1).start().await?;
        lab.install_cairn().await?;
        lab.spawn_controller()?;
        lab.node("n1")?.wait_until_initialized().await?;
        for probe in ["/healthz", "/readyz", "/livez"] {
            ensure!(ask(&lab, probe, &[]).await? == (200, "ok".to_owned()), "{probe}");
        }
        let (_, verbose) = ask(&lab, "/healthz?verbose&exclude=ping", &[]).await?;
        for line in
            ["[+]ping excluded: ok", "[+]leaderElection ok", "[+]cloud-node-controller ok", "healthz check passed"]
        {
            ensure!(verbose.lines().any(|found| found == line), "no {line:?} in {verbose}");
        }
        anonymous_is_refused(&lab).await?;
        ensure!(ask(&lab, "/metrics", &["--header", "Authorization: Bearer x"]).await?.0 == 401, "a token of nobody");
        a_collector_sees_metrics_and_no_state(&lab).await?;
        an_administrator_sees_everything(&lab).await?;
        an_administrator_changes_how_much_is_logged(&mut lab).await
    });
}

#[test]
fn flags_that_are_wrong_are_told_all_at_once() {
    inside(async || {
        let mut lab = Lab::builder().start().await?;
        lab.install_cairn().await?;
        lab.spawn_controller_with(&[
            "--cloud-provider=",
            "--controllers=*,red-controller",
            "--leader-elect-resource-lock=configmapsleases",
            "--concurrent-node-syncs=0",
            "--concurrent-node-status-updates=-1",
        ])?;
        let controller = lab.controller()?;
        let status = controller.wait(SOON).await?;
        ensure!(status.code() == Some(1), "it ended with {status}");
        let log = controller.log()?;
        for fault in [
            "--cloud-provider cannot be empty",
            "\"red-controller\" is not in the list of known controllers",
            "resourceLock value must be \"leases\"",
            "concurrent-node-syncs must be a positive number",
            "concurrent-node-status-updates cannot be a negative number",
        ] {
            ensure!(log.contains(fault), "no {fault:?} in {log}");
        }
        Ok(())
    });
}

/// Nobody has been let see `/metrics`; asking the API server takes the right to.
pub(super) async fn anonymous_is_refused(lab: &Lab) -> Result<()> {
    let (status, answer) = ask(lab, "/metrics", &[]).await?;
    ensure!(status == 403 && answer.contains("system:anonymous"), "{status} {answer}");
    Ok(())
}

async fn a_collector_sees_metrics_and_no_state(lab: &Lab) -> Result<()> {
    let control_plane = lab.control_plane();
    let binding = ["create", "clusterrolebinding", "collector", "--clusterrole=system:monitoring"];
    let [create, kind, name, role] = binding;
    control_plane.kubectl([create, kind, name, role, "--serviceaccount=kube-system:default"]).await?;
    let token = control_plane.kubectl(["create", "token", "default", "--namespace=kube-system"]).await?;
    let bearer = format!("Authorization: Bearer {}", token.trim());
    wait_for("the collector sees the metrics", SOON, async || {
        let (status, metrics) = ask(lab, "/metrics", &["--header", &bearer]).await?;
        ensure!(status == 200, "{status} {metrics}");
        for metric in [
            "leader_election_master_status{name=\"cloud-controller-manager\"} 1",
            "running_managed_controllers{name=\"cloud-node\",manager=\"cloud-controller-manager\"} 1",
            "kubernetes_build_info{major=",
            "kubernetes_feature_enabled{name=\"CloudControllerManagerWebhook\",stage=\"ALPHA\"} 0",
            "cairn_lease_renewal_duration_seconds_count{name=\"cloud-controller-manager\"}",
            "rest_client_requests_total{code=\"200\",",
            "rest_client_request_duration_seconds_bucket{",
        ] {
            ensure!(metrics.contains(metric), "no {metric} in {metrics}");
        }
        Ok(())
    })
    .await?;
    ensure!(ask(lab, "/metrics/slis", &["--header", &bearer]).await?.1.contains("kubernetes_healthchecks_total{"));
    let (status, answer) = ask(lab, "/state", &["--header", &bearer]).await?;
    ensure!(status == 403 && answer.contains("kube-system:default"), "{status} {answer}");
    Ok(())
}

/// Flags for curl that make it an administrator.
fn as_administrator(lab: &Lab) -> [String; 4] {
    let pki = lab.control_plane().authority();
    let [certificate, key] = ["admin.crt", "admin.key"].map(|file| pki.file(file).display().to_string());
    ["--cert".to_owned(), certificate, "--key".to_owned(), key]
}

async fn an_administrator_sees_everything(lab: &Lab) -> Result<()> {
    let flags = as_administrator(lab);
    let flags = flags.each_ref().map(String::as_str);
    let state: serde_json::Value = serde_json::from_str(&ask(lab, "/state", &flags).await?.1)?;
    ensure!(state.pointer("/observed/nodes/n1").is_some(), "{state}");
    let configuration: serde_json::Value = serde_json::from_str(&ask(lab, "/configz", &flags).await?.1)?;
    let duration = configuration.pointer("/cloudcontrollermanager.config.k8s.io/Generic/LeaderElection/leaseDuration");
    ensure!(duration.is_some_and(|duration| duration == "15s"), "{configuration}");
    ensure!(ask(lab, "/healthz/ping", &flags).await?.0 == 404, "only exact paths");
    Ok(())
}

async fn an_administrator_changes_how_much_is_logged(lab: &mut Lab) -> Result<()> {
    const LEVEL: &str = "/debug/flags/v";
    let administrator = as_administrator(lab);
    let administrator = administrator.each_ref().map(String::as_str);
    let put = |level: &'static str| [&administrator[..], &["--request", "PUT", "--data", level]].concat();
    ensure!(ask(lab, LEVEL, &["--request", "PUT", "--data", "4"]).await?.0 == 403, "not for everybody");
    ensure!(ask(lab, LEVEL, &administrator).await?.0 == 406, "as upstream, only PUT");
    let (status, answer) = ask(lab, LEVEL, &put("much")).await?;
    ensure!(status == 400 && answer.contains("failed set klog.logging.verbosity much"), "{status} {answer}");
    ensure!(!lab.controller()?.log()?.contains("DEBUG"), "nothing asked for that much yet");
    let (status, answer) = ask(lab, LEVEL, &put("4")).await?;
    ensure!(status == 200 && answer == "successfully set klog.logging.verbosity to 4", "{status} {answer}");
    wait_for("the log tells more", SOON, async || {
        // A connection that ends before it is encrypted is told at this level only.
        lab.control_plane().namespace().exec(["bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/10258; exec 3>&-"]).await?;
        ensure!(lab.controller()?.log()?.contains("DEBUG"), "no line of that level");
        Ok(())
    })
    .await
}

/// Status and body of a page.
async fn ask(lab: &Lab, path: &str, flags: &[&str]) -> Result<(u16, String)> {
    let mut command = lab.control_plane().namespace().command("curl");
    command.args(["--silent", "--show-error", "--insecure", "--max-time", "10", "--write-out", "\n%{http_code}"]);
    command.args(flags).arg(format!("{URL}{path}"));
    let answer = crate::harness::namespace::output_of(command, &format!("curl {path}")).await?;
    let (body, status) = answer.rsplit_once('\n').context("curl writes the status last")?;
    Ok((status.parse()?, body.trim_end().to_owned()))
}
