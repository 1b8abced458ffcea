//! RDMA for applications: queue pairs, registered memory, SEND, RECV, WRITE and READ.
//!
//! A [`Stream`](crate::Stream) looks like TCP. This module shows what is below it, with the names that verbs programs
//! use, on every [device](crate::DeviceKind). It is safe: the device checks keys, bounds and access rights, and bytes are copied
//! in and out of registered memory, which a peer may change at any time. The programs in `examples/` walk through it.
//!
//! | here | verbs |
//! |---|---|
//! | [`QueuePair::open`] | `rdma_create_id`, `rdma_resolve_addr`, `rdma_resolve_route`, `rdma_create_qp` |
//! | [`Listener::bind`] | `rdma_create_id`, `rdma_bind_addr`, `rdma_listen` |
//! | [`Listener::incoming`] | `rdma_get_cm_event` (connect request), `rdma_create_qp` |
//! | [`QueuePair::register`] | `ibv_reg_mr` |
//! | [`QueuePair::establish`] | `rdma_connect` or `rdma_accept`, `rdma_get_cm_event` (established) |
//! | [`QueuePair::copy_in`], [`copy_out`](QueuePair::copy_out) | none: a verbs program uses the memory where it lies |
//! | [`QueuePair::post_recv`] | `ibv_post_recv` |
//! | [`QueuePair::post_send`], [`post_write`](QueuePair::post_write), [`post_read`](QueuePair::post_read) | `ibv_post_send` |
//! | [`QueuePair::poll`] | `ibv_poll_cq` |
//! | [`QueuePair::wait`], [`blocking_wait`](QueuePair::blocking_wait) | `ibv_req_notify_cq`, `ibv_poll_cq`, `ibv_get_cq_event`, `ibv_ack_cq_events` |
//! | [`QueuePair::disconnect`] | `rdma_disconnect` |
//! | dropping a [`QueuePair`] | `rdma_disconnect`, `ibv_destroy_qp`, `ibv_dereg_mr`, `ibv_destroy_cq`, `rdma_destroy_id` |
//!
//! ```
//! use valkey_rdma_transport::raw::{Access, DeviceOptions, Listener, Outcome, QueuePair};
//! use valkey_rdma_transport::{DeviceKind, TransportError};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), TransportError> {
//! let options = DeviceOptions { read_depth: 16, ..DeviceOptions::default() };
//! let any = ([127, 0, 0, 1], 0).into();
//! let mut listener = Listener::bind(DeviceKind::Emulated, any, &options).await?;
//! let addr = listener.local_addr();
//!
//! let server = async {
//!     let mut server = listener.incoming().await?;
//!     let inbox = server.register(64, Access::Local)?;
//!     server.post_recv(1, inbox)?; // before the peer can send
//!     server.establish().await?;
//!     let received = server.wait_for(1).await?;
//!     assert_eq!(received.outcome, Outcome::Received { len: 5 });
//!     Ok::<_, TransportError>(server.copy_out(inbox.slice(0..5)))
//! };
//! let client = async {
//!     let mut client = QueuePair::open(DeviceKind::Emulated, addr, &options).await?;
//!     let outbox = client.register(64, Access::Local)?;
//!     client.copy_in(outbox.slice(0..5), b"hello");
//!     client.establish().await?;
//!     client.post_send(1, outbox.slice(0..5))?;
//!     client.wait_for(1).await?;
//!     Ok::<_, TransportError>(client) // dropping it disconnects
//! };
//! let (received, _client) = tokio::try_join!(server, client)?;
//! assert_eq!(received, b"hello");
//! # Ok(())
//! # }
//! ```

mod queue_pair;
mod request;
mod waiting;

use std::future::poll_fn;
use std::net::SocketAddr;

use crate::device::{self, DeviceKind, DeviceListener};
use crate::error::TransportError;

pub use self::queue_pair::QueuePair;
pub use self::request::{Completion, LocalSlice, Region, RemoteRegion, Request};
pub use crate::device::work::{FailureStatus, Outcome};
pub use crate::device::{Access, DeviceOptions, Interrupt, Limits};

/// Waits for peers that want to connect.
pub struct Listener {
    listener: Box<dyn DeviceListener>,
    options: DeviceOptions,
}

impl Listener {
    /// Listens on `addr`; port 0 takes a free one. Needs a tokio runtime with I/O around it.
    ///
    /// # Errors
    /// [`TransportError::NotBuilt`] if this build lacks the device, [`TransportError::EmulatedOption`] and
    /// [`TransportError::UnknownLink`] as for [`QueuePair::open`], [`TransportError::Listen`] if the address cannot be listened on.
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
