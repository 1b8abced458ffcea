//! Connections and counters as dictionaries.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use valkey_rdma_client::transport::Stats;
use valkey_rdma_client::{Client, ConnectionInfo, State};

pub(crate) fn info<'py>(py: Python<'py>, info: &ConnectionInfo) -> PyResult<Bound<'py, PyDict>> {
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
    Ok(dict)
}

pub(crate) fn stats<'py>(py: Python<'py>, client: &Client) -> PyResult<Bound<'py, PyDict>> {
    let counters = client.counters();
    let dict = PyDict::new(py);
    let state = match (client.is_connected(), client.is_closed()) {
        (true, _) => State::Connected,
        (false, false) => State::Reconnecting,
        (false, true) => State::Closed,
    };
    dict.set_item("state", state.to_string())?;
    dict.set_item("commands", counters.commands)?;
    dict.set_item("batches", counters.batches)?;
    dict.set_item("replies", counters.replies)?;
    dict.set_item("in_flight", counters.in_flight)?;
    dict.set_item("reconnects", counters.reconnects)?;
    dict.set_item("retries", counters.retries)?;
    dict.set_item("timeouts", counters.timeouts)?;
    let connections = PyList::empty(py);
    for status in client.connections() {
        let connection = info(py, &status.info)?;
        connection.set_item("purpose", status.purpose.to_string())?;
        connection.set_item("state", status.state.to_string())?;
        connection.set_item("device_counters", status.stats.map(|stats| device(py, &stats)).transpose()?)?;
        connections.append(connection)?;
    }
    dict.set_item("connections", connections)?;
    Ok(dict)
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
