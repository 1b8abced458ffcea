//! [`Dedicated`]: a connection with one owner, for commands that block it or change it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::time::timeout_at;
use valkey_rdma_resp::{FromValue, ServerError, Value};

use crate::command::{Command, IntoCommand, Reply};
use crate::endpoint::Endpoint;
use crate::error::{Error, LostCause, LostConnection, TimedOut};
use crate::link::{Answer, Asks, Deadline, Outstanding, RawConnection, Watch, keepalive_limit};
use crate::server::Server;
use crate::spans::{self, Batch, Call};
use crate::stats::{ConnectionInfo, Purpose};

/// A connection with one owner: [`Client::dedicated`](crate::Client::dedicated). Commands of other tasks do not come in between. Commands have no time limit
/// unless [they set one](Command::timeout).
///
/// It takes commands that have one reply, such as SELECT, WATCH and MULTI. Those that have none, or more than one, are refused
/// ([`Error::Refused`]), and the error text names the alternative: subscriptions, MONITOR, CLIENT REPLY OFF and SKIP. So are all commands
/// of replication.
///
/// ```no_run
/// # async fn example(client: valkey_rdma_client::Client) -> Result<(), valkey_rdma_client::Error> {
/// let mut connection = client.dedicated().await?;
/// connection.command(["CLIENT", "NO-EVICT", "ON"]).await?;
/// let id: i64 = connection.query(["CLIENT", "ID"]).await?;
/// # Ok(())
/// # }
/// ```
///
/// # End
/// Dropping it closes the connection. Dropping a call before its reply does so too, and later calls fail. A server
/// that was to block for the call stops; what it had already popped for the reply is lost, as with any connection.
#[derive(Debug)]
pub struct Dedicated {
    client: Server,
    /// `None` during a call, and once the connection is unusable.
    raw: Option<RawConnection>,
    purpose: Purpose,
    info: Arc<ConnectionInfo>,
    cause: Arc<LostCause>,
    /// True if the connection can be reused by another owner.
    reusable: bool,
    /// `None`: calls never leave a server that is silent.
    watch: Option<Watch>,
}

impl Server {
    /// Sends a blocking command on a dedicated connection.
    pub(crate) async fn block(&self, command: Command) -> Result<Value, Error> {
        if let Some(refusal) = command.refusal_outside_pipeline() {
            return Err(refusal.into());
        }
        let deadline = command.limit().and_then(Deadline::after);
        let (mut connection, deadline) = self.checkout_until(Purpose::Call, deadline).await?;
        connection.exchange_until(command, deadline).await
    }

    /// Sends a command that must not wait behind others on a connection of its own.
    pub(crate) async fn overtake(&self, command: Command) -> Result<Value, Error> {
        let deadline = self.config().limit(&command).and_then(Deadline::after);
        let (mut connection, deadline) = self.checkout_until(Purpose::Overtaking, deadline).await?;
        connection.exchange_until(command, deadline).await
    }

    /// Sets the client's time limit on a command without one.
    pub(crate) fn limited(&self, command: Command) -> Command {
        match self.config().limit(&command) {
            Some(limit) => command.timeout(limit),
            None => command,
        }
    }

    /// An idle connection of this purpose from the pool, or a new one. It returns to the pool when dropped idle.
    pub(crate) async fn checkout(&self, purpose: Purpose) -> Result<Dedicated, Error> {
        self.checkout_until(purpose, None).await.map(|(connection, _)| connection)
    }

    /// As [`checkout`](Self::checkout), for a call that has a deadline. While the server is away, the wait for it ends then, and the call has what
    /// is left. Connecting has the endpoint's timeout in addition: the deadline comes back later by as much.
    pub(crate) async fn checkout_until(
        &self,
        purpose: Purpose,
        deadline: Option<Deadline>,
    ) -> Result<(Dedicated, Option<Deadline>), Error> {
        self.check_open()?;
        let usable = |raw: &mut RawConnection| raw.is_reusable() && !self.connector().has_moved(raw);
        let mut idle = std::iter::from_fn(|| self.pool().take(purpose));
        let idle = idle.find_map(|mut raw| usable(&mut raw).then_some(raw));
        let (raw, connecting) = match idle {
            Some(raw) => {
                raw.set_purpose(purpose);
                (raw, Duration::ZERO)
            }
            None => self.connect_another_until(purpose, self.patience(deadline)).await?,
        };
        let (client, info) = (self.clone(), raw.info.clone());
        let cause = Arc::new(LostCause::Cancelled);
        let connection =
            Dedicated { client, raw: Some(raw), purpose, info, cause, reusable: true, watch: None };
        Ok((connection, deadline.and_then(|deadline| deadline.put_off(connecting))))
    }

    /// As [`checkout`](Self::checkout). This, and the calls of the connection, end with [`LostCause::Silent`] once the server has left a PING
    /// on the shared connection without an answer for `limit`, and was replaced by another: once a future of `replaced` completes.
    pub(crate) async fn checkout_until_replaced(
        &self,
        purpose: Purpose,
        limit: Duration,
        replaced: impl Fn() -> BoxFuture<'static, ()> + Send + Sync + 'static,
    ) -> Result<Dedicated, Error> {
        let (liveness, runtime) = (self.liveness().clone(), self.runtime().clone());
        let watch = Watch::of_calls_on_node(liveness, self.clone(), runtime, limit, replaced);
        let mut connection = tokio::select! {
            biased;
            opened = self.checkout(purpose) => opened?,
            cause = watch.left() => {
                let peer = self.connector().peer().into();
                return Err(LostConnection::new(peer, Arc::new(cause), false).into());
            }
        };
        connection.watch = Some(watch);
        Ok(connection)
    }

    /// Ends calls that block on this connection once its server is silent. `None`: silence is not limited, or the transport notices it.
    fn watch_blocking_call(&self, raw: &RawConnection) -> Option<Watch> {
        let limit = keepalive_limit(&raw.info, self.config())?;
        let (liveness, runtime) = (self.liveness().clone(), self.runtime().clone());
        let whereabouts = self.connector().whereabouts(raw);
        Some(Watch::of_blocking_call(liveness, self.clone(), runtime, limit, whereabouts))
    }
}

impl Asks for Server {
    fn ask(&self) -> BoxFuture<'static, Answer> {
        Box::pin(ping(self.clone()))
    }

    fn reads(&self) -> u64 {
        self.counters().reads
    }
}

impl Dedicated {
    /// Sends a command and returns its reply.
    ///
    /// # Errors
    /// [`Error::Server`], [`Error::Lost`], [`Error::TimedOut`] if the command brings a limit, [`Error::Refused`] if it does not have
    /// one reply; then the connection stays usable.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection.
    pub async fn command(&mut self, command: impl IntoCommand) -> Result<Value, Error> {
        self.execute(command.into_command()).await
    }

    /// Sends a command and converts its reply, as [`Client::query`](crate::Client::query) does.
    ///
    /// # Errors
    /// Same errors as [`command`](Self::command), and [`Error::Unexpected`] if the reply does not convert.
    ///
    /// # Cancel safety
    /// As [`command`](Self::command).
    pub async fn query<T: FromValue>(&mut self, command: impl IntoCommand) -> Result<T, Error> {
        let command = command.into_command();
        let name = command.kept_name();
        Ok(name.convert(self.execute(command).await?)?)
    }

    pub(crate) async fn execute(&mut self, command: Command) -> Result<Value, Error> {
        let call = Call::command(self.endpoint(), &command);
        call.run(self.exchange(command)).await
    }

    /// Sends a command that is a part of a call, and returns its reply.
    pub(crate) async fn exchange(&mut self, command: Command) -> Result<Value, Error> {
        let deadline = command.limit().and_then(Deadline::after);
        self.exchange_until(command, deadline).await
    }

    /// As [`exchange`](Self::exchange), with the deadline of the call in place of the command's own limit.
    pub(crate) async fn exchange_until(
        &mut self,
        command: Command,
        deadline: Option<Deadline>,
    ) -> Result<Value, Error> {
        let mut replies = self.exchange_all(&[command], deadline).await?;
        Ok(replies.pop().unwrap_or(Ok(Value::Nil))?)
    }

    /// Sends commands together and returns one reply for each, in order. `limit` applies to all of them together. Large
    /// arguments are sent from where they are: see [`Command::arg`].
    ///
    /// # Errors
    /// As [`command`](Self::command). An error reply is an element of the result. If one command is refused, none was sent.
    ///
    /// # Cancel safety
    /// As [`command`](Self::command).
    pub async fn execute_all(
        &mut self,
        commands: &[Command],
        limit: Option<Duration>,
    ) -> Result<Vec<Result<Value, ServerError>>, Error> {
        let call = Call::batch(self.endpoint(), Batch::Pipeline, commands);
        call.run_all(self.exchange_all(commands, limit.and_then(Deadline::after))).await
    }

    /// As [`execute_all`](Self::execute_all), for commands that are a part of a call.
    pub(crate) async fn exchange_all(
        &mut self,
        commands: &[Command],
        deadline: Option<Deadline>,
    ) -> Result<Vec<Reply>, Error> {
        if let Some(refusal) = commands.iter().find_map(Command::dedicated_refusal) {
            return Err(refusal.into());
        }
        // The kernel takes bytes for a connection that the server has closed: whether they ran would be unknown.
        if !commands.iter().all(Command::may_run_twice)
            && let Some(cause) = self.raw.as_mut().and_then(RawConnection::ended)
        {
            (self.raw, self.cause) = (None, Arc::new(cause));
        }
        if !commands.iter().any(Command::blocks) {
            return self
                .with_connection_until(deadline, async |raw| {
                    raw.outstanding = Outstanding::Replies(commands.len());
                    raw.exchange(commands).await
                })
                .await;
        }
        let client = self.client.clone();
        self.with_connection_until(deadline, async |raw| {
            let watch = client.watch_blocking_call(raw);
            watched(watch.as_ref(), raw.exchange_blocking(commands)).await
        })
        .await
    }

    /// False if the connection has ended, as far as this machine knows: the server closed it between two calls, or a call failed.
    /// Also false if the server has sent something unasked, such as a push message. Does not wait. True promises nothing: the
    /// server may be gone without a word.
    pub fn is_open(&mut self) -> bool {
        self.raw.as_mut().is_some_and(RawConnection::is_reusable)
    }

    /// Describes the connection.
    #[must_use]
    pub fn info(&self) -> &ConnectionInfo {
        &self.info
    }

    /// Lets the reactor of another runtime wait for this connection's socket from now on, if it is a TCP connection; without effect over
    /// RDMA. A thread that polls the calls of this connection in [`Runtime::block_on`](tokio::runtime::Runtime::block_on) of a
    /// current-thread runtime then waits for the socket itself: no other thread wakes up to pass events on.
    ///
    /// # Errors
    /// [`Error::Lost`] if the operating system refuses. The connection is unusable then.
    pub fn move_to(&mut self, runtime: &Handle) -> Result<(), Error> {
        let Some(mut raw) = self.raw.take() else { return Err(self.lost_error(false)) };
        if let Err(error) = raw.move_to(runtime) {
            self.cause = Arc::new(LostCause::Io(error));
            return Err(self.lost_error(false));
        }
        self.raw = Some(raw);
        Ok(())
    }

    /// As [`with_connection_until`](Self::with_connection_until), for work that has this time.
    pub(crate) async fn with_connection<T>(
        &mut self,
        limit: Option<Duration>,
        work: impl AsyncFnOnce(&mut RawConnection) -> Result<T, LostCause>,
    ) -> Result<T, Error> {
        self.with_connection_until(limit.and_then(Deadline::after), work).await
    }

    /// Runs `work` on the connection. The connection is lost unless `work` succeeds in time. Without any time, `work` does not begin.
    async fn with_connection_until<T>(
        &mut self,
        deadline: Option<Deadline>,
        work: impl AsyncFnOnce(&mut RawConnection) -> Result<T, LostCause>,
    ) -> Result<T, Error> {
        if let Some(deadline) = deadline
            && deadline.has_passed()
            && self.raw.is_some()
        {
            return Err(TimedOut { peer: self.peer(), limit: deadline.limit, may_have_run: false }.into());
        }
        let Some(mut raw) = self.raw.take() else { return Err(self.lost_error(false)) };
        let watch = &self.watch;
        let work = async |raw: &mut RawConnection| watched(watch.as_ref(), work(raw)).await;
        let outcome = match deadline {
            None => Ok(work(&mut raw).await),
            Some(Deadline { at, limit }) => {
                let outcome = self.client.runtime().timed(|| timeout_at(at, work(&mut raw))).await;
                outcome.map_err(|_| limit)
            }
        };
        spans::used(|| self.info.clone());
        let may_have_run = || raw.write_buffer.has_written_command();
        match outcome {
            Ok(Ok(value)) => {
                self.raw = Some(raw);
                Ok(value)
            }
            Ok(Err(cause)) => {
                self.cause = Arc::new(cause);
                Err(self.lost_error(may_have_run()))
            }
            Err(limit) => {
                self.cause = Arc::new(LostCause::TimedOut { limit });
                Err(TimedOut { peer: self.peer(), limit, may_have_run: may_have_run() }.into())
            }
        }
    }

    /// Sets whether the connection can be reused by another owner.
    pub(crate) fn set_reusable(&mut self, reusable: bool) {
        self.reusable = reusable;
    }

    pub(crate) fn lost_error(&self, may_have_run: bool) -> Error {
        LostConnection::new(self.peer(), self.cause.clone(), may_have_run).into()
    }

    /// What it leads to, as configured.
    pub(crate) fn endpoint(&self) -> &Endpoint {
        self.client.endpoint()
    }

    fn peer(&self) -> Arc<str> {
        self.client.connector().peer().into()
    }
}

/// Does work on a connection until it is left because of its server.
async fn watched<T>(
    watch: Option<&Watch>,
    work: impl Future<Output = Result<T, LostCause>>,
) -> Result<T, LostCause> {
    match watch {
        None => work.await,
        Some(watch) => tokio::select! {
            biased;
            done = work => done,
            // Made only when the work has to wait.
            cause = async { watch.left().await } => Err(cause),
        },
    }
}

/// Asks a server whether it answers, on the client's shared connection, or on a new one if that was lost. It is the asker who limits the
/// time.
async fn ping(client: Server) -> Answer {
    match client.execute(Command::new("PING").timeout(FOREVER)).await {
        Ok(_) | Err(Error::Server(_)) => Answer::Present,
        Err(Error::Lost(lost)) if matches!(lost.cause(), LostCause::Moved) => Answer::Moved,
        Err(Error::TimedOut(_)) => Answer::Silent,
        // The program wants no more connections.
        Err(_) if client.check_open().is_err() => Answer::Present,
        // That the shared connection was lost says nothing of this one. A refusal is an answer.
        Err(_) => match client.connector().connect(Purpose::Call).await.map_err(Error::from) {
            Err(error) if error.server().is_none() => Answer::Silent,
            _ => Answer::Present,
        },
    }
}

/// Stands for no limit.
const FOREVER: Duration = Duration::from_secs(24 * 3600);

impl Drop for Dedicated {
    fn drop(&mut self) {
        if self.reusable
            && let Some(raw) = self.raw.take()
            && !raw.is_provisional
        {
            self.client.pool().put(raw, self.purpose);
        }
    }
}

#[cfg(test)]
mod overtaking_tests;
#[cfg(test)]
mod tests;
