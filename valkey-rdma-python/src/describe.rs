//! Connections and counters as dictionaries.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use valkey_rdma_client::cluster::{ClusterStatus, NodeStatus};
use valkey_rdma_client::transport::Stats;
use valkey_rdma_client::transport::tls::TlsInfo;
use valkey_rdma_client::{Client, ConnectionInfo, ConnectionStatus, Counters, State};

use crate::engine::Engine;

/// The connection to one server, or the nodes of a cluster.
pub(crate) fn info<'py>(py: Python<'py>, client: &Client) -> PyResult<Bound<'py, PyDict>> {
    match client.cluster() {
        None => connection(py, &client.info()),
        Some(cluster) => nodes(py, &cluster.status()),
    }
}

fn nodes<'py>(py: Python<'py>, status: &ClusterStatus) -> PyResult<Bound<'py, PyDict>> {
    let nodes = status.nodes.iter().map(|status| node(py, status));
    let nodes = PyList::new(py, nodes.collect::<PyResult<Vec<_>>>()?)?;
    let dict = PyDict::new(py);
    dict.set_item("complete", status.is_complete)?;
    dict.set_item("nodes", nodes)?;
    Ok(dict)
}

fn node<'py>(py: Python<'py>, node: &NodeStatus) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("address", node.address.to_string())?;
    dict.set_item("id", &node.id)?;
    dict.set_item("role", if node.is_primary { "primary" } else { "replica" })?;
    dict.set_item("slots", node.slots)?;
    dict.set_item("zone", &node.zone)?;
    dict.set_item("port_assumed", node.port_assumed)?;
    dict.set_item("error", &node.error)?;
    let first = node.connections.first();
    dict.set_item("connection", first.map(|status| connection(py, &status.info)).transpose()?)?;
    Ok(dict)
}

fn connection<'py>(py: Python<'py>, info: &ConnectionInfo) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("transport", info.transport.to_string())?;
    dict.set_item("peer", info.peer.map(|peer| peer.to_string()))?;
    dict.set_item("device", &info.device)?;
    dict.set_item("mtu", info.mtu)?;
    dict.set_item("rx_window", info.rx_window)?;
    dict.set_item("tx_window", info.tx_window)?;
    dict.set_item("polling", info.polling.map(|polling| polling.to_string()))?;
    dict.set_item("protocol", info.protocol.to_string())?;
    dict.set_item("fallback", &info.fallback)?;
    dict.set_item("tls", info.tls.as_deref().map(|tls| encryption(py, tls)).transpose()?)?;
    Ok(dict)
}

fn encryption<'py>(py: Python<'py>, tls: &TlsInfo) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("version", tls.version)?;
    dict.set_item("cipher", tls.cipher)?;
    dict.set_item("resumed", tls.resumed)?;
    Ok(dict)
}

/// Counters of a client, and its connections.
pub(crate) fn stats<'py>(py: Python<'py>, engine: &Engine) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    let buffers = PyDict::new(py);
    for (name, count) in engine.traffic.read() {
        buffers.set_item(name, count)?;
    }
    dict.set_item("buffers", buffers)?;
    dict.set_item("not_direct", engine.traffic.why_not_direct())?;
    let client = &engine.client;
    let state = state(client.is_connected(), client.is_closed());
    match client.cluster() {
        None => {
            let connections = client.connections().into_iter().map(|status| (None, status)).collect();
            counted(py, &dict, state, connections)?;
        }
        Some(cluster) => {
            let status = cluster.status();
            let counters = status.counters;
            let of_node = |node: NodeStatus| {
                let address = node.address.to_string();
                node.connections.into_iter().map(move |status| (Some(address.clone()), status))
            };
            let connections: Vec<_> = status.nodes.into_iter().flat_map(of_node).collect();
            counted(py, &dict, state, connections)?;
            dict.set_item("moved", counters.moved)?;
            dict.set_item("ask", counters.ask)?;
            dict.set_item("try_again", counters.try_again)?;
            dict.set_item("not_ready", counters.not_ready)?;
            dict.set_item("lost", counters.lost)?;
            dict.set_item("refreshes", counters.refreshes)?;
            dict.set_item("failed_refreshes", counters.failed_refreshes)?;
            dict.set_item("given_up", counters.given_up)?;
        }
    }
    Ok(dict)
}

fn state(is_connected: bool, is_closed: bool) -> State {
    match (is_connected, is_closed) {
        (true, _) => State::Connected,
        (false, false) => State::Reconnecting,
        (false, true) => State::Closed,
    }
}

fn counted(
    py: Python<'_>,
    dict: &Bound<'_, PyDict>,
    state: State,
    connections: Vec<(Option<String>, ConnectionStatus)>,
) -> PyResult<()> {
    let sum = |count: fn(&Counters) -> u64| {
        connections.iter().map(|(_, status)| count(&status.counters)).sum::<u64>()
    };
    dict.set_item("state", state.to_string())?;
    dict.set_item("commands", sum(|counters| counters.commands))?;
    dict.set_item("batches", sum(|counters| counters.batches))?;
    dict.set_item("replies", sum(|counters| counters.replies))?;
    dict.set_item("in_flight", sum(|counters| counters.in_flight))?;
    dict.set_item("reconnects", sum(|counters| counters.reconnects))?;
    dict.set_item("retries", sum(|counters| counters.retries))?;
    dict.set_item("timeouts", sum(|counters| counters.timeouts))?;
    let list = PyList::empty(py);
    for (node, status) in connections {
        let described = connection(py, &status.info)?;
        if let Some(node) = node {
            described.set_item("node", node)?;
        }
        described.set_item("purpose", status.purpose.to_string())?;
        described.set_item("state", status.state.to_string())?;
        described.set_item("device_counters", status.stats.map(|stats| device(py, &stats)).transpose()?)?;
        list.append(described)?;
    }
    dict.set_item("connections", list)
}

fn device<'py>(py: Python<'py>, stats: &Stats) -> PyResult<Bound<'py, PyDict>> {
    let counters = stats.device;
    let dict = PyDict::new(py);
    dict.set_item("doorbells", counters.doorbells)?;
    dict.set_item("events", counters.events)?;
    dict.set_item("copied_in", counters.copied_in)?;
    dict.set_item("filled_in_place", counters.filled_in_place)?;
    dict.set_item("lent", counters.lent)?;
    dict.set_item("copied_out", counters.copied_out)?;
    dict.set_item("pinned_bytes", stats.pinned_bytes)?;
    Ok(dict)
}
