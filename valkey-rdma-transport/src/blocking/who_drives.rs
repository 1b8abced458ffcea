//! [`Turns`]: which thread drives a runtime.
//!
//! The kernel wakes the thread that drives when a reply arrives. If that is the caller, it has its reply; if it is another thread, that
//! one wakes the caller in turn. So a caller that is alone drives. The background thread drives while several threads call, while none
//! does, and as long as there are guests: tasks that somebody waits for outside of a call.

use std::sync::{Condvar, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::sync::{Mutex, MutexGuard, lock};

/// How often the background thread looks whether callers still drive. If none has since the last look, it drives.
const LOOK: Duration = Duration::from_millis(2);

/// A caller drives if its calls come within this of each other, and no other caller has come within this.
const OFTEN: Duration = Duration::from_millis(2);

#[derive(Debug, Default)]
pub(super) struct Turns {
    state: Mutex<State>,
    /// Wakes the background thread while it does not drive.
    changed: Condvar,
    /// Ends its turn while it drives.
    leave: Notify,
    /// The last driver has left.
    left: Condvar,
}

#[derive(Debug, Default)]
struct State {
    driver: Driver,
    /// Callers that wait while another thread drives.
    followers: usize,
    /// What runs for others than callers. While there are any, only the background thread begins to drive.
    guests: usize,
    /// How many turns of callers had to wait for something.
    turns: u64,
    /// When the last follower came.
    followed: Option<Instant>,
    /// When a caller last came while another one waited.
    crowded: Option<Instant>,
    /// The follower that wants to drive in place of the background thread.
    asking: Option<Thread>,
    /// The background thread sleeps until a caller has driven.
    asleep: bool,
    ended: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Driver {
    #[default]
    Free,
    /// A follower has asked for the turn, and the background thread has left for it. Until that follower drives or leaves, the background
    /// thread does not begin again.
    Offered,
    Caller,
    Background,
}

impl Turns {
    /// The calling thread drives from now on. `None`: another one does, or should.
    pub(super) fn lead(&self) -> Option<Lead<'_>> {
        let mut state = self.state();
        let is_free = matches!(state.driver, Driver::Free | Driver::Offered);
        (is_free && state.guests == 0 && !state.ended).then(|| {
            state.driver = Driver::Caller;
            Lead { turns: self, waited: false }
        })
    }

    /// The calling thread waits while another one drives. If it `may_lead`, it asks the background thread to leave when that pays: when
    /// calls come often, and from one thread. It is unparked then.
    pub(super) fn follow(&self, may_lead: bool) -> Follow<'_> {
        let mut state = self.state();
        let now = Instant::now();
        let recent = |at: Option<Instant>| at.is_some_and(|at| now.duration_since(at) < OFTEN);
        if state.driver == Driver::Caller || state.followers > 0 {
            state.crowded = Some(now);
        }
        let comes_often = recent(state.followed.replace(now));
        let is_alone = !recent(state.crowded) && state.guests == 0;
        let asks = may_lead && comes_often && is_alone && state.driver == Driver::Background;
        if asks {
            state.asking = Some(thread::current());
            self.leave.notify_one();
        }
        state.followers += 1;
        self.wake_if_free(&state);
        Follow { turns: self, asks }
    }

    pub(super) fn add_guest(&self) {
        let mut state = self.state();
        state.guests += 1;
        self.wake_if_free(&state);
    }

    pub(super) fn remove_guest(&self) {
        self.state().guests -= 1;
    }

    /// Waits until the background thread is to drive. `None`: the runtime ends.
    pub(super) fn background(&self) -> Option<Background<'_>> {
        let mut state = self.state();
        let mut seen = None;
        loop {
            if state.ended {
                return None;
            }
            let look = (state.driver, state.turns);
            let quiet = seen == Some(look);
            match state.driver {
                Driver::Free | Driver::Offered if quiet => return Some(self.begin_background(&mut state)),
                Driver::Free if state.followers > 0 || state.guests > 0 => {
                    return Some(self.begin_background(&mut state));
                }
                // It waits for long. Looking again and again would keep the processor awake.
                Driver::Caller if quiet => {
                    state.asleep = true;
                    state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                    state.asleep = false;
                    seen = None;
                }
                _ => {
                    let waited = self.changed.wait_timeout(state, LOOK);
                    let (after, elapsed) = waited.unwrap_or_else(PoisonError::into_inner);
                    state = after;
                    if elapsed.timed_out() {
                        seen = Some(look);
                    }
                }
            }
        }
    }

    fn begin_background(&self, state: &mut State) -> Background<'_> {
        state.driver = Driver::Background;
        Background { turns: self }
    }

    /// Ends the background thread. No thread begins to drive any more.
    pub(super) fn end(&self) {
        self.state().ended = true;
        self.changed.notify_one();
        self.leave.notify_one();
    }

    /// Waits until no thread drives, after [`end`](Self::end). False: one still does.
    pub(super) fn wait_for_end(&self, patience: Duration) -> bool {
        let driven = |state: &mut State| matches!(state.driver, Driver::Caller | Driver::Background);
        let waited = self.left.wait_timeout_while(self.state(), patience, driven);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Wakes the background thread if somebody waits and no thread drives.
    fn wake_if_free(&self, state: &State) {
        if state.driver == Driver::Free && (state.followers > 0 || state.guests > 0 || state.asleep) {
            self.changed.notify_one();
        }
    }

    fn leave(&self, state: &mut State, next: Driver) {
        state.driver = next;
        if state.ended {
            self.left.notify_all();
        }
        self.wake_if_free(state);
    }
}

/// While it exists, the calling thread drives.
pub(super) struct Lead<'a> {
    turns: &'a Turns,
    waited: bool,
}

impl Lead<'_> {
    /// The caller has to wait. Only such a turn counts: in one that does not wait, no other task runs.
    pub(super) fn waits(&mut self) {
        self.waited = true;
    }
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        let mut state = self.turns.state();
        state.turns += u64::from(self.waited);
        self.turns.leave(&mut state, Driver::Free);
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
            if state.driver == Driver::Offered {
                state.driver = Driver::Free;
            }
        }
        self.turns.wake_if_free(&state);
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
        let next = match state.asking.take() {
            Some(thread) => {
                thread.unpark();
                Driver::Offered
            }
            None => Driver::Free,
        };
        self.turns.leave(&mut state, next);
    }
}
