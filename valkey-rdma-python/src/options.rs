//! What clients are made with.

use std::sync::Arc;
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use valkey_rdma_client::Config;

use crate::arguments::seconds;
use crate::engine::Engine;
use crate::errors::Failure;

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
        url: String,
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
        Ok(Engine::connect(url, config, self.lanes, timeout))
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
