//! The MTU of RoCE: the largest of five values whose packets fit into the network interface's MTU.

use crate::report::Finding;

/// What a packet has besides its payload, as the kernel reckons it (`iboe_get_mtu` in `rdma/ib_addr.h`).
const HEADERS: u32 = 96;

const MTUS: [u32; 5] = [4096, 2048, 1024, 512, 256];

/// The interface's MTU that is enough for the largest.
const ENOUGH: u32 = 4200;

/// The largest RDMA MTU for an interface's.
pub(super) fn fits(interface: u32) -> Option<u32> {
    MTUS.into_iter().find(|mtu| mtu + HEADERS <= interface)
}

/// Judges an interface's MTU, and the RDMA MTU that the device really uses, if that is known.
pub(super) fn finding(interface: &str, mtu: u32, active: Option<u32>) -> Finding {
    let Some(fits) = fits(mtu) else {
        return Finding::problem("mtu", format!("{interface} has {mtu}, too small for RDMA"))
            .remedy(format!("`ip link set {interface} mtu 1500`"));
    };
    match active {
        Some(active) if active < fits => {
            let value = format!("RDMA {active}, although {interface} has {mtu} and allows {fits}");
            Finding::warning("mtu", value)
                .remedy(format!("`ip link set {interface} down`, then `up`: the device takes the MTU from there"))
                .remedy("if it stays: the device, or its firmware, is limited to it")
        }
        _ if fits == MTUS[0] => Finding::ok("mtu", format!("RDMA {fits}, {interface} {mtu}")),
        _ => Finding::note("mtu", format!("RDMA {fits} of at most 4096, because {interface} has {mtu}"))
            .remedy(format!("for large values: `ip link set {interface} mtu {ENOUGH}`"))
            .remedy("on all hosts and switches of this network alike: larger packets are dropped by those that lack it"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_interfaces_give_the_usual_mtus() {
        for (interface, rdma) in [(300, None), (1500, Some(1024)), (4200, Some(4096)), (9000, Some(4096))] {
            assert_eq!(fits(interface), rdma);
        }
    }
}
