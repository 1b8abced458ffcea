//! [`Client`]: the handle that tasks share.

use std::future::{Future, ready};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::{Instant, timeout_at};
use valkey_rdma_resp::Value;

use crate::bulk::Bulk;
use crate::command::{Command, Commands, EncodedPipeline};
use crate::config::Config;
use crate::endpoint::Endpoint;
use crate::error::{Error, LostCause, LostConnection};
use crate::events::ServerEvents;
use crate::link::{Connector, Deadline, Delivery, IdlePool, Liveness, Multiplexer, Sent};
use crate::runtime::Runtime;
use crate::spans::Call;
use crate::stats::State;

mod connect;
mod status;

/// A client of one server: its shared connections, and what makes others beside them. Cloning is cheap; every clone is the same client.
///
/// [`Client`](crate::Client) documents what its calls promise.
#[derive(Clone)]
pub(crate) struct Server {
    inner: Arc<Inner>,
}

/// How much longer than allowed [`Server::close`] waits for tasks that may not run.
const CLOSE_GRACE: Duration = Duration::from_secs(1);

/// Names a [`Server`] without keeping it open. No later client has the same.
#[derive(Clone, Debug)]
pub(crate) struct ServerId(Weak<Inner>);

impl PartialEq for ServerId {
    fn eq(&self, other: &Self) -> bool {
        Weak::ptr_eq(&self.0, &other.0)
    }
}

struct Inner {
    multiplexers: Vec<Multiplexer>,
    /// The next connection in turn, if there are several.
    turn: AtomicUsize,
    connector: Arc<Connector>,
    pool: IdlePool,
    bulk: Bulk,
    events: Arc<ServerEvents>,
    runtime: Runtime,
    liveness: Arc<Liveness>,
}

impl Server {
    /// As [`execute`](Self::execute), for a call of the program's that is no more than this command.
    pub(crate) async fn call(&self, command: Command) -> Result<Value, Error> {
        let call = Call::command(self.endpoint(), &command);
        call.run(self.execute(command)).await
    }

    /// Sends a command on a shared connection, when called. The future returned is ready with the reply. Rare ways are boxed: the smaller the
    /// future is, the less it costs to await it.
    pub(crate) fn execute(&self, command: Command) -> impl Future<Output = Result<Value, Error>> + Send {
        if let Some(refusal) = command.shared_refusal() {
            return ready(Err(refusal.into())).boxed().left_future();
        }
        if command.overtakes() && self.connector().can_connect() {
            return self.overtake(command).boxed().left_future();
        }
        let deadline = self.config().limit(&command).and_then(Deadline::after);
        let sent = self.send(Commands::One(command), deadline);
        sent.map(|outcome| Ok(outcome.last()?)).right_future()
    }

    /// Closes all connections of all clones, as [`Client::close`](crate::Client::close) documents.
    pub(crate) async fn close(&self) {
        let deadline = self.config().close_timeout.and_then(|limit| Instant::now().checked_add(limit));
        let ended = self.begin_to_close(deadline);
        if self.is_closed() && self.connector().registry.drained().now_or_never().is_some() {
            // That runtime, whose clock would be used, may have shut down.
            return;
        }
        let parted = self.connector().registry.drained();
        match deadline {
            None => {
                ended.await;
                parted.await;
            }
            Some(deadline) => {
                // They end at the deadline, unless nothing runs on their runtime.
                let late = deadline.checked_add(CLOSE_GRACE).unwrap_or(deadline);
                drop(self.runtime().timed(|| timeout_at(late, ended)).await);
                // The rest is drained in the background.
                drop(self.runtime().timed(|| timeout_at(deadline, parted)).await);
            }
        }
    }

    /// Refuses new calls, and ends connections after the replies to earlier ones, or at the deadline. The future returned waits for the ends of
    /// the shared ones.
    pub(crate) fn begin_to_close(
        &self,
        deadline: Option<Instant>,
    ) -> impl Future<Output = ()> + Send + use<> {
        self.inner.pool.close();
        // A call that waits for the server finds out.
        self.connector().server_is_back.send_replace(());
        self.inner.bulk.close(deadline);
        let ends: Vec<_> =
            self.inner.multiplexers.iter().map(|multiplexer| multiplexer.close(deadline)).collect();
        async move {
            for end in ends {
                // Never sent to: dropped at the end.
                drop(end.await);
            }
        }
    }

    /// Sends commands together on a shared connection, when called. The future returned is ready with what becomes of them.
    pub(crate) fn send(&self, commands: Commands, deadline: Option<Deadline>) -> Sent<'_> {
        self.multiplexer().send(commands, Delivery::Together, deadline)
    }

    /// As [`send`](Self::send), for a pipeline whose replies are [taken as they arrive](Sent::arrived).
    pub(crate) fn send_streamed(&self, commands: EncodedPipeline) -> Sent<'_> {
        let deadline = self.deadline(&commands);
        self.multiplexer().send(Commands::Many(commands), Delivery::Streamed, deadline)
    }

    /// When the time of a pipeline that is sent now is up.
    pub(crate) fn deadline(&self, commands: &EncodedPipeline) -> Option<Deadline> {
        commands.limit().or(self.config().command_timeout).and_then(Deadline::after)
    }

    /// The error for commands that are not sent because their time is up, which is counted.
    pub(crate) fn late(&self, deadline: Deadline) -> Error {
        self.first().late(deadline)
    }

    /// The server, as errors name it.
    pub(crate) fn peer(&self) -> Arc<str> {
        self.first().state.peer.clone()
    }

    /// The error for a reply that does not come.
    pub(crate) fn lost_error(&self) -> LostConnection {
        LostConnection::new(self.peer(), Arc::new(LostCause::Stopped), true)
    }

    /// True if none of its connections has ended.
    pub(crate) fn is_whole(&self) -> bool {
        self.inner.multiplexers.iter().all(|multiplexer| multiplexer.state.is_online())
    }

    /// True if none of its connections is up, and it makes new ones.
    pub(crate) fn is_reconnecting(&self) -> bool {
        let states = || self.inner.multiplexers.iter().map(|multiplexer| multiplexer.state.state());
        states().all(|state| state != State::Connected) && states().any(|state| state == State::Reconnecting)
    }

    /// Ends the connections because the server is no longer the one to talk to.
    pub(crate) fn give_up(&self) {
        self.inner.bulk.give_up();
        self.inner.multiplexers.iter().for_each(Multiplexer::give_up);
    }

    /// Names the client.
    pub(crate) fn id(&self) -> ServerId {
        ServerId(Arc::downgrade(&self.inner))
    }

    /// True if both are the same client.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// The runtime of its connections.
    pub(crate) fn runtime(&self) -> &Runtime {
        &self.inner.runtime
    }

    /// Refuses new connections after [`close`](Self::close).
    pub(crate) fn check_open(&self) -> Result<(), Error> {
        if self.inner.pool.is_closed() {
            return Err(self.first().state.lost_error(&Arc::new(LostCause::Closed), false));
        }
        Ok(())
    }

    pub(crate) fn connector(&self) -> &Arc<Connector> {
        &self.inner.connector
    }

    /// What its connections lead to, as configured.
    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.inner.connector.endpoint
    }

    pub(crate) fn config(&self) -> &Config {
        &self.inner.connector.config
    }

    pub(crate) fn pool(&self) -> &IdlePool {
        &self.inner.pool
    }

    /// The connection for direct transfers.
    pub(crate) fn bulk(&self) -> &Bulk {
        &self.inner.bulk
    }

    /// Whether its server is still there.
    pub(crate) fn liveness(&self) -> &Arc<Liveness> {
        &self.inner.liveness
    }

    /// How many requests each connection's queue holds.
    #[cfg(test)]
    pub(crate) fn queued(&self) -> Vec<usize> {
        self.inner.multiplexers.iter().map(Multiplexer::queued).collect()
    }

    fn first(&self) -> &Multiplexer {
        &self.inner.multiplexers[0]
    }

    /// The connection for the next request.
    fn multiplexer(&self) -> &Multiplexer {
        &self.inner.multiplexers[self.connection_in_turn()]
    }

    /// The number of the connection for the next request: each in turn, preferring connected ones.
    fn connection_in_turn(&self) -> usize {
        let multiplexers = &self.inner.multiplexers;
        if multiplexers.len() == 1 {
            return 0;
        }
        let turn = self.inner.turn.fetch_add(1, Ordering::Relaxed);
        let mut in_turn = (0..multiplexers.len()).map(|step| turn.wrapping_add(step) % multiplexers.len());
        let online = in_turn.find(|number| multiplexers[*number].state.is_online());
        online.unwrap_or(turn % multiplexers.len())
    }
}
