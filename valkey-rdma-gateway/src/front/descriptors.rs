//! File descriptors of this process: how many there may be, and which part of them clients may take.
//!
//! If clients took them all, a lost connection to a server could not be made again: a waiting client would take the descriptor that became free.

use rustix::process::{Resource, getrlimit};
use valkey_rdma_client::{Endpoint, Transport};

use crate::config::limits::Limits;
use crate::front::listen::Listen;

/// How many this process may have open; `None` if that is not limited.
pub(crate) fn limit() -> Option<usize> {
    getrlimit(Resource::Nofile).current.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX))
}

/// Descriptors that a connection to this server takes: one over RDMA has a channel for events and one for completions.
pub(crate) fn of_connection(server: &Endpoint) -> usize {
    if server.transport() == Transport::Rdma { 2 } else { 1 }
}

/// What is left for clients and for connections to servers.
#[derive(Clone, Copy)]
pub(crate) struct Budget {
    limit: usize,
    left: usize,
    of_client: usize,
}

impl Budget {
    /// The budget of a gateway with these listeners, in front of this number of clusters.
    pub(crate) fn new(
        limit: Option<usize>,
        listeners: &[&Listen],
        clusters: usize,
        has_metrics: bool,
    ) -> Self {
        let limit = limit.unwrap_or(usize::MAX);
        let is_device =
            |listen: &&&Listen| matches!(listen.unencrypted(), Listen::Rdma(_) | Listen::Emulated(_));
        let devices = listeners.iter().filter(is_device).count();
        let of_listeners = listeners.len() + devices * OF_DEVICE;
        let of_metrics = if has_metrics { OF_METRICS } else { 0 };
        let left = limit.saturating_sub(OTHERS + of_listeners + of_metrics + clusters * OF_NODES);
        Self { limit, left, of_client: if devices > 0 { 2 } else { 1 } }
    }

    /// Connections that there may be to each server: as many as the limits say, and all together at most half of what is left, or what
    /// `limits.clients` clients leave. `weight`: descriptors of one connection to each of the servers.
    pub(crate) fn upstreams(&self, limits: &Limits, weight: usize) -> usize {
        let unused = self.left.saturating_sub(limits.clients.saturating_mul(self.of_client));
        let most = unused.max(self.left / 2) / weight.max(1);
        // Fewer do not work.
        limits.upstreams.min(most.max(2))
    }

    /// Clients that there may be at once, beside connections to servers that take this many descriptors. Servers of a former
    /// configuration may be among them: clients have at least half of what is left.
    pub(crate) fn clients(&self, of_servers: usize) -> usize {
        let most = self.left.saturating_sub(of_servers).max(self.left / 2);
        (most / self.of_client).max(1)
    }

    /// A text for the log, if there may be fewer clients, or fewer connections to each server, than the limits say.
    pub(crate) fn shortage(&self, limits: &Limits, clients: usize, upstreams: usize) -> Option<String> {
        let (fewer_clients, fewer_upstreams) = (clients < limits.clients, upstreams < limits.upstreams);
        if !fewer_clients && !fewer_upstreams {
            return None;
        }
        let mut text = format!("this process may open {} files, which allows", self.limit);
        if fewer_clients {
            text += &format!(" {clients} clients at once (limits.clients = {})", limits.clients);
        }
        if fewer_upstreams {
            let and = if fewer_clients { " and" } else { "" };
            text += &format!(
                "{and} {upstreams} connections to each server (limits.upstreams = {})",
                limits.upstreams
            );
        }
        Some(text + ": raise LimitNOFILE= of the unit (in a shell ulimit -Hn), or lower these limits")
    }
}

/// What the runtime, the log, Sentinels, the resolver, and clients that are being refused need.
const OTHERS: usize = 32;
/// Shared connections to the nodes of a cluster: two for each login, protocol and node, of which nothing is known at the start.
const OF_NODES: usize = 64;
/// What a listener on a device needs in addition.
const OF_DEVICE: usize = 3;
/// The listener of `/metrics`, and its clients: see [`http`](crate::observe::http).
const OF_METRICS: usize = 18;

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(limit: Option<usize>, listen: &str) -> Budget {
        Budget::new(limit, &[&listen.parse().unwrap()], 0, true)
    }

    #[test]
    fn clients_leave_descriptors_to_servers_and_to_metrics() {
        let limits = Limits::default();
        let divided = |limit: Option<usize>, weight: usize| {
            let budget = budget(limit, "tcp:127.0.0.1:6379");
            let upstreams = budget.upstreams(&limits, weight);
            let clients = budget.clients(upstreams * weight);
            let short = budget.shortage(&limits, clients, upstreams);
            (upstreams, clients, short.is_some())
        };
        // 51 are for the rest.
        assert_eq!(divided(Some(1051), 1), (256, 744, true));
        assert_eq!(divided(Some(1051), 2), (250, 500, true));
        assert_eq!(divided(Some(151), 1), (50, 50, true));
        assert_eq!(divided(Some(10_307), 1), (256, 10_000, false));
        assert_eq!(divided(Some(10_306), 1), (256, 9_999, true));
        assert_eq!(divided(Some(20), 1), (2, 1, true), "the least that works");
        let (upstreams, _, is_short) = divided(None, 1);
        assert_eq!((upstreams, is_short), (256, false));
    }

    #[test]
    fn few_clients_leave_more_to_servers() {
        let limits = Limits { clients: 10, ..Limits::default() };
        let budget = budget(Some(151), "tcp:127.0.0.1:6379");
        assert_eq!(budget.upstreams(&limits, 1), 90);
        let text = budget.shortage(&limits, 10, 90).unwrap();
        let expected =
            "151 files, which allows 90 connections to each server (limits.upstreams = 256): raise";
        assert!(text.contains(expected), "{text}");
    }

    #[cfg(feature = "emulated")]
    #[test]
    fn a_client_over_a_device_takes_two() {
        assert_eq!(budget(Some(154), "emulated:127.0.0.1:6379").clients(50), 25);
    }

    #[test]
    fn a_connection_over_rdma_takes_two() {
        for (url, descriptors) in [("valkey://10.0.0.7", 1), ("rdma://10.0.0.7", 2), ("rdmas://10.0.0.7", 2)]
        {
            assert_eq!(of_connection(&url.parse().unwrap()), descriptors, "{url}");
        }
    }
}
