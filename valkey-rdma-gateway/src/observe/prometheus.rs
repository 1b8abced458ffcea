//! What a gateway shows of itself in Prometheus' text format.

use std::collections::BTreeMap;
use std::fmt::{Display, Write};
use std::fs;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use valkey_rdma_client::Transport;

use crate::cluster::transport_of;
use crate::core::Core;
use crate::front::descriptors;
use crate::observe::info::nodes;
use crate::observe::metrics::{COUNTERS, LATENCIES, Metrics};
use crate::upstream::backend::Backend;
use crate::upstream::backends::Backends;
use crate::upstream::identity::Key;

/// Prometheus' text format.
pub(crate) fn prometheus(core: &Core, backends: &Backends) -> String {
    let mut text = String::new();
    let mut metric = |name: &str, kind: &str, help: &str, samples: &[(String, f64)]| {
        write(&mut text, &format!("valkey_rdma_gateway_{name}"), kind, help, samples);
    };
    let version = labels(&[("version", &env!("CARGO_PKG_VERSION"))]);
    metric("build_info", "gauge", "Always 1; the label is the version of the gateway", &[(version, 1.0)]);
    let help =
        "Local clients that there may be: limits.clients, or as many as the limit of open files allows";
    metric("clients_limit", "gauge", help, &plain(core.most_clients() as f64));
    let help =
        "Registered memory that direct transfers of clients pass through: at most limits.direct_bytes_total";
    metric("direct_pinned_bytes", "gauge", help, &plain(core.staged.load(Ordering::Relaxed) as f64));
    let reload_failed = f64::from(u8::from(core.reload_failed.load(Ordering::Relaxed)));
    let help = "1 if the last reload failed, so that the configuration before it holds";
    metric("reload_failed", "gauge", help, &plain(reload_failed));
    // Backends that are shown as the same server share these figures.
    let of_backend = |backend: Arc<Backend>| (backend.server.label(), backend.server.metrics.clone());
    let services: BTreeMap<_, _> = backends.all().into_iter().map(of_backend).collect();
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
    // Backends may lead to the same server, and a key may have two connections.
    let (mut connections, mut limits) = (BTreeMap::new(), BTreeMap::new());
    let (mut clients, mut encrypted, mut unread) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    let (mut former, mut up, mut pinned) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    let (mut owed, now) = (BTreeMap::<_, f64>::new(), Instant::now());
    for backend in backends.all() {
        let server = backend.server.label();
        let of_server = labels(&[("server", &server)]);
        let (present, permitted) = backend.server.connections();
        *connections.entry(of_server.clone()).or_default() += present as f64;
        *limits.entry(of_server.clone()).or_default() += permitted as f64;
        let load = core.clients.load(&backend.address);
        *clients.entry(of_server.clone()).or_default() += load.clients as f64;
        *encrypted.entry(of_server.clone()).or_default() += load.encrypted as f64;
        *unread.entry(of_server.clone()).or_default() += load.unread as f64;
        let stay = if backends.is_former(&backend) { load.clients as f64 } else { 0.0 };
        *former.entry(of_server).or_default() += stay;
        for shared in backend.all_shared() {
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
        for (key, node) in nodes(&backend) {
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
    metric("clients_tls", "gauge", "Local clients that use TLS", &Vec::from_iter(encrypted));
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
    of_process(&mut text, core.started_at);
    text
}

/// One metric. Without labels, there is one sample.
fn write(text: &mut String, name: &str, kind: &str, help: &str, samples: &[(String, f64)]) {
    // Writing to a String cannot fail.
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    for (labels, value) in samples {
        let _ = writeln!(text, "{name}{labels} {value}");
    }
}

fn plain(value: f64) -> [(String, f64); 1] {
    [(String::new(), value)]
}

/// What any process shows, under the names of Prometheus' client libraries, so that usual alerts and dashboards find it. What the system
/// does not say is left out.
fn of_process(text: &mut String, started: SystemTime) {
    let start = started.duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs_f64());
    for (name, help, value) in [
        ("start_time_seconds", "When this process started, in seconds since 1970", start),
        (
            "open_fds",
            "File descriptors that this process has open",
            open_descriptors().map(|open| open as f64),
        ),
        ("max_fds", "File descriptors that it may have open", descriptors::limit().map(|limit| limit as f64)),
    ] {
        if let Some(value) = value {
            write(text, &format!("process_{name}"), "gauge", help, &plain(value));
        }
    }
}

/// Linux returns the number since 6.2. Before, the list must be read, which takes milliseconds where there are 10 000.
fn open_descriptors() -> Option<u64> {
    const LIST: &str = "/proc/self/fd";
    match fs::metadata(LIST).ok()?.len() {
        // One of them reads the list.
        0 => Some((fs::read_dir(LIST).ok()?.count() as u64).saturating_sub(1)),
        open => Some(open),
    }
}

/// The labels of a shared connection. Whether it is connected follows from them.
fn labels_of(server: &dyn Display, key: &Key, transport: Option<Transport>) -> String {
    let transport = transport.map_or("none".to_owned(), |transport| transport.to_string());
    labels(&[("server", server), ("key", key), ("transport", &transport)])
}

/// `{name="value",...}` as Prometheus' text format wants it: `\`, `"` and line feeds in values are escaped. Without that, one value
/// makes Prometheus refuse all metrics of the gateway.
fn labels(pairs: &[(&str, &dyn Display)]) -> String {
    let mut text = String::from("{");
    for (at, (name, value)) in pairs.iter().enumerate() {
        let comma = if at == 0 { "" } else { "," };
        let value = value.to_string().replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n");
        // Writing to a String cannot fail.
        let _ = write!(text, "{comma}{name}=\"{value}\"");
    }
    text + "}"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_escaped() {
        for (value, expected) in [
            ("rdma://h:1", r#"{server="rdma://h:1"}"#),
            (r#"a"b"#, r#"{server="a\"b"}"#),
            (r"a\b", r#"{server="a\\b"}"#),
            (r"a\nb", r#"{server="a\\nb"}"#),
            ("a\nb", r#"{server="a\nb"}"#),
            ("\\\"\n", r#"{server="\\\"\n"}"#),
        ] {
            assert_eq!(labels(&[("server", &value)]), expected);
        }
        assert_eq!(labels(&[("server", &"h"), ("quantile", &0.5)]), r#"{server="h",quantile="0.5"}"#);
    }
}
