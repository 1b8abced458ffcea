//! What a program wants to go wrong on a device, as its connections see it.

use std::fmt;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use valkey_rdma_proto::work::FailureStatus;

use super::RNR_RETRY_FOREVER;
use crate::sync::{Mutex, lock};

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
