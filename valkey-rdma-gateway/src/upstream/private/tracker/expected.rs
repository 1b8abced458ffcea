//! [`Expected`]: the replies that a private connection will get.

use std::collections::VecDeque;
use std::sync::Arc;

use valkey_rdma_resp::Protocol;

use crate::command::class::Kind;
use crate::command::hello;
use crate::upstream::identity::Login;

/// In their order. There may be a million, and each command asks how many: they are counted as they come and go.
#[derive(Debug, Default)]
pub(super) struct Expected {
    queue: VecDeque<Expect>,
    of_client: usize,
    blocking: usize,
}

impl Expected {
    pub(super) fn push(&mut self, expect: Expect) {
        self.of_client += usize::from(expect.is_of_client());
        self.blocking += usize::from(expect.blocks());
        self.queue.push_back(expect);
    }

    pub(super) fn pop(&mut self) -> Option<Expect> {
        let expect = self.queue.pop_front()?;
        self.of_client -= usize::from(expect.is_of_client());
        self.blocking -= usize::from(expect.blocks());
        Some(expect)
    }

    pub(super) fn front(&self) -> Option<&Expect> {
        self.queue.front()
    }

    /// Its kind must stay.
    pub(super) fn front_mut(&mut self) -> Option<&mut Expect> {
        self.queue.front_mut()
    }

    pub(super) fn back(&self) -> Option<&Expect> {
        self.queue.back()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Replies that the client waits for.
    pub(super) fn of_client(&self) -> usize {
        self.of_client
    }

    /// Whether one may take for ever.
    pub(super) fn any_blocks(&self) -> bool {
        self.blocking > 0
    }
}

/// The reply that a command will have.
#[derive(Debug)]
pub(super) enum Expect {
    Any,
    /// It may take for ever.
    Blocking,
    /// A command of the gateway: the client gets no reply.
    Ours,
    /// It contains the number of a client.
    Numbered,
    BeforeWait,
    /// WAIT, if the command before it has succeeded.
    Wait,
    Multi,
    Exec,
    Discard,
    Watch,
    Unwatch,
    Flag(Flag, bool),
    /// This number of confirmations.
    Subscribe(usize),
    /// This number of confirmations; without one, a confirmation of each subscription.
    Unsubscribe(Kind, Option<usize>),
    Change(Event),
    Hello(Option<Protocol>, hello::Options),
    Reset,
    Quit,
}

impl Expect {
    pub(super) fn blocks(&self) -> bool {
        matches!(self, Self::Blocking | Self::Wait)
    }

    fn is_of_client(&self) -> bool {
        !matches!(self, Self::Ours | Self::BeforeWait)
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Flag {
    Tracking,
    NoEvict,
    NoTouch,
}

/// A change of the client's identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Database(u32),
    Login(Arc<Login>),
    Name(Vec<u8>),
    Protocol(Protocol),
    Reset,
}
