//! Where everything is: the same addresses in every lab, and those of `examples/flat-lan/`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub(crate) const CLUSTER_CIDRS: &str = "10.244.0.0/16,fd00:244::/48";
pub(crate) const SERVICE_CIDRS: &str = "10.96.0.0/16,fd00:96::/112";
/// The first address of the service range: the API server seen from inside the cluster.
pub(crate) const API_SERVICE: &str = "10.96.0.1";
pub(crate) const API_SERVER_URL: &str = "https://10.90.0.10:6443";
pub(crate) const CLIENT_V4: &str = "10.91.0.2";
pub(crate) const ROUTER_ASN: u32 = 64512;
pub(crate) const NODE_ASN: u32 = 64513;

/// A host of the LAN, by the last part of its address.
#[derive(Clone, Copy)]
pub(crate) struct LanHost(pub(crate) u8);

/// The lab's own root namespace, which is also the switch.
pub(crate) const BENCH: LanHost = LanHost(254);
pub(crate) const ROUTER: LanHost = LanHost(1);
pub(crate) const CONTROL_PLANE: LanHost = LanHost(10);

/// The host of node `number`, counted from 1.
pub(crate) fn node(number: u8) -> LanHost {
    LanHost(10 + number)
}

impl LanHost {
    pub(crate) fn v4(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 90, 0, self.0)
    }

    /// `fd90::11` for the host `.11`: the decimal digits are kept, so that the two families read alike.
    pub(crate) fn v6(self) -> Ipv6Addr {
        let digits = u16::from_str_radix(&self.0.to_string(), 16).expect("decimal digits are hexadecimal digits too");
        Ipv6Addr::new(0xfd90, 0, 0, 0, 0, 0, 0, digits)
    }

    pub(crate) fn both(self) -> [IpAddr; 2] {
        [self.v4().into(), self.v6().into()]
    }
}

/// An address as it stands in a URL.
pub(crate) fn in_url(address: IpAddr) -> String {
    match address {
        IpAddr::V4(v4) => v4.to_string(),
        IpAddr::V6(v6) => format!("[{v6}]"),
    }
}
