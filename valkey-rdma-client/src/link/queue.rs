//! [`SubmitQueue`]: requests on their way from callers to the driver, and the agreement on which of them sends.
//!
//! Before the driver sleeps, it says under the queue's lock what the next caller does ([`Sleep`]). If nothing is in
//! flight, that caller sends on its own thread. Otherwise it wakes the connection task, or leaves the request to the turn
//! that the next reply causes. While the driver is awake, callers only push: it looks at the queue once more before it
//! sleeps. So no push is lost, and a driver that runs anyway is not woken.
//!
//! This file is also compiled into a model that tries every interleaving (`tests/submit_model.rs`), with other locks.

use std::collections::VecDeque;
use std::ops::{Add, Sub};
use std::task::Waker;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::sync::{Mutex, MutexGuard, lock};

/// The queue looks for requests whose callers have gone away when this number have, or half as many as wait if that is more.
pub(crate) const SWEEP: usize = 64;
/// An idle queue keeps memory for this number of requests.
const KEPT: usize = 1024;
/// After a search for late requests, this many times its duration pass before the next.
const SEARCH_APART: u32 = 10;

/// A batch of this many commands is full. The server executes a whole batch before it writes any reply, so in larger
/// batches the first command only waits longer.
pub(crate) const BATCH_COMMANDS: usize = 64;
/// A batch of this many bytes is full. The request that exceeds the limit still belongs to it.
pub(crate) const BATCH_BYTES: usize = 16 * 1024;

/// What the queue asks of a request.
pub(crate) trait Submit {
    fn load(&self) -> Load;

    /// When it must not wait any longer.
    fn due(&self) -> Option<Instant>;

    /// Until when it waits for a connection, while there is none.
    fn offline_deadline(&mut self) -> &mut Option<Instant>;

    /// False if its caller has gone away.
    fn is_wanted(&self) -> bool;
}

/// Commands and their bytes, of one request or several.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Load {
    pub(crate) commands: usize,
    pub(crate) bytes: usize,
}

impl Load {
    /// True if a batch of this load is full.
    pub(crate) fn is_full(self) -> bool {
        self.commands >= BATCH_COMMANDS || self.bytes >= BATCH_BYTES
    }
}

impl Add for Load {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { commands: self.commands + other.commands, bytes: self.bytes + other.bytes }
    }
}

impl Sub for Load {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self { commands: self.commands - other.commands, bytes: self.bytes - other.bytes }
    }
}

/// What the driver waits for while it sleeps, and so what a caller does that pushes meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sleep {
    /// For a request: nothing is in flight. The caller sends.
    Idle,
    /// For replies or a request: few batches are in flight, so another may leave. The caller wakes the driver.
    Listening,
    /// For replies or a full batch: many batches are in flight, so a small one waits. The caller wakes the driver if its request makes the
    /// batch full.
    Holding,
    /// For room or a connection: nothing can be sent, so a push changes nothing. But the driver's timer is set for the first deadline of
    /// the requests that wait: the caller wakes the driver if its request has an earlier one.
    Blocked,
}

/// What became of a pushed request.
#[derive(Debug)]
pub(crate) enum Pushed<T> {
    /// The driver takes it from the queue.
    Queued,
    /// It is in the queue, and the caller must send: it calls the driver, or [wakes](SubmitQueue::wake) it.
    MustSend,
    /// The queue takes no more requests.
    Closed(T),
}

/// Why the queue takes no more requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Every client was dropped: no caller waits any more.
    Abandoned,
    /// `close` was called: what was pushed before is still sent.
    Closing,
}

/// A queue with one consumer, the driver of the current connection. It outlives connections.
///
/// It has no bound of its own: while its caller waits, a request needs as much memory here as in its caller's future, and here it
/// keeps its place in the order. Requests whose callers have gone away are dropped before they are more than half of what waits,
/// unless they are fewer than [`SWEEP`].
pub(crate) struct SubmitQueue<T>(Mutex<State<T>>);

struct State<T> {
    waiting: VecDeque<T>,
    /// The load of all of `waiting`.
    load: Load,
    /// Callers that have gone away since their requests were last looked for.
    gone: usize,
    /// While there is no connection: how long a request waits for one. `None`: without limit, or there is a connection.
    patience: Option<Duration>,
    /// `None` while the driver is awake.
    sleep: Option<Sleep>,
    /// True if a push has woken the driver since it was last asked.
    woken_by_push: bool,
    /// The driver's timer fires at this moment or before; it is set when the driver goes to sleep.
    timer: Option<Instant>,
    /// Wakes the driver. `None` until it was polled.
    task: Option<Waker>,
    /// `None` while it takes requests.
    ending: Option<Ending>,
    /// True once the driver knows of the end.
    end_seen: bool,
    /// True once the driver has ended for good.
    finished: bool,
    /// Dropped then.
    at_end: Vec<oneshot::Sender<()>>,
}

impl<T: Submit> SubmitQueue<T> {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(State {
            waiting: VecDeque::new(),
            load: Load::default(),
            gone: 0,
            patience: None,
            sleep: None,
            woken_by_push: false,
            timer: None,
            task: None,
            ending: None,
            end_seen: false,
            finished: false,
            at_end: Vec::new(),
        }))
    }

    /// Appends a request, and wakes the driver if it sleeps and has to act.
    pub(crate) fn push(&self, mut request: T) -> Pushed<T> {
        let mut state = lock(&self.0);
        if state.ending.is_some() {
            return Pushed::Closed(request);
        }
        if let Some(deadline) = state.offline_deadline() {
            request.offline_deadline().get_or_insert(deadline);
        }
        let due = request.due();
        let earlier = due.is_some_and(|due| state.timer.is_none_or(|timer| due < timer));
        if earlier {
            state.timer = due;
        }
        state.load = state.load + request.load();
        state.waiting.push_back(request);
        match state.sleep {
            None => return Pushed::Queued,
            Some(Sleep::Idle) if !earlier => {
                state.sleep = None;
                return Pushed::MustSend;
            }
            Some(Sleep::Idle | Sleep::Listening) => {}
            Some(Sleep::Holding) if state.load.is_full() => {}
            // The driver sets its timer.
            Some(_) if earlier => {}
            Some(_) => return Pushed::Queued,
        }
        state.woken_by_push = true;
        wake(state);
        Pushed::Queued
    }

    /// Makes `task` the waker of the driver, before the driver sleeps for the first time.
    pub(crate) fn register_waker(&self, task: &Waker) {
        lock(&self.0).task = Some(task.clone());
    }

    /// True if a push has woken the driver, which is polled now.
    pub(crate) fn take_woken_by_push(&self) -> bool {
        std::mem::take(&mut lock(&self.0).woken_by_push)
    }

    /// Wakes the driver.
    pub(crate) fn wake(&self) {
        wake(lock(&self.0));
    }

    /// Takes the requests of the next batch, up to `most` commands, in order; none if `only_full` and they do not make a
    /// full batch. Those whose callers have gone away are dropped. If more than a batch waits, those that are late go to `late`
    /// instead. The driver counts as awake from now on.
    /// Returns why the queue ends, once no request waits.
    pub(crate) fn take(
        &self,
        only_full: bool,
        most: usize,
        mut add: impl FnMut(T),
        late: &mut Vec<T>,
    ) -> Option<Ending> {
        // Dropped after the lock is released: they may own what a program lent.
        let mut unwanted = Vec::new();
        let mut state = lock(&self.0);
        state.sleep = None;
        let now = (state.waiting.len() > BATCH_COMMANDS).then(Instant::now);
        if !only_full || state.load.is_full() {
            let mut batch = Load::default();
            while !batch.is_full() && batch.commands < most {
                let Some(request) = state.waiting.pop_front() else { break };
                let load = request.load();
                state.load = state.load - load;
                if !request.is_wanted() {
                    unwanted.push(request);
                    continue;
                }
                if now.is_some_and(|now| request.due().is_some_and(|due| due <= now)) {
                    late.push(request);
                    continue;
                }
                batch = batch + load;
                add(request);
            }
        }
        let mut ending = None;
        if state.waiting.is_empty() {
            ending = state.ending;
            if state.waiting.capacity() > KEPT {
                // After a burst.
                state.waiting.shrink_to(KEPT);
            }
        }
        state.end_seen |= ending.is_some();
        ending
    }

    /// Puts the driver to sleep until `task` is woken. Returns when its timer must fire at the latest. `Err`: it stays awake,
    /// because requests wait that it can send, or the queue ends.
    pub(crate) fn sleep(&self, sleep: Sleep, task: &Waker) -> Result<Option<Instant>, Awake> {
        let mut state = lock(&self.0);
        let sendable = match sleep {
            Sleep::Idle | Sleep::Listening => !state.waiting.is_empty(),
            Sleep::Holding => state.load.is_full(),
            Sleep::Blocked => false,
        };
        let must_see_end = state.ending.is_some() && state.waiting.is_empty() && !state.end_seen;
        if sendable || (must_see_end && !matches!(sleep, Sleep::Blocked)) {
            return Err(Awake);
        }
        state.sleep = Some(sleep);
        match &mut state.task {
            Some(known) => known.clone_from(task),
            none => *none = Some(task.clone()),
        }
        Ok(state.timer)
    }

    /// Changes what waits. The timer stays, or is earlier: it may be that of a request elsewhere.
    pub(crate) fn edit(&self, edit: impl FnOnce(&mut VecDeque<T>)) {
        let mut state = lock(&self.0);
        let timer = state.timer;
        state.edit(timer, edit);
    }

    /// Takes out what has waited too long. The timer is then due by `others`, the deadline of requests elsewhere, or by the
    /// first deadline that is left.
    pub(crate) fn expire<R>(&self, others: Option<Instant>, edit: impl FnOnce(&mut VecDeque<T>) -> R) -> R {
        let mut state = lock(&self.0);
        let begin = Instant::now();
        let result = state.edit(others, edit);
        let now = Instant::now();
        state.timer = state.timer.map(|timer| timer.max(now + (now - begin) * SEARCH_APART));
        result
    }

    /// A caller goes away without its reply. Its request is dropped at once, or together with others.
    pub(crate) fn caller_gone(&self) {
        // Dropped after the lock is released: they may own what a program lent.
        let mut unwanted = Vec::new();
        let mut state = lock(&self.0);
        state.gone += 1;
        if state.gone < SWEEP.max(state.waiting.len() / 2) {
            return;
        }
        state.gone = 0;
        let timer = state.timer;
        state.edit(timer, |waiting| {
            for request in std::mem::take(waiting) {
                if request.is_wanted() {
                    waiting.push_back(request);
                } else {
                    unwanted.push(request);
                }
            }
        });
    }

    /// There is no connection: requests that wait, and those that come, wait for so long at most. `None`: without limit.
    pub(crate) fn begin_outage(&self, patience: Option<Duration>) {
        let mut state = lock(&self.0);
        state.patience = patience;
        if let Some(deadline) = state.offline_deadline() {
            let timer = state.timer;
            state.edit(timer, |waiting| {
                for request in waiting {
                    request.offline_deadline().get_or_insert(deadline);
                }
            });
        }
    }

    /// There is a connection: requests wait up to their own deadline. The timer may be earlier than that.
    pub(crate) fn end_outage(&self) {
        let mut state = lock(&self.0);
        state.patience = None;
        for request in &mut state.waiting {
            *request.offline_deadline() = None;
        }
    }

    /// True if requests wait.
    pub(crate) fn has_waiting(&self) -> bool {
        !lock(&self.0).waiting.is_empty()
    }

    pub(crate) fn ending(&self) -> Option<Ending> {
        lock(&self.0).ending
    }

    pub(crate) fn is_finished(&self) -> bool {
        lock(&self.0).finished
    }

    /// Refuses new requests, and wakes the driver to send what waits and end. `at_end` is dropped then.
    pub(crate) fn close(&self, at_end: oneshot::Sender<()>) {
        let mut state = lock(&self.0);
        state.ending = Some(Ending::Closing);
        if !state.finished {
            state.at_end.push(at_end);
        }
        wake(state);
    }

    /// Wakes the driver to end, because no caller is left. Returns what still waits.
    pub(crate) fn abandon(&self) -> VecDeque<T> {
        let mut state = lock(&self.0);
        state.ending.get_or_insert(Ending::Abandoned);
        state.load = Load::default();
        let unwanted = std::mem::take(&mut state.waiting);
        wake(state);
        unwanted
    }

    /// The driver has ended: takes everything, and refuses what comes later.
    pub(crate) fn finish(&self) -> (VecDeque<T>, Vec<oneshot::Sender<()>>) {
        let mut state = lock(&self.0);
        state.ending = Some(Ending::Closing);
        state.finished = true;
        state.load = Load::default();
        (std::mem::take(&mut state.waiting), std::mem::take(&mut state.at_end))
    }

    /// How many requests wait.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        lock(&self.0).waiting.len()
    }
}

impl<T: Submit> State<T> {
    /// Until when a request waits for a connection that comes now, while there is none.
    fn offline_deadline(&self) -> Option<Instant> {
        self.patience.and_then(|patience| Instant::now().checked_add(patience))
    }

    fn edit<R>(&mut self, timer: Option<Instant>, edit: impl FnOnce(&mut VecDeque<T>) -> R) -> R {
        let result = edit(&mut self.waiting);
        self.load = self.waiting.iter().fold(Load::default(), |load, request| load + request.load());
        self.timer = timer.into_iter().chain(self.waiting.iter().filter_map(Submit::due)).min();
        result
    }
}

/// The driver has something to do.
#[derive(Debug)]
pub(crate) struct Awake;

/// Wakes the driver, without holding the lock.
fn wake<T>(mut state: MutexGuard<'_, State<T>>) {
    state.sleep = None;
    let task = state.task.clone();
    drop(state);
    if let Some(task) = task {
        task.wake();
    }
}
