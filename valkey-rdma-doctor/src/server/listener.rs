//! Where a server listens for RDMA, by its own words.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::report::Finding;

/// A listener of `INFO server`, such as `name=rdma,bind=10.0.0.1,bind=fd00::1,port=6379`.
pub(super) struct RdmaListener<'a> {
    binds: Vec<&'a str>,
    port: Option<u16>,
}

impl<'a> RdmaListener<'a> {
    pub(super) fn of(text: &'a str) -> Self {
        let values = |name: &'static str| {
            text.split(',').filter_map(move |part| part.strip_prefix(name)?.strip_prefix('='))
        };
        let binds = values("bind").map(|bind| bind.strip_prefix('-').unwrap_or(bind)).collect();
        Self { binds, port: values("port").next().and_then(|port| port.parse().ok()) }
    }

    /// The finding that it listens elsewhere than at the addresses `tried`, if it does.
    pub(super) fn elsewhere(&self, tried: &[SocketAddr]) -> Option<Finding> {
        let first = tried.first()?;
        if let Some(port) = self.port.filter(|port| tried.iter().all(|address| address.port() != *port)) {
            let value = format!("RDMA on port {port}, not on {}", first.port());
            return Some(
                Finding::warning("rdma listener", value).remedy(format!("use port {port} in the URL")),
            );
        }
        if self.binds.is_empty() || tried.iter().any(|address| self.covers(address.ip())) {
            return None;
        }
        let binds = self.binds.join(", ");
        let value = format!("RDMA on {binds} only, not on {}", first.ip());
        Some(
            Finding::warning("rdma listener", value)
                .remedy("use that address in the URL, or let the server listen on this one too:")
                .remedy(format!("`rdma-bind {} {}`", self.binds.join(" "), first.ip())),
        )
    }

    /// Whether it listens on `ip`. A name of the server's machine may stand for it.
    fn covers(&self, ip: IpAddr) -> bool {
        self.binds.iter().any(|bind| {
            let bind = match *bind {
                "*" => Ok(Ipv4Addr::UNSPECIFIED.into()),
                "::*" => Ok(Ipv6Addr::UNSPECIFIED.into()),
                // The zone is that of the server's machine.
                other => other.split('%').next().unwrap_or(other).parse::<IpAddr>(),
            };
            bind.map_or(true, |bind| bind == ip || bind.is_unspecified() && bind.is_ipv4() == ip.is_ipv4())
        })
    }
}
