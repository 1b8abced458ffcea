//! [`Question`]: whether the server answers, asked once for all calls that want to know it at the same time.

use std::future::Future;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use tokio::time::Instant;

use valkey_rdma_transport::sync::{Mutex, lock};

/// What a question has found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The server answers.
    Present,
    /// Connections lead to another server now.
    Moved,
    /// It does not answer.
    Silent,
}

/// The question that the calls of one client share: ten thousand of them that block ask as often as one does.
#[derive(Default)]
pub(crate) struct Question {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The one in flight. Kept alive by the calls that wait for it, and not ended with the call that began it.
    in_flight: Option<WeakShared<BoxFuture<'static, Asked>>>,
    /// When the last one was asked that found the server present.
    present: Option<Instant>,
}

/// When a question was asked, and what came of it.
type Asked = (Instant, Answer);

impl Question {
    /// Whether the server answers, and when it was asked. The answer to a question of the last `fresh` counts; else this waits
    /// for the one in flight, or begins one with `ask`.
    ///
    /// Dropping the future does not end a question that other calls wait for.
    pub(crate) async fn answer<F>(&self, fresh: Duration, ask: impl FnOnce() -> F) -> Asked
    where
        F: Future<Output = Answer> + Send + 'static,
    {
        let question = {
            let mut state = lock(&self.state);
            if let Some(asked) = state.present.filter(|asked| asked.elapsed() < fresh) {
                return (asked, Answer::Present);
            }
            let in_flight = state.in_flight.as_ref().and_then(WeakShared::upgrade);
            // One that has ended is of no use to calls that ask from now on.
            in_flight.filter(|question| question.peek().is_none()).unwrap_or_else(|| {
                let (now, answer) = (Instant::now(), ask());
                let question: Shared<BoxFuture<'static, Asked>> =
                    async move { (now, answer.await) }.boxed().shared();
                state.in_flight = question.downgrade();
                question
            })
        };
        let (asked, answer) = question.await;
        if answer == Answer::Present {
            let mut state = lock(&self.state);
            state.present = state.present.max(Some(asked));
        }
        (asked, answer)
    }
}
