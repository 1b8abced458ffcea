//! [`Tracker`]: the state of a private connection, from the commands it carries and their replies.
//!
//! It knows when the client may go back to the shared connection: when no reply is missing, and no state is left. Where it cannot know,
//! the client stays until RESET: that is never wrong.

mod expected;
mod mark;
mod subscriptions;

use bytes::Bytes;
use valkey_rdma_resp::{Protocol, integer, words};

pub(crate) use self::expected::Event;
use self::expected::{Expect, Expected, Flag};
pub(super) use self::mark::Mark;
use self::subscriptions::{Heard, Subscriptions};
use crate::command::class::{Class, Local, State};
use crate::command::hello;
use crate::command::words::is;

#[derive(Debug, Default)]
pub(crate) struct Tracker {
    expected: Expected,
    /// MULTI was sent, and neither EXEC nor DISCARD after it.
    queueing: bool,
    multi: bool,
    watch: bool,
    /// By [`Flag`].
    flags: [bool; 3],
    subscriptions: Subscriptions,
    /// The connection uses RESP3: only push frames are messages.
    pushes: bool,
    /// State that only RESET ends. Replies to later commands are not counted.
    lasting: bool,
    /// RESET was sent, and its end has not been seen.
    resetting: bool,
    /// What follows a RESET whose reply cannot be counted.
    mark: Option<Mark>,
    /// The last frame was an error.
    after_error: bool,
    /// See [`Tracker::may_have_reset`].
    may_have_reset: bool,
    /// RESET has ended the login too.
    was_reset: bool,
    /// See [`Tracker::outlives_reset`].
    outlives_reset: bool,
    /// See [`Tracker::has_quit`].
    has_quit: bool,
    raw: bool,
    /// The server was asked to end what it blocks on.
    unblocked: bool,
    events: Vec<Event>,
    /// The server's refusal of the command before WAIT: see [`Tracker::sent_before_wait`].
    refusal: Option<Bytes>,
}

/// What becomes of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    PassOn,
    /// It contains the number of the client that invalidations are redirected to.
    Renumber,
    /// The reply to HELLO: it contains the server's number of this connection.
    Hello,
    Drop,
    Replace(Bytes),
}

impl Tracker {
    /// Notes a command of the client.
    pub(super) fn sent(&mut self, class: Class, command: &[u8]) {
        self.outlives_reset |= class == Class::State(State::Lasting) && outlives_reset(command);
        if self.lasting {
            match class {
                Class::Local(Local::Reset) => (self.resetting, self.mark) = (true, Some(Mark::new())),
                Class::Local(Local::Quit) => self.has_quit = true,
                _ => {}
            }
            return;
        }
        let expect = match class {
            // No transaction queues them.
            Class::Local(Local::Reset) => {
                self.resetting = true;
                Expect::Reset
            }
            Class::Local(Local::Quit) => Expect::Quit,
            Class::State(State::Exec) => {
                self.queueing = false;
                Expect::Exec
            }
            Class::State(State::Discard) => {
                self.queueing = false;
                Expect::Discard
            }
            // Executed later, if at all: what is left of it cannot be known.
            Class::State(state) if self.queueing && !matches!(state, State::Multi | State::Unwatch) => {
                return self.lasting = true;
            }
            Class::Local(Local::Hello | Local::Auth | Local::Select) if self.queueing => {
                return self.lasting = true;
            }
            Class::State(State::Multi) => {
                self.queueing = true;
                Expect::Multi
            }
            _ if self.queueing => Expect::Any,
            Class::State(State::Watch) => Expect::Watch,
            Class::State(State::Unwatch) => Expect::Unwatch,
            Class::State(State::Tracking(on)) => Expect::Flag(Flag::Tracking, on),
            Class::State(State::NoEvict(on)) => Expect::Flag(Flag::NoEvict, on),
            Class::State(State::NoTouch(on)) => Expect::Flag(Flag::NoTouch, on),
            Class::State(State::Subscribe(_)) => Expect::Subscribe(words(command).count().saturating_sub(1)),
            Class::State(State::Unsubscribe(kind)) => {
                let named = words(command).count().saturating_sub(1);
                Expect::Unsubscribe(kind, Some(named).filter(|named| *named > 0))
            }
            Class::State(State::Lasting) => return self.lasting = true,
            Class::State(State::Raw) => return self.raw = true,
            Class::Alone if matches!(self.expected.back(), Some(Expect::BeforeWait)) => Expect::Wait,
            Class::Alone => Expect::Blocking,
            Class::Local(Local::Select) => match database(command) {
                Some(database) => Expect::Change(Event::Database(database)),
                None => Expect::Any,
            },
            Class::Local(Local::Auth) => match hello::login_of_auth(command) {
                Some(login) => Expect::Change(Event::Login(login)),
                None => Expect::Any,
            },
            Class::Local(Local::Hello) => Expect::Hello(version(command), hello::Options::of(command)),
            Class::Ordinary if is_about_redirection(command) => Expect::Numbered,
            Class::Ordinary | Class::Script | Class::Local(_) | Class::State(State::ReplyOn) => Expect::Any,
        };
        self.expected.push(expect);
    }

    /// Notes a command of the gateway.
    pub(super) fn sent_ours(&mut self) {
        self.expected.push(Expect::Ours);
    }

    /// Notes a command of the gateway without which the WAIT that follows has no meaning.
    pub(super) fn sent_before_wait(&mut self) {
        self.expected.push(Expect::BeforeWait);
    }

    /// Whether commands are queued for a transaction, or their replies are not counted.
    pub(super) fn is_opaque(&self) -> bool {
        self.queueing || self.lasting
    }

    /// Notes a frame: all of it if `whole`, or its first bytes.
    pub(super) fn received(&mut self, frame: &[u8], whole: bool) -> Fate {
        let failed = frame.first() == Some(&b'-');
        if self.mark.as_ref().is_some_and(|mark| mark.is_in(frame)) {
            // Before it came the reply to RESET, or after CLIENT REPLY SKIP that to an earlier command: an error may be either.
            match self.after_error {
                true => self.may_have_reset = true,
                false => self.reset(),
            }
            return Fate::Drop;
        }
        self.after_error = failed;
        if self.lasting && self.expected.is_empty() {
            return Fate::PassOn;
        }
        let is_push = frame.first() == Some(&b'>');
        self.pushes |= is_push;
        let confirms = matches!(self.expected.front(), Some(Expect::Subscribe(_) | Expect::Unsubscribe(..)));
        let may_be_message = is_push || !self.pushes && (confirms || self.is_subscribed());
        if may_be_message && self.is_of_pubsub(frame, whole) {
            return Fate::PassOn;
        }
        if is_push {
            let is_broken = words(frame).next().is_some_and(|name| is(name, "tracking-redir-broken"));
            return if is_broken { Fate::Renumber } else { Fate::PassOn };
        }
        let ok = frame == b"+OK\r\n";
        match self.expected.pop() {
            Some(Expect::Ours) => return Fate::Drop,
            Some(Expect::Numbered) => return Fate::Renumber,
            Some(Expect::BeforeWait) => {
                self.refusal = failed.then(|| Bytes::copy_from_slice(frame));
                return Fate::Drop;
            }
            Some(Expect::Blocking | Expect::Wait)
                if self.unblocked && self.expected.is_empty() && frame.starts_with(b"-UNBLOCKED ") =>
            {
                return Fate::Drop;
            }
            Some(Expect::Wait) => return self.refusal.take().map_or(Fate::PassOn, Fate::Replace),
            Some(Expect::Multi) => {
                self.multi |= ok;
                // Refused, and not because there is a transaction already: there is none. What was sent after it was taken for a part of
                // it, and was not.
                self.lasting |= !self.multi && !self.expected.is_empty();
                self.queueing &= self.multi;
            }
            Some(Expect::Exec) => {
                let results = matches!(frame.first(), Some(b'*' | b'_'));
                self.end_multi(results || frame.starts_with(b"-EXECABORT"));
            }
            Some(Expect::Discard) => self.end_multi(ok),
            Some(Expect::Watch) => self.watch |= ok,
            Some(Expect::Unwatch) => self.watch &= !ok,
            Some(Expect::Flag(flag, on)) if ok => self.flags[flag as usize] = on,
            Some(Expect::Change(event)) if ok => self.events.push(event),
            // The server has another name for it, and all is as before.
            Some(Expect::Reset) if failed => self.resetting = false,
            Some(Expect::Reset) => self.reset(),
            Some(Expect::Quit) => self.has_quit |= !failed,
            Some(Expect::Hello(version, options)) if !failed => {
                self.events.extend(options.login.map(Event::Login));
                self.events.extend(options.name.map(Event::Name));
                self.pushes = version.map_or(self.pushes, |version| version == Protocol::Resp3);
                self.events.extend(version.map(Event::Protocol));
                return Fate::Hello;
            }
            Some(_) => {}
            // A reply that we did not expect: the count is wrong from here on.
            None => self.lasting = true,
        }
        Fate::PassOn
    }

    /// Notes that RESET has succeeded.
    fn reset(&mut self) {
        let (events, outlives_reset) = (vec![Event::Reset], self.outlives_reset);
        *self = Self { events, outlives_reset, was_reset: true, ..Self::default() };
    }

    /// Notes the answer to EXEC or DISCARD. A refusal leaves the transaction open, and what was sent after it is part of it.
    fn end_multi(&mut self, ended: bool) {
        if ended {
            (self.multi, self.watch) = (false, false);
        } else {
            self.lasting |= self.multi;
        }
    }

    /// Notes a message or a confirmation of a subscription. `false` if it is neither.
    fn is_of_pubsub(&mut self, frame: &[u8], whole: bool) -> bool {
        let (kind, subscribed, left) = match self.subscriptions.received(frame, whole) {
            None => return false,
            Some(Heard::Message) => return true,
            Some(Heard::Confirmation { kind, subscribed, left }) => (kind, subscribed, left),
        };
        // Without its end, the count is not known.
        self.lasting |= !whole;
        let confirmed = match self.expected.front_mut() {
            Some(Expect::Subscribe(missing)) if subscribed => {
                *missing -= 1;
                *missing == 0
            }
            Some(Expect::Unsubscribe(of, missing)) if !subscribed && *of == kind => match missing {
                Some(missing) => {
                    *missing -= 1;
                    *missing == 0
                }
                None => left <= 0,
            },
            // The server may end subscriptions of a shard.
            _ => false,
        };
        if confirmed {
            self.expected.pop();
        }
        true
    }

    pub(super) fn unanswered(&self) -> usize {
        self.expected.of_client()
    }

    pub(super) fn is_plain(&self) -> bool {
        self.expected.is_empty() && !self.has_state()
    }

    pub(super) fn has_state(&self) -> bool {
        let in_transaction = self.multi || self.queueing || self.watch;
        self.raw || self.lasting || in_transaction || self.flags.contains(&true) || self.is_subscribed()
    }

    /// Whether the server owes a reply that may take for ever.
    pub(crate) fn is_blocked(&self) -> bool {
        self.expected.any_blocks()
    }

    /// Whether it is the next one.
    pub(crate) fn blocks_now(&self) -> bool {
        self.expected.front().is_some_and(Expect::blocks)
    }

    /// Notes that the server was asked to end what it blocks on, because the client ends: it does not get the last error of that.
    pub(crate) fn expect_unblocked(&mut self) {
        self.unblocked = true;
    }

    pub(crate) fn is_raw(&self) -> bool {
        self.raw
    }

    pub(crate) fn is_subscribed(&self) -> bool {
        self.subscriptions.any()
    }

    /// Whether RESET was sent, and its end has not been seen. Commands after it wait, because they need the login of the client.
    pub(crate) fn is_resetting(&self) -> bool {
        self.resetting
    }

    /// What must follow the RESET that was sent last.
    pub(super) fn mark(&self) -> Option<&Mark> {
        self.mark.as_ref()
    }

    /// Whether RESET has ended the connection's login.
    pub(crate) fn was_reset(&self) -> bool {
        self.was_reset
    }

    /// Whether RESET was refused, or has succeeded without a reply. Which login the connection has is not known: no command may follow.
    pub(crate) fn may_have_reset(&self) -> bool {
        self.may_have_reset
    }

    /// Whether the connection has state that RESET does not end: another client must not get it.
    pub(crate) fn outlives_reset(&self) -> bool {
        self.outlives_reset
    }

    /// Whether the server ends the connection because the client has sent QUIT.
    pub(crate) fn has_quit(&self) -> bool {
        self.has_quit
    }

    /// Whether it is known which replies are missing.
    pub(crate) fn counts_replies(&self) -> bool {
        !(self.lasting || self.raw)
    }

    /// Whether what comes next is passed on unread. Replies to earlier commands come before that.
    pub(super) fn passes_raw(&self) -> bool {
        self.raw && self.expected.is_empty()
    }

    /// Whether the gateway may answer commands itself. In a transaction and after CLIENT REPLY OFF it must not.
    pub(crate) fn may_answer(&self, protocol: Protocol) -> bool {
        let restricted = protocol == Protocol::Resp2 && self.is_subscribed();
        !(self.lasting || self.raw || self.queueing || self.multi || restricted)
    }

    /// Whether the server notes what the client reads on this connection, for invalidations.
    pub(crate) fn notes_reads(&self) -> bool {
        self.flags[Flag::Tracking as usize]
    }

    pub(super) fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }
}

/// Whether the reply names the client that invalidations are redirected to.
fn is_about_redirection(command: &[u8]) -> bool {
    let mut words = words(command);
    words.next().is_some_and(|name| is(name, "CLIENT"))
        && words.next().is_some_and(|name| is(name, "GETREDIR") || is(name, "TRACKINGINFO"))
}

/// Whether the state of a command that leaves [lasting](State::Lasting) state stays after RESET: that of CLIENT CAPA, CLIENT IMPORT-SOURCE
/// and SCRIPT DEBUG.
fn outlives_reset(command: &[u8]) -> bool {
    let mut words = words(command);
    match words.next() {
        Some(name) if is(name, "CLIENT") => !words.next().is_some_and(|word| is(word, "REPLY")),
        Some(name) => is(name, "SCRIPT"),
        None => false,
    }
}

/// The database of SELECT.
pub(crate) fn database(command: &[u8]) -> Option<u32> {
    integer::parse(words(command).nth(1)?).and_then(|number| number.try_into().ok())
}

/// The protocol version of HELLO.
fn version(command: &[u8]) -> Option<Protocol> {
    match words(command).nth(1)? {
        b"2" => Some(Protocol::Resp2),
        b"3" => Some(Protocol::Resp3),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
