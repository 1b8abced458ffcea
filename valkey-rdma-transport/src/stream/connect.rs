//! Connecting, and saying why it did not work.

use std::future::{Future, poll_fn};
use std::net::SocketAddr;

use valkey_rdma_proto::{CloseReason, Role};

use super::Stream;
use crate::config::Config;
use crate::device::{self, DeviceConnection, DeviceKind};
use crate::error::TransportError;

impl Stream {
    /// Connects to a server and waits until both sides know each other's memory.
    ///
    /// # Errors
    /// [`TransportError::Refused`] if nothing listens there, [`TransportError::Rejected`] if the listener said no, or if
    /// 3 requests in a row met a [transient](crate::RejectReason::is_transient) reject of its host,
    /// [`TransportError::Unreachable`] and [`TransportError::Resolve`] if there is no way,
    /// [`TransportError::ClosedInHandshake`] if the server accepted and then closed,
    /// [`TransportError::SilentInHandshake`] if it accepted and offers no memory within [`Config::handshake_timeout`],
    /// [`TransportError::Lost`] with [`CloseReason::NotOffered`] if it lacks what [`Config::requires`] names,
    /// [`TransportError::ConnectTimeout`] after [`Config::connect_timeout`], [`TransportError::Memory`] if the
    /// windows cannot be pinned, and those of [`QueuePair::open`](crate::raw::QueuePair::open).
    ///
    /// Cancel safety: dropping the future gives up. A connect request that is already with the server is
    /// completed in the background and then closed, because the reference server crashes when a client
    /// vanishes between request and accept (see spec/peers.md).
    ///
    /// Making the queue pair and pinning [`Config::pinned_bytes`] of memory blocks the thread for milliseconds.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub async fn connect(
        kind: DeviceKind,
        peer: SocketAddr,
        config: &Config,
    ) -> Result<Stream, TransportError> {
        let limit = config.connect_timeout;
        let attempt = || async move {
            let device = device::open(kind, peer, &config.device_options()).await?;
            Self::connected(device, config).await
        };
        tokio::time::timeout(limit, Self::past_transient_rejects(attempt))
            .await
            .unwrap_or(Err(TransportError::ConnectTimeout { peer, after: limit }))
    }

    /// Connects as [`connect`](Self::connect) does, over a device made elsewhere: one of [`device::open`] behind a
    /// wrapper that observes it or disturbs it.
    ///
    /// # Errors
    /// Same errors as [`connect`](Self::connect).
    ///
    /// Cancel safety and panics: same as [`connect`](Self::connect).
    #[doc(hidden)]
    pub async fn connect_over(
        device: Box<dyn DeviceConnection>,
        config: &Config,
    ) -> Result<Stream, TransportError> {
        let (peer, limit) = (device.peer_addr(), config.connect_timeout);
        tokio::time::timeout(limit, Self::connected(device, config))
            .await
            .unwrap_or(Err(TransportError::ConnectTimeout { peer, after: limit }))
    }

    /// Repeats an attempt, at most twice, while the peer's connection manager rejects it for a
    /// [transient](crate::RejectReason::is_transient) reason. Each attempt has a new queue pair, which is what cures it.
    ///
    /// # Errors
    /// Those of the last attempt.
    #[doc(hidden)]
    pub async fn past_transient_rejects<T, F>(mut attempt: impl FnMut() -> F) -> Result<T, TransportError>
    where
        F: Future<Output = Result<T, TransportError>>,
    {
        for _ in 0..MOST_REPEATS {
            match attempt().await {
                Err(TransportError::Rejected { peer, reason, .. }) if reason.is_transient() => {
                    tracing::debug!(%peer, %reason, "rejected, asking again");
                }
                other => return other,
            }
        }
        attempt().await
    }

    async fn connected(device: Box<dyn DeviceConnection>, config: &Config) -> Result<Stream, TransportError> {
        let peer = device.peer_addr();
        let stream = Stream::establish(device, Role::Client, config, None)?;
        if poll_fn(|cx| stream.shared.with(|connection| connection.poll_connected(cx))).await {
            return Ok(stream);
        }
        Err(match stream.close_error() {
            Some(TransportError::Lost(CloseReason::Peer)) => TransportError::ClosedInHandshake { peer },
            Some(TransportError::Lost(
                CloseReason::HandshakeTimeout { after } | CloseReason::NoAnswer { after },
            )) => TransportError::SilentInHandshake { peer, after },
            Some(error) => error,
            None => TransportError::Closed,
        })
    }
}

/// How often a request that met a transient reject is repeated.
const MOST_REPEATS: u32 = 2;
