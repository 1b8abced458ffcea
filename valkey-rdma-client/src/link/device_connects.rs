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
use valkey_rdma_transport::device;
use valkey_rdma_transport::{Config, DeviceKind, Stream, TransportError};

use super::device_steps::DeviceSteps;
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
    /// Connections without an attempt, by the task that established them. Each with the bytes that its settings pin: an attempt takes
    /// only one whose buffers are as long as its own.
    late: Mutex<HashMap<task::Id, (u64, Stream)>>,
    came_late: Notify,
}

impl DeviceConnects {
    /// Connects, or takes a connection that an earlier attempt no longer waits for. Waits while [`MAX_OUTSTANDING`]
    /// connects to this address are outstanding. Dropping the future leaves its connect to other attempts; dropping
    /// `self` abandons it to the transport, which completes it in the background. `steps` notes how far the connect has come.
    pub(super) async fn connect(
        &self,
        device: DeviceKind,
        address: SocketAddr,
        config: &Config,
        steps: Option<Arc<DeviceSteps>>,
    ) -> Result<Stream, TransportError> {
        let connects = {
            let mut addresses = lock(&self.addresses);
            addresses.retain(|known, connects| *known == address || has_outstanding(connects));
            Arc::clone(addresses.entry(address).or_default())
        };
        loop {
            // Before the look, so that none comes unseen between both.
            let came_late = connects.came_late.notified();
            if let Some(stream) = connects.take_late(config.pinned_bytes()) {
                return Ok(stream);
            }
            tokio::select! {
                biased;
                // A late connection comes before a new one.
                () = came_late => {}
                Ok(permit) = Arc::clone(&connects.permits).acquire_owned() => {
                    let (config, pinned) = (config.clone(), config.pinned_bytes());
                    let connecting = connect(device, address, config, steps);
                    return match self.begin(connects, permit, pinned, connecting).await {
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
        pinned: u64,
        connecting: impl Future<Output = Result<Stream, TransportError>> + Send + 'static,
    ) -> oneshot::Receiver<Result<Stream, TransportError>> {
        let (attempt, result) = oneshot::channel();
        let mut tasks = lock(&self.tasks);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            // An error without an attempt says nothing about later attempts.
            if let Err(Ok(stream)) = attempt.send(connecting.await) {
                connects.keep(stream, pinned, permit).await;
            }
        });
        result
    }
}

/// Whether an attempt or a task has them too.
fn has_outstanding(connects: &Arc<Connects>) -> bool {
    Arc::strong_count(connects) > 1
}

/// As [`Stream::connect`], and notes the steps.
async fn connect(
    device: DeviceKind,
    address: SocketAddr,
    config: Config,
    steps: Option<Arc<DeviceSteps>>,
) -> Result<Stream, TransportError> {
    let Some(steps) = steps else { return Stream::connect(device, address, &config).await };
    let (config, watched) = (&config, &steps);
    let attempt = || async move {
        let device = watched.routed(device::open(device, address, &config.device_options()).await?);
        Stream::connect_over(device, config).await
    };
    let stream = Stream::past_transient_rejects(attempt).await?;
    steps.registered(stream.info());
    Ok(stream)
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
    async fn keep(&self, stream: Stream, pinned: u64, permit: OwnedSemaphorePermit) {
        lock(&self.late).insert(task::id(), (pinned, stream));
        // All that wait: it suits only attempts with buffers as long as its own.
        self.came_late.notify_waiters();
        drop(permit);
        sleep(KEPT_FOR).await;
        lock(&self.late).remove(&task::id());
    }

    fn take_late(&self, pinned: u64) -> Option<Stream> {
        let mut late = lock(&self.late);
        loop {
            let id = *late.iter().find(|(_, (of, _))| *of == pinned)?.0;
            let (_, mut stream) = late.remove(&id)?;
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
        let attempt = connects.connect(DeviceKind::Emulated, frozen.local_addr(), &config, None);
        assert!(timeout(Duration::from_secs(1), attempt).await.is_err(), "it does not accept");
        for _ in 0..5 {
            let mut listener = listen().await;
            let attempt = connects.connect(DeviceKind::Emulated, listener.local_addr(), &config, None);
            let (connected, accepted) = tokio::join!(attempt, listener.accept());
            assert!(connected.is_ok() && accepted.is_ok());
        }
        let known: Vec<_> = lock(&connects.addresses).keys().copied().collect();
        assert!(known.contains(&frozen.local_addr()), "{known:?}");
        assert_eq!(known.len(), 2, "and the last one: {known:?}");
    }

    /// Before, one waiting attempt was woken, whichever it was.
    #[tokio::test(start_paused = true)]
    async fn a_late_connection_goes_past_attempts_that_it_does_not_suit() {
        let config = Config::default().connect_timeout(Duration::from_secs(3600));
        let other = config.clone().rx_size(65_536);
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let mut frozen = Listener::bind(DeviceKind::Emulated, any, &config).await.expect("a free port");
        let connects = DeviceConnects::default();
        let attempt = |config| connects.connect(DeviceKind::Emulated, frozen.local_addr(), config, None);
        for _ in 0..MAX_OUTSTANDING {
            assert!(timeout(Duration::from_secs(1), attempt(&config)).await.is_err(), "it does not accept");
        }
        let mut first = Box::pin(attempt(&other));
        assert!(timeout(Duration::from_secs(1), &mut first).await.is_err(), "it waits");
        let mut second = Box::pin(attempt(&config));
        assert!(timeout(Duration::from_secs(1), &mut second).await.is_err(), "it waits too");
        let both = async {
            tokio::select! {
                _ = &mut first => panic!("a connection of another size"),
                connected = second => connected,
            }
        };
        let (connected, accepted) = tokio::join!(timeout(KEPT_FOR, both), frozen.accept());
        assert!(connected.expect("the late connection suits it").is_ok() && accepted.is_ok());
    }
}
