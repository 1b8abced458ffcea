//! [`Session`]: serves one local client.
//!
//! ```text
//!                                accepted
//!                share = never   |      |   share = auto
//!                        +-------+      +-----------+
//!                        v                          v
//!                  +----------+    +-----------------------------------+
//!                  | pipe     |    | shared                            |<-----------------+
//!                  | bytes go |    | route(command):                   |                  |
//!                  | both     |    |   Shared   is submitted, next one |                  |
//!                  | ways     |    |   Answer   gets its reply here    |                  | no state left,
//!                  |          |    |   Refuse   gets an error          |                  | no reply owed
//!                  |          |    |   Private  leaves                 |                  |
//!                  +----------+    +-----------------------------------+                  |
//!                        |          |            | one server      | a cluster            |
//!                        |          |            v                 v                      |
//!                        |          |     +-------------+   +--------------+              |
//!                        |          |     | private     |   | cluster      |              |
//!                        |          |     | connection  |   | state kept   |--------------+
//!                        |          |     | of its own  |   | here         |              |
//!                        |          |     +-------------+   +--------------+              |
//!                        |          |            |    |            |                      |
//!                        |          |            |    +------------|----------------------+
//!                        v          v            v                 v
//!                       end: the client has gone, or was closed; the server was lost; the gateway stops
//! ```
//!
//! Other clients can make this one private too: they redirect their invalidations to it ([`target_mode`](Session::target_mode)).
//! A client leaves `shared` when none of its commands is in flight and all earlier replies were passed on: order is kept. The
//! [inbox] knows when that is.

mod account;
mod answers;
pub(crate) mod clients;
mod cluster_mode;
mod direct;
pub(crate) mod in_flight;
pub(crate) mod inbox;
mod input;
pub(crate) mod pipe;
mod private_mode;
mod private_wait;
mod route;
mod secured;
mod slow_reader;
mod stream;
mod unblock;
mod unsent;

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::{Buf, Bytes};
use tracing::{debug, warn};
use valkey_rdma_resp::{CommandError, Output, Reply, encode};
use valkey_rdma_transport::AnyStream;

use self::cluster_mode::Subscriptions;
use self::direct::staging::Staging;
use self::input::Parsed;
use self::route::Way;
use self::secured::secured;
use self::slow_reader::SlowReader;
use self::unblock::Attempt;
use self::unsent::FailedMulti;
use crate::command::reader::CommandReader;
use crate::config::limits::Limits;
use crate::config::route::Route;
use crate::core::Core;
use crate::front::listen::Accepted;
use crate::observe::metrics::Metrics;
use crate::session::clients::{Client, Details, Place, Registered};
use crate::session::in_flight::InFlight;
use crate::session::inbox::{End, Found};
use crate::upstream::backend::Attached;
use crate::upstream::identity::Identity;

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
    /// Its TLS handshake is still to come.
    needs_tls: bool,
    by_owner: bool,
    /// The prefix of the commands of direct transfers, at a listener that offers these.
    direct_prefix: Option<Arc<str>>,
    /// What direct transfers pass through, once there were any.
    staging: Arc<OnceLock<Staging>>,
    shared: Attached,
    in_flight: InFlight,
    slow_reader: SlowReader,
    /// What the client of a cluster has subscribed to.
    subscriptions: Option<Box<Subscriptions>>,
    /// The reason why the transaction that the client has begun fails.
    failed_multi: Option<FailedMulti>,
    /// The attempt to end what the client blocks on.
    unblock: Option<Attempt>,
    /// How many attempts in a row found nothing to end.
    in_vain: u32,
    /// The client has closed its side.
    eof: bool,
    /// Bytes were written that the stream may still hold.
    unflushed: bool,
}

/// What the shared mode leaves to be done.
enum SharedStep {
    /// The current command goes another way, and all earlier replies were passed on.
    Leaves(Way),
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
        let backend = &route.backend;
        let identity = backend.server.identity();
        let details = Details {
            user: backend.server.user().to_owned(),
            database: identity.database,
            protocol: identity.protocol,
            ..Details::default()
        };
        let client = Registered::new(
            core.clients.clone(),
            core.unread.clone(),
            backend.address.clone(),
            accepted.peer,
            accepted.local,
            details,
            Place::Shared,
        );
        let shared = backend.shared(&identity);
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
            needs_tls: accepted.needs_tls,
            by_owner: accepted.by_owner,
            direct_prefix: accepted.direct_prefix,
            staging: Arc::default(),
            shared,
            in_flight,
            slow_reader: SlowReader::default(),
            subscriptions: None,
            failed_multi: None,
            unblock: None,
            in_vain: 0,
            eof: false,
            unflushed: false,
        }
    }

    pub(crate) async fn run(mut self) {
        let backend = self.route.backend.clone();
        let handshake = secured(&self.core, &self.route, &self.client, self.needs_tls, &mut self.stream);
        // The server is asked when the client comes: later, it would be asked on the connection that was made for this one.
        let (handshake, ()) = tokio::join!(handshake, backend.check_newcomer());
        if handshake.is_err() {
            return;
        }
        loop {
            let step = poll_fn(|cx| self.poll_shared(cx)).await;
            let done = match step {
                SharedStep::End(why) => {
                    self.report_end(why);
                    // TLS has an end of its own, which a client that has sent its end waits for.
                    if matches!(why, End::Stopped | End::Lost) || why == End::Gone && self.eof {
                        self.flush().await;
                    }
                    break;
                }
                SharedStep::Broken(error) => Err(self.broken(&error)),
                SharedStep::Target => self.target_mode().await,
                // It has stayed: the next round submits it.
                SharedStep::Leaves(Way::Shared { .. }) => Ok(()),
                SharedStep::Leaves(Way::Private(_)) if self.route.backend.cluster.is_some() => {
                    self.cluster_mode().await
                }
                SharedStep::Leaves(Way::Private(class)) => self.private_mode(class).await,
                SharedStep::Leaves(Way::Answer(local)) => {
                    let command = self.reader.take();
                    self.answer(local, &command).await
                }
                SharedStep::Leaves(Way::Refuse(refusal)) => self.refuse(refusal).await,
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
            // Most clients have read all. The gateway's own answers are not in the inbox.
            let unread = match found.more || self.out.has_remaining() {
                true => self.client.inbox.unread().max(self.out.remaining()),
                false => 0,
            };
            let limits = self.core.limits();
            if self.slow_reader.poll_too_slow(cx, unread, &limits).is_ready() {
                return Poll::Ready(SharedStep::End(End::TooSlow));
            }
            let is_quiet = found.outstanding == 0 && !found.more;
            if found.stop {
                // A client that always has a command in flight is stopped too: no more are passed on.
                let done = is_quiet && !self.out.has_remaining();
                return if done { Poll::Ready(SharedStep::End(End::Stopped)) } else { Poll::Pending };
            }
            ready!(self.slow_reader.poll_more(cx, self.out.remaining()));
            if found.pinned && !self.eof {
                return if is_quiet { Poll::Ready(SharedStep::Target) } else { Poll::Pending };
            }
            self.in_flight.answered(found.outstanding);
            return self.poll_input(cx, &found, unread, &limits);
        }
    }

    /// Submits commands and reads on, until nothing comes, or something else is to do. The inbox wakes this task for what comes there.
    fn poll_input(
        &mut self,
        cx: &mut Context<'_>,
        found: &Found,
        unread: usize,
        limits: &Limits,
    ) -> Poll<SharedStep> {
        let mut outstanding = found.outstanding;
        loop {
            let (parsed, submitted) = self.parse(outstanding, limits);
            outstanding += submitted;
            let is_quiet = outstanding == 0 && !found.more;
            match parsed {
                Parsed::NeedsInput => {}
                // Answers of the gateway count for no limit of all clients: a client that leaves too much unread gets no more of them.
                Parsed::Leaves(way) if is_quiet && unread <= limits.unread_bytes => {
                    return Poll::Ready(SharedStep::Leaves(way));
                }
                Parsed::Broken(error) if is_quiet => return Poll::Ready(SharedStep::Broken(error)),
                Parsed::Full | Parsed::Leaves(_) | Parsed::Broken(_) => {
                    return self.poll_read_ahead(cx, limits).map(|Closed| SharedStep::End(End::Gone));
                }
            }
            if self.eof {
                let done = is_quiet && !self.out.has_remaining();
                return if done { Poll::Ready(SharedStep::End(End::Gone)) } else { Poll::Pending };
            }
            match ready!(self.poll_read(cx)) {
                Ok(()) => {}
                Err(Closed) => return Poll::Ready(SharedStep::End(End::Gone)),
            }
        }
    }

    fn metrics(&self) -> &Metrics {
        &self.route.backend.server.metrics
    }

    /// Logs why the gateway closes the client, and counts it.
    fn report_end(&self, why: End) {
        let Client { id, peer, .. } = &**self.client;
        match why {
            // Its device may refuse a transfer after the reply was written.
            End::Gone => self.report_refused_transfer(),
            End::TooSlow => {
                self.metrics().slow_readers.add(1);
                let Details { name, user, .. } = &*self.client.details();
                warn!(id, peer, name, user, "client closed: it does not read its replies");
            }
            why => debug!(id, peer, ?why, "client closed"),
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
        let shared = self.route.backend.shared_for(is_script, &self.identity);
        let reply = self.ask(&shared, command).await?;
        self.out.put_shared(&reply);
        Ok(())
    }

    /// Sends a command to a shared connection and returns its reply. Nothing may be in flight.
    async fn ask(&mut self, shared: &Attached, command: &[u8]) -> Result<Bytes, Closed> {
        let limits = self.core.limits();
        let inbox = self.client.inbox.clone();
        shared.submit(&inbox, command, 1, Instant::now());
        let mut reply = pin!(inbox.whole_reply());
        poll_fn(|cx| {
            if let Poll::Ready(reply) = reply.as_mut().poll(cx) {
                return Poll::Ready(reply.ok_or(Closed));
            }
            if self.pass_messages(cx).is_err() {
                return Poll::Ready(Err(Closed));
            }
            // Of a message that did not fit into the socket, the rest.
            if let Poll::Ready(Err(Closed)) = self.poll_flush(cx) {
                return Poll::Ready(Err(Closed));
            }
            self.poll_read_ahead(cx, &limits).map(Err)
        })
        .await
    }
}
