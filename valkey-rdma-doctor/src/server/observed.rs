//! A device connection that notes when it was established: the one moment that a stream does not report.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use tokio::time::Instant;
use valkey_rdma_transport::device::work::{Completion, ReceiveRequest, Region, RegionId, SendRequest};
use valkey_rdma_transport::device::{Access, CmEvent, DeviceConnection, DeviceInfo, Limits};
use valkey_rdma_transport::{SendMemory, TransportError};

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

impl DeviceConnection for Observed {
    fn poll_cm_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<CmEvent, TransportError>> {
        let event = ready!(self.below.poll_cm_event(cx));
        if let Ok(CmEvent::Established) = event {
            self.established.get_or_init(Instant::now);
        }
        Poll::Ready(event)
    }

    fn register(&mut self, len: u32, access: Access) -> Result<Region, TransportError> {
        self.below.register(len, access)
    }

    fn register_send_memory(&mut self, memory: &SendMemory) -> Result<Region, TransportError> {
        self.below.register_send_memory(memory)
    }

    fn write_local(&mut self, region: RegionId, range: Range<usize>, fill: &mut dyn FnMut(&mut [u8])) {
        self.below.write_local(region, range, fill);
    }

    fn copy_in(&mut self, region: RegionId, offset: usize, bytes: &[u8]) {
        self.below.copy_in(region, offset, bytes);
    }

    fn read_local(&self, region: RegionId, range: Range<usize>, out: &mut dyn bytes::BufMut) {
        self.below.read_local(region, range, out);
    }

    fn post_sends(&mut self, chain: &[SendRequest]) -> Result<(), TransportError> {
        self.below.post_sends(chain)
    }

    fn post_receives(&mut self, batch: &[ReceiveRequest]) -> Result<(), TransportError> {
        self.below.post_receives(batch)
    }

    fn poll(&mut self, out: &mut Vec<Completion>, limit: usize) -> Result<(), TransportError> {
        self.below.poll(out, limit)
    }

    fn arm(&mut self) -> Result<(), TransportError> {
        self.below.arm()
    }

    fn poll_completion_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), TransportError>> {
        self.below.poll_completion_event(cx)
    }

    fn establish(&mut self) -> Result<(), TransportError> {
        self.below.establish()
    }

    fn check(&mut self) -> Result<(), TransportError> {
        self.below.check()
    }

    fn disconnect(&mut self) {
        self.below.disconnect();
    }

    fn limits(&self) -> Limits {
        self.below.limits()
    }

    fn read_depth(&self) -> u8 {
        self.below.read_depth()
    }

    fn local_addr(&self) -> SocketAddr {
        self.below.local_addr()
    }

    fn peer_addr(&self) -> SocketAddr {
        self.below.peer_addr()
    }

    fn device(&self) -> DeviceInfo {
        self.below.device()
    }
}
