//! Connecting, and saying why it did not work.

use std::net::SocketAddr;

use valkey_rdma_proto::{CloseReason, Role};

use super::Stream;
use super::inner::End;
use super::shared::Shared;
use crate::config::Config;
use crate::device::{self, CmEvent, DeviceKind, Endpoint};
use crate::error::TransportError;

impl Stream {
    /// Connects to a server and waits until both sides know each other's memory.
    ///
    /// # Errors
    /// [`TransportError::Refused`] if nothing listens there, [`TransportError::Rejected`] if the listener said no,
    /// [`TransportError::Unreachable`] and
    /// [`TransportError::Resolve`] if there is no way, [`TransportError::ClosedInHandshake`] if the server
    /// accepted and then closed, [`TransportError::ConnectTimeout`] after
    /// [`Config::connect_timeout`], [`TransportError::Memory`] if the windows cannot be pinned, and those of
    /// [`device::open`].
    ///
    /// Cancel safety: dropping the future gives up. A connect request that is already with the server is
    /// completed in the background and then closed, because the reference server crashes when a client
    /// vanishes between request and accept (hazard H11).
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub async fn connect(
        device: DeviceKind,
        peer: SocketAddr,
        config: &Config,
    ) -> Result<Stream, TransportError> {
        let limit = config.connect_limit();
        let connecting = async {
            let endpoint = device::open(device, peer, &config.endpoint_options()).await?;
            Self::connected(endpoint, config).await
        };
        tokio::time::timeout(limit, connecting)
            .await
            .unwrap_or(Err(TransportError::ConnectTimeout { peer, after: limit }))
    }

    /// Connects as [`connect`](Self::connect) does, over an endpoint made elsewhere: one of [`device::open`] behind a
    /// wrapper that observes it or disturbs it.
    ///
    /// # Errors
    /// As there.
    ///
    /// Cancel safety, panics: as there.
    pub async fn connect_over(endpoint: Box<dyn Endpoint>, config: &Config) -> Result<Stream, TransportError> {
        let (peer, limit) = (endpoint.peer_addr(), config.connect_limit());
        tokio::time::timeout(limit, Self::connected(endpoint, config))
            .await
            .unwrap_or(Err(TransportError::ConnectTimeout { peer, after: limit }))
    }

    async fn connected(endpoint: Box<dyn Endpoint>, config: &Config) -> Result<Stream, TransportError> {
        let peer = endpoint.peer_addr();
        let stream = Stream::establish(endpoint, Role::Client, config, None)?;
        let connected =
            std::future::poll_fn(|cx| stream.shared.with(|inner| inner.poll_connected(cx))).await;
        if connected {
            return Ok(stream);
        }
        let end = stream.shared.with(|inner| inner.end());
        Err(match end {
            Some(End::Closed(CloseReason::Peer)) => TransportError::ClosedInHandshake { peer },
            Some(End::Closed(CloseReason::HandshakeTimeout)) => {
                TransportError::ConnectTimeout { peer, after: config.connect_limit() }
            }
            Some(end) => describe(end, &stream.shared),
            None => TransportError::Closed,
        })
    }
}

/// The error that tells of an end.
pub(super) fn describe(end: End, shared: &Shared) -> TransportError {
    match end {
        End::Closed(CloseReason::Protocol(error)) => TransportError::Protocol(error),
        End::Closed(reason) => TransportError::Lost(reason),
        End::NeverConnected(event) => {
            let info = shared.with(|inner| inner.info());
            let (peer, device) = (info.peer_addr, info.device.kind);
            match event {
                CmEvent::Rejected { reason: REASON_CONSUMER } => TransportError::Rejected { peer, device },
                CmEvent::Rejected { .. } => TransportError::Refused { peer, device },
                CmEvent::Unreachable { status } => TransportError::Unreachable { peer, device, status },
                // A server that accepts and closes at once may be gone before this side has completed the
                // connection (spec clause H-7).
                CmEvent::ConnectError { .. } => TransportError::ClosedInHandshake { peer },
                CmEvent::DeviceRemoved => TransportError::DeviceRemoved,
                CmEvent::Established | CmEvent::Disconnected | CmEvent::PortDown | CmEvent::PortUp => {
                    TransportError::Closed
                }
            }
        }
    }
}

/// The listener's owner said no (IB CM reject reason "consumer defined"; Linux `IB_CM_REJ_CONSUMER_DEFINED`).
const REASON_CONSUMER: i32 = 28;
