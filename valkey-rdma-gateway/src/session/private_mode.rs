//! A client that has a private connection to the server.

mod last_replies;

use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::{Buf, Bytes};
use tracing::debug;
use valkey_rdma_resp::{CommandError, Reply};

use super::route::Way;
use super::slow_reader::MUCH;
use super::{Closed, Session};
use crate::command::class::{Class, Local, State};
use crate::session::clients::Place;
use crate::session::inbox::End;
use crate::upstream::open_error::OpenError;
use crate::upstream::private::{Event, Private};

/// Why a client leaves its private connection for a while, or for good.
enum PrivateStep {
    /// No state is left: the client goes back.
    Plain,
    /// The gateway answers the current command. All earlier replies were passed on.
    Answer(Local),
    /// The current command is CLIENT TRACKING ON: it may name another client.
    Redirect,
    /// The client sent something that is not a command.
    Broken(CommandError),
    Lost(String),
    End(End),
}

impl Session {
    /// Serves the client on a private connection, beginning with the current command, until it has no state and no other client
    /// redirects its invalidations to it.
    pub(super) async fn private_mode(&mut self, class: Class) -> Result<(), Closed> {
        self.metrics().moves.add(1);
        match self.private().await? {
            Ok(private) => {
                debug!(
                    id = self.client.id,
                    connection = private.upstream.id,
                    ?class,
                    "a client left the shared connection"
                );
                self.serve(private).await
            }
            Err(error) => self.not_sent(class, error).await,
        }
    }

    /// Serves the client on a private connection, because other clients redirect their invalidations to it.
    pub(super) async fn target_mode(&mut self) -> Result<(), Closed> {
        if self.failed_multi.is_some() {
            // Its commands would run there.
            self.client.refuse_redirects();
            return Ok(());
        }
        self.metrics().moves.add(1);
        match self.private().await? {
            Ok(private) => self.serve(private).await,
            Err(error) => {
                debug!(id = self.client.id, %error, "cannot be the target of invalidations");
                self.client.refuse_redirects();
                Ok(())
            }
        }
    }

    /// Answers a command that found no private connection, and drops it, or ends its client.
    async fn not_sent(&mut self, class: Class, error: OpenError) -> Result<(), Closed> {
        self.answer_unsent(class, error)?;
        self.drop_command(0).await
    }

    /// Answers a command that found no private connection, or ends its client.
    pub(super) fn answer_unsent(&mut self, class: Class, error: OpenError) -> Result<(), Closed> {
        error.count_unsent(1, self.metrics());
        let Some(reply) = error.reply() else {
            debug!(id = self.client.id, %error, "client closed: there is no connection for it");
            return Err(Closed);
        };
        if self.identity.is_outdated(&error) {
            self.out.put(&reply);
            return Err(Closed);
        }
        let is_without_login = reply.starts_with(b"-NOAUTH");
        if is_without_login {
            self.route.backend.note_login_required();
        }
        match class {
            // Without a login the server refuses it too.
            Class::State(State::Multi) if !is_without_login => self.fail_multi(error, reply),
            _ => self.out.put(&reply),
        }
        Ok(())
    }

    async fn serve(&mut self, mut private: Private) -> Result<(), Closed> {
        private.set_client(self.client.id);
        let place = Place::Private(private.upstream.id);
        self.client.set_place(place);
        let ended = loop {
            match poll_fn(|cx| self.poll_private(cx, &mut private)).await {
                PrivateStep::Plain => {
                    self.client.set_place(Place::Shared);
                    // After that, so that a client that has read the number before is seen here.
                    if private.tracker.was_reset() || !self.client.inbox.is_pinned() {
                        break Ok(());
                    }
                    self.client.set_place(place);
                }
                // The server would not know of a value that was read on another connection, and the client not of its change.
                PrivateStep::Answer(Local::Direct(_)) if private.tracker.notes_reads() => {
                    self.in_flight.hold(0);
                    self.client.count(1, &self.reader.take(), Instant::now());
                    self.put(&Reply::error(
                        "NODIRECT the client caches what it reads: CLIENT TRACKING is on",
                    ));
                }
                PrivateStep::Answer(local) => {
                    self.in_flight.hold(0);
                    let command = self.reader.take();
                    if self.answer(local, &command).await.is_err() {
                        break Err(Closed);
                    }
                    private.set_name(&self.client.details().name);
                }
                PrivateStep::Redirect => {
                    let command = self.redirected(&mut private).await;
                    self.send(&mut private, Class::State(State::Tracking(true)), &command, true);
                }
                PrivateStep::Broken(error) => {
                    // Earlier replies come before the error.
                    self.pass_last_replies(&mut private).await;
                    break Err(self.broken(&error));
                }
                PrivateStep::Lost(cause) => {
                    self.unblock = None;
                    self.leave();
                    match private.tracker.has_quit() {
                        true => debug!(id = self.client.id, %cause, "a client has quit"),
                        false => self.report_loss(&private, private.unanswered(), &cause),
                    }
                    return Err(Closed);
                }
                PrivateStep::End(why) => {
                    if why == End::Stopped || why == End::Gone && self.eof {
                        self.pass_last_replies(&mut private).await;
                    }
                    // What the client has sent behind RESET runs.
                    if private.tracker.was_reset() {
                        break Ok(());
                    }
                    self.report_end(why);
                    break Err(Closed);
                }
            }
        };
        let was_target = self.leave();
        // Invalidations for others, an attempt to unblock this client, or what RESET does not end would reach the next one.
        let keep = self.unblock.take().is_none() && !was_target && !private.tracker.outlives_reset();
        match ended.is_err() || private.tracker.was_reset() || was_target {
            true => self.route.backend.pool.retire(self.identity.clone(), private, keep),
            false => self.route.backend.pool.give_back(&self.identity, private),
        }
        if ended.is_ok() {
            debug!(id = self.client.id, "a client is back on the shared connection");
            self.shared = self.route.backend.shared(&self.identity);
        }
        ended
    }

    /// Notes that the client has no private connection any more. `true` if invalidations of others may come on the one it had.
    fn leave(&self) -> bool {
        self.client.set_place(Place::Shared);
        self.client.set_subscribed(false);
        self.client.set_blocked(false);
        self.client.inbox.take_was_pinned()
    }

    fn poll_private(&mut self, cx: &mut Context<'_>, private: &mut Private) -> Poll<PrivateStep> {
        loop {
            let found = self.client.inbox.poll_take(cx, &mut Default::default());
            if let Some(why) = found.end {
                return Poll::Ready(PrivateStep::End(why));
            }
            // The server's last replies come before its end.
            let lost = private.poll_replies(cx, &mut self.out, MUCH);
            for event in private.take_events() {
                self.apply(event);
            }
            self.client.set_subscribed(private.tracker.is_subscribed());
            let flushed = self.poll_flush(cx);
            if let Poll::Ready(Err(Closed)) = flushed {
                return Poll::Ready(PrivateStep::End(End::Gone));
            }
            if let Poll::Ready(cause) = lost {
                return Poll::Ready(PrivateStep::Lost(cause));
            }
            if private.tracker.may_have_reset() {
                return Poll::Ready(PrivateStep::End(End::Lost));
            }
            // After RESET the connection has lost its login. Who redirected to it is notified by the server.
            let may_leave = private.is_plain() && self.unblock.is_none();
            if may_leave && (private.tracker.was_reset() || !found.pinned && self.next_may_share()) {
                return Poll::Ready(PrivateStep::Plain);
            }
            let more = self.slow_reader.poll_more(cx, self.out.remaining());
            let sends_ahead = more.is_ready() && self.slow_reader.sends_ahead();
            let most = self.most_unanswered(sends_ahead);
            let more = match self.pass_commands(private, most, sends_ahead, found.stop) {
                Ok(more) => more,
                // Earlier replies come before the error.
                Err(PrivateStep::Broken(_)) if private.owed() > 0 => false,
                Err(step) => return Poll::Ready(step),
            };
            let full = private.unsent() >= MUCH;
            if let Poll::Ready(cause) = private.poll_send(cx) {
                return Poll::Ready(PrivateStep::Lost(cause));
            }
            if full && private.unsent() < MUCH {
                // Nothing would wake this task for the commands that found no room.
                continue;
            }
            // Nothing more is taken from it then, so that it must read. It may be so since just now, and nothing else would wake this task.
            // Otherwise the server keeps its replies, and of those here only the gateway's own are counted.
            let is_full = sends_ahead && private.unanswered() >= most;
            let unread = if is_full { usize::MAX } else { self.unread_answers() };
            if self.slow_reader.poll_too_slow(cx, unread, &self.core.limits()).is_ready() {
                return Poll::Ready(PrivateStep::End(End::TooSlow));
            }
            // What a client that has gone has not sent will not come, nor a reply to it.
            let unanswered = if self.eof && more { private.owed() } else { private.unanswered() };
            let is_raw = private.tracker.is_raw();
            let owed = unanswered > 0 && !is_raw;
            // Commands without replies run too. Those behind RESET wait for its reply, which is among the last ones.
            let is_done = private.has_sent_all()
                && !owed
                && (found.stop || self.eof && (more || private.tracker.is_resetting()));
            if self.eof && is_raw && is_done {
                return Poll::Ready(PrivateStep::End(End::Gone));
            }
            let has_left = self.client.inbox.has_left();
            if (found.stop || has_left)
                && !self.out.has_remaining()
                && let Poll::Ready(refused) = self.poll_unblock(cx, private)
                && (refused || is_done)
            {
                return Poll::Ready(PrivateStep::End(if has_left { End::Gone } else { End::Stopped }));
            }
            self.client.set_blocked(private.tracker.is_blocked());
            // A client that waits is read too, to notice its end: another could get what it blocks for, or its place.
            let waits = owed || private.tracker.is_blocked() || private.tracker.is_resetting();
            let more = more || (waits && self.reader.len() < self.core.limits().command_bytes);
            let read = match more && !self.eof && private.unsent() < MUCH {
                true => self.poll_read(cx),
                false if self.drive_unread(cx) => Poll::Ready(Ok(())),
                false => Poll::Pending,
            };
            match read {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(Closed)) => return Poll::Ready(PrivateStep::End(End::Gone)),
                // Room for replies was made: the device or socket was not asked while there was none.
                Poll::Pending if matches!(flushed, Poll::Ready(Ok(()))) => {}
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Whether what comes next needs no private connection.
    fn next_may_share(&mut self) -> bool {
        let limits = self.core.limits();
        match self.reader.scan() {
            Ok(true) if self.reader.current().len() > limits.command_bytes => false,
            Ok(true) => matches!(self.route(false, false, &limits), Way::Shared { .. } | Way::Answer(_)),
            Ok(false) => !self.reader.is_long(limits.command_bytes).unwrap_or_default(),
            Err(_) => true,
        }
    }

    /// Passes commands on. `true` if it needs more input. If the gateway stops, only the command that has begun is passed on. If the client
    /// reads, its own answers wait until it has read most of the others.
    fn pass_commands(
        &mut self,
        private: &mut Private,
        most: usize,
        sends_ahead: bool,
        stop: bool,
    ) -> Result<bool, PrivateStep> {
        loop {
            let full = private.unanswered() >= most;
            let stopped = stop && !private.has_open_command();
            if full || stopped || private.unsent() >= MUCH || private.tracker.is_resetting() {
                return Ok(false);
            }
            if private.tracker.is_raw() {
                private.send_raw(&self.reader.take_all());
                return Ok(true);
            }
            if private.has_open_command() {
                let complete = self.reader.scan_on().map_err(PrivateStep::Broken)?;
                private.send_on(&self.reader.take(), complete);
                if !complete {
                    return Ok(true);
                }
                continue;
            }
            let complete = self.reader.scan().map_err(PrivateStep::Broken)?;
            // Of a long command it is known what it does.
            let most = self.core.limits().command_bytes;
            if !complete && !self.reader.is_long(most).map_err(PrivateStep::Broken)? {
                return Ok(true);
            }
            let class = match self.class() {
                // All of it must be known. It may have thousands of prefixes.
                Class::State(State::Tracking(_))
                    if !complete && self.reader.expected() < LONGEST_TRACKING =>
                {
                    return Ok(true);
                }
                Class::Local(local) if !complete && self.awaits_rest(local) => {
                    self.in_flight.hold(self.reader.len());
                    return Ok(true);
                }
                // What is in them must be known.
                Class::Local(_) | Class::State(State::Tracking(_)) if !complete => {
                    return Err(PrivateStep::Broken(CommandError::InvalidBulkLen));
                }
                // Its confirmations cannot be counted: not all of its words are here.
                Class::State(State::Subscribe(_) | State::Unsubscribe(_)) if !complete => {
                    Class::State(State::Lasting)
                }
                class => class,
            };
            if let Class::Local(local) = class
                && complete
                && private.tracker.may_answer(self.identity.protocol)
                && !matches!(local, Local::Auth | Local::Hello | Local::Select | Local::Reset)
            {
                let must_read = match sends_ahead {
                    true => self.unread_answers() > self.core.limits().unread_bytes,
                    false => self.out.remaining() >= MUCH,
                };
                return if private.unanswered() == 0 && !must_read {
                    Err(PrivateStep::Answer(local))
                } else {
                    Ok(false)
                };
            }
            if class == Class::State(State::Tracking(true)) {
                return Err(PrivateStep::Redirect);
            }
            let bytes = self.reader.take();
            self.send(private, class, &bytes, complete);
        }
    }

    /// Bytes of the gateway's own answers that the client has not read, with those of few replies of the server.
    fn unread_answers(&self) -> usize {
        self.out.remaining().saturating_sub(MUCH)
    }

    /// Commands without a reply beyond which no more are passed on. A client that reads nothing before it has sent all may have more: the
    /// server keeps the replies, as it would without the gateway.
    fn most_unanswered(&self, sends_ahead: bool) -> usize {
        let most = self.core.limits().commands_in_flight;
        if sends_ahead { most.max(MOST_AHEAD) } else { most }
    }

    fn send(&self, private: &mut Private, class: Class, bytes: &Bytes, complete: bool) {
        self.client.count(1, bytes, Instant::now());
        self.metrics().private_commands.add(1);
        private.send(class, bytes, complete);
    }

    /// Takes over what the server has confirmed.
    fn apply(&mut self, event: Event) {
        match event {
            Event::Database(database) => self.identity.database = database,
            Event::Login(login) => {
                self.identity.login = Some(login);
                self.route.backend.pool.login_accepted(&self.identity.key());
            }
            // The server has accepted it.
            Event::Name(name) => drop(self.set_name(&name)),
            Event::Protocol(protocol) => self.identity.protocol = protocol,
            Event::Reset => {
                self.identity = self.route.backend.server.identity();
                self.client.details().name.clear();
            }
        }
        self.describe();
    }

    /// Counts and logs that the connection is lost, on which this number of commands may have run. The client ends with it, as it would with its server: it has state, or commands
    /// without a reply, which may have run.
    pub(super) fn report_loss(&self, private: &Private, may_have_run: usize, cause: &str) {
        self.metrics().lost.add(1);
        self.metrics().may_have_run.add(may_have_run as u64);
        match private.tracker.is_raw() {
            // What is sent there is not looked at: its end may be the answer to QUIT.
            true => debug!(id = self.client.id, cause, "the private connection of a client was lost"),
            false => self.route.backend.pool.report_loss(self.client.id, cause),
        }
    }
}

/// Commands that a client may send before it reads a reply.
const MOST_AHEAD: usize = 1 << 20;
/// Bytes of CLIENT TRACKING, which is kept until all of it has arrived.
const LONGEST_TRACKING: usize = 4 << 20;
