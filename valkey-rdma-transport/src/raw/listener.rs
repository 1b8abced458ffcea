//! The passive side.

use std::future::poll_fn;
use std::net::SocketAddr;

use super::{DeviceOptions, QueuePair};
use crate::device::{self, DeviceKind, DeviceListener};
use crate::error::TransportError;

/// Waits for peers that want to connect.
pub struct Listener {
    listener: Box<dyn DeviceListener>,
    options: DeviceOptions,
}

impl Listener {
    /// Listens on `addr`; port 0 takes a free one. Needs a tokio runtime with I/O around it.
    ///
    /// # Errors
    /// As for [`device::listen`].
    pub async fn bind(
        kind: DeviceKind,
        addr: SocketAddr,
        options: &DeviceOptions,
    ) -> Result<Self, TransportError> {
        let listener = device::listen(kind, addr, options).await?;
        Ok(Self { listener, options: options.clone() })
    }

    /// The address it listens on, with the real port.
    pub fn local_addr(&self) -> SocketAddr {
        self.listener.local_addr()
    }

    /// Waits for the next connect request, and makes a queue pair for it. The peer waits for its
    /// [`establish`](QueuePair::establish), which accepts; dropping it rejects.
    ///
    /// # Errors
    /// [`TransportError::Device`], [`TransportError::Memory`] and the like if this one could not be taken: it was rejected, and the
    /// listener goes on. [`TransportError::DeviceRemoved`] is the listener's end.
    ///
    /// Cancel safety: no request is lost.
    pub async fn incoming(&mut self) -> Result<QueuePair, TransportError> {
        let request = poll_fn(|cx| self.listener.poll_request(cx)).await?;
        Ok(QueuePair::over(request.accept(&self.options)?))
    }
}
