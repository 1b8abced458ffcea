//! What a gateway shows of itself in INFO.

use std::fmt::{Display, Write};
use std::sync::atomic::Ordering;
use std::time::Instant;

use valkey_rdma_client::cluster::{ClusterStatus, NodeStatus};
use valkey_rdma_client::{ConnectionInfo, Purpose};

use crate::config::route::Route;
use crate::core::Core;
use crate::observe::metrics::{COUNTERS, LATENCIES};
use crate::upstream::backend::Backend;
use crate::upstream::identity::Key;
use crate::upstream::open_error::one_line;
use crate::upstream::shared::Shared;

/// The section `gateway` of INFO.
pub(crate) fn section(core: &Core, route: &Route) -> String {
    let mut text = String::from("# Gateway\r\n");
    let mut line = |name: &str, value: &dyn Display| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{name}:{}\r\n", one_line(&value.to_string()));
    };
    let (connections, permitted) = route.backend.server.connections();
    line("gateway_version", &env!("CARGO_PKG_VERSION"));
    line("gateway_process_id", &std::process::id());
    line("gateway_uptime_in_seconds", &core.started.elapsed().as_secs());
    line("gateway_server", &route.backend.server.endpoint());
    line("gateway_share", &route.share);
    let load = core.clients.load(&route.backend.address);
    line("gateway_clients", &load.clients);
    line("gateway_clients_tls", &load.encrypted);
    line("gateway_unread_bytes", &load.unread);
    line("gateway_direct_pinned_bytes", &core.staged.load(Ordering::Relaxed));
    line("gateway_connections", &connections);
    line("gateway_connections_limit", &permitted);
    let metrics = &route.backend.server.metrics;
    for (name, _, counter) in COUNTERS {
        line(&format!("gateway_{name}"), &counter(metrics).get());
    }
    for (part, _, latency) in LATENCIES {
        for (quantile, time) in latency(metrics).summary().quantiles {
            let name = format!("gateway_{part}_p{}_us", quantile * 100.0);
            line(&name, &format_args!("{:.1}", time.as_secs_f64() * 1e6));
        }
    }
    let shared = route.backend.all_shared();
    let nodes = nodes(&route.backend);
    let lines = shared.iter().map(|shared| of_shared(shared)).chain(nodes.iter().map(of_node));
    for (number, connection) in lines.enumerate() {
        line(&format!("gateway_shared_{number}"), &connection);
    }
    for (number, (key, status)) in route.backend.clusters().iter().enumerate() {
        let (complete, counters) = (u8::from(status.is_complete), status.counters);
        let text = format!(
            "{key},complete={complete},maps={},moved={},ask={},waits={},lost={}",
            status.maps,
            counters.moved,
            counters.ask,
            counters.try_again + counters.not_ready,
            counters.lost
        );
        line(&format!("gateway_cluster_{number}"), &text);
    }
    text
}

/// The nodes of a cluster that the gateway is connected to, or has tried to connect to.
pub(crate) fn nodes(backend: &Backend) -> Vec<(Key, NodeStatus)> {
    let of_key =
        |(key, status): (Key, ClusterStatus)| status.nodes.into_iter().map(move |node| (key.clone(), node));
    let tried = |(_, node): &(Key, NodeStatus)| node.transport.is_some() || node.error.is_some();
    backend.clusters().into_iter().flat_map(of_key).filter(tried).collect()
}

/// One line about the connections to a node.
fn of_node((key, node): &(Key, NodeStatus)) -> String {
    let role = if node.is_primary { "primary" } else { "replica" };
    let shared = node.connections.iter().find(|connection| connection.purpose == Purpose::Shared);
    let described = match (shared, &node.error) {
        (Some(connection), _) => format!(
            "in_flight={},commands={},batches={},{}",
            connection.counters.in_flight,
            connection.counters.commands,
            connection.counters.batches,
            describe(&connection.info)
        ),
        (None, Some(error)) => format!("not connected: {}", one_line(error)),
        (None, None) => "not connected".to_owned(),
    };
    format!("{key},node={},{role},slots={},{described}", node.address, node.slots)
}

/// One line about a shared connection.
fn of_shared(shared: &Shared) -> String {
    let connection = shared.connection();
    let stats =
        connection.as_ref().and_then(|known| Some(known.monitor.as_ref()?.stats())).unwrap_or_default();
    let described = match (connection, shared.missed()) {
        (Some(known), _) => describe(&known.info),
        (None, Some(why)) => format!("not connected: {}", one_line(&why.to_string())),
        (None, None) => "not connected".to_owned(),
    };
    format!(
        "{},clients={},in_flight={},owed_ms={},commands={},batches={},wake_ups={},pinned_bytes={},{described}",
        shared.key,
        shared.users(),
        shared.in_flight(),
        shared.owed_for(Instant::now()).as_millis(),
        shared.commands.load(Ordering::Relaxed),
        shared.batches.load(Ordering::Relaxed),
        stats.device.events,
        stats.pinned_bytes,
    )
}

/// Transport, TLS, address and device of a connection, and why it is not RDMA.
fn describe(info: &ConnectionInfo) -> String {
    let mut text = format!("transport={}", info.transport);
    if let Some(tls) = &info.tls {
        let _ = write!(text, ",tls={tls}");
    }
    if let Some(peer) = info.peer {
        let _ = write!(text, ",peer={peer}");
    }
    if let Some(device) = &info.device {
        let _ = write!(text, ",device={device}");
    }
    if let Some(reason) = &info.fallback {
        let _ = write!(text, ",instead of rdma: {}", one_line(reason));
    }
    text
}
