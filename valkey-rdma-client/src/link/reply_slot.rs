//! [`channel`]: one reply on its way from the driver to its caller, in memory that later requests use again.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::command::{Command, Reply};
use crate::error::Error;
use crate::sync::{Mutex, lock};

/// The most free slots that a thread keeps.
const MAX_FREE: usize = 64;

thread_local! {
    /// Free slots. Each is in its initial state.
    static FREE: RefCell<Vec<Arc<Slot>>> = const { RefCell::new(Vec::new()) };
}

type Slot = Mutex<State>;

enum State {
    /// The caller is woken by this waker, once it has been polled.
    Empty(Option<Waker>),
    /// The outcome, and the command if it was to be given back.
    Filled(Result<Reply, Error>, Option<Box<Command>>),
    /// The driver has dropped its end.
    Abandoned,
}

/// The driver's end. Dropping it without a reply ends the caller's wait.
pub(crate) struct ReplySender {
    slot: Option<Arc<Slot>>,
    command: GiveBack,
}

/// Whether the command goes back to its caller if it fails, so that it can be sent elsewhere.
enum GiveBack {
    No,
    Wanted,
    Given(Box<Command>),
}

/// The caller's end: a future. Dropping it discards the reply.
pub(crate) struct ReplyReceiver {
    slot: Option<Arc<Slot>>,
    /// What came back with a failure.
    pub(crate) command: Option<Box<Command>>,
}

/// The sender was dropped without a reply.
#[derive(Debug)]
pub(crate) struct Unanswered;

pub(crate) fn channel() -> (ReplySender, ReplyReceiver) {
    let free = FREE.try_with(|free| free.borrow_mut().pop()).ok().flatten();
    let slot = free.unwrap_or_else(|| Arc::new(Mutex::new(State::Empty(None))));
    let sender = ReplySender { slot: Some(slot.clone()), command: GiveBack::No };
    (sender, ReplyReceiver { slot: Some(slot), command: None })
}

impl ReplySender {
    pub(crate) fn send(self, reply: Result<Reply, Error>) {
        if let Some(caller) = self.put(reply) {
            caller.wake();
        }
    }

    /// Leaves the reply for its caller. Returns what wakes the caller, if it waits.
    pub(crate) fn put(mut self, reply: Result<Reply, Error>) -> Option<Waker> {
        let command = match std::mem::replace(&mut self.command, GiveBack::No) {
            GiveBack::Given(command) => Some(command),
            GiveBack::No | GiveBack::Wanted => None,
        };
        self.fill(State::Filled(reply, command))
    }

    /// Asks for the command back if it fails.
    pub(crate) fn want_back(mut self) -> Self {
        self.command = GiveBack::Wanted;
        self
    }

    /// Sends the command back together with the failure, if the caller wants it.
    pub(crate) fn give_back(&mut self, command: Command) {
        if let GiveBack::Wanted = self.command {
            self.command = GiveBack::Given(Box::new(command));
        }
    }

    /// True if the caller has gone away.
    pub(crate) fn is_closed(&self) -> bool {
        self.slot.as_ref().is_none_or(|slot| Arc::strong_count(slot) == 1)
    }

    fn fill(&mut self, filled: State) -> Option<Waker> {
        let slot = self.slot.take()?;
        let before = std::mem::replace(&mut *lock(&slot), filled);
        // Before the caller runs, which uses the slot again if it is its only owner.
        drop(slot);
        match before {
            State::Empty(caller) => caller,
            State::Filled(..) | State::Abandoned => None,
        }
    }
}

impl Drop for ReplySender {
    fn drop(&mut self) {
        if let Some(caller) = self.fill(State::Abandoned) {
            caller.wake();
        }
    }
}

impl ReplyReceiver {
    /// Discards the reply. Returns false if it was taken before.
    pub(crate) fn abandon(&mut self) -> bool {
        self.slot.take().is_some()
    }

    /// The command, if it has come back with a failure that its caller knows already.
    pub(crate) fn take_back(&mut self) -> Option<Box<Command>> {
        match &mut *lock(self.slot.as_ref()?) {
            State::Filled(_, command) => command.take(),
            State::Empty(_) | State::Abandoned => None,
        }
    }
}

impl Future for ReplyReceiver {
    type Output = Result<Result<Reply, Error>, Unanswered>;

    /// # Panics
    /// After it was ready.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(slot) = &self.slot else { panic!("polled after the reply was taken") };
        let mut state = lock(slot);
        if let State::Empty(caller) = &mut *state {
            match caller {
                Some(caller) => caller.clone_from(cx.waker()),
                None => *caller = Some(cx.waker().clone()),
            }
            return Poll::Pending;
        }
        let filled = std::mem::replace(&mut *state, State::Empty(None));
        drop(state);
        if let Some(slot) = self.slot.take() {
            recycle(slot);
        }
        Poll::Ready(match filled {
            State::Filled(reply, command) => {
                self.command = command;
                Ok(reply)
            }
            State::Empty(_) | State::Abandoned => Err(Unanswered),
        })
    }
}

/// Keeps an empty slot for the next request, unless the driver still holds it.
fn recycle(mut slot: Arc<Slot>) {
    if Arc::get_mut(&mut slot).is_some() {
        // A thread that ends keeps nothing.
        let _ended = FREE.try_with(|free| {
            let mut free = free.borrow_mut();
            if free.len() < MAX_FREE {
                free.push(slot);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use valkey_rdma_resp::Value;

    use super::*;

    #[tokio::test]
    async fn a_reply_arrives_before_or_after_its_caller_waits() {
        let (sender, receiver) = channel();
        sender.send(Ok(Ok(Value::Int(1))));
        assert_eq!(receiver.await.expect("sent").expect("a reply"), Ok(Value::Int(1)));

        let (sender, receiver) = channel();
        let waits = tokio::spawn(receiver);
        tokio::task::yield_now().await;
        sender.send(Ok(Ok(Value::Int(2))));
        let reply = waits.await.expect("no panic").expect("sent");
        assert_eq!(reply.expect("a reply"), Ok(Value::Int(2)));
    }

    #[tokio::test]
    async fn each_end_notices_that_the_other_is_gone() {
        let (sender, receiver) = channel();
        assert!(!sender.is_closed());
        drop(receiver);
        assert!(sender.is_closed());

        let (sender, receiver) = channel();
        drop(sender);
        assert!(receiver.await.is_err());
    }

    #[tokio::test]
    async fn a_slot_is_used_again_only_without_its_other_owner() {
        let (sender, receiver) = channel();
        let first = receiver.slot.as_ref().map(Arc::as_ptr);
        sender.send(Ok(Ok(Value::Nil)));
        receiver.await.expect("sent").expect("a reply").expect("a value");
        let (second, dropped) = channel();
        assert_eq!(second.slot.as_ref().map(Arc::as_ptr), first);
        drop(dropped);
        let (third, _receiver) = channel();
        assert_ne!(third.slot.as_ref().map(Arc::as_ptr), first, "the driver still has it");
        second.send(Ok(Ok(Value::Int(1))));
        assert!(!third.is_closed());
    }
}
