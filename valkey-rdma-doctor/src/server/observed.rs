//! A device connection that notes when it was established: the one moment that a stream does not report.

use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use tokio::time::Instant;
use valkey_rdma_transport::TransportError;
use valkey_rdma_transport::device::{CmEvent, DeviceConnection, DeviceLayer};

/// Passes everything on.
pub(super) struct Observed {
    below: Box<dyn DeviceConnection>,
    established: Arc<OnceLock<Instant>>,
}

impl Observed {
    pub(super) fn new(below: Box<dyn DeviceConnection>, established: Arc<OnceLock<Instant>>) -> Self {
        Self { below, established }
    }
}

impl DeviceLayer for Observed {
    fn below(&self) -> &dyn DeviceConnection {
        &*self.below
    }

    fn below_mut(&mut self) -> &mut dyn DeviceConnection {
        &mut *self.below
    }

    fn poll_cm_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<CmEvent, TransportError>> {
        let event = ready!(self.below.poll_cm_event(cx));
        if let Ok(CmEvent::Established) = event {
            self.established.get_or_init(Instant::now);
        }
        Poll::Ready(event)
    }
}
