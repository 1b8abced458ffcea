//! What clients are made with.

use std::sync::Arc;
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyString;
use valkey_rdma_client::Config;
use valkey_rdma_client::cluster::ReadFrom;

use crate::arguments::seconds;
use crate::engine::Engine;
use crate::errors::Failure;
use crate::server::Target;

/// Settings of a client, from Python's keyword arguments.
pub(crate) struct Options {
    pub(crate) connections: usize,
    pub(crate) lanes: usize,
    pub(crate) timeout: Option<f64>,
    pub(crate) offline_timeout: Option<f64>,
    pub(crate) reconnect: bool,
    pub(crate) retries: u32,
    pub(crate) name: Option<String>,
}

impl Options {
    /// Prepares connecting: what is returned runs on the background threads.
    pub(crate) fn connect(
        self,
        target: Target,
    ) -> PyResult<impl Future<Output = Result<Arc<Engine>, Failure>> + Send + 'static> {
        in_range("connections", self.connections, Config::MAX_CONNECTIONS)?;
        in_range("lanes", self.lanes, MAX_LANES)?;
        let timeout: Option<Duration> = seconds("timeout", self.timeout)?;
        let mut config = Config::default()
            .connections(self.connections)
            .command_timeout(timeout)
            .offline_timeout(seconds("offline_timeout", self.offline_timeout)?)
            .retries(self.retries);
        if !self.reconnect {
            config = config.reconnect(None);
        }
        if let Some(name) = self.name {
            config = config.name(name);
        }
        Ok(Engine::connect(target, config, self.lanes, timeout))
    }
}

/// The URLs of nodes of a cluster: one, or several.
pub(crate) fn cluster(urls: &Bound<'_, PyAny>, read_from: ReadFrom) -> PyResult<Target> {
    let urls = match urls.cast::<PyString>() {
        Ok(url) => vec![url.to_cow()?.into_owned()],
        Err(_) => urls.try_iter()?.map(|url| url?.extract::<String>()).collect::<PyResult<_>>()?,
    };
    Ok(Target::Cluster { urls, read_from })
}

/// Which nodes answer commands that only read: ``"primary"``, ``"prefer-replica"``, ``"round-robin"`` or ``"zone:NAME"``.
pub(crate) fn read_from(name: &str) -> PyResult<ReadFrom> {
    match (name, name.strip_prefix("zone:")) {
        ("primary", _) => Ok(ReadFrom::Primary),
        ("prefer-replica", _) => Ok(ReadFrom::PreferReplica),
        ("round-robin", _) => Ok(ReadFrom::RoundRobin),
        (_, Some(zone)) if !zone.is_empty() => Ok(ReadFrom::Zone(zone.to_owned())),
        _ => Err(PyValueError::new_err(format!(
            "read_from must be primary, prefer-replica, round-robin or zone:NAME, not {name:?}"
        ))),
    }
}

fn in_range(name: &str, value: usize, most: usize) -> PyResult<()> {
    if (1..=most).contains(&value) {
        return Ok(());
    }
    Err(PyValueError::new_err(format!("{name} must be 1 to {most}, not {value}")))
}

/// Each pins memory at both ends over RDMA.
const MAX_LANES: usize = 64;
