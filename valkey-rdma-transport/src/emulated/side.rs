//! One side of a link: its queues, its regions, its events.

use std::collections::VecDeque;
use std::task::Waker;

use valkey_rdma_proto::work::{
    Completion, FailureStatus, Outcome, ReceiveRequest, RegionId, SendRequest, WrId,
};

use super::memory::Memory;
use crate::device::{CmEvent, EndpointOptions};

/// The state of a queue pair, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueuePairState {
    /// Receives may be posted; nothing flows.
    Init,
    /// Connected.
    Ready,
    /// Everything posted is flushed.
    Error,
}

/// One side of a link.
#[derive(Debug)]
pub(super) struct Side {
    pub(super) state: QueuePairState,
    pub(super) memories: Vec<Memory>,
    pub(super) receives: VecDeque<ReceiveRequest>,
    /// Sends that found no receive posted at the peer, oldest first. They wait for ever: both sides connect
    /// with a retry count of 7.
    pub(super) stalled: VecDeque<SendRequest>,
    send_depth: u32,
    receive_depth: u32,
    /// Send queue entries in use. An entry is free again once a completion at or past it was polled.
    sends: u32,
    /// Entries used since the last one that completes.
    uncompleted: u32,
    /// Completions, each with the number of send queue entries that polling it frees.
    completions: VecDeque<(Completion, u32)>,
    overrun: bool,
    armed: bool,
    pub(super) completion_event: Signal,
    pub(super) cm_events: VecDeque<CmEvent>,
    pub(super) cm_signal: Signal,
}

/// Something to wake a task for.
#[derive(Debug, Default)]
pub(super) struct Signal {
    pub(super) raised: bool,
    pub(super) waker: Option<Waker>,
}

impl Signal {
    /// The task to wake, if the signal is raised and one waits. Wake it without holding the link's lock: a
    /// waker may drop its task, and the task this link.
    pub(super) fn take_waker(&mut self) -> Option<Waker> {
        if self.raised { self.waker.take() } else { None }
    }
}

impl Side {
    pub(super) fn new(options: &EndpointOptions) -> Self {
        Self {
            state: QueuePairState::Init,
            memories: Vec::new(),
            receives: VecDeque::new(),
            stalled: VecDeque::new(),
            send_depth: options.send_depth,
            receive_depth: options.receive_depth,
            sends: 0,
            uncompleted: 0,
            completions: VecDeque::new(),
            overrun: false,
            armed: false,
            completion_event: Signal::default(),
            cm_events: VecDeque::new(),
            cm_signal: Signal::default(),
        }
    }

    /// Takes a send queue entry. `false`: the queue is full.
    pub(super) fn take_send_entry(&mut self) -> bool {
        let free = self.sends < self.send_depth;
        if free {
            self.sends += 1;
            self.uncompleted += 1;
        }
        free
    }

    /// Whether another receive may be posted.
    pub(super) fn has_receive_entry(&self) -> bool {
        self.receives.len() < self.receive_depth as usize
    }

    /// A send ended well.
    pub(super) fn complete_send(&mut self, request: &SendRequest) {
        if request.signalled {
            self.push_send_completion(request.wr_id, Outcome::Sent);
        }
    }

    /// A send ended badly: it completes whether signalled or not.
    pub(super) fn fail_send(&mut self, wr_id: WrId, status: FailureStatus) {
        self.push_send_completion(wr_id, Outcome::Failed(status));
    }

    /// A receive ended.
    pub(super) fn complete_receive(&mut self, wr_id: WrId, outcome: Outcome) {
        self.push(Completion { wr_id, outcome }, 0);
    }

    /// Moves the queue pair to error and flushes what is posted.
    pub(super) fn fail(&mut self) {
        if self.state == QueuePairState::Error {
            return;
        }
        self.state = QueuePairState::Error;
        for request in std::mem::take(&mut self.stalled) {
            self.fail_send(request.wr_id, FailureStatus::Flushed);
        }
        for request in std::mem::take(&mut self.receives) {
            self.complete_receive(request.wr_id, Outcome::Failed(FailureStatus::Flushed));
        }
    }

    /// Appends up to `limit` completions to `out`. `false`: the queue was overrun, its content is worthless.
    pub(super) fn poll(&mut self, out: &mut Vec<Completion>, limit: usize) -> bool {
        for (completion, freed) in self.completions.drain(..limit.min(self.completions.len())) {
            self.sends -= freed;
            out.push(completion);
        }
        !self.overrun
    }

    /// Asks for an event at the next completion.
    pub(super) fn arm(&mut self) {
        self.armed = true;
    }

    /// Reports a connection-manager event.
    pub(super) fn push_cm_event(&mut self, event: CmEvent) {
        self.cm_events.push_back(event);
        self.cm_signal.raised = true;
    }

    /// The region with this name.
    pub(super) fn memory(&self, id: RegionId) -> Option<&Memory> {
        self.memories.get(id.0 as usize)
    }

    fn push_send_completion(&mut self, wr_id: WrId, outcome: Outcome) {
        let freed = std::mem::take(&mut self.uncompleted);
        self.push(Completion { wr_id, outcome }, freed);
    }

    fn push(&mut self, completion: Completion, freed: u32) {
        if self.completions.len() == (self.send_depth + self.receive_depth) as usize {
            self.overrun = true;
            return;
        }
        self.completions.push_back((completion, freed));
        if std::mem::take(&mut self.armed) {
            self.completion_event.raised = true;
        }
    }
}
