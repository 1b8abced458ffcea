//! The figures of one run of one program.

use serde::{Deserialize, Serialize};

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Figure {
    Rate,
    P50,
    P99,
    ClientCpu,
    ServerCpu,
}

/// One run of one program.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Sample {
    /// Requests per second.
    pub(crate) rate: f64,
    /// Milliseconds.
    pub(crate) p50: Option<f64>,
    /// Milliseconds.
    pub(crate) p99: Option<f64>,
    /// Processor time of the program, user and system, in microseconds per request, without what its start and end take.
    /// None if it did hardly more.
    pub(crate) client_cpu: Option<f64>,
    /// The same of the server.
    pub(crate) server_cpu: Option<f64>,
}

impl Sample {
    pub(crate) fn figure(&self, figure: Figure) -> Option<f64> {
        match figure {
            Figure::Rate => Some(self.rate),
            Figure::P50 => self.p50,
            Figure::P99 => self.p99,
            Figure::ClientCpu => self.client_cpu,
            Figure::ServerCpu => self.server_cpu,
        }
    }
}

/// The samples of every program of a row, one a round.
pub(crate) type Samples = Vec<Vec<Sample>>;
