//! Connecting, and waiting for completions.

use std::future::poll_fn;
use std::task::{Context, Poll};
use std::thread;
use std::time::{Duration, Instant};

use valkey_rdma_proto::CloseReason;
use valkey_rdma_proto::work::{FailureStatus, Outcome};

use super::{Completion, Interrupt, QueuePair};
use crate::device::CmEvent;
use crate::error::TransportError;
use crate::polling::{self, Polling};

/// How a queue pair waits, and what it has learnt meanwhile.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    polling: Polling,
    spin_limit: Duration,
    /// Since when [`Polling::Adaptive`] has polled and found nothing.
    spins_since: Option<Instant>,
    /// An event was asked for and has not come.
    armed: bool,
    /// Requests posted that will complete: receives, and signalled sends. None of a batch that was refused in part, because the
    /// device does not say how many it has taken: the end is then reported before these complete as flushed, in the same error. One
    /// too many here would make a wait hang.
    pub(super) outstanding: usize,
    /// The first failure that is not a flush: the cause of the flushes.
    failed: Option<(u64, FailureStatus)>,
    peer_left: bool,
}

impl Waiting {
    pub(super) fn set(&mut self, polling: Polling, spin_limit: Duration) {
        (self.polling, self.spin_limit, self.spins_since) = (polling, spin_limit, None);
    }

    /// Takes note of a completion.
    fn found(&mut self, completion: Completion) {
        self.spins_since = None;
        self.outstanding = self.outstanding.saturating_sub(1);
        match completion.outcome {
            Outcome::Failed(FailureStatus::Flushed) => {}
            Outcome::Failed(status) => _ = self.failed.get_or_insert((completion.id, status)),
            _ => {}
        }
    }

    /// Whether to poll the queue again, rather than to sleep.
    fn should_spin(&mut self) -> bool {
        match self.polling {
            Polling::Event => false,
            Polling::Busy => true,
            Polling::Adaptive => {
                let now = Instant::now();
                now.duration_since(*self.spins_since.get_or_insert(now)) < self.spin_limit
            }
        }
    }
}

impl QueuePair {
    /// Connects, or accepts the peer's request, and waits until both sides have agreed.
    ///
    /// # Errors
    /// [`TransportError::Refused`] if nothing listens there, [`TransportError::Rejected`] if the listener said no,
    /// [`TransportError::Unreachable`] if there was no answer, [`TransportError::ClosedInHandshake`] if the peer has gone meanwhile,
    /// [`TransportError::Device`] if the request cannot be made, or was made before. There is no deadline but the connection manager's,
    /// which is a minute or more: `tokio::time::timeout` gives another.
    ///
    /// Cancel safety: the request goes on; dropping the queue pair ends it.
    pub async fn establish(&mut self) -> Result<(), TransportError> {
        self.device.establish()?;
        loop {
            match poll_fn(|cx| self.device.poll_cm_event(cx)).await? {
                CmEvent::Established => return Ok(()),
                CmEvent::PortDown | CmEvent::PortUp => {}
                CmEvent::Disconnected => return Err(TransportError::Lost(CloseReason::Peer)),
                other => return Err(self.never_connected(other)),
            }
        }
    }

    /// Takes completions that there are, without waiting, and appends them to `out`. Returns how many.
    ///
    /// # Errors
    /// [`TransportError::Device`] if the completion queue cannot be read.
    pub fn poll(&mut self, out: &mut Vec<Completion>) -> Result<usize, TransportError> {
        self.poll_queue()?;
        let count = self.found.len();
        out.extend(self.found.drain(..));
        Ok(count)
    }

    /// Waits for the next completion. Needs a tokio runtime with I/O around it, as [`open`](Self::open) does.
    ///
    /// # Errors
    /// [`TransportError::WorkRequest`] if a request failed. [`TransportError::Lost`] if the peer has disconnected, after everything that
    /// completed before that. [`TransportError::Fault`], [`TransportError::Device`] and [`TransportError::DeviceRemoved`] if the device
    /// failed.
    ///
    /// Cancel safety: no completion is lost.
    pub async fn wait(&mut self) -> Result<Completion, TransportError> {
        if self.found.is_empty() {
            poll_fn(|cx| self.poll_completions(cx)).await?;
        }
        let next = self.found.pop_front().expect("the poll has found one");
        self.checked(next)
    }

    /// Waits for the next completion as [`wait`](Self::wait) does, and blocks the calling thread meanwhile. `None`: there was none, and the
    /// interrupt was raised.
    ///
    /// The lowest latency there is, where a thread has nothing else to do. [`Polling::Busy`] looks into the completion queue again at
    /// once; otherwise the thread sleeps in the device's event channel. No task scheduler is involved. Do not call it from an async task.
    /// The runtime that the queue pair was opened in has to run on another thread: it takes what concerns the connection, and
    /// carries the emulated device's bytes.
    ///
    /// # Errors
    /// As for [`wait`](Self::wait).
    pub fn blocking_wait(&mut self, interrupt: &Interrupt) -> Result<Option<Completion>, TransportError> {
        if self.found.is_empty() && !self.wait_for_completions(interrupt)? {
            return Ok(None);
        }
        let next = self.found.pop_front().expect("the poll has found one");
        self.checked(next).map(Some)
    }

    /// Waits for the completion of the request with this id. Others are kept for later.
    ///
    /// # Errors
    /// As for [`wait`](Self::wait). A failure of another request is reported too, because this one will not succeed any more.
    ///
    /// Cancel safety: no completion is lost.
    pub async fn wait_for(&mut self, id: u64) -> Result<Completion, TransportError> {
        let mut known = 0;
        loop {
            let fresh = self.found.iter().skip(known);
            if let Some(at) = fresh.clone().position(|completion| completion.id == id) {
                let wanted = self.found.remove(known + at).expect("just found there");
                return self.checked(wanted);
            }
            known = self.found.len();
            poll_fn(|cx| self.poll_completions(cx)).await?;
        }
    }

    /// Waits until the peer has disconnected, and disconnects.
    ///
    /// # Errors
    /// [`TransportError::Fault`], [`TransportError::Device`] and [`TransportError::DeviceRemoved`] if the device failed.
    ///
    /// Cancel safety: may be called again.
    pub async fn closed(&mut self) -> Result<(), TransportError> {
        while !self.waiting.peer_left {
            let event = poll_fn(|cx| self.device.poll_cm_event(cx)).await?;
            self.handle(event)?;
        }
        Ok(())
    }

    /// Why [`Polling::Adaptive`] would sleep at once on this device. `None`: it does not.
    pub fn adaptive_off(&self) -> Option<&'static str> {
        polling::adaptive_off(&self.device())
    }

    fn never_connected(&self, event: CmEvent) -> TransportError {
        TransportError::never_connected(event, self.peer_addr(), self.device().kind)
    }

    fn checked(&self, completion: Completion) -> Result<Completion, TransportError> {
        let Outcome::Failed(FailureStatus::Flushed) = completion.outcome else { return completion.ok() };
        match self.waiting.failed {
            Some((id, status)) => Err(TransportError::WorkRequest { id, status }),
            None if self.waiting.peer_left => Err(TransportError::Lost(CloseReason::Peer)),
            None => completion.ok(),
        }
    }

    /// Polls the completion queue once. Returns whether anything was found.
    fn poll_queue(&mut self) -> Result<bool, TransportError> {
        self.counters.polls += 1;
        let looked = self.device.poll(&mut self.scratch, BATCH);
        let any = !self.scratch.is_empty();
        for completion in self.scratch.drain(..) {
            let completion = Completion { id: completion.wr_id.0, outcome: completion.outcome };
            self.waiting.found(completion);
            self.found.push_back(completion);
        }
        looked.map(|()| any)
    }

    /// Waits until there are completions that were not known before.
    fn poll_completions(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), TransportError>> {
        loop {
            if self.poll_queue()? {
                return Poll::Ready(Ok(()));
            }
            if self.take_cm_event(cx)? {
                continue;
            }
            if self.waiting.should_spin() {
                self.counters.spins += 1;
                // To the end of the run queue: other tasks, timers and sockets come first.
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            if self.arm()? {
                continue;
            }
            match self.device.poll_completion_event(cx) {
                Poll::Ready(event) => {
                    event?;
                    self.counters.events += 1;
                    self.waiting.armed = false;
                }
                Poll::Pending => {
                    self.counters.sleeps += 1;
                    return Poll::Pending;
                }
            }
        }
    }

    /// As [`poll_completions`](Self::poll_completions), blocking the thread. `false`: the interrupt was raised, and there are none.
    fn wait_for_completions(&mut self, interrupt: &Interrupt) -> Result<bool, TransportError> {
        let mut cx = Context::from_waker(interrupt.waker());
        loop {
            for _ in 0..POLLS_BETWEEN_CHECKS {
                if self.poll_queue()? {
                    return Ok(true);
                }
                if !self.waiting.should_spin() {
                    break;
                }
                self.counters.spins += 1;
                if self.polite {
                    thread::yield_now();
                }
            }
            if self.take_cm_event(&mut cx)? {
                continue;
            }
            if interrupt.take() {
                return Ok(false);
            }
            if self.waiting.should_spin() || self.arm()? {
                continue;
            }
            self.counters.sleeps += 1;
            if self.device.wait_completion_event(interrupt)? {
                self.counters.events += 1;
                self.waiting.armed = false;
            }
        }
    }

    /// Takes a connection-manager event, and notices the end of the connection. Returns whether to poll the queue again before sleeping.
    fn take_cm_event(&mut self, cx: &mut Context<'_>) -> Result<bool, TransportError> {
        if let Poll::Ready(event) = self.device.poll_cm_event(cx) {
            self.handle(event?)?;
            return Ok(true);
        }
        if self.waiting.peer_left && self.waiting.outstanding == 0 {
            return Err(TransportError::Lost(CloseReason::Peer));
        }
        Ok(false)
    }

    /// Arms the queue unless it is armed. Returns whether to poll it again before sleeping: what came before that raises no event.
    fn arm(&mut self) -> Result<bool, TransportError> {
        if self.waiting.armed {
            return Ok(false);
        }
        self.counters.arms += 1;
        self.device.arm()?;
        self.waiting.armed = true;
        Ok(true)
    }

    fn handle(&mut self, event: CmEvent) -> Result<(), TransportError> {
        match event {
            // What was posted completes as flushed by that.
            CmEvent::Disconnected => {
                self.waiting.peer_left = true;
                self.device.disconnect();
                Ok(())
            }
            CmEvent::Established | CmEvent::PortDown | CmEvent::PortUp => Ok(()),
            other => Err(self.never_connected(other)),
        }
    }
}

/// Completions taken at once.
const BATCH: usize = 64;

/// How often a busy thread polls the completion queue before it looks for what is rare: the end of the connection, an interrupt.
const POLLS_BETWEEN_CHECKS: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spin_limit_beyond_the_end_of_the_clock_never_comes() {
        let mut waiting = Waiting::default();
        waiting.set(Polling::Adaptive, Duration::MAX);
        assert!(waiting.should_spin() && waiting.should_spin());
        waiting.set(Polling::Adaptive, Duration::ZERO);
        assert!(!waiting.should_spin());
    }
}
