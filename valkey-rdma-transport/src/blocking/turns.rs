//! [`Turns`]: which thread drives a runtime.
//!
//! The kernel wakes the thread that drives when a reply arrives. If that is the caller, it has its reply; if it is another thread, that
//! one wakes the caller in turn. So a caller that is alone drives. The background thread drives while several threads call, and while
//! none does.

use std::sync::{Condvar, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::sync::{Mutex, MutexGuard, lock};

/// How long no thread drives after a caller has, before the background thread does: at most two of these. A caller that comes less often
/// does not gain from driving.
const PAUSE: Duration = Duration::from_millis(2);

#[derive(Debug, Default)]
pub(super) struct Turns {
    state: Mutex<State>,
    /// Wakes the background thread while it does not drive.
    changed: Condvar,
    /// Ends its turn while it drives.
    leave: Notify,
    /// The last driver has left.
    idle: Condvar,
}

#[derive(Debug, Default)]
struct State {
    driver: Option<Driver>,
    /// Callers that wait while another thread drives.
    followers: usize,
    /// How often a caller has driven and waited.
    waits: u64,
    /// When the last follower came.
    followed: Option<Instant>,
    /// When a caller last came while another one waited.
    crowded: Option<Instant>,
    /// The follower that wants to drive in place of the background thread.
    asking: Option<Thread>,
    /// The background thread has made room for that follower, which has not taken it yet.
    reserved: bool,
    /// The background thread is to drive at once.
    wanted: bool,
    /// The background thread sleeps until a caller has driven.
    asleep: bool,
    ended: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Driver {
    Caller,
    Background,
}

impl Turns {
    /// The calling thread drives from now on. `None`: another one does.
    pub(super) fn lead(&self) -> Option<Lead<'_>> {
        let mut state = self.state();
        (state.driver.is_none() && !state.ended).then(|| {
            state.driver = Some(Driver::Caller);
            state.reserved = false;
            Lead { turns: self, waited: false }
        })
    }

    /// The calling thread waits while another one drives. If it `may_lead`, it is unparked when it can.
    pub(super) fn follow(&self, may_lead: bool) -> Follow<'_> {
        let mut state = self.state();
        let now = Instant::now();
        let recent = |at: Option<Instant>| at.is_some_and(|at| now.duration_since(at) < PAUSE);
        if state.driver == Some(Driver::Caller) || state.followers > 0 {
            state.crowded = Some(now);
        }
        let comes_often = recent(state.followed.replace(now));
        let asks =
            may_lead && comes_often && !recent(state.crowded) && state.driver == Some(Driver::Background);
        if asks {
            state.asking = Some(thread::current());
            self.leave.notify_one();
        }
        state.followers += 1;
        if state.driver.is_none() {
            self.changed.notify_one();
        }
        Follow { turns: self, asks }
    }

    /// Something other than a caller waits for the runtime.
    pub(super) fn want(&self) {
        let mut state = self.state();
        if state.driver.is_none() {
            state.wanted = true;
            self.changed.notify_one();
        }
    }

    /// Waits until the background thread is to drive. `None`: the runtime ends.
    pub(super) fn background(&self) -> Option<Background<'_>> {
        let mut state = self.state();
        let mut seen = None;
        loop {
            if state.ended {
                return None;
            }
            let look = (state.driver, state.waits);
            let waiting = state.followers > 0 && !state.reserved;
            let quiet = seen == Some(look);
            match state.driver {
                None if quiet || waiting || state.wanted => {
                    state.driver = Some(Driver::Background);
                    state.wanted = false;
                    state.reserved = false;
                    return Some(Background { turns: self });
                }
                // It waits for long. Looking again and again would keep the processor awake.
                Some(Driver::Caller) if quiet => {
                    state.asleep = true;
                    state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                    state.asleep = false;
                    seen = None;
                }
                _ => {
                    let waited = self.changed.wait_timeout(state, PAUSE);
                    let (after, elapsed) = waited.unwrap_or_else(PoisonError::into_inner);
                    state = after;
                    if elapsed.timed_out() {
                        seen = Some(look);
                    }
                }
            }
        }
    }

    /// Ends the background thread. No thread begins to drive any more.
    pub(super) fn end(&self) {
        self.state().ended = true;
        self.changed.notify_one();
        self.leave.notify_one();
    }

    /// Waits until no thread drives, after [`end`](Self::end). False: one still does.
    pub(super) fn wait_for_end(&self, patience: Duration) -> bool {
        let driven = |state: &mut State| state.driver.is_some();
        let waited = self.idle.wait_timeout_while(self.state(), patience, driven);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

/// While it exists, the calling thread drives.
pub(super) struct Lead<'a> {
    turns: &'a Turns,
    waited: bool,
}

impl Lead<'_> {
    /// The caller has to wait. One that never has to does not drive in truth: what else runs on the runtime would starve.
    pub(super) fn waits(&mut self) {
        self.waited = true;
    }
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        let mut state = self.turns.state();
        state.driver = None;
        state.waits += u64::from(self.waited);
        if state.ended {
            self.turns.idle.notify_all();
        }
        if state.followers > 0 || state.asleep {
            self.turns.changed.notify_one();
        }
    }
}

/// While it exists, the calling thread waits and another one drives.
pub(super) struct Follow<'a> {
    turns: &'a Turns,
    asks: bool,
}

impl Drop for Follow<'_> {
    fn drop(&mut self) {
        let mut state = self.turns.state();
        state.followers -= 1;
        if self.asks {
            state.asking = None;
            state.reserved = false;
        }
        if state.followers > 0 && state.driver.is_none() {
            self.turns.changed.notify_one();
        }
    }
}

/// While it exists, the background thread drives.
pub(super) struct Background<'a> {
    turns: &'a Turns,
}

impl Background<'_> {
    /// Waits until a caller wants to drive, or the runtime ends.
    pub(super) async fn until_asked(&self) {
        self.turns.leave.notified().await;
    }
}

impl Drop for Background<'_> {
    fn drop(&mut self) {
        let mut state = self.turns.state();
        state.driver = None;
        if state.ended {
            self.turns.idle.notify_all();
        }
        if let Some(thread) = state.asking.take() {
            state.reserved = true;
            thread.unpark();
        }
    }
}
