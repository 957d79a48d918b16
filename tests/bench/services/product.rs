//! Who serves Services: Cairn, or MetalLB for comparison.

use std::time::Duration;

use anyhow::{Result, ensure};
use cairn::api::{AddressPool, AddressPoolSpec};
use kube::{Api, api::PostParams};

use super::harness::{
    Lab,
    control_plane::ApiRequest,
    metallb::{self, MetalLb},
    namespace::Program,
    wait::wait_every,
};

/// More addresses than Services, in one block.
const ADDRESSES: &str = "10.64.0.0/16";
const QUIET: Duration = Duration::from_secs(3);
pub(crate) const SETTLED_WITHIN: Duration = Duration::from_secs(300);

pub(crate) enum Product {
    Cairn,
    MetalLb(MetalLb),
}

impl Product {
    pub(crate) async fn apply_pool(&self, lab: &Lab) -> Result<()> {
        match self {
            Self::Cairn => {
                let spec = AddressPoolSpec {
                    addresses: vec![ADDRESSES.to_owned()],
                    auto_assign: true,
                    ..AddressPoolSpec::default()
                };
                let pools: Api<AddressPool> = Api::all(lab.kube().clone());
                pools.create(&PostParams::default(), &AddressPool::new("bench", spec)).await?;
                Ok(())
            }
            Self::MetalLb(metallb) => metallb.apply_pool(lab.control_plane(), "bench", ADDRESSES).await,
        }
    }

    pub(crate) fn spawn(&self, lab: &Lab) -> Result<Program> {
        let namespace = lab.control_plane().namespace();
        match self {
            Self::Cairn => lab.cairn()?.spawn_controller(namespace, &[]),
            Self::MetalLb(metallb) => metallb.spawn_controller(lab.control_plane(), namespace),
        }
    }

    /// Whether it acts only once it holds a Lease.
    pub(crate) fn is_elected(&self) -> bool {
        matches!(self, Self::Cairn)
    }

    /// What it has written so far but for Leases and what Services' conditions say, oldest first.
    pub(crate) fn writes(&self, lab: &Lab) -> Result<Vec<ApiRequest>> {
        Ok(self.all_writes(lab)?.into_iter().filter(|request| !request.is_of_service_conditions()).collect())
    }

    /// What it has written so far but for Leases, oldest first.
    pub(crate) fn all_writes(&self, lab: &Lab) -> Result<Vec<ApiRequest>> {
        let is_by = |request: &ApiRequest| match self {
            Self::Cairn => request.is_by_cairn(),
            Self::MetalLb(_) => request.user == metallb::USER,
        };
        let all = lab.control_plane().requests()?.into_iter();
        Ok(all.filter(|request| request.is_write() && request.resource != "leases" && is_by(request)).collect())
    }

    /// Waits until it has nothing left to write.
    pub(crate) async fn settle(&self, lab: &Lab) -> Result<()> {
        let mut before = None;
        wait_every(QUIET, "the controller has settled", SETTLED_WITHIN, async || {
            let now = self.writes(lab)?.len();
            let earlier = before.replace(now);
            ensure!(earlier == Some(now), "{now} writes, {earlier:?} before");
            Ok(())
        })
        .await
    }
}
