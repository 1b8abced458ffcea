//! A passive endpoint whose connections misbehave.

use std::net::SocketAddr;
use std::task::{Context, Poll, ready};

use valkey_rdma_transport::TransportError;
use valkey_rdma_transport::device::{
    ConnectRequest, DeviceConnection, DeviceKind, DeviceListener, DeviceOptions,
};

use super::endpoint::FaultyEndpoint;
use super::fault::{Fault, Occasion};
use super::script::Script;
use super::spec::Faults;

pub(super) struct FaultyListener {
    passive: Box<dyn DeviceListener>,
    faults: Faults,
    /// Counts the listener's connect requests.
    requests: Script,
}

impl FaultyListener {
    pub(super) fn new(passive: Box<dyn DeviceListener>, faults: Faults) -> Self {
        let requests = faults.script();
        Self { passive, faults, requests }
    }
}

impl DeviceListener for FaultyListener {
    fn poll_request(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Box<dyn ConnectRequest>, TransportError>> {
        loop {
            let request = ready!(self.passive.poll_request(cx))?;
            if self.requests.strike(Occasion::Request).is_empty() {
                return Poll::Ready(Ok(Box::new(FaultyRequest { request, script: self.faults.script() })));
            }
            self.requests.happened(Fault::Refuse);
            // Dropping it rejects it.
        }
    }

    fn local_addr(&self) -> SocketAddr {
        self.passive.local_addr()
    }

    fn device(&self) -> DeviceKind {
        self.passive.device()
    }
}

/// A request whose connection will misbehave.
struct FaultyRequest {
    request: Box<dyn ConnectRequest>,
    script: Script,
}

impl ConnectRequest for FaultyRequest {
    fn peer_addr(&self) -> SocketAddr {
        self.request.peer_addr()
    }

    fn accept(self: Box<Self>, options: &DeviceOptions) -> Result<Box<dyn DeviceConnection>, TransportError> {
        let endpoint = self.request.accept(options)?;
        Ok(Box::new(FaultyEndpoint::new(endpoint, self.script)?))
    }
}
