//! [`Passive`]: the accepting side.

use std::future::poll_fn;
use std::net::SocketAddr;

use tokio::time::{Instant, timeout_at};
use valkey_rdma_transport::DeviceKind;
use valkey_rdma_transport::device::{self, DeviceListener};

use super::options::PeerOptions;
use super::raw::Peer;
use super::{Finding, Transcript};

/// The accepting side: waits for connect requests, and makes a [`Peer`] of each.
pub struct Passive {
    listener: Box<dyn DeviceListener>,
    options: PeerOptions,
}

impl Passive {
    /// Listens on `addr`; port 0 takes a free one.
    pub async fn listen(kind: DeviceKind, addr: SocketAddr, options: &PeerOptions) -> Result<Self, Finding> {
        let listener = device::listen(kind, addr, &options.device_options()).await?;
        Ok(Self { listener, options: options.clone() })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.listener.local_addr()
    }

    /// The next connect request, with receives posted and not accepted: [`Peer::establish`] accepts, dropping rejects.
    pub async fn accept(&mut self, transcript: &Transcript) -> Result<Peer, Finding> {
        let deadline = Instant::now() + self.options.patience;
        let request =
            timeout_at(deadline, poll_fn(|cx| self.listener.poll_request(cx))).await.map_err(|_| {
                Finding::failed(format!("no connect request within {:?}", self.options.patience))
            })??;
        let endpoint = request.accept(&self.options.device_options())?;
        Ok(Peer::new(endpoint, &self.options, transcript)?)
    }
}
