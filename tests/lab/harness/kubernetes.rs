//! Which Kubernetes the control plane of a lab is.
//!
//! All that differs between the versions stands here; etcd, kubectl and kube-proxy are the newest's in every lab.

/// A minor version that the lab has; the newest unless told.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Kubernetes {
    /// Three minor versions older than the newest, as far as a cluster's parts may be apart.
    V1_33,
    #[default]
    V1_36,
}

impl Kubernetes {
    /// The older ones, each with a folder `tests/lab/control-plane-MINOR/`.
    pub(crate) const OLDER: [Self; 1] = [Self::V1_33];

    /// `1.33`.
    pub(crate) fn minor(self) -> &'static str {
        match self {
            Self::V1_33 => "1.33",
            Self::V1_36 => "1.36",
        }
    }

    /// The name of one of its own programs among the lab's binaries, as `tests/lab/build-control-plane` says it.
    pub(crate) fn binary(self, program: &str) -> String {
        match self {
            Self::V1_36 => program.to_owned(),
            older => format!("{program}-{}", older.minor()),
        }
    }
}
