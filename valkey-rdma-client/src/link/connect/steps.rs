//! The steps of a connect, as an observer of a [`Dialer`](crate::Dialer) sees them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use valkey_rdma_resp::Protocol;
use valkey_rdma_transport::tls::TlsInfo;
use valkey_rdma_transport::{DeviceInfo, Info};

use crate::error::ConnectCause;
use crate::link::device_steps::DeviceSteps;

/// A step of connecting, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ConnectStep {
    /// Looks up the addresses of the host.
    Resolve,
    /// Finds the device that leads to an address. RDMA and the emulated device only.
    Route,
    /// Connects to an address, or to a Unix socket, until the peer has accepted.
    Connect,
    /// Waits until both sides know each other's memory. RDMA and the emulated device only.
    Register,
    /// Makes a TLS connection over the stream, and verifies the server. With TLS only.
    Encrypt,
    /// Logs in and applies the settings.
    LogIn,
}

/// A step that has ended: what an [observer](crate::Dialer::observed) receives. Tests of an observer may make their own.
#[derive(Clone, Debug)]
pub struct StepReport<'a> {
    /// The step.
    pub step: ConnectStep,
    /// The address; `None` when resolving, and on a Unix socket.
    pub address: Option<SocketAddr>,
    /// How long the step took.
    pub took: Duration,
    /// How long it could take at most: what was left of the endpoint's timeout, or the address's share of that. `Route`, `Connect` and
    /// `Register` have one share together.
    pub limit: Duration,
    /// What the step found, or why it failed. The next address may follow a failure, and so may TCP with `fallback=tcp`, or a login without
    /// what proxies do not know.
    pub outcome: Result<StepFound<'a>, &'a ConnectCause>,
}

/// What a step of connecting found.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum StepFound<'a> {
    /// `Resolve`: the addresses, in the order in which they are tried.
    Addresses(&'a [SocketAddr]),
    /// `Route`: the device, and the local address.
    Device(&'a DeviceInfo, SocketAddr),
    /// `Connect`: the peer accepted.
    Accepted,
    /// `Register`: the connection with its windows.
    Windows(&'a Info),
    /// `Encrypt`: version and cipher suite.
    Encrypted(&'a TlsInfo),
    /// `LogIn`: the protocol version in use.
    Protocol(Protocol),
}

/// What the program calls with each step.
pub(crate) type Observer = Arc<dyn Fn(&StepReport<'_>) + Send + Sync>;

/// A step that is being taken.
pub(in crate::link) struct StepWatch<'a> {
    observer: Option<&'a Observer>,
    step: ConnectStep,
    address: Option<SocketAddr>,
    begun: Instant,
    limit: Duration,
}

impl<'a> StepWatch<'a> {
    pub(super) fn begin(
        observer: Option<&'a Observer>,
        step: ConnectStep,
        address: Option<SocketAddr>,
        limit: Duration,
    ) -> Self {
        Self { observer, step, address, begun: Instant::now(), limit }
    }

    /// Reports how the step has ended.
    pub(in crate::link) fn ended(&self, outcome: Result<StepFound<'_>, &ConnectCause>) {
        self.ended_at(Instant::now(), outcome);
    }

    fn ended_at(&self, end: Instant, outcome: Result<StepFound<'_>, &ConnectCause>) {
        let Some(observer) = self.observer else { return };
        let took = end.saturating_duration_since(self.begun);
        observer(&StepReport { step: self.step, address: self.address, took, limit: self.limit, outcome });
    }

    /// The step after this one, at the same address.
    fn next(self, step: ConnectStep, begun: Instant) -> Self {
        Self { step, begun, ..self }
    }

    /// Reports the steps that a device has taken meanwhile. The last one has ended as `outcome` says.
    pub(super) fn ended_over_device(mut self, over: &DeviceSteps, outcome: Result<(), &ConnectCause>) {
        if let Some((at, device, local)) = over.routed.get() {
            self.ended_at(*at, Ok(StepFound::Device(device, *local)));
            self = self.next(ConnectStep::Connect, *at);
        }
        if let Some(&at) = over.established.get() {
            self.ended_at(at, Ok(StepFound::Accepted));
            self = self.next(ConnectStep::Register, at);
        }
        match (outcome, over.registered.get()) {
            (Ok(()), Some(info)) => self.ended(Ok(StepFound::Windows(info))),
            // An earlier attempt had left this connection.
            (Ok(()), None) => {
                self.step = ConnectStep::Connect;
                self.ended(Ok(StepFound::Accepted));
            }
            (Err(cause), _) => self.ended(Err(cause)),
        }
    }
}
