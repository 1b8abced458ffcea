//! Emulated devices that a program makes for itself: which link connections take, and what goes wrong on them.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use valkey_rdma_proto::work::FailureStatus;

use super::RNR_RETRY_FOREVER;
use super::fault_plan::{Delay, FaultPlan, LONGEST, Link};
use crate::error::TransportError;
use crate::sync::{Mutex, lock};

/// An emulated device with a name, delays and faults of its own.
///
/// Connections use it if [`Config::device`](crate::Config::device), or `device=` in a URL, has its
/// [name](Self::name). Either end of a connection can be on one; everything below concerns the connections of this
/// device and no others. All of it can be changed while they run. The name of a dropped
/// device stands for nothing any more; the connections and listeners it has go on, as asked of it last.
///
/// ```
/// use tokio::io::{AsyncReadExt, AsyncWriteExt};
/// use valkey_rdma_transport::emulated::{Device, Link};
/// use valkey_rdma_transport::{Config, DeviceKind, Listener, Stream};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut listener =
///     Listener::bind(DeviceKind::Emulated, "127.0.0.1:0".parse()?, &Config::default()).await?;
/// let device = Device::new(Link::Any);
/// let config = Config::default().device(device.name());
/// let connecting = Stream::connect(DeviceKind::Emulated, listener.local_addr(), &config);
/// let (client, server) = tokio::join!(connecting, listener.accept());
/// let (mut client, mut server) = (client?, server?);
///
/// client.write_all(b"in good order").await?;
/// server.read_exact(&mut [0; 13]).await?;
/// device.break_links();
/// assert_eq!(client.read(&mut [0]).await?, 0); // the peer has disconnected: end of file
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Device {
    name: String,
    plan: Arc<FaultPlan>,
}

impl Device {
    /// Makes a device that connects over `link`, without delays and faults.
    pub fn new(link: Link) -> Self {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let name = format!("emulated{}", MADE.fetch_add(1, Ordering::Relaxed));
        let plan = FaultPlan::changeable(link);
        lock(&DEVICES).insert(name.clone(), plan.clone());
        Self { name, plan }
    }

    /// Its name, which no other device of this process ever has.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Delays what is sent from now on: each work request by a duration out of this range, drawn with a generator
    /// that starts from `seed`. Nothing overtakes. `Duration::ZERO..=Duration::ZERO` ends it.
    pub fn delay(&self, range: RangeInclusive<Duration>, seed: u64) {
        let range = (*range.start()).min(LONGEST)..=(*range.end()).min(LONGEST);
        self.plan.change(|settings| {
            settings.delay = (*range.end() > Duration::ZERO).then_some(Delay { range, state: seed })
        });
    }

    /// Fails a send: the `nth` that is posted from now on, counted from 1 over all connections of the device. It
    /// completes with this status without reaching the peer, and its queue pair goes to error, as after any failure.
    pub fn fail_send(&self, nth: u64, status: FailureStatus) {
        self.plan.change(|settings| settings.failures.push((nth, status)));
    }

    /// Drops a completion event: the `nth` that is due from now on, counted from 1 over all connections of the
    /// device. The completion itself is in its queue. No hardware should do this; a program that survives it survives
    /// its own lost wake-ups too.
    pub fn drop_completion_event(&self, nth: u64) {
        self.plan.change(|settings| settings.dropped_events.push(nth));
    }

    /// Stalls the receivers, or lets them go on: while stalled they have no receive posted as far as the peer can
    /// tell, whatever the program has posted.
    pub fn stall_receivers(&self, stalled: bool) {
        self.plan.change(|settings| settings.stalled = stalled);
        if !stalled {
            self.plan.each_link(|link| link.resume());
        }
    }

    /// Refuses to register memory, or does it again: as where the `memlock` limit is reached.
    pub fn refuse_memory(&self, refused: bool) {
        self.plan.change(|settings| settings.refuses_memory = refused);
    }

    /// How often the peers of connections made from now on may try again when they find no receive posted: 0 to 7,
    /// where 7 means for ever. Default 7. Greater values are brought to 7.
    pub fn rnr_retry_count(&self, count: u8) {
        self.plan.change(|settings| settings.rnr_retry_count = count.min(RNR_RETRY_FOREVER));
    }

    /// The time between two such tries. Default 10 ms.
    pub fn rnr_timer(&self, interval: Duration) {
        self.plan.change(|settings| settings.rnr_timer = interval.min(LONGEST));
    }

    /// How long a peer's device may leave a send without an answer before that fails with
    /// [`FailureStatus::RetryExceeded`]. Default 30 s: longer than hardware, since an emulated device can be as slow
    /// as the machine it runs on.
    pub fn retry_timeout(&self, limit: Duration) {
        self.plan.change(|settings| settings.retry_timeout = limit.min(LONGEST));
        // Tasks that wait already wait for the new time.
        self.plan.each_link(|link| link.reset_timers());
    }

    /// Breaks all connections of the device: both ends get a disconnect, and nothing passes any more.
    pub fn break_links(&self) {
        self.plan.each_link(|link| link.sever());
    }

    /// Cuts all connections of the device, like a cable: nothing passes any more, and neither end is notified. A side
    /// that sends finds out after the [retry timeout](Self::retry_timeout); a side that only waits never does. A
    /// socket stays open until the other end closes it, or some seconds after this end was dropped.
    pub fn cut_links(&self) {
        self.plan.each_link(|link| link.cut());
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        lock(&DEVICES).remove(&self.name);
    }
}

/// The device that a name stands for.
///
/// # Errors
/// [`TransportError::UnknownLink`] if it stands for none.
pub(super) fn named(name: Option<&str>) -> Result<Arc<FaultPlan>, TransportError> {
    let Some(name) = name else { return Ok(FaultPlan::calm(Link::Any)) };
    match name.strip_prefix("unix:") {
        Some(directory) if !directory.is_empty() => return Ok(FaultPlan::calm(Link::Unix(directory.into()))),
        _ => {}
    }
    match name {
        "inprocess" => Ok(FaultPlan::calm(Link::InProcess)),
        "tcp" => Ok(FaultPlan::calm(Link::Tcp)),
        _ => lock(&DEVICES)
            .get(name)
            .cloned()
            .ok_or_else(|| TransportError::UnknownLink { name: name.to_owned() }),
    }
}

static DEVICES: LazyLock<Mutex<BTreeMap<String, Arc<FaultPlan>>>> = LazyLock::new(Mutex::default);
