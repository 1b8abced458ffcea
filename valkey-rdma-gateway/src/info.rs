//! What a gateway shows of itself: the section of INFO, and Prometheus' format.

use std::collections::BTreeMap;
use std::fmt::{Display, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use valkey_rdma_client::cluster::{ClusterStatus, NodeStatus};
use valkey_rdma_client::{ConnectionInfo, Purpose, Transport};

use crate::cluster::transport_of;
use crate::core::Core;
use crate::identity::Key;
use crate::labels::labels;
use crate::metrics::{COUNTERS, LATENCIES, Metrics};
use crate::open_error::one_line;
use crate::pool::Pool;
use crate::pools::Pools;
use crate::process;
use crate::route::Route;
use crate::shared::Shared;

/// The section `gateway` of INFO.
pub(crate) fn section(core: &Core, route: &Route) -> String {
    let mut text = String::from("# Gateway\r\n");
    let mut line = |name: &str, value: &dyn Display| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{name}:{}\r\n", one_line(&value.to_string()));
    };
    let (connections, permitted) = route.pool.server.connections();
    line("gateway_version", &env!("CARGO_PKG_VERSION"));
    line("gateway_process_id", &std::process::id());
    line("gateway_uptime_in_seconds", &core.started.elapsed().as_secs());
    line("gateway_server", &route.pool.server.endpoint());
    line("gateway_share", &route.share);
    let (clients, unread) = core.clients.load(&route.pool.address);
    line("gateway_clients", &clients);
    line("gateway_unread_bytes", &unread);
    line("gateway_connections", &connections);
    line("gateway_connections_limit", &permitted);
    let metrics = &route.pool.server.metrics;
    for (name, _, counter) in COUNTERS {
        line(&format!("gateway_{name}"), &counter(metrics).get());
    }
    for (part, _, latency) in LATENCIES {
        for (quantile, time) in latency(metrics).summary().quantiles {
            let name = format!("gateway_{part}_p{}_us", quantile * 100.0);
            line(&name, &format_args!("{:.1}", time.as_secs_f64() * 1e6));
        }
    }
    let shared = route.pool.all_shared();
    let nodes = nodes(&route.pool);
    let lines = shared.iter().map(|shared| of_shared(shared)).chain(nodes.iter().map(of_node));
    for (number, connection) in lines.enumerate() {
        line(&format!("gateway_shared_{number}"), &connection);
    }
    for (number, (key, status)) in route.pool.clusters().iter().enumerate() {
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
fn nodes(pool: &Pool) -> Vec<(Key, NodeStatus)> {
    let of_key =
        |(key, status): (Key, ClusterStatus)| status.nodes.into_iter().map(move |node| (key.clone(), node));
    let tried = |(_, node): &(Key, NodeStatus)| node.transport.is_some() || node.error.is_some();
    pool.clusters().into_iter().flat_map(of_key).filter(tried).collect()
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

/// Transport, address and device of a connection, and why it is not RDMA.
fn describe(info: &ConnectionInfo) -> String {
    let mut text = format!("transport={}", info.transport);
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

/// Prometheus' text format.
pub(crate) fn prometheus(core: &Core, pools: &Pools) -> String {
    let mut text = String::new();
    let mut metric = |name: &str, kind: &str, help: &str, samples: &[(String, f64)]| {
        let name = format!("valkey_rdma_gateway_{name}");
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (labels, value) in samples {
            let _ = writeln!(text, "{name}{labels} {value}");
        }
    };
    let plain = |value: f64| [(String::new(), value)];
    let version = labels(&[("version", &env!("CARGO_PKG_VERSION"))]);
    metric("build_info", "gauge", "Always 1; the label is the version of the gateway", &[(version, 1.0)]);
    let help =
        "Local clients that there may be: limits.clients, or as many as the limit of open files allows";
    metric("clients_limit", "gauge", help, &plain(core.most_clients() as f64));
    let reload_failed = f64::from(u8::from(core.reload_failed.load(Ordering::Relaxed)));
    let help = "1 if the last reload failed, so that the configuration before it holds";
    metric("reload_failed", "gauge", help, &plain(reload_failed));
    // Pools that are shown as the same server share these figures.
    let of_pool = |pool: Arc<Pool>| (pool.server.label(), pool.server.metrics.clone());
    let services: BTreeMap<_, _> = pools.all().into_iter().map(of_pool).collect();
    for (name, help, counter) in COUNTERS {
        let sample = |(server, metrics): (&String, &Arc<Metrics>)| {
            (labels(&[("server", server)]), counter(metrics).get() as f64)
        };
        let samples: Vec<_> = services.iter().map(sample).collect();
        metric(&format!("{name}_total"), "counter", help, &samples);
    }
    for (part, help, latency) in LATENCIES {
        let mut samples = Vec::new();
        for (server, metrics) in &services {
            let summary = latency(metrics).summary();
            let quantiles = summary.quantiles.map(|(quantile, time)| {
                (labels(&[("server", server), ("quantile", &quantile)]), time.as_secs_f64())
            });
            samples.extend(quantiles);
            let of_server = labels(&[("server", server)]);
            samples.push((format!("_sum{of_server}"), summary.sum.as_secs_f64()));
            samples.push((format!("_count{of_server}"), summary.count as f64));
        }
        metric(&format!("{part}_seconds"), "summary", help, &samples);
    }
    // Pools may lead to the same server, and a key may have two connections.
    let (mut connections, mut limits) = (BTreeMap::new(), BTreeMap::new());
    let (mut clients, mut unread) = (BTreeMap::new(), BTreeMap::new());
    let (mut former, mut up, mut pinned) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    let (mut owed, now) = (BTreeMap::<_, f64>::new(), Instant::now());
    for pool in pools.all() {
        let server = pool.server.label();
        let of_server = labels(&[("server", &server)]);
        let (present, permitted) = pool.server.connections();
        *connections.entry(of_server.clone()).or_default() += present as f64;
        *limits.entry(of_server.clone()).or_default() += permitted as f64;
        let (here, bytes) = core.clients.load(&pool.address);
        *clients.entry(of_server.clone()).or_default() += here as f64;
        *unread.entry(of_server.clone()).or_default() += bytes as f64;
        *former.entry(of_server).or_default() += if pools.is_former(&pool) { here as f64 } else { 0.0 };
        for shared in pool.all_shared() {
            let known = shared.connection();
            if known.is_none() && shared.missed().is_none() {
                continue;
            }
            let name = labels_of(&server, &shared.key, known.as_ref().map(|known| known.info.transport));
            let bytes = known.as_ref().and_then(|known| Some(known.monitor.as_ref()?.stats().pinned_bytes));
            up.insert(name.clone(), f64::from(u8::from(known.is_some())));
            let longest = owed.entry(name.clone()).or_default();
            *longest = longest.max(shared.owed_for(now).as_secs_f64());
            *pinned.entry(name).or_default() += bytes.unwrap_or(0) as f64;
        }
        for (key, node) in nodes(&pool) {
            // As in the URLs of the configuration.
            let (scheme, _) = server.split_once("://").unwrap_or_default();
            let address = format_args!("{scheme}://{}", node.address);
            let transport = transport_of(&node);
            let name = labels_of(&address, &key, transport);
            let stats = node.connections.iter().filter_map(|connection| connection.stats.as_ref());
            up.insert(name.clone(), f64::from(u8::from(transport.is_some())));
            *pinned.entry(name).or_default() += stats.map(|stats| stats.pinned_bytes as f64).sum::<f64>();
        }
    }
    metric("clients", "gauge", "Local clients", &Vec::from_iter(clients));
    let help = "Bytes of replies and messages that clients have not read";
    metric("unread_bytes", "gauge", help, &Vec::from_iter(unread));
    metric(
        "connections",
        "gauge",
        "Connections to a server, shared and private",
        &Vec::from_iter(connections),
    );
    let help =
        "Connections to a server that there may be: limits.upstreams, or what fits into limits.pinned_bytes";
    metric("connections_limit", "gauge", help, &Vec::from_iter(limits));
    let help = "Local clients that stay with a server that is not in the configuration any more";
    metric("former_clients", "gauge", help, &Vec::from_iter(former));
    let help = "Whether a shared connection is connected, and over which transport";
    metric("shared_up", "gauge", help, &Vec::from_iter(up));
    let help = "Age of the oldest command without a reply on a shared connection";
    metric("shared_reply_owed_seconds", "gauge", help, &Vec::from_iter(owed));
    metric("shared_pinned_bytes", "gauge", "Bytes pinned by a shared connection", &Vec::from_iter(pinned));
    text + &process::prometheus(core.started_at)
}

/// The labels of a shared connection. Whether it is connected follows from them.
fn labels_of(server: &dyn Display, key: &Key, transport: Option<Transport>) -> String {
    let transport = transport.map_or("none".to_owned(), |transport| transport.to_string());
    labels(&[("server", server), ("key", key), ("transport", &transport)])
}
