//! A client of a cluster that has state, or sends what is not ordinary.
//!
//! The library's connections are shared by all, so the gateway keeps the state: it queues transactions and sends them as a whole, watches
//! keys on a connection of the library, and subscribes through it. State survives that slots move and nodes fail.

mod arity;
mod subscriptions;
mod transaction;
mod unread;

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::{Buf, Bytes};
use tokio::sync::OwnedSemaphorePermit;
use valkey_rdma_client::{Client, Command, Error};
use valkey_rdma_resp::{CommandError, Protocol, Reply, words};

use self::arity::has_wrong_arity;
pub(super) use self::subscriptions::Subscriptions;
use self::transaction::{Queued, Watched};
use super::{Closed, Session};
use crate::cluster::{failure, is_refusal};
use crate::command::class::{Class, Kind, Local, State};
use crate::command::words::is;
use crate::session::inbox::End;
use crate::upstream::open_error::OpenError;

/// What a client has begun, beside subscriptions.
#[derive(Default)]
struct Begun {
    transaction: Option<Queued>,
    watch: Option<Watched>,
}

/// What the session does next.
enum ClusterStep {
    Command(Class),
    Broken(CommandError),
    End(End),
}

impl Session {
    /// Serves the client command by command, beginning with the current one, until it has no state.
    pub(super) async fn cluster_mode(&mut self) -> Result<(), Closed> {
        let mut begun = Begun::default();
        let ended = loop {
            let done = match poll_fn(|cx| self.poll_stateful(cx)).await {
                ClusterStep::Command(class) => match self.whole_command(class) {
                    Some(command) => self.run_stateful(class, &command, &mut begun).await,
                    None => self.refuse_too_long(&mut begun).await,
                },
                ClusterStep::Broken(error) => Err(self.broken(&error)),
                ClusterStep::End(why) => {
                    self.report_end(why);
                    Err(Closed)
                }
            };
            let queued = begun.transaction.as_ref().map_or(0, Queued::bytes);
            self.in_flight.hold(self.reader.len() + queued);
            self.subscriptions.take_if(|subscriptions| subscriptions.is_empty());
            let is_plain =
                begun.transaction.is_none() && begun.watch.is_none() && self.subscriptions.is_none();
            if done.is_err() || is_plain {
                break done;
            }
        };
        self.subscriptions = None;
        self.client.set_subscribed(false);
        ended
    }

    /// The next command. Passes messages on.
    fn poll_stateful(&mut self, cx: &mut Context<'_>) -> Poll<ClusterStep> {
        loop {
            if let Some(why) = self.poll_end(cx) {
                return Poll::Ready(ClusterStep::End(why));
            }
            if let Err(why) = self.put_messages(cx) {
                return Poll::Ready(ClusterStep::End(why));
            }
            let limits = self.core.limits();
            let unread = self.out.remaining();
            if self.subscriptions.is_none() && self.slow_reader.poll_too_slow(cx, unread, &limits).is_ready()
            {
                return Poll::Ready(ClusterStep::End(End::TooSlow));
            }
            // Only messages are counted with the replies of all clients: there is no room for more.
            if unread > limits.unread_bytes {
                return Poll::Pending;
            }
            ready!(self.slow_reader.poll_more(cx, unread));
            let scanned = self.reader.scan();
            match scanned.and_then(|complete| Ok(complete || self.is_too_long(&limits)?)) {
                Err(error) => return Poll::Ready(ClusterStep::Broken(error)),
                Ok(true) => return Poll::Ready(ClusterStep::Command(self.class())),
                Ok(false) => self.in_flight.hold(self.reader.len()),
            }
            if self.eof {
                return Poll::Ready(ClusterStep::End(End::Gone));
            }
            match self.poll_read(cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(Closed)) => return Poll::Ready(ClusterStep::End(End::Gone)),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Writes replies, and looks for a reason to end.
    pub(super) fn poll_end(&mut self, cx: &mut Context<'_>) -> Option<End> {
        let found = self.client.inbox.poll_take(cx, &mut Default::default());
        match self.poll_flush(cx) {
            Poll::Ready(Err(Closed)) => Some(End::Gone),
            _ if found.end.is_some() => found.end,
            _ => (found.stop && !self.out.has_remaining()).then_some(End::Stopped),
        }
    }

    /// Takes the current command. `None` if it is too long.
    fn whole_command(&mut self, class: Class) -> Option<Bytes> {
        if !self.reader.scan().is_ok_and(|complete| complete) {
            return None;
        }
        let command = self.reader.take();
        // The others are counted when they are answered.
        if !matches!(class, Class::Local(_)) {
            self.client.count(1, &command, Instant::now());
            self.metrics().private_commands.add(1);
        }
        Some(command)
    }

    async fn refuse_too_long(&mut self, begun: &mut Begun) -> Result<(), Closed> {
        let text = format!(
            "ERR the command is longer than limits.cluster_command_bytes = {}, or too many commands wait",
            self.core.limits().cluster_command_bytes
        );
        self.note_refusal(self.reader.current());
        // Their messages would wait until the rest is read.
        if self.subscriptions.is_some() {
            self.put_refusal(&Reply::error(text));
            return Err(Closed);
        }
        self.put_refusal(&Reply::error(text));
        if let Some(queued) = &mut begun.transaction {
            queued.fail();
        }
        self.drop_command(begun.transaction.as_ref().map_or(0, Queued::bytes)).await
    }

    async fn run_stateful(&mut self, class: Class, command: &Bytes, begun: &mut Begun) -> Result<(), Closed> {
        if let Class::Local(local @ (Local::Reset | Local::Quit | Local::Http)) = class {
            *begun = Begun::default();
            self.subscriptions = None;
            return self.answer(local, command).await;
        }
        if has_wrong_arity(class, command) {
            return self.put_wrong_arity(class, command, begun).await;
        }
        if begun.transaction.is_some() {
            return self.queue(class, command, begun).await;
        }
        if self.subscriptions.is_some() && self.identity.protocol == Protocol::Resp2 {
            let name = words(command).next().unwrap_or_default();
            match class {
                Class::State(State::Subscribe(_) | State::Unsubscribe(_)) => {}
                _ if is(name, "PING") => {
                    let text = words(command).nth(1).unwrap_or_default();
                    self.put(&Reply::array(["pong".as_bytes(), text]));
                    return Ok(());
                }
                _ => {
                    let name = String::from_utf8_lossy(name).to_lowercase();
                    let allowed = "only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context";
                    self.put(&Reply::error(format!("ERR Can't execute '{name}': {allowed}")));
                    return Ok(());
                }
            }
        }
        match class {
            Class::Local(local) => {
                let before = self.identity.key();
                self.answer(local, command).await?;
                let watched = begun.watch.as_mut().filter(|_| self.identity.key() != before);
                watched.into_iter().for_each(Watched::give_up);
            }
            Class::Ordinary | Class::Script => return self.pass_on(class == Class::Script, command).await,
            Class::Alone => return self.run_alone(command).await,
            Class::State(state) => match state {
                State::Multi => {
                    begun.transaction = Some(Queued::default());
                    self.put(&Reply::OK);
                }
                State::Exec => self.put(&Reply::error("ERR EXEC without MULTI")),
                State::Discard => self.put(&Reply::error("ERR DISCARD without MULTI")),
                State::Watch => return self.watch(command, begun).await,
                State::Unwatch => {
                    begun.watch = None;
                    self.put(&Reply::OK);
                }
                State::Subscribe(kind) => return self.subscribe(kind, command).await,
                State::Unsubscribe(kind) => return self.unsubscribe(kind, command).await,
                State::ReplyOn | State::NoEvict(false) | State::NoTouch(false) | State::Tracking(false) => {
                    self.put(&Reply::OK);
                }
                // As a server without cluster mode. Primaries answer all reads.
                State::Lasting if reads_replicas(command) => self.put(&Reply::OK),
                State::Tracking(true)
                | State::NoEvict(true)
                | State::NoTouch(true)
                | State::Lasting
                | State::Raw => {
                    self.refuse_for_cluster(command);
                }
            },
        }
        Ok(())
    }

    /// Runs a command that blocks, or ends what blocks others.
    async fn run_alone(&mut self, command: &Bytes) -> Result<(), Closed> {
        let mut line = words(command);
        let name = line.next().unwrap_or_default().to_ascii_uppercase();
        match &name[..] {
            // On another connection than the script's.
            b"SCRIPT" | b"FUNCTION" => return self.pass_on(false, command).await,
            b"WAIT" | b"WAITAOF" | b"SHUTDOWN" | b"CLIENT" => {
                self.refuse_for_cluster(command);
                return Ok(());
            }
            _ => {}
        }
        let Some(client) = self.library().await? else { return Ok(()) };
        let Some(permit) = self.permit().await? else { return Ok(()) };
        self.client.set_blocked(true);
        let reply = self.while_open(true, client.blocking_command(Command::from_args(words(command)))).await;
        self.client.set_blocked(false);
        drop(permit);
        let reply = match reply? {
            Ok(value) if value.is_nil() => Reply::NullArray,
            Ok(value) => value.into(),
            Err(error) => self.failure_of(command, &error)?,
        };
        self.put(&reply);
        Ok(())
    }

    /// The reply for a failure, or the end of the client. If the gateway refuses the command, that is logged.
    fn failure_of(&self, command: &[u8], error: &Error) -> Result<Reply, Closed> {
        if is_refusal(error) {
            self.note_refusal(command);
        }
        failure(error, self.metrics()).ok_or(Closed)
    }

    /// The library's client with the login of this one. `None` if the login is refused: the error is answered.
    pub(super) async fn library(&mut self) -> Result<Option<Client>, Closed> {
        let super::Attached::Cluster(lane) = self.route.backend.shared(&self.identity) else {
            return Ok(None);
        };
        match self.while_open(false, lane.connected()).await? {
            Ok(client) => Ok(Some(client)),
            Err(error) => self.put_unsent(&error).map(|()| None),
        }
    }

    /// The right to a dedicated connection. `None` if there are too many: the error is answered.
    pub(super) async fn permit(&mut self) -> Result<Option<OwnedSemaphorePermit>, Closed> {
        match self.route.backend.pool.permit().await {
            Ok(permit) => Ok(Some(permit)),
            Err(error) => self.put_unsent(&error).map(|()| None),
        }
    }

    /// Answers a command that was not sent, or ends its client.
    fn put_unsent(&mut self, error: &OpenError) -> Result<(), Closed> {
        error.count_unsent(1, self.metrics());
        self.out.put(&error.reply().ok_or(Closed)?);
        Ok(())
    }

    /// Waits for `work` while the client is there, and passes messages on. `is_endless`: the client may close its side, or the gateway stop,
    /// before it is done.
    pub(super) async fn while_open<T>(
        &mut self,
        is_endless: bool,
        work: impl Future<Output = T>,
    ) -> Result<T, Closed> {
        let mut work = pin!(work);
        poll_fn(|cx| {
            if let Poll::Ready(done) = work.as_mut().poll(cx) {
                return Poll::Ready(Ok(done));
            }
            if self.pass_messages(cx).is_err() {
                return Poll::Ready(Err(Closed));
            }
            match self.poll_end(cx) {
                // A stop waits for the work, until its time is over.
                Some(End::Stopped) if !is_endless && !self.client.inbox.has_ended() => {}
                Some(_) => return Poll::Ready(Err(Closed)),
                None => {}
            }
            let limits = self.core.limits();
            if self.poll_read_ahead(cx, &limits).is_ready() {
                return Poll::Ready(Err(Closed));
            }
            // Nothing else says then that an RDMA client has closed its side, and gone.
            let is_unread = self.eof || self.reader.len() >= limits.command_bytes;
            if is_unread && self.stream.close_error().is_some() {
                return Poll::Ready(Err(Closed));
            }
            if self.eof && is_endless { Poll::Ready(Err(Closed)) } else { Poll::Pending }
        })
        .await
    }

    /// Refuses a command that has no meaning on many connections at once.
    fn refuse_for_cluster(&mut self, command: &[u8]) {
        self.note_refusal(command);
        let mut line = words(command).map(|word| word.escape_ascii().to_string().to_uppercase());
        let name = line.next().unwrap_or_default();
        let name = if name == "CLIENT" || name == "SCRIPT" {
            format!("{name} {}", line.next().unwrap_or_default())
        } else {
            name
        };
        let (why, instead) = match &*name {
            "ASKING" => {
                return self.put_refusal(&Reply::error("ERR This instance has cluster support disabled"));
            }
            "CLIENT TRACKING" => {
                ("invalidations come from all nodes", "connect to the nodes directly for client-side caching")
            }
            "WAIT" | "WAITAOF" => {
                ("it counts the writes of one connection", "set min-replicas-to-write on the nodes")
            }
            _ => ("it concerns one node or one connection", "send it to the node directly"),
        };
        self.put_refusal(&Reply::error(format!(
            "ERR the gateway of a cluster refuses {name}: {why}; {instead}"
        )));
    }

    /// Answers a command that the gateway refuses, and counts that.
    fn put_refusal(&mut self, reply: &Reply) {
        self.metrics().commands_refused.add(1);
        self.put(reply);
    }
}

/// Whether a command says if replicas may be read.
fn reads_replicas(command: &[u8]) -> bool {
    let mut words = words(command);
    let name = words.next().unwrap_or_default();
    words.next().is_none() && (is(name, "READONLY") || is(name, "READWRITE"))
}

/// The name of a kind of subscription, before `subscribe`, `unsubscribe` and `message`.
fn prefix(kind: Kind) -> &'static str {
    match kind {
        Kind::Channel => "",
        Kind::Pattern => "p",
        Kind::Shard => "s",
    }
}
