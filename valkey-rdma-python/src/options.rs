//! What clients are made with.

use std::sync::Arc;
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyString;
use valkey_rdma_client::cluster::ReadFrom;
use valkey_rdma_client::{Backoff, Client, Config, Error};

use crate::arguments::{limit, seconds};
use crate::credentials;
use crate::engine::{Engine, PATIENCE};
use crate::errors::Failure;
use crate::lanes::LaneSettings;
use crate::python::Any;

/// Where to connect to.
pub(crate) enum Target {
    One(String),
    /// Nodes of a cluster, and which of its nodes answer commands that only read.
    Cluster {
        urls: Vec<String>,
        read_from: ReadFrom,
    },
}

impl Target {
    /// Connects, on the background threads.
    pub(crate) async fn connect(self, config: Config) -> Result<Client, Error> {
        match self {
            Self::One(url) => Client::connect_with(url, &config).await,
            Self::Cluster { urls, read_from } => {
                Client::connect_with(urls, &config.read_from(read_from)).await
            }
        }
    }
}

/// Settings of a client, from Python's keyword arguments.
pub(crate) struct Options {
    pub(crate) connections: i64,
    pub(crate) lanes: i64,
    pub(crate) timeout: Option<f64>,
    pub(crate) offline_timeout: Option<f64>,
    /// The waits between attempts to reconnect. `None`: a lost connection stays lost.
    pub(crate) reconnect: Option<Backoff>,
    pub(crate) retries: i64,
    pub(crate) name: Option<String>,
    /// Supplies user and password.
    pub(crate) credentials: Option<Py<PyAny>>,
}

impl Options {
    /// Prepares connecting: what is returned runs on the background threads.
    pub(crate) fn connect(
        self,
        py: Python<'_>,
        target: Target,
    ) -> PyResult<impl Future<Output = Result<Arc<Engine>, Failure>> + Send + 'static> {
        let connections = in_range("connections", self.connections, 1, Config::MAX_CONNECTIONS as u32)?;
        let count = in_range("lanes", self.lanes, 1, MAX_LANES)? as usize;
        let retries = in_range("retries", self.retries, 0, u32::MAX)?;
        let timeout: Option<Duration> = limit(self.timeout)?;
        let mut config = Config::default()
            .connections(connections as usize)
            .command_timeout(timeout)
            .offline_timeout(seconds("offline_timeout", self.offline_timeout)?)
            .reconnect(self.reconnect)
            .retries(retries);
        if let Some(name) = self.name {
            config = config.name(name);
        }
        let mut provider = None;
        if let Some(object) = self.credentials {
            let (with_provider, thread) = credentials::provider(config, object.bind(py))?;
            (config, provider) = (with_provider, Some(thread));
        }
        let client = target.connect(config.close_timeout(PATIENCE));
        Ok(Engine::connect(client, LaneSettings { count, retries }, timeout, provider))
    }
}

/// The URLs of nodes of a cluster: one, or several.
pub(crate) fn cluster(urls: &Any, read_from: ReadFrom) -> PyResult<Target> {
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

/// A whole number from Python.
///
/// # Errors
/// ValueError with the argument's name and range.
pub(crate) fn in_range(name: &str, value: i64, least: u32, most: u32) -> PyResult<u32> {
    let fitting = u32::try_from(value).ok().filter(|value| (least..=most).contains(value));
    fitting.ok_or_else(|| PyValueError::new_err(format!("{name} must be {least} to {most}, not {value}")))
}

/// Each pins memory at both ends over RDMA.
pub(crate) const MAX_LANES: u32 = 64;
