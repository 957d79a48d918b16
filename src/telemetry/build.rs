//! What this program is, under the names of every component of Kubernetes.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// What upstream has behind a gate and Cairn always does, or never: name, stage, whether it does.
///
/// Nothing here can be switched; dashboards that ask for a gate get an answer.
const FEATURES: &[(&str, &str, bool)] = &[
    // Routes follow Nodes at once (KEP-5237).
    ("CloudControllerManagerWatchBasedRoutesReconciliation", "ALPHA", true),
    ("CloudControllerManagerWebhook", "ALPHA", false),
    // Labels follow the cloud after initialization.
    ("CloudNodeAdditionalLabelsReconciliation", "ALPHA", true),
    // A Lease is given back at the end (KEP-5366).
    ("ControllerManagerReleaseLeaderElectionLockOnExit", "BETA", true),
];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Build {
    major: &'static str,
    minor: &'static str,
    git_version: String,
    compiler: &'static str,
    platform: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Feature {
    name: &'static str,
    stage: &'static str,
}

/// Registers `kubernetes_build_info`: this program's own version, as other providers' show theirs.
pub fn register(registry: &mut Registry) {
    let build = Family::<Build, Gauge>::default();
    let platform = format!("{}/{}", std::env::consts::OS, goarch(std::env::consts::ARCH));
    let this = Build {
        major: env!("CARGO_PKG_VERSION_MAJOR"),
        minor: env!("CARGO_PKG_VERSION_MINOR"),
        git_version: format!("v{}", env!("CARGO_PKG_VERSION")),
        compiler: "rustc",
        platform,
    };
    build.get_or_create(&this).set(1);
    registry.register("kubernetes_build_info", "1, labeled by what was built", build);
}

/// Registers `kubernetes_feature_enabled`.
pub fn register_features(registry: &mut Registry) {
    let features = Family::<Feature, Gauge>::default();
    for (name, stage, is_enabled) in FEATURES {
        features.get_or_create(&Feature { name, stage }).set((*is_enabled).into());
    }
    let help = "1 for what Cairn does, of all that upstream has behind a gate; nothing of it can be switched";
    registry.register("kubernetes_feature_enabled", help, features);
}

/// An architecture as Go, and so Kubernetes, writes it.
fn goarch(arch: &str) -> &str {
    match arch {
        "x86_64" => "amd64",
        "x86" => "386",
        "aarch64" => "arm64",
        "powerpc64" => "ppc64le",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scrape_shows_version_and_features_under_upstreams_names() {
        let mut registry = Registry::default();
        register(&mut registry);
        register_features(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).expect("a String takes all text");
        let version = format!("git_version=\"v{}\"", env!("CARGO_PKG_VERSION"));
        let build = text.lines().find(|line| line.starts_with("kubernetes_build_info{")).expect("a line");
        assert!(build.contains(&version) && build.ends_with("} 1"), "{build}");
        for line in [
            "kubernetes_feature_enabled{name=\"CloudControllerManagerWebhook\",stage=\"ALPHA\"} 0",
            "kubernetes_feature_enabled{name=\"CloudControllerManagerWatchBasedRoutesReconciliation\",stage=\"ALPHA\"} 1",
        ] {
            assert!(text.lines().any(|printed| printed == line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn architectures_are_written_as_go_writes_them() {
        for (rust, go) in [("x86_64", "amd64"), ("aarch64", "arm64"), ("riscv64", "riscv64")] {
            assert_eq!(goarch(rust), go);
        }
    }
}
