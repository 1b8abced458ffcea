//! [`DeviceConnects`]: outstanding RDMA connects, kept from one attempt to the next.
//!
//! A connect request that the server has received cannot be withdrawn: Valkey crashes if a client vanishes between
//! request and accept. So an attempt that times out leaves its connect outstanding, and the next attempt waits for it
//! instead of beginning another. A frozen server then costs at most [`MAX_OUTSTANDING`] queue pairs per address, for
//! however long it is frozen.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Waker};
use std::time::Duration;

use tokio::io::{AsyncRead, ReadBuf};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep};
use valkey_rdma_transport::{Config, DeviceKind, Stream, TransportError};

/// The most outstanding connects to one address.
const MAX_OUTSTANDING: usize = 3;
/// An attempt that finds the newest connect older than this begins another, up to the limit: the route to the server may
/// have changed.
const RENEW_AFTER: Duration = Duration::from_secs(15);
/// How long a connection that was established after its attempt had timed out is kept for the next attempt.
const KEPT_FOR: Duration = Duration::from_secs(10);

/// The connects of one client, by address.
#[derive(Default)]
pub(super) struct DeviceConnects {
    addresses: Mutex<Vec<(SocketAddr, Arc<tokio::sync::Mutex<Connects>>)>>,
}

/// The connects to one address. Locked by the one attempt that waits for them.
#[derive(Default)]
struct Connects {
    tasks: JoinSet<Arc<Outcome>>,
    /// When the newest was begun.
    begun: Option<Instant>,
}

/// The result of a connect, until an attempt takes it or it was kept too long.
struct Outcome {
    result: Mutex<Option<Result<Stream, TransportError>>>,
    /// The task that drops a connection which no attempt has taken in time.
    expiry: OnceLock<AbortHandle>,
}

impl Outcome {
    fn new(result: Result<Stream, TransportError>) -> Arc<Self> {
        let is_connected = result.is_ok();
        let outcome = Arc::new(Self { result: Mutex::new(Some(result)), expiry: OnceLock::new() });
        if is_connected {
            // Several can succeed at once when a frozen server goes on; the attempt takes one of them.
            let late = Arc::downgrade(&outcome);
            let expiry = tokio::spawn(async move {
                sleep(KEPT_FOR).await;
                drop(late.upgrade().and_then(|outcome| outcome.take()));
            });
            outcome.expiry.get_or_init(|| expiry.abort_handle());
        }
        outcome
    }

    fn take(&self) -> Option<Result<Stream, TransportError>> {
        if let Some(expiry) = self.expiry.get() {
            expiry.abort();
        }
        self.result.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl DeviceConnects {
    /// Connects, or waits for an outstanding connect. Attempts at one address wait for each other. Dropping the future
    /// leaves the connect to the next attempt; dropping `self` abandons it to the transport, which completes it in the
    /// background.
    pub(super) async fn connect(
        &self,
        device: DeviceKind,
        address: SocketAddr,
        config: &Config,
    ) -> Result<Stream, TransportError> {
        let shared = self.connects(address);
        let mut connects = shared.lock().await;
        // Earlier failures say nothing about this attempt.
        while let Some(ended) = connects.tasks.try_join_next() {
            if let Ok(outcome) = ended
                && let Some(Ok(mut stream)) = outcome.take()
                && is_open(&mut stream)
            {
                return Ok(stream);
            }
        }
        loop {
            let renew = connects.begun.is_none_or(|begun| begun.elapsed() > RENEW_AFTER);
            let count = connects.tasks.len();
            if count == 0 || (renew && count < MAX_OUTSTANDING) {
                let config = config.clone();
                connects.begun = Some(Instant::now());
                connects
                    .tasks
                    .spawn(async move { Outcome::new(Stream::connect(device, address, &config).await) });
            }
            match connects.tasks.join_next().await {
                Some(Ok(outcome)) => match outcome.take() {
                    // An older connect failed. The newest may still succeed.
                    Some(Err(_)) if !connects.tasks.is_empty() => {}
                    Some(result) => return result,
                    None => {}
                },
                Some(Err(error)) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                // Its runtime has shut down: the next connect begins on the current one.
                Some(Err(_)) | None => {}
            }
        }
    }

    fn connects(&self, address: SocketAddr) -> Arc<tokio::sync::Mutex<Connects>> {
        let mut addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, connects)) = addresses.iter().find(|(known, _)| *known == address) {
            return connects.clone();
        }
        let connects = Arc::default();
        addresses.push((address, Arc::clone(&connects)));
        connects
    }
}

/// Whether nothing has ended a connection that has carried no bytes yet: a Valkey server sends
/// nothing before the first command.
fn is_open(stream: &mut Stream) -> bool {
    let mut buffer = [0];
    let mut context = Context::from_waker(Waker::noop());
    Pin::new(stream).poll_read(&mut context, &mut ReadBuf::new(&mut buffer)).is_pending()
}
