//! [`Shared`]: one connection to the server for many local clients.
//!
//! Clients append encoded commands to a queue. One task takes all that waits, writes it as one batch, and passes each reply to the
//! client whose turn it is. Bytes are not decoded, and replies that are large pass in pieces.

mod doubt;
mod driver;
mod queue;
mod repeat;
mod unanswered;
mod unused;

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use valkey_rdma_client::ConnectionInfo;
use valkey_rdma_resp::words;
use valkey_rdma_transport::Monitor;
use valkey_rdma_transport::sync::lock;

use self::driver::{Driver, Ended};
use self::queue::Queue;
use crate::command::words::is;
use crate::core::Core;
use crate::observe::metrics::Metrics;
use crate::session::inbox::{End, Inbox};
use crate::upstream::backoff;
use crate::upstream::identity::{Identity, Key};
use crate::upstream::open_error::OpenError;
use crate::upstream::pool::Pool;
use crate::upstream::standing::Standing;

/// A connection that clients share. It reconnects when it is lost, for as long as it has clients.
pub(crate) struct Shared {
    pub(crate) key: Key,
    queue: Mutex<Queue>,
    /// Clients that use it.
    users: AtomicUsize,
    /// When the last of them left, or when it was made.
    unused_since: Mutex<tokio::time::Instant>,
    /// Cancelled when its task has ended.
    ended: CancellationToken,
    /// Another connection has taken its place: clients leave it when nothing of theirs is in flight.
    retired: AtomicBool,
    /// See [`forget`](Self::forget).
    is_forgotten: AtomicBool,
    identity: Identity,
    metrics: Arc<Metrics>,
    standing: Arc<Standing>,
    state: Mutex<State>,
    /// The login has changed: one that was refused may be accepted now.
    retry: Notify,
    /// The last client has left.
    left: Notify,
    pub(crate) commands: AtomicU64,
    pub(crate) batches: AtomicU64,
}

/// Whether there is a connection.
enum State {
    Up(Connection),
    /// The server does not accept the login of the clients, or requires one. It is not asked until a client is.
    Refused,
    /// Why there is none.
    Down(OpenError),
    /// No attempt to connect has failed yet, or the connection was closed because it had no clients.
    Absent,
}

/// What ends the wait after a refused login.
enum AskedBy {
    Command,
    NewLogin,
    NoClient,
}

/// What is known of the present connection.
#[derive(Clone)]
pub(crate) struct Connection {
    pub(crate) info: Arc<ConnectionInfo>,
    pub(crate) monitor: Option<Monitor>,
}

/// A client's use of a shared connection.
pub(crate) struct SharedHandle(Arc<Shared>);

impl Shared {
    /// Starts the task of a new shared connection. It connects at once.
    pub(crate) fn start(key: Key, identity: Identity, pool: Arc<Pool>, core: Arc<Core>) -> Arc<Self> {
        let shared = Arc::new(Self {
            key,
            queue: Mutex::new(Queue::new(core.queued.clone())),
            users: AtomicUsize::new(0),
            unused_since: Mutex::new(tokio::time::Instant::now()),
            ended: CancellationToken::new(),
            retired: AtomicBool::new(false),
            is_forgotten: AtomicBool::new(false),
            identity,
            metrics: pool.server.metrics.clone(),
            standing: pool.server.standing.clone(),
            state: Mutex::new(State::Absent),
            retry: Notify::new(),
            left: Notify::new(),
            commands: AtomicU64::new(0),
            batches: AtomicU64::new(0),
        });
        let this: Weak<Self> = Arc::downgrade(&shared);
        pool.add_shared(this);
        let abandon = AbandonOnDrop(shared.clone());
        tokio::spawn(async move { abandon.0.run(&pool, &core).await });
        shared
    }

    /// Attaches a client. `None` if the connection has just ended for want of clients.
    pub(crate) fn attach(self: &Arc<Self>) -> Option<SharedHandle> {
        let queue = self.queue();
        if queue.is_closed() {
            return None;
        }
        self.users.fetch_add(1, Ordering::Relaxed);
        drop(queue);
        Some(SharedHandle(self.clone()))
    }

    /// Queues `commands` whole commands. Their replies go to `inbox`. A closed queue has no task, and ends the client.
    pub(crate) fn submit(&self, inbox: &Arc<Inbox>, bytes: &[u8], commands: u32, now: Instant) {
        inbox.expect(commands);
        let mut queue = self.queue();
        if queue.is_closed() {
            return inbox.end(End::Lost);
        }
        let task = queue.push(inbox, bytes, commands, now, self.must_be_alone(inbox, bytes));
        drop(queue);
        if let Some(task) = task {
            task.wake();
        }
    }

    /// Whether a command has no others beside it. Valkey 8.1.1 does not answer a wrong `AUTH` while an earlier reply waits in it to be sent
    /// (`addAuthErrReply` of `src/acl.c`): the replies behind it would go to the wrong clients.
    fn must_be_alone(&self, inbox: &Inbox, bytes: &[u8]) -> bool {
        let is_login = || words(bytes).next().is_some_and(|name| is(name, "AUTH"));
        self.key == Key::Checker || inbox.is_of_gateway() && is_login()
    }

    /// Whether a client without a command in flight should ask the backend for another connection.
    pub(crate) fn should_leave(&self, now: Instant) -> bool {
        self.retired.load(Ordering::Relaxed) || self.is_stalled(now)
    }

    /// Whether the server has owed a reply for so long that others should not wait behind it.
    pub(crate) fn is_stalled(&self, now: Instant) -> bool {
        self.queue().is_stalled(now)
    }

    /// For how long the server has owed a reply.
    pub(crate) fn owed_for(&self, now: Instant) -> Duration {
        self.queue().owed_for(now)
    }

    /// Whether the server has owed a reply for so long that it may not be there any more.
    pub(crate) fn is_silent(&self, now: Instant) -> bool {
        self.owed_for(now) > SILENT
    }

    pub(crate) fn set_retired(&self, retired: bool) {
        self.retired.store(retired, Ordering::Relaxed);
    }

    /// No configuration and no client leads to this connection any more: it is not made again.
    pub(crate) fn forget(&self) {
        self.is_forgotten.store(true, Ordering::Relaxed);
    }

    pub(crate) fn users(&self) -> usize {
        self.users.load(Ordering::Relaxed)
    }

    pub(crate) fn connection(&self) -> Option<Connection> {
        match &*lock(&self.state) {
            State::Up(connection) => Some(connection.clone()),
            State::Refused | State::Down(_) | State::Absent => None,
        }
    }

    /// Connects now, if the server has refused the last attempt.
    pub(crate) fn retry(&self) {
        self.retry.notify_one();
    }

    /// Why clients wait for a connection, if they do. Those whose login is refused do not.
    pub(crate) fn missed(&self) -> Option<OpenError> {
        match &*lock(&self.state) {
            State::Down(why) if self.users() > 0 => Some(why.clone()),
            _ => None,
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.queue().is_closed()
    }

    /// Commands without a reply.
    pub(crate) fn in_flight(&self) -> usize {
        self.queue().in_flight()
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        lock(&self.queue)
    }

    /// Connects, serves, reconnects. Ends when there were no clients for [`IDLE`].
    async fn run(self: &Arc<Self>, pool: &Arc<Pool>, core: &Core) {
        let server = &*pool.server;
        let mut attempt = 0;
        let not_yet =
            || OpenError::Unreachable(format!("there is no connection to {} yet", server.endpoint()));
        let mut why = not_yet();
        let mut reached = server.reached.subscribe();
        let is_ours = server.has_own_login(&self.identity);
        // Clients may choose ever new ones that the server refuses.
        let is_chosen = self.identity.database != server.endpoint().database();
        // What was refused is not tried again before a client asks for something: most log in first.
        let mut refused = pool.last_refusal(&self.key);
        loop {
            if self.is_closed() || self.is_forgotten.load(Ordering::Relaxed) && self.close_unused() {
                return;
            }
            if why.is_refusal() {
                // What was refused is not what is tried now.
                why = not_yet();
            }
            let opened = match refused.take().filter(|_| self.in_flight() == 0) {
                Some(refused) => Err(refused),
                None => {
                    let opening = pool.open(&self.key, &self.identity, Some(env!("CARGO_PKG_NAME")));
                    self.answer_overdue(core, &why, opening).await
                }
            };
            why = match opened {
                Ok(upstream) => {
                    attempt = 0;
                    let state = State::Up(Connection {
                        info: upstream.stream.info().clone(),
                        monitor: upstream.stream.monitor().cloned(),
                    });
                    let before = std::mem::replace(&mut *lock(&self.state), state);
                    self.answer_left(matches!(before, State::Down(_)));
                    // What has waited for too long does not run, even if the server is there just now.
                    self.answer_unsent(core, &why);
                    let ended = Driver::new(self, pool, core, upstream).run().await;
                    // That was before the end.
                    reached.mark_unchanged();
                    let batch = match ended {
                        Ended::Idle => {
                            *lock(&self.state) = State::Absent;
                            return;
                        }
                        Ended::Moved { batch } => {
                            why = not_yet();
                            *lock(&self.state) = State::Absent;
                            batch
                        }
                        Ended::Lost { cause, batch } => {
                            let text = format!("the connection to {} was lost: {cause}", server.endpoint());
                            why = OpenError::Unreachable(text);
                            *lock(&self.state) = State::Down(why.clone());
                            self.metrics.lost.add(1);
                            warn!(key = %self.key, server = %server.endpoint(), %cause, "connection lost");
                            batch
                        }
                    };
                    self.close_lost(&batch);
                    // No client waits for the next one.
                    if self.close_unused() {
                        return;
                    }
                    continue;
                }
                Err(error) => error,
            };
            let state =
                if why.is_about_login() && !is_ours { State::Refused } else { State::Down(why.clone()) };
            let last = std::mem::replace(&mut *lock(&self.state), state);
            // An outage has many attempts, and few reasons.
            if !matches!(last, State::Down(last) if last.is_same(&why))
                && let Some(unlogged) = pool.pass_failure(&why, is_chosen || !is_ours)
            {
                let text = why.headline();
                warn!(key = %self.key, server = %server.endpoint(), error = %why, unlogged, "{text}");
            }
            self.answer_unsent(core, &why);
            if self.close_idle(IDLE) {
                info!(key = %self.key, "no clients, no server: not connecting any more");
                return;
            }
            if why.is_refusal() && !why.is_server_full() {
                // The server is there, and would refuse this login again: it is not asked until a client is, or the login changes.
                match self.wait_until_asked(is_chosen).await {
                    AskedBy::NoClient => return,
                    // Clients go on asking, and the gateway's own login is still the same.
                    AskedBy::Command if is_ours => {
                        self.refuse_for(core, &why, backoff::wait(attempt)).await;
                        attempt += 1;
                        continue;
                    }
                    AskedBy::Command | AskedBy::NewLogin => attempt = 0,
                }
            }
            let pause = async {
                match why.is_server_full() {
                    // That others have reached it says nothing.
                    true => sleep(backoff::wait(attempt)).await,
                    false => backoff::pause(attempt, &mut reached).await,
                }
            };
            self.answer_overdue(core, &why, pause).await;
            attempt += 1;
        }
    }

    /// Returns when a command waits.
    async fn commands(&self) {
        poll_fn(|cx| if self.queue().has_commands(cx) { Poll::Ready(()) } else { Poll::Pending }).await;
    }

    /// Returns when a command waits, the login has changed, or there are no clients any more: for some time, or just now.
    async fn wait_until_asked(&self, is_chosen: bool) -> AskedBy {
        loop {
            tokio::select! {
                () = self.retry.notified() => return AskedBy::NewLogin,
                () = self.commands() => return AskedBy::Command,
                () = self.left.notified(), if is_chosen => {}
                () = sleep(IDLE) => {}
            }
            if self.close_unused() {
                return AskedBy::NoClient;
            }
        }
    }
}

/// When the task of a connection ends by a panic, ends the clients that wait for replies.
struct AbandonOnDrop(Arc<Shared>);

impl Drop for AbandonOnDrop {
    fn drop(&mut self) {
        let slots = self.0.queue().abandon();
        slots.iter().for_each(|slot| slot.inbox.end(End::Lost));
        self.0.ended.cancel();
    }
}

impl std::ops::Deref for SharedHandle {
    type Target = Arc<Shared>;

    fn deref(&self) -> &Arc<Shared> {
        &self.0
    }
}

impl Drop for SharedHandle {
    fn drop(&mut self) {
        *lock(&self.0.unused_since) = tokio::time::Instant::now();
        if self.0.users.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.0.left.notify_one();
        }
    }
}

/// A connection without clients is closed after 30 s to 60 s, over RDMA later; at once if the server has refused the database that they chose.
const IDLE: Duration = Duration::from_secs(30);
/// A server that owes a reply for longer is asked whether it is there. Over TCP nothing else would tell.
const SILENT: Duration = Duration::from_secs(5);
