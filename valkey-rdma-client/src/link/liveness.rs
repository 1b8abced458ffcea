//! [`Liveness`]: whether a server is still there, asked only while somebody watches. [`Watch`]: a call that does.
//!
//! Over TCP the kernel of a frozen server keeps its connections alive, and a call may wait for ever on purpose. The server cannot be asked
//! on the connection that such a call blocks. So it is asked on the client's shared connection, once for all calls that want to know it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, WeakShared};
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};
use valkey_rdma_transport::sync::{Mutex, lock};

use super::connect::Whereabouts;
use crate::error::LostCause;
use crate::runtime::Runtime;

/// What asking a server has found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The server answers.
    Present,
    /// Connections lead to another server now.
    Moved,
    /// It cannot be asked, or has sent nothing in time.
    Silent,
}

/// Asks a server on a connection that many calls share.
pub(crate) trait Asks: Send + Sync {
    /// Asks whether the server is there, which may take any time.
    fn ask(&self) -> BoxFuture<'static, Answer>;

    /// Counts what the server has sent.
    fn reads(&self) -> u64;
}

/// What is known of one server: ten thousand calls that watch it ask as often as one does.
#[derive(Default)]
pub(crate) struct Liveness {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// When the question in flight was asked, what the server had sent then, and the answer. Kept alive by the calls that wait for it, and not
    /// ended with the call that began it.
    in_flight: Option<(Instant, u64, WeakShared<BoxFuture<'static, Answer>>)>,
    /// When the last one was asked that found the server present.
    present: Option<Instant>,
}

impl Liveness {
    /// Whether the server answers within `limit`, and when it was asked. The answer to a question of the last `fresh` counts; else this waits
    /// for the one in flight, or begins one. A server that sends anything meanwhile is present: its answer may come behind a large value.
    ///
    /// Dropping the future does not end a question that other calls wait for.
    async fn answer(&self, fresh: Duration, limit: Duration, server: &dyn Asks) -> (Instant, Answer) {
        let (asked, reads, question) = {
            let mut state = lock(&self.state);
            if let Some(asked) = state.present.filter(|asked| asked.elapsed() < fresh) {
                return (asked, Answer::Present);
            }
            let in_flight = state.in_flight.as_ref();
            let in_flight =
                in_flight.and_then(|(asked, reads, question)| Some((*asked, *reads, question.upgrade()?)));
            // One that has ended is of no use to calls that ask from now on.
            in_flight.filter(|(.., question)| question.peek().is_none()).unwrap_or_else(|| {
                let (now, reads, question) = (Instant::now(), server.reads(), server.ask().shared());
                state.in_flight = question.downgrade().map(|question| (now, reads, question));
                (now, reads, question)
            })
        };
        let answer = timeout_at(asked + limit, question).await;
        let mut state = lock(&self.state);
        let answer = answer.unwrap_or_else(|_| {
            if server.reads() == reads {
                return Answer::Silent;
            }
            // Later calls compare with what has come until now.
            state.in_flight.take_if(|(of, ..)| *of == asked);
            Answer::Present
        });
        if answer == Answer::Present {
            state.present = state.present.max(Some(asked));
        }
        (asked, answer)
    }
}

/// When calls on a connection of their own leave its server.
#[derive(Clone)]
pub(crate) struct Watch {
    liveness: Arc<Liveness>,
    server: Arc<dyn Asks>,
    runtime: Runtime,
    /// How long a call waits before the server is asked, and after each of its answers.
    pause: Duration,
    /// How long the server has for an answer.
    limit: Duration,
    leaves: Leaves,
}

/// What else must be true before a call leaves a server that does not answer.
#[derive(Clone)]
enum Leaves {
    /// Nothing. It also leaves a server that is not the one any more that connections lead to: `None`, that never changes.
    Silent(Option<Arc<Whereabouts>>),
    /// A cluster has given the node's slots to another. Completes then.
    Replaced(Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>),
}

impl Watch {
    /// Of a call that blocks. The server is asked after each half of the limit.
    pub(crate) fn of_blocking_call(
        liveness: Arc<Liveness>,
        server: impl Asks + 'static,
        runtime: Runtime,
        limit: Duration,
        whereabouts: Option<Whereabouts>,
    ) -> Self {
        let leaves = Leaves::Silent(whereabouts.map(Arc::new));
        Self { liveness, server: Arc::new(server), runtime, pause: limit / 2, limit, leaves }
    }

    /// Of calls on a node of a cluster. A node that has given its slots to another and is frozen keeps its connections open, and what it owes
    /// may be a large value that takes its time: so it is asked whether it lives.
    pub(crate) fn of_calls_on_node(
        liveness: Arc<Liveness>,
        server: impl Asks + 'static,
        runtime: Runtime,
        limit: Duration,
        replaced: impl Fn() -> BoxFuture<'static, ()> + Send + Sync + 'static,
    ) -> Self {
        // To ask without a pause would keep a processor busy.
        let limit = limit.max(SHORTEST);
        let leaves = Leaves::Replaced(Arc::new(replaced));
        Self { liveness, server: Arc::new(server), runtime, pause: limit, limit, leaves }
    }

    /// Completes when a call leaves the server. Boxed, because it is part of every call's future, and rarely of use.
    pub(crate) fn left(&self) -> BoxFuture<'static, LostCause> {
        let watch = self.clone();
        Box::pin(async move {
            let begun = Instant::now();
            // Most calls end meanwhile, and cost no task.
            watch.runtime.timed(|| sleep(watch.pause)).await;
            let runtime = watch.runtime.clone();
            runtime.run(watch.ask_until_it_is_left(begun)).await.unwrap_or(LostCause::Stopped)
        })
    }

    /// Runs where the connections belong. `known`: when the server was known to be there.
    async fn ask_until_it_is_left(self, mut known: Instant) -> LostCause {
        let limit = self.limit;
        loop {
            sleep_until(known + self.pause).await;
            if let Leaves::Silent(Some(whereabouts)) = &self.leaves
                && whereabouts.has_moved()
            {
                return LostCause::Moved;
            }
            let (asked, answer) = self.liveness.answer(self.pause, limit, &*self.server).await;
            match (answer, &self.leaves) {
                (Answer::Present, _) => {}
                (Answer::Moved, Leaves::Silent(_)) => return LostCause::Moved,
                (Answer::Silent, Leaves::Silent(_)) => return LostCause::Silent { limit },
                // Until it is time to ask again.
                (_, Leaves::Replaced(replaced)) => {
                    if timeout(limit, replaced()).await.is_ok() {
                        return LostCause::Silent { limit };
                    }
                }
            }
            // From then on, and not from now: so the calls ask together.
            known = asked;
        }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("limit", &self.limit).finish_non_exhaustive()
    }
}

const SHORTEST: Duration = Duration::from_millis(10);
