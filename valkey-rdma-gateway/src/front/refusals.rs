//! [`Refusals`]: the reply to clients that are too many.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::timeout;
use valkey_rdma_resp::TLS_REQUIRED;
use valkey_rdma_transport::AnyStream;
use valkey_rdma_transport::sync::{Mutex, lock};
use valkey_rdma_transport::tls::TlsAcceptor;

/// The clients that are being refused. They take descriptors, too, so there are [`AT_ONCE`] at most.
pub(crate) struct Refusals {
    free: Arc<Semaphore>,
    /// Ends each of them early, the oldest first.
    ends: Mutex<VecDeque<oneshot::Sender<()>>>,
}

/// One client that is being refused.
pub(crate) struct Refusal {
    ended: oneshot::Receiver<()>,
    _permit: Result<OwnedSemaphorePermit, AcquireError>,
}

impl Refusals {
    /// Waits until one more client may be refused. Slow clients do not hold up the listeners: if there are too many, the oldest has had the
    /// most time for its TLS handshake and to end its side, and is closed.
    pub(crate) async fn begin(&self) -> Refusal {
        if self.free.available_permits() == 0 {
            let mut ends = lock(&self.ends);
            // A refusal that has ended receives nothing.
            while ends.pop_front().is_some_and(|end| end.send(()).is_err()) {}
        }
        let permit = self.free.clone().acquire_owned().await;
        let (end, ended) = oneshot::channel();
        let mut ends = lock(&self.ends);
        ends.retain(|end| !end.is_closed());
        ends.push_back(end);
        Refusal { ended, _permit: permit }
    }
}

impl Default for Refusals {
    fn default() -> Self {
        Self { free: Arc::new(Semaphore::new(AT_ONCE)), ends: Mutex::default() }
    }
}

impl Refusal {
    /// Replies that there are too many clients, and closes. With `tls`, the reply is encrypted.
    pub(crate) async fn reply(self, mut stream: AnyStream, tls: Option<&TlsAcceptor>) {
        let reply = async {
            if let Some(tls) = tls {
                stream = match tls.admit(stream, LIMIT, TLS_REQUIRED).await {
                    Ok(encrypted) => encrypted,
                    Err(_) => return,
                };
            }
            stream.end_with(b"-ERR max number of clients reached\r\n").await;
        };
        tokio::select! {
            // First what can be done at once, so that no plain client is closed without its reply.
            biased;
            _ = timeout(LIMIT, reply) => {}
            _ = self.ended => {}
        }
    }
}

/// Clients that are refused at the same time.
pub(crate) const AT_ONCE: usize = 8;
/// How long a refusal may take.
const LIMIT: Duration = Duration::from_secs(1);
