//! A passive endpoint whose connections misbehave.

use std::net::SocketAddr;
use std::task::{Context, Poll, ready};

use valkey_rdma_transport::TransportError;
use valkey_rdma_transport::device::{Endpoint, PassiveEndpoint};

use super::endpoint::FaultyEndpoint;
use super::fault::Occasion;
use super::spec::Faults;

pub(super) struct FaultyListener {
    passive: Box<dyn PassiveEndpoint>,
    faults: Faults,
    /// Counts the listener's connect requests.
    requests: super::script::Script,
}

impl FaultyListener {
    pub(super) fn new(passive: Box<dyn PassiveEndpoint>, faults: Faults) -> Self {
        let requests = faults.script();
        Self { passive, faults, requests }
    }
}

impl PassiveEndpoint for FaultyListener {
    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<Result<Box<dyn Endpoint>, TransportError>> {
        loop {
            let endpoint = ready!(self.passive.poll_accept(cx))?;
            if self.requests.strike(Occasion::Request).is_empty() {
                let endpoint = FaultyEndpoint::new(endpoint, self.faults.script())?;
                return Poll::Ready(Ok(Box::new(endpoint)));
            }
            // Dropping it rejects the request.
        }
    }

    fn local_addr(&self) -> SocketAddr {
        self.passive.local_addr()
    }
}
