//! Shared access to a [`Session`]: by its endpoint, by its task, by the device it is on.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::Waker;

use valkey_rdma_proto::work::ReceiveRequest;

use super::Socket;
use super::driver::Driver;
use super::session::{Phase, Session};
use crate::emulated::side::Side;
use crate::emulated::wake;
use crate::error::TransportError;

/// One end of a connection between processes.
#[derive(Clone, Debug)]
pub(in crate::emulated) struct SocketLink(Arc<Mutex<Session>>);

/// A [`SocketLink`] that does not keep it.
#[derive(Debug)]
pub(in crate::emulated) struct WeakSocketLink(Weak<Mutex<Session>>);

impl SocketLink {
    /// The active end, over a socket that leads to a listener. `port` is the one it goes by.
    pub(super) fn active(side: Side, port: u16, socket: Box<dyn Socket>) -> Self {
        Self::start(side, Phase::Fresh { port }, socket)
    }

    /// The active end that found no listener.
    pub(super) fn nobody(side: Side) -> Self {
        Self::idle(side, Phase::Nobody)
    }

    /// The passive end, over a socket on which a connect request came.
    pub(super) fn passive(side: Side, socket: Box<dyn Socket>) -> Self {
        Self::start(side, Phase::Requested, socket)
    }

    /// Puts another side in place of one that nothing was posted to.
    pub(super) fn replace_side(&self, mut side: Side) {
        self.with(|session| {
            side.sends.rnr_retry_count = session.side.sends.rnr_retry_count;
            session.side = side;
        });
    }

    fn start(side: Side, phase: Phase, socket: Box<dyn Socket>) -> Self {
        let link = Self::idle(side, phase);
        tokio::spawn(Driver::new(link.clone(), socket));
        link
    }

    /// Without a task.
    pub(super) fn idle(side: Side, phase: Phase) -> Self {
        let conditions = side.conditions.clone();
        let link = Self(Arc::new(Mutex::new(Session::new(side, phase))));
        conditions.watch_socket(&link);
        link
    }

    pub(in crate::emulated) fn downgrade(&self) -> WeakSocketLink {
        WeakSocketLink(Arc::downgrade(&self.0))
    }

    /// Runs `step` under the lock, then wakes the tasks that wait for what it brought.
    pub(super) fn with<R>(&self, step: impl FnOnce(&mut Session) -> R) -> R {
        let (result, wakers) = {
            let mut session = self.0.lock().unwrap_or_else(PoisonError::into_inner);
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

    /// Runs `step` on this end's side, for what concerns nobody else.
    pub(in crate::emulated) fn side<R>(&self, step: impl FnOnce(&mut Side) -> R) -> R {
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

    /// The peer may find receives again.
    pub(in crate::emulated) fn resume(&self) {
        self.ring(Session::receives_posted);
    }

    pub(in crate::emulated) fn sever(&self) {
        self.ring(Session::sever);
    }

    pub(in crate::emulated) fn cut(&self) {
        self.ring(Session::cut);
    }
}

impl WeakSocketLink {
    pub(in crate::emulated) fn upgrade(&self) -> Option<SocketLink> {
        self.0.upgrade().map(SocketLink)
    }

    pub(in crate::emulated) fn is_alive(&self) -> bool {
        self.0.strong_count() > 0
    }
}
