//! [`channel`]: replies on their way from the driver to their caller, in memory that later requests use again.

use std::cell::RefCell;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use valkey_rdma_resp::Value;

use crate::command::{Command, Commands, Reply};
use crate::error::Error;
use valkey_rdma_transport::sync::{Mutex, keep_waker, lock};

/// The most free slots that a thread keeps.
const MAX_FREE: usize = 64;

thread_local! {
    /// Free slots. Each is in its initial state.
    static FREE: RefCell<Vec<Arc<Slot>>> = const { RefCell::new(Vec::new()) };
}

type Slot = Mutex<State>;

#[derive(Default)]
struct State {
    /// Wakes the caller. `None` until the caller was polled.
    caller: Option<Waker>,
    /// The replies to a pipeline that the caller can take.
    replies: Vec<Reply>,
    /// `None` while replies are to come.
    end: Option<End>,
}

/// How the wait for replies ends.
enum End {
    /// The reply to one command has come.
    One(Value),
    /// All replies to a pipeline have come.
    Many,
    Failed(Error, Option<Box<Command>>),
    /// The driver has dropped its end.
    Dropped,
}

/// What became of commands that were sent together.
pub(crate) enum Outcome {
    /// The reply to one command.
    One(Value),
    /// The replies to a pipeline, in order, without those that were taken before.
    Many(Vec<Reply>),
    Failed(Failed),
}

/// Why commands that were sent together failed.
pub(crate) struct Failed {
    pub(crate) error: Error,
    /// The command, so that it can be sent elsewhere. `None` for a pipeline, or if its time was up while it was in flight, or if the
    /// runtime shut down.
    pub(crate) command: Option<Box<Command>>,
    /// The replies to a pipeline that had come before, in order, without those that were taken.
    pub(crate) replies: Vec<Reply>,
}

impl Outcome {
    /// The reply to the command, or to the last command of a pipeline.
    pub(crate) fn last(self) -> Result<Value, Failed> {
        match self {
            Self::One(value) => Ok(value),
            Self::Many(mut replies) => Ok(replies.pop().unwrap_or(Ok(Value::Nil)).map_err(Error::from)?),
            Self::Failed(failed) => Err(failed),
        }
    }

    /// The replies to all commands.
    pub(crate) fn all(self) -> Result<Vec<Reply>, Failed> {
        match self {
            Self::One(value) => Ok(vec![Ok(value)]),
            Self::Many(replies) => Ok(replies),
            Self::Failed(failed) => Err(failed),
        }
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self { error, command: None, replies: Vec::new() }
    }
}

impl From<Failed> for Error {
    fn from(failed: Failed) -> Self {
        failed.error
    }
}

/// When the caller gets the replies to a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// Together, after the last.
    Together,
    /// Those that arrive together, as soon as they do.
    Streamed,
    /// Streamed, and the caller can see some of them already.
    Begun,
}

/// The driver's end. Dropping it without a reply ends the caller's wait.
pub(crate) struct ReplySender {
    /// `None` once the caller has an outcome: later replies are dropped.
    slot: Option<Arc<Slot>>,
    /// The replies to a pipeline that the caller cannot see yet.
    replies: Vec<Reply>,
    delivery: Delivery,
}

/// The caller's end. Dropping it discards the replies.
pub(crate) struct ReplyReceiver {
    /// `None` once the outcome was taken.
    slot: Option<Arc<Slot>>,
}

/// Connects the driver with a caller of these commands.
pub(super) fn channel(commands: &Commands, delivery: Delivery) -> (ReplySender, ReplyReceiver) {
    let free = FREE.try_with(|free| free.borrow_mut().pop()).ok().flatten();
    let slot = free.unwrap_or_default();
    let replies = match (commands, delivery) {
        (Commands::One(_), _) => Vec::new(),
        (Commands::Many(pipeline), Delivery::Together) => Vec::with_capacity(pipeline.count()),
        (Commands::Many(pipeline), _) => Vec::with_capacity(pipeline.count().min(USUAL_BURST)),
    };
    (ReplySender { slot: Some(slot.clone()), replies, delivery }, ReplyReceiver { slot: Some(slot) })
}

/// More replies than arrive together as a rule.
const USUAL_BURST: usize = 64;

impl ReplySender {
    /// Adds a reply to a pipeline, which is not the last.
    pub(crate) fn push(&mut self, reply: Reply) {
        if self.slot.is_some() {
            self.replies.push(reply);
        }
    }

    /// Lets the caller of a streamed pipeline take the replies that have been pushed. Returns what wakes the caller, if it waits.
    pub(crate) fn pass_on(&mut self) -> Option<Waker> {
        if self.delivery == Delivery::Together || self.replies.is_empty() {
            return None;
        }
        if self.is_closed() {
            self.replies.clear();
            return None;
        }
        self.delivery = Delivery::Begun;
        let mut state = lock(self.slot.as_ref()?);
        state.add(&mut self.replies);
        state.caller.take()
    }

    /// Discards the replies so far, because the commands will be sent again. Returns `false` if the caller can see some of them already.
    pub(crate) fn restart(&mut self) -> bool {
        self.replies.clear();
        self.delivery != Delivery::Begun
    }

    /// Delivers the last reply, and an error reply along with its command. Returns what wakes the caller, if it waits.
    pub(crate) fn complete(mut self, reply: Reply, commands: Commands) -> Option<Waker> {
        let end = match (commands, reply) {
            (Commands::One(_), Ok(value)) => End::One(value),
            (Commands::One(command), Err(error)) => End::Failed(error.into(), Some(Box::new(command))),
            (Commands::Many(_), reply) => {
                self.replies.push(reply);
                End::Many
            }
        };
        self.end(end)
    }

    /// Delivers a failure, along with the command if it may be sent elsewhere. Later replies are dropped.
    pub(crate) fn fail(&mut self, error: Error, commands: Option<Commands>) {
        let command = match commands {
            Some(Commands::One(command)) => Some(Box::new(command)),
            Some(Commands::Many(_)) | None => None,
        };
        if let Some(caller) = self.end(End::Failed(error, command)) {
            caller.wake();
        }
    }

    /// True if the caller has gone away, or has an outcome.
    pub(crate) fn is_closed(&self) -> bool {
        self.slot.as_ref().is_none_or(|slot| Arc::strong_count(slot) == 1)
    }

    fn end(&mut self, end: End) -> Option<Waker> {
        let slot = self.slot.take()?;
        let mut state = lock(&slot);
        state.add(&mut self.replies);
        state.end = Some(end);
        let caller = state.caller.take();
        drop(state);
        // Before the caller runs, which uses the slot again if it is its only owner.
        drop(slot);
        caller
    }
}

impl Drop for ReplySender {
    fn drop(&mut self) {
        if let Some(caller) = self.end(End::Dropped) {
            caller.wake();
        }
    }
}

impl State {
    /// Moves replies behind those that the caller has not taken.
    fn add(&mut self, replies: &mut Vec<Reply>) {
        if replies.is_empty() {
            return;
        }
        if self.replies.is_empty() {
            // Its memory is used for the next ones.
            std::mem::swap(&mut self.replies, replies);
        } else {
            self.replies.append(replies);
        }
    }
}

impl ReplyReceiver {
    /// Ready with the outcome, once. `None`: the sender was dropped without one.
    ///
    /// # Panics
    /// After it was ready.
    pub(crate) fn poll(&mut self, cx: &Context<'_>) -> Poll<Option<Outcome>> {
        let Some(slot) = &self.slot else { panic!("polled after the outcome was taken") };
        let mut state = lock(slot);
        let Some(end) = state.end.take() else {
            keep_waker(&mut state.caller, cx);
            return Poll::Pending;
        };
        let replies = std::mem::take(&mut state.replies);
        drop(state);
        if let Some(slot) = self.slot.take() {
            recycle(slot);
        }
        Poll::Ready(match end {
            End::One(value) => Some(Outcome::One(value)),
            End::Many => Some(Outcome::Many(replies)),
            End::Failed(error, command) => Some(Outcome::Failed(Failed { error, command, replies })),
            End::Dropped => None,
        })
    }

    /// Takes the replies to a streamed pipeline that have come; `replies` must be empty, and its memory is used for the next ones. Ready when
    /// there are some, or with true when no more will come.
    pub(crate) fn poll_arrived(&mut self, cx: &Context<'_>, replies: &mut Vec<Reply>) -> Poll<bool> {
        debug_assert!(replies.is_empty(), "these would be delivered once more");
        let Some(slot) = &self.slot else { return Poll::Ready(true) };
        let mut state = lock(slot);
        if state.replies.is_empty() && state.end.is_none() {
            keep_waker(&mut state.caller, cx);
            return Poll::Pending;
        }
        std::mem::swap(&mut state.replies, replies);
        Poll::Ready(state.end.is_some())
    }

    /// True until the outcome was taken.
    pub(crate) fn is_waiting(&self) -> bool {
        self.slot.is_some()
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
    use std::future::poll_fn;

    use super::*;
    use crate::command::EncodedPipeline;

    fn ping() -> Commands {
        Commands::One(Command::new("PING"))
    }

    fn pings(count: usize) -> Commands {
        Commands::Many(vec![&Command::new("PING"); count].into_iter().collect::<EncodedPipeline>())
    }

    fn send(sender: ReplySender, reply: i64) {
        if let Some(caller) = sender.complete(Ok(Value::Int(reply)), ping()) {
            caller.wake();
        }
    }

    async fn received(mut receiver: ReplyReceiver) -> Option<Value> {
        poll_fn(|cx| receiver.poll(cx)).await?.last().ok()
    }

    #[tokio::test]
    async fn a_reply_arrives_before_or_after_its_caller_waits() {
        let (sender, receiver) = channel(&ping(), Delivery::Together);
        send(sender, 1);
        assert_eq!(received(receiver).await, Some(Value::Int(1)));

        let (sender, receiver) = channel(&ping(), Delivery::Together);
        let waits = tokio::spawn(received(receiver));
        tokio::task::yield_now().await;
        send(sender, 2);
        assert_eq!(waits.await.expect("no panic"), Some(Value::Int(2)));
    }

    #[tokio::test]
    async fn each_end_notices_that_the_other_is_gone() {
        let (sender, receiver) = channel(&ping(), Delivery::Together);
        assert!(!sender.is_closed());
        drop(receiver);
        assert!(sender.is_closed());

        let (sender, receiver) = channel(&ping(), Delivery::Together);
        drop(sender);
        assert!(received(receiver).await.is_none());
    }

    #[tokio::test]
    async fn a_slot_is_used_again_only_without_its_other_owner() {
        let (sender, receiver) = channel(&ping(), Delivery::Together);
        let first = receiver.slot.as_ref().map(Arc::as_ptr);
        send(sender, 0);
        received(receiver).await.expect("a reply");
        let (second, dropped) = channel(&ping(), Delivery::Together);
        assert_eq!(second.slot.as_ref().map(Arc::as_ptr), first);
        drop(dropped);
        let (third, _receiver) = channel(&ping(), Delivery::Together);
        assert_ne!(third.slot.as_ref().map(Arc::as_ptr), first, "the driver still has it");
        send(second, 1);
        assert!(!third.is_closed());
    }

    #[test]
    fn a_command_that_fails_comes_back() {
        let cx = Context::from_waker(Waker::noop());
        let (sender, mut receiver) = channel(&ping(), Delivery::Together);
        drop(sender.complete(Err(valkey_rdma_resp::ServerError::from_reply(b"MOVED 1 h:1")), ping()));
        let Poll::Ready(Some(Outcome::Failed(failed))) = receiver.poll(&cx) else { panic!("it failed") };
        assert_eq!(failed.command.map(|command| command.name()).as_deref(), Some("PING"));
    }

    #[test]
    fn streamed_replies_that_come_together_are_taken_together() {
        let cx = Context::from_waker(Waker::noop());
        let (mut sender, mut receiver) = channel(&pings(5), Delivery::Streamed);
        let mut replies = Vec::new();
        sender.push(Ok(Value::Int(0)));
        assert!(receiver.poll_arrived(&cx, &mut replies).is_pending());
        sender.push(Ok(Value::Int(1)));
        assert!(sender.restart(), "the caller has not seen them");
        sender.push(Ok(Value::Int(2)));
        sender.push(Ok(Value::Int(3)));
        assert!(sender.pass_on().is_some(), "the caller waits");
        assert!(!sender.restart());
        assert_eq!(receiver.poll_arrived(&cx, &mut replies), Poll::Ready(false));
        assert_eq!(replies, [Ok(Value::Int(2)), Ok(Value::Int(3))]);
        replies.clear();
        drop(sender.complete(Ok(Value::Nil), pings(5)));
        assert_eq!(receiver.poll_arrived(&cx, &mut replies), Poll::Ready(true));
        assert_eq!(replies, [Ok(Value::Nil)]);
    }

    #[test]
    fn the_replies_before_a_failure_come_with_it() {
        let cx = Context::from_waker(Waker::noop());
        let (mut sender, mut receiver) = channel(&pings(3), Delivery::Together);
        sender.push(Ok(Value::Int(0)));
        sender.fail(Error::Unexpected(valkey_rdma_resp::UnexpectedReply::new("a reply", "none")), None);
        let Poll::Ready(Some(Outcome::Failed(failed))) = receiver.poll(&cx) else { panic!("it failed") };
        assert_eq!(failed.replies, [Ok(Value::Int(0))]);
    }

    #[test]
    fn nothing_is_kept_for_a_caller_that_is_gone() {
        let (mut sender, receiver) = channel(&pings(3), Delivery::Streamed);
        drop(receiver);
        sender.push(Ok(Value::Nil));
        assert!(sender.pass_on().is_none());
        assert!(sender.replies.is_empty());
    }
}
