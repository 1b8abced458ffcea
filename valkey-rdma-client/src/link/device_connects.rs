//! [`DeviceConnects`]: outstanding RDMA connects, kept from one attempt to the next.
//!
//! A connect request that the server has received cannot be withdrawn: Valkey crashes if a client vanishes between
//! request and accept. So an attempt that times out leaves its connect outstanding. A connection that is established
//! after that goes to another attempt. A frozen server then costs at most [`MAX_OUTSTANDING`] queue pairs per address,
//! for however long it is frozen.

use std::collections::HashMap;
use std::future::pending;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;

use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::{self, JoinSet};
use tokio::time::sleep;
use valkey_rdma_transport::{Config, DeviceKind, Stream, TransportError};

use valkey_rdma_transport::sync::lock;

/// The most outstanding connects to one address.
const MAX_OUTSTANDING: usize = 3;
/// How long a connection that was established after its attempt had timed out is kept for other attempts.
const KEPT_FOR: Duration = Duration::from_secs(10);

/// The connects of one client, by address.
#[derive(Default)]
pub(super) struct DeviceConnects {
    /// A client may connect to ever new addresses. Each attempt forgets the addresses without an outstanding connect, except its own.
    addresses: Mutex<HashMap<SocketAddr, Arc<Connects>>>,
    /// One for each outstanding connect and for each late connection.
    tasks: Mutex<JoinSet<()>>,
}

/// The connects to one address.
struct Connects {
    /// Each outstanding connect holds a permit.
    permits: Arc<Semaphore>,
    /// Connections without an attempt, by the task that established them.
    late: Mutex<HashMap<task::Id, Stream>>,
    came_late: Notify,
}

impl DeviceConnects {
    /// Connects, or takes a connection that an earlier attempt no longer waits for. Waits while [`MAX_OUTSTANDING`]
    /// connects to this address are outstanding. Dropping the future leaves its connect to other attempts; dropping
    /// `self` abandons it to the transport, which completes it in the background.
    pub(super) async fn connect(
        &self,
        device: DeviceKind,
        address: SocketAddr,
        config: &Config,
    ) -> Result<Stream, TransportError> {
        let connects = {
            let mut addresses = lock(&self.addresses);
            addresses.retain(|known, connects| *known == address || has_outstanding(connects));
            Arc::clone(addresses.entry(address).or_default())
        };
        loop {
            if let Some(stream) = connects.take_late() {
                return Ok(stream);
            }
            tokio::select! {
                biased;
                // A late connection comes before a new one.
                () = connects.came_late.notified() => {}
                Ok(permit) = Arc::clone(&connects.permits).acquire_owned() => {
                    let config = config.clone();
                    let connecting = async move { Stream::connect(device, address, &config).await };
                    return match self.begin(connects, permit, connecting).await {
                        Ok(result) => result,
                        // The runtime ends, which drops this future too.
                        Err(_) => pending().await,
                    };
                }
            }
        }
    }

    /// Whether an attempt, a connect or a late connection is left. Dropping `self` changes nothing otherwise.
    pub(super) fn has_outstanding(&self) -> bool {
        lock(&self.addresses).values().any(has_outstanding)
    }

    fn begin(
        &self,
        connects: Arc<Connects>,
        permit: OwnedSemaphorePermit,
        connecting: impl Future<Output = Result<Stream, TransportError>> + Send + 'static,
    ) -> oneshot::Receiver<Result<Stream, TransportError>> {
        let (attempt, result) = oneshot::channel();
        let mut tasks = lock(&self.tasks);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            // An error without an attempt says nothing about later attempts.
            if let Err(Ok(stream)) = attempt.send(connecting.await) {
                connects.keep(stream, permit).await;
            }
        });
        result
    }
}

/// Whether an attempt or a task has them too.
fn has_outstanding(connects: &Arc<Connects>) -> bool {
    Arc::strong_count(connects) > 1
}

impl Default for Connects {
    fn default() -> Self {
        Self {
            permits: Arc::new(Semaphore::new(MAX_OUTSTANDING)),
            late: Mutex::default(),
            came_late: Notify::new(),
        }
    }
}

impl Connects {
    /// Offers a connection to other attempts. Closes it if none has taken it after [`KEPT_FOR`].
    async fn keep(&self, stream: Stream, permit: OwnedSemaphorePermit) {
        lock(&self.late).insert(task::id(), stream);
        self.came_late.notify_one();
        drop(permit);
        sleep(KEPT_FOR).await;
        lock(&self.late).remove(&task::id());
    }

    fn take_late(&self) -> Option<Stream> {
        let mut late = lock(&self.late);
        loop {
            let id = *late.keys().next()?;
            let mut stream = late.remove(&id)?;
            if is_open(&mut stream) {
                return Some(stream);
            }
        }
    }
}

/// Whether nothing has ended a connection that has carried no bytes yet: a Valkey server sends
/// nothing before the first command.
fn is_open(stream: &mut Stream) -> bool {
    let mut buffer = [0];
    let mut context = Context::from_waker(Waker::noop());
    Pin::new(stream).poll_read(&mut context, &mut ReadBuf::new(&mut buffer)).is_pending()
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::time::timeout;
    use valkey_rdma_transport::Listener;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn addresses_without_an_outstanding_connect_are_forgotten() {
        let config = Config::default().connect_timeout(Duration::from_secs(3600));
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listen = async || Listener::bind(DeviceKind::Emulated, any, &config).await.expect("a free port");
        let connects = DeviceConnects::default();
        let frozen = listen().await;
        let attempt = connects.connect(DeviceKind::Emulated, frozen.local_addr(), &config);
        assert!(timeout(Duration::from_secs(1), attempt).await.is_err(), "it does not accept");
        for _ in 0..5 {
            let mut listener = listen().await;
            let attempt = connects.connect(DeviceKind::Emulated, listener.local_addr(), &config);
            let (connected, accepted) = tokio::join!(attempt, listener.accept());
            assert!(connected.is_ok() && accepted.is_ok());
        }
        let known: Vec<_> = lock(&connects.addresses).keys().copied().collect();
        assert!(known.contains(&frozen.local_addr()), "{known:?}");
        assert_eq!(known.len(), 2, "and the last one: {known:?}");
    }
}
