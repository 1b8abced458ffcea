//! [`DeviceSteps`]: how far a connect over a device has come, for the observer of a [`Dialer`](crate::Dialer).

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use tokio::time::Instant;
use valkey_rdma_transport::device::{CmEvent, DeviceConnection, DeviceLayer};
use valkey_rdma_transport::{DeviceInfo, Info, TransportError};

/// How far the connect to one address has come. Its task may outlive the attempt that began it.
#[derive(Default)]
pub(super) struct DeviceSteps {
    pub(super) routed: OnceLock<(Instant, DeviceInfo, SocketAddr)>,
    pub(super) established: OnceLock<Instant>,
    pub(super) registered: OnceLock<Info>,
}

impl DeviceSteps {
    /// The device was found. Returns it with a layer that notes when it is established: streams do not report that moment.
    pub(super) fn routed(self: &Arc<Self>, device: Box<dyn DeviceConnection>) -> Box<dyn DeviceConnection> {
        self.routed.get_or_init(|| (Instant::now(), device.device(), device.local_addr()));
        Box::new(Watched { below: device, steps: self.clone() })
    }

    /// Both sides know each other's memory.
    pub(super) fn registered(&self, info: Info) {
        self.registered.get_or_init(|| info);
    }
}

/// Passes everything on.
struct Watched {
    below: Box<dyn DeviceConnection>,
    steps: Arc<DeviceSteps>,
}

impl DeviceLayer for Watched {
    fn below(&self) -> &dyn DeviceConnection {
        &*self.below
    }

    fn below_mut(&mut self) -> &mut dyn DeviceConnection {
        &mut *self.below
    }

    fn poll_cm_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<CmEvent, TransportError>> {
        let event = ready!(self.below.poll_cm_event(cx));
        if let Ok(CmEvent::Established) = event {
            self.steps.established.get_or_init(Instant::now);
        }
        Poll::Ready(event)
    }
}
