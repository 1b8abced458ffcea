//! [`Session`]: serves one local client.
//!
//! Commands without state go to a connection that is shared; a client with state has a private connection until the state ends.
//! Before a client moves, and before the gateway answers a command, all earlier replies are passed on: order is kept.

mod account;
mod answers;
mod cluster_mode;
mod input;
mod private_mode;
mod private_wait;
mod refusals;
mod slow_reader;
mod unblock;
mod unrun;

use std::future::{Future, poll_fn};
use std::io::IoSlice;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::{Buf, Bytes};
use tokio::io::{AsyncReadExt, AsyncWrite};
use tracing::{debug, warn};
use valkey_rdma_resp::{CommandError, Output, Reply, encode};
use valkey_rdma_transport::AnyStream;

use self::input::Parsed;
use self::slow_reader::SlowReader;
use self::unblock::Attempt;
use self::unrun::Unrun;
use crate::class::Class;
use crate::clients::{Client, Details, Place, Registered};
use crate::core::Core;
use crate::identity::Identity;
use crate::in_flight::InFlight;
use crate::inbox::End;
use crate::last_replies;
use crate::listen::Accepted;
use crate::metrics::Metrics;
use crate::pool::Attached;
use crate::reader::CommandReader;
use crate::route::{Route, Share};

pub(crate) struct Session {
    core: Arc<Core>,
    route: Arc<Route>,
    stream: AnyStream,
    client: Registered,
    reader: CommandReader,
    /// Replies being written to the client, and when the first of them arrived.
    out: Output,
    out_since: Option<Instant>,
    identity: Identity,
    by_owner: bool,
    shared: Attached,
    in_flight: InFlight,
    slow_reader: SlowReader,
    /// The reason why the transaction that the client has begun fails.
    failed_multi: Option<Unrun>,
    /// The attempt to end what the client blocks on.
    unblock: Option<Attempt>,
    /// How many attempts in a row found nothing to end.
    in_vain: u32,
    /// The client has closed its side.
    eof: bool,
}

/// What the shared mode leaves to be done.
enum SharedStep {
    /// The current command is not ordinary, or there is no room for it, and all earlier replies were passed on.
    Command(Class),
    /// Other clients redirect their invalidations to this one, and all earlier replies were passed on.
    Target,
    /// The client sent something that is not a command.
    Broken(CommandError),
    End(End),
}

/// Ends a session.
pub(crate) struct Closed;

impl Session {
    pub(crate) fn new(core: Arc<Core>, route: Arc<Route>, accepted: Accepted) -> Self {
        let pool = &route.pool;
        let identity = pool.server.identity();
        let details = Details {
            user: pool.server.user().to_owned(),
            database: identity.database,
            protocol: identity.protocol,
            ..Details::default()
        };
        let client = Registered::new(
            core.clients.clone(),
            core.unread.clone(),
            pool.address.clone(),
            accepted.peer,
            accepted.local,
            details,
            Place::Shared,
        );
        let shared = pool.shared(&identity);
        let in_flight = InFlight::new(core.queued.clone());
        Self {
            core,
            route,
            stream: accepted.stream,
            client,
            reader: CommandReader::default(),
            out: Output::default(),
            out_since: None,
            identity,
            by_owner: accepted.by_owner,
            shared,
            in_flight,
            slow_reader: SlowReader::default(),
            failed_multi: None,
            unblock: None,
            in_vain: 0,
            eof: false,
        }
    }

    pub(crate) async fn run(mut self) {
        self.be_admitted().await;
        loop {
            let step = poll_fn(|cx| self.poll_shared(cx)).await;
            let done = match step {
                SharedStep::End(why) => {
                    self.report_end(why);
                    if matches!(why, End::Stopped | End::Lost) {
                        self.flush().await;
                    }
                    break;
                }
                SharedStep::Broken(error) => Err(self.broken(&error)),
                SharedStep::Command(class) if self.failed_multi.is_some() => {
                    self.answer_failed_multi(class).await
                }
                SharedStep::Target => self.target_mode().await,
                SharedStep::Command(Class::Local(local)) => {
                    let command = self.reader.take();
                    self.answer(local, &command).await
                }
                SharedStep::Command(Class::Ordinary) => {
                    self.refuse_overload();
                    Ok(())
                }
                SharedStep::Command(class) if self.route.share == Share::Always => self.refuse(class).await,
                SharedStep::Command(_) if self.route.pool.cluster.is_some() => self.cluster_mode().await,
                SharedStep::Command(class) => self.private_mode(class).await,
            };
            if done.is_err() {
                self.flush().await;
                break;
            }
        }
    }

    /// Moves commands to the shared connection and replies to the client, until something else is to do.
    fn poll_shared(&mut self, cx: &mut Context<'_>) -> Poll<SharedStep> {
        loop {
            let found = self.client.inbox.poll_take(cx, &mut self.out);
            if let Some(why) = found.end {
                return Poll::Ready(SharedStep::End(why));
            }
            self.out_since = self.out_since.or(found.since);
            match self.poll_flush(cx) {
                Poll::Ready(Err(Closed)) => return Poll::Ready(SharedStep::End(End::Gone)),
                Poll::Ready(Ok(())) if found.more => continue,
                _ => {}
            }
            // Those of the gateway itself are not in the inbox.
            let unread = self.client.inbox.unread().max(self.out.remaining());
            if self.slow_reader.poll_too_slow(cx, unread, &self.core.limits()).is_ready() {
                return Poll::Ready(SharedStep::End(End::TooSlow));
            }
            let is_quiet = |outstanding: u32| outstanding == 0 && !found.more;
            if found.stop {
                // A client that always has a command in flight is stopped too: no more are passed on.
                let done = is_quiet(found.outstanding) && !self.out.has_remaining();
                return if done { Poll::Ready(SharedStep::End(End::Stopped)) } else { Poll::Pending };
            }
            ready!(self.slow_reader.poll_more(cx, self.out.remaining()));
            if found.pinned && !self.eof {
                return if is_quiet(found.outstanding) {
                    Poll::Ready(SharedStep::Target)
                } else {
                    Poll::Pending
                };
            }
            self.in_flight.answered(found.outstanding);
            let (parsed, submitted) = self.parse(found.outstanding);
            let outstanding = found.outstanding + submitted;
            match parsed {
                Parsed::NeedsInput => {}
                Parsed::Full => return Poll::Pending,
                Parsed::Command(class) if is_quiet(outstanding) => {
                    return Poll::Ready(SharedStep::Command(class));
                }
                Parsed::Broken(error) if is_quiet(outstanding) => {
                    return Poll::Ready(SharedStep::Broken(error));
                }
                Parsed::Command(_) | Parsed::Broken(_) => return Poll::Pending,
            }
            if self.eof {
                let done = is_quiet(outstanding) && !self.out.has_remaining();
                return if done { Poll::Ready(SharedStep::End(End::Gone)) } else { Poll::Pending };
            }
            match ready!(self.poll_read(cx)) {
                Ok(()) => {}
                Err(Closed) => return Poll::Ready(SharedStep::End(End::Gone)),
            }
        }
    }

    /// Reads once. Ready with an error if the connection is broken.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Closed>> {
        let read = pin!(self.stream.read_buf(self.reader.room())).poll(cx);
        match read {
            Poll::Pending => {
                self.reader.rest();
                return Poll::Pending;
            }
            Poll::Ready(Ok(0)) => {
                self.eof = true;
                self.client.inbox.leave();
            }
            Poll::Ready(Ok(_)) => self.slow_reader.sent(),
            Poll::Ready(Err(_)) => return Poll::Ready(Err(Closed)),
        }
        Poll::Ready(Ok(()))
    }

    /// Writes what waits for the client. Ready if something was written and nothing is left, or with an error if the connection is
    /// broken.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Closed>> {
        if !self.out.has_remaining() {
            return Poll::Pending;
        }
        while self.out.has_remaining() {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let count = self.out.chunks_vectored(&mut slices);
            let written = match &slices[..count] {
                [slice] => Pin::new(&mut self.stream).poll_write(cx, slice),
                slices => Pin::new(&mut self.stream).poll_write_vectored(cx, slices),
            };
            match ready!(written) {
                Ok(0) | Err(_) => return Poll::Ready(Err(Closed)),
                Ok(len) => {
                    self.slow_reader.took(len);
                    self.client.inbox.wrote(len);
                    self.out.advance(len);
                }
            }
        }
        if let Some(since) = self.out_since.take() {
            self.metrics().reply_hop.record(since, Instant::now(), 1);
        }
        Poll::Ready(Ok(()))
    }

    fn metrics(&self) -> &Metrics {
        &self.route.pool.server.metrics
    }

    /// Logs why the gateway closes the client, and counts it.
    fn report_end(&self, why: End) {
        let Client { id, peer, .. } = &**self.client;
        match why {
            End::Gone => {}
            End::TooSlow => {
                self.metrics().slow_readers.add(1);
                let Details { name, user, .. } = &*self.client.details();
                warn!(id, peer, name, user, "client closed: it does not read its replies");
            }
            why => debug!(id, peer, ?why, "client closed"),
        }
    }

    /// Writes the last replies, as far as the client takes them in time.
    async fn flush(&mut self) {
        let limit = self.core.limits().slow_reader();
        let flushed = poll_fn(|cx| {
            loop {
                if self.client.inbox.is_lost() {
                    // The server's last replies come before its end.
                    self.client.inbox.poll_take(cx, &mut self.out);
                }
                if !self.out.has_remaining() {
                    return Poll::Ready(());
                }
                if let Err(Closed) = ready!(self.poll_flush(cx)) {
                    return Poll::Ready(());
                }
            }
        });
        // A client that does not read its last reply has lost it.
        let _ = tokio::time::timeout(limit, flushed).await;
        // A client that was ended gets no time.
        if !self.client.inbox.has_ended() || self.client.inbox.is_lost() {
            last_replies::deliver(&mut self.stream).await;
        }
    }

    /// Appends a reply of the gateway.
    fn put(&mut self, reply: &Reply) {
        encode(reply, self.identity.protocol, &mut self.out);
    }

    /// Answers bytes that are not a command. Where the next one begins is not known, so the client is closed.
    fn broken(&mut self, error: &CommandError) -> Closed {
        self.put(&Reply::error(format!("ERR {error}")));
        Closed
    }

    /// Runs a command on the shared connection for scripts, or on that for other commands. Nothing may be in flight.
    async fn pass_on(&mut self, is_script: bool, command: &[u8]) -> Result<(), Closed> {
        let shared = self.route.pool.shared_for(is_script, &self.identity);
        let reply = self.ask(&shared, command).await?;
        self.out.put_shared(&reply);
        Ok(())
    }

    /// Sends a command to a shared connection and returns its reply. Nothing may be in flight.
    async fn ask(&mut self, shared: &Attached, command: &[u8]) -> Result<Bytes, Closed> {
        shared.submit(&self.client.inbox, command, 1, Instant::now());
        self.client.inbox.whole_reply().await.ok_or(Closed)
    }
}

/// Slices of one write.
const SLICES: usize = 16;
