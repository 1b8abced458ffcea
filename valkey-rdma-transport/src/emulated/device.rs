//! Emulated devices that a program makes for itself: which link connections take, and what goes wrong on them.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Weak};
use std::time::Duration;

use valkey_rdma_proto::work::FailureStatus;

use super::RNR_RETRY_FOREVER;
use crate::error::{RejectReason, TransportError};
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

    /// Rejects the next `count` connect requests of this device with a reason of the connection manager, without asking the
    /// listener: as when the peer's host remembers an earlier connection.
    pub fn reject_requests(&self, count: u32, reason: RejectReason) {
        self.plan.change(|settings| settings.rejects = (count, reason));
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

/// What carries the connections of an emulated device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Link {
    /// Straight from memory to memory if the listener is in this process, TCP otherwise. A listener can be reached
    /// both ways. What a connection without a device name takes.
    Any,
    /// Within this process only. Device name `inprocess`.
    InProcess,
    /// TCP, even within this process. Device name `tcp`.
    Tcp,
    /// Unix sockets in this directory, each named by the port it stands for. Device name `unix:DIR`.
    Unix(PathBuf),
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Link::Any => f.write_str("any"),
            Link::InProcess => f.write_str("inprocess"),
            Link::Tcp => f.write_str("tcp"),
            Link::Unix(directory) => write!(f, "unix:{}", directory.display()),
        }
    }
}

/// What a device can do to one of its links.
pub(super) trait Disturb: fmt::Debug + Send + Sync {
    /// The receivers go on: sends that wait for them are tried again.
    fn resume(self: Arc<Self>);
    /// A timeout has changed: timers are set anew.
    fn reset_timers(self: Arc<Self>);
    /// Disconnects both ends.
    fn sever(self: Arc<Self>);
    /// Nothing passes from now on, and neither end is notified.
    fn cut(self: Arc<Self>);
}

/// What connections of one device have in common.
#[derive(Debug)]
pub(super) struct FaultPlan {
    pub(super) link: Link,
    /// `None` for the devices that are always there, on which nothing goes wrong.
    settings: Option<Mutex<FaultSettings>>,
}

/// What a program sets on its device.
#[derive(Debug)]
pub(super) struct FaultSettings {
    pub(super) delay: Option<Delay>,
    /// Sends still to be posted until one fails, and how.
    pub(super) failures: Vec<(u64, FailureStatus)>,
    /// Completion events still to come until one is dropped.
    pub(super) dropped_events: Vec<u64>,
    pub(super) stalled: bool,
    pub(super) refuses_memory: bool,
    /// Connect requests still to be rejected, and why.
    pub(super) rejects: (u32, RejectReason),
    pub(super) rnr_retry_count: u8,
    pub(super) rnr_timer: Duration,
    pub(super) retry_timeout: Duration,
    links: Vec<Weak<dyn Disturb>>,
}

impl Default for FaultSettings {
    fn default() -> Self {
        Self {
            delay: None,
            failures: Vec::new(),
            dropped_events: Vec::new(),
            stalled: false,
            refuses_memory: false,
            rejects: (0, RejectReason::CONSUMER),
            rnr_retry_count: RNR_RETRY_FOREVER,
            rnr_timer: RNR_TIMER,
            retry_timeout: RETRY_TIMEOUT,
            links: Vec::new(),
        }
    }
}

#[derive(Debug)]
pub(super) struct Delay {
    pub(super) range: RangeInclusive<Duration>,
    pub(super) state: u64,
}

impl Delay {
    /// The next one: SplitMix64 over the range, in whole nanoseconds.
    fn draw(&mut self) -> Duration {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.state;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        let width = self.range.end().saturating_sub(*self.range.start()).as_nanos();
        let width = u64::try_from(width).unwrap_or(u64::MAX);
        *self.range.start() + Duration::from_nanos(bits % width.saturating_add(1))
    }
}

impl FaultPlan {
    /// A device without a program of its own, on which nothing goes wrong.
    pub(super) fn calm(link: Link) -> Arc<Self> {
        Arc::new(Self { link, settings: None })
    }

    /// A device that a program can disturb.
    pub(super) fn changeable(link: Link) -> Arc<Self> {
        Arc::new(Self { link, settings: Some(Mutex::default()) })
    }

    /// Changes what the program wants of its device.
    pub(super) fn change(&self, change: impl FnOnce(&mut FaultSettings)) {
        if let Some(settings) = &self.settings {
            change(&mut lock(settings));
        }
    }

    /// Runs `act` on every link of the device.
    pub(super) fn each_link(&self, act: impl Fn(Arc<dyn Disturb>)) {
        let Some(settings) = &self.settings else { return };
        // Used, and dropped, outside of the lock: a link reads the settings while it holds its own lock, and so may what
        // is dropped with the last handle of one.
        let live: Vec<_> = lock(settings).links.iter().filter_map(Weak::upgrade).collect();
        live.into_iter().for_each(act);
    }

    /// Lets the device disturb this link from now on.
    pub(super) fn watch(&self, link: Weak<impl Disturb + 'static>) {
        if let Some(settings) = &self.settings {
            let links = &mut lock(settings).links;
            links.retain(|link| link.strong_count() > 0);
            links.push(link);
        }
    }

    pub(super) fn rnr_retry_count(&self) -> u8 {
        self.get(RNR_RETRY_FOREVER, |settings| settings.rnr_retry_count)
    }

    pub(super) fn rnr_timer(&self) -> Duration {
        self.get(RNR_TIMER, |settings| settings.rnr_timer)
    }

    pub(super) fn retry_timeout(&self) -> Duration {
        self.get(RETRY_TIMEOUT, |settings| settings.retry_timeout)
    }

    pub(super) fn stalls_receiver(&self) -> bool {
        self.get(false, |settings| settings.stalled)
    }

    pub(super) fn refuses_memory(&self) -> bool {
        self.get(false, |settings| settings.refuses_memory)
    }

    /// Why the device rejects the connect request now made, if it does.
    pub(super) fn rejects_request(&self) -> Option<RejectReason> {
        self.get(None, |settings| {
            let (left, reason) = &mut settings.rejects;
            *left = left.checked_sub(1)?;
            Some(*reason)
        })
    }

    /// How long the send now posted is held back, if at all.
    pub(super) fn delays(&self) -> Option<Duration> {
        self.get(None, |settings| settings.delay.as_mut().map(Delay::draw))
    }

    /// How the send now posted is to fail, if at all.
    pub(super) fn fails_send(&self) -> Option<FailureStatus> {
        self.get(None, |settings| {
            settings.failures.iter_mut().for_each(|(left, _)| *left = left.saturating_sub(1));
            let hit = settings.failures.iter().position(|(left, _)| *left == 0)?;
            Some(settings.failures.swap_remove(hit).1)
        })
    }

    /// Whether the completion event now due is dropped.
    pub(super) fn drops_event(&self) -> bool {
        self.get(false, |settings| {
            settings.dropped_events.iter_mut().for_each(|left| *left = left.saturating_sub(1));
            let before = settings.dropped_events.len();
            settings.dropped_events.retain(|left| *left > 0);
            settings.dropped_events.len() < before
        })
    }

    /// How many links of the device there are.
    #[cfg(test)]
    pub(super) fn live_links(&self) -> usize {
        self.get(0, |settings| settings.links.iter().filter(|link| link.strong_count() > 0).count())
    }

    fn get<T>(&self, calm: T, value: impl FnOnce(&mut FaultSettings) -> T) -> T {
        self.settings.as_ref().map_or(calm, |settings| value(&mut lock(settings)))
    }
}

/// As soft-RoCE's, near enough.
const RNR_TIMER: Duration = Duration::from_millis(10);

const RETRY_TIMEOUT: Duration = Duration::from_secs(30);

/// Longer than anybody waits, and short enough to be added to a clock.
pub(super) const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);
