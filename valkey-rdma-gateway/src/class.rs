//! [`Class`]: what the gateway must know about a command, from its name and first arguments.

use valkey_rdma_resp::{is_http, words};

/// What a command means for the connection it runs on. Commands that are not named here are [`Class::Ordinary`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// One command, one reply, no state: may share a connection.
    Ordinary,
    /// As ordinary, but may run for long: a script or a function.
    Script,
    /// Must not run on a shared connection, but leaves no state: it blocks, or it ends what blocks others.
    Alone,
    /// Leaves state in its connection.
    State(State),
    /// Is about the local connection.
    Local(Local),
}

/// The state that a command leaves, or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Multi,
    Exec,
    Discard,
    Watch,
    Unwatch,
    Subscribe(Kind),
    Unsubscribe(Kind),
    Tracking(bool),
    NoEvict(bool),
    NoTouch(bool),
    ReplyOn,
    /// Until RESET or the end of the connection: MONITOR, CLIENT CAPA, CLIENT REPLY OFF, READONLY, ...
    Lasting,
    /// What follows is not RESP: replication.
    Raw,
}

/// The kinds of subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Channel,
    Pattern,
    Shard,
}

/// Commands that the gateway answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Local {
    Auth,
    Hello,
    Select,
    Reset,
    Quit,
    /// The first words of HTTP requests: a web page may have sent it.
    Http,
    SetName,
    GetName,
    SetInfo,
    Id,
    Info,
    List,
    Kill,
    Unblock,
    GatewayInfo,
}

impl Class {
    /// Classifies an encoded command. Of a long one, its first part is enough.
    pub(crate) fn of(command: &[u8]) -> Self {
        let mut words = words(command);
        let Some(name) = words.next() else { return Self::Ordinary };
        // GET, SET, DEL and the like: every special command is longer.
        if name.len() < 4 {
            return Self::Ordinary;
        }
        let mut upper = [0; 12];
        let Some(upper) = upper.get_mut(..name.len()) else { return Self::Ordinary };
        upper.copy_from_slice(name);
        upper.make_ascii_uppercase();
        match &*upper {
            b"MULTI" => Self::State(State::Multi),
            b"EXEC" => Self::State(State::Exec),
            b"DISCARD" => Self::State(State::Discard),
            b"WATCH" => Self::State(State::Watch),
            b"UNWATCH" => Self::State(State::Unwatch),
            b"SUBSCRIBE" => Self::State(State::Subscribe(Kind::Channel)),
            b"PSUBSCRIBE" => Self::State(State::Subscribe(Kind::Pattern)),
            b"SSUBSCRIBE" => Self::State(State::Subscribe(Kind::Shard)),
            b"UNSUBSCRIBE" => Self::State(State::Unsubscribe(Kind::Channel)),
            b"PUNSUBSCRIBE" => Self::State(State::Unsubscribe(Kind::Pattern)),
            b"SUNSUBSCRIBE" => Self::State(State::Unsubscribe(Kind::Shard)),
            b"MONITOR" | b"ASKING" | b"READONLY" | b"READWRITE" => Self::State(State::Lasting),
            b"SYNC" | b"PSYNC" | b"REPLCONF" => Self::State(State::Raw),
            b"BLPOP" | b"BRPOP" | b"BLMOVE" | b"BRPOPLPUSH" | b"BLMPOP" | b"BZPOPMIN" | b"BZPOPMAX"
            | b"BZMPOP" | b"WAIT" | b"WAITAOF" | b"SHUTDOWN" => Self::Alone,
            b"XREAD" | b"XREADGROUP" => of_stream_read(words),
            b"EVAL" | b"EVALSHA" | b"EVAL_RO" | b"EVALSHA_RO" | b"FCALL" | b"FCALL_RO" => Self::Script,
            b"SCRIPT" => match words.next() {
                Some(word) if is(word, "KILL") => Self::Alone,
                Some(word) if is(word, "DEBUG") => Self::State(State::Lasting),
                _ => Self::Ordinary,
            },
            b"FUNCTION" if words.next().is_some_and(|word| is(word, "KILL")) => Self::Alone,
            b"CLIENT" => of_client(words),
            b"AUTH" => Self::Local(Local::Auth),
            b"HELLO" => Self::Local(Local::Hello),
            b"SELECT" => Self::Local(Local::Select),
            b"RESET" => Self::Local(Local::Reset),
            b"QUIT" => Self::Local(Local::Quit),
            name if is_http(name) => Self::Local(Local::Http),
            b"INFO" if words.next().is_some_and(|word| is(word, "GATEWAY")) => {
                Self::Local(Local::GatewayInfo)
            }
            _ => Self::Ordinary,
        }
    }
}

fn of_stream_read<'a>(mut words: impl Iterator<Item = &'a [u8]>) -> Class {
    while let Some(word) = words.next() {
        if is(word, "BLOCK") {
            return Class::Alone;
        }
        if is(word, "STREAMS") {
            break;
        }
        if is(word, "GROUP") {
            // Names of a group and a consumer.
            words.nth(1);
        }
    }
    Class::Ordinary
}

fn of_client<'a>(mut words: impl Iterator<Item = &'a [u8]>) -> Class {
    let Some(name) = words.next() else { return Class::Ordinary };
    let name = name.to_ascii_uppercase();
    let mut on = || words.next().is_some_and(|word| is(word, "ON"));
    match &name[..] {
        b"SETNAME" => Class::Local(Local::SetName),
        b"GETNAME" => Class::Local(Local::GetName),
        b"SETINFO" => Class::Local(Local::SetInfo),
        b"ID" => Class::Local(Local::Id),
        b"INFO" => Class::Local(Local::Info),
        b"LIST" => Class::Local(Local::List),
        b"KILL" => Class::Local(Local::Kill),
        b"UNBLOCK" => Class::Local(Local::Unblock),
        // Commands that CLIENT PAUSE holds back would hold this one back too.
        b"UNPAUSE" | b"PAUSE" => Class::Alone,
        b"REPLY" if on() => Class::State(State::ReplyOn),
        b"REPLY" | b"CAPA" | b"IMPORT-SOURCE" => Class::State(State::Lasting),
        b"TRACKING" => Class::State(State::Tracking(on())),
        b"NO-EVICT" => Class::State(State::NoEvict(on())),
        b"NO-TOUCH" => Class::State(State::NoTouch(on())),
        _ => Class::Ordinary,
    }
}

pub(crate) fn is(word: &[u8], expected: &str) -> bool {
    word.eq_ignore_ascii_case(expected.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::encode;

    #[test]
    fn commands_are_classified_by_their_first_words() {
        for (line, class) in [
            ("GET multi", Class::Ordinary),
            ("SET k v", Class::Ordinary),
            ("multi", Class::State(State::Multi)),
            ("blpop k 0", Class::Alone),
            ("XREAD COUNT 1 STREAMS BLOCK 0", Class::Ordinary),
            ("XREAD COUNT 1 BLOCK 0 STREAMS s 0", Class::Alone),
            ("XREADGROUP GROUP g c block 0 STREAMS s >", Class::Alone),
            ("XREADGROUP GROUP streams block BLOCK 0 STREAMS s >", Class::Alone),
            ("XREADGROUP GROUP g block STREAMS s >", Class::Ordinary),
            ("POST / HTTP/1.1", Class::Local(Local::Http)),
            ("Host: localhost", Class::Local(Local::Http)),
            ("client reply off", Class::State(State::Lasting)),
            ("CLIENT REPLY ON", Class::State(State::ReplyOn)),
            ("CLIENT TRACKING on BCAST", Class::State(State::Tracking(true))),
            ("CLIENT CACHING yes", Class::Ordinary),
            ("client Id", Class::Local(Local::Id)),
            ("INFO gateway", Class::Local(Local::GatewayInfo)),
            ("INFO", Class::Ordinary),
            ("SCRIPT KILL", Class::Alone),
            ("evalsha_ro x 0", Class::Script),
            ("AVERYLONGCOMMANDNAME x", Class::Ordinary),
        ] {
            assert_eq!(Class::of(&encode(line.split(' '))), class, "{line}");
        }
        let blocks = encode(["XREAD", "BLOCK", "0", "STREAMS", "s", "0"]);
        assert_eq!(Class::of(&blocks[..blocks.len() - 20]), Class::Alone, "its first part is enough");
    }
}
