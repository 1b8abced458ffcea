//! Shared access to a [`Session`]: by its connection, by its task, by the device it is on.

use std::sync::Arc;
use std::task::Waker;

use valkey_rdma_proto::work::ReceiveRequest;

use super::session::{Phase, Session};
use crate::emulated::fault_plan::Disturb;
use crate::emulated::queue_pair::QueuePair;
use crate::emulated::wake;
use crate::error::TransportError;
use crate::sync::{Mutex, lock};

/// One end of a connection between processes.
#[derive(Clone, Debug)]
pub(in crate::emulated) struct SocketLink(Arc<Mutex<Session>>);

impl SocketLink {
    /// The active end that found no listener.
    pub(super) fn no_listener(side: QueuePair) -> Self {
        Self::idle(side, Phase::NoListener)
    }

    /// Puts another side in place of one that nothing was posted to.
    pub(super) fn replace_side(&self, mut side: QueuePair) {
        self.with(|session| {
            side.agree(session.side.peer);
            session.side = side;
        });
    }

    /// Without a task.
    pub(super) fn idle(side: QueuePair, phase: Phase) -> Self {
        let plan = side.plan.clone();
        let link = Self(Arc::new(Mutex::new(Session::new(side, phase))));
        plan.watch(Arc::downgrade(&link.0));
        link
    }

    /// Runs `step` under the lock, then wakes the tasks that wait for what it brought.
    pub(super) fn with<R>(&self, step: impl FnOnce(&mut Session) -> R) -> R {
        let (result, wakers) = {
            let mut session = lock(&self.0);
            let result = step(&mut session);
            (result, session.side.take_wakers())
        };
        wake(wakers);
        result
    }

    /// As [`with`](Self::with), for what gives the task something to do.
    pub(in crate::emulated) fn ring<R>(&self, step: impl FnOnce(&mut Session) -> R) -> R {
        let (result, driver) = self.with(|session| (step(session), session.driver.take()));
        driver.into_iter().for_each(Waker::wake);
        result
    }

    /// Runs `step` on this end's side, for what concerns no other side.
    pub(in crate::emulated) fn side<R>(&self, step: impl FnOnce(&mut QueuePair) -> R) -> R {
        self.with(|session| step(&mut session.side))
    }

    /// Posts receives. The task need not know, unless the peer waits for them.
    pub(in crate::emulated) fn post_receives(&self, batch: &[ReceiveRequest]) -> Result<(), TransportError> {
        let (posted, driver) = self.with(|session| {
            let posted = session.post_receives(batch);
            let due = session.resumes();
            (posted, session.driver.take_if(|_| due))
        });
        driver.into_iter().for_each(Waker::wake);
        posted
    }
}

impl Disturb for Mutex<Session> {
    fn resume(self: Arc<Self>) {
        SocketLink(self).ring(Session::receives_posted);
    }

    fn reset_timers(self: Arc<Self>) {
        SocketLink(self).ring(|_| ());
    }

    fn sever(self: Arc<Self>) {
        SocketLink(self).ring(Session::sever);
    }

    fn cut(self: Arc<Self>) {
        SocketLink(self).ring(Session::cut);
    }
}
