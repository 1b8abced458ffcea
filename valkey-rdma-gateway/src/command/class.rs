//! [`Class`]: what the gateway must know about a command, from its name and first arguments.

use valkey_rdma_client::CommandClass;
pub(crate) use valkey_rdma_client::SubscriptionKind as Kind;
use valkey_rdma_resp::{is_http, words};

use crate::command::direct::Verb;
use crate::command::words::is;

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
    /// Would begin or end a state, but every server refuses it, because it has arguments.
    WrongArity,
    /// A value moves to or from memory of the client, which it names.
    Direct(Verb),
}

impl Class {
    /// Classifies an encoded command. Of a long one, its first part is enough.
    pub(crate) fn of(command: &[u8]) -> Self {
        let words = words(command);
        let Some(name) = words.clone().next() else { return Self::Ordinary };
        // GET, SET, DEL and the like: every special command is longer.
        if name.len() < 4 {
            return Self::Ordinary;
        }
        match CommandClass::of(words.clone()) {
            CommandClass::Ordinary => of_others(name, words),
            CommandClass::RunsScript => Self::Script,
            // EXEC ends its transaction with any arguments.
            CommandClass::EndMulti if is(name, "EXEC") => Self::State(State::Exec),
            CommandClass::Multi | CommandClass::EndMulti | CommandClass::Unwatch | CommandClass::Reset
                if words.clone().nth(1).is_some() =>
            {
                Self::Local(Local::WrongArity)
            }
            CommandClass::Multi => Self::State(State::Multi),
            CommandClass::EndMulti => Self::State(State::Discard),
            CommandClass::Watch => Self::State(State::Watch),
            CommandClass::Unwatch => Self::State(State::Unwatch),
            CommandClass::Subscribe(kind) => Self::State(State::Subscribe(kind)),
            CommandClass::Unsubscribe(kind) => Self::State(State::Unsubscribe(kind)),
            CommandClass::Tracking(on) => Self::State(State::Tracking(on)),
            CommandClass::NoEvict(on) => Self::State(State::NoEvict(on)),
            CommandClass::NoTouch(on) => Self::State(State::NoTouch(on)),
            CommandClass::ReplyOn => Self::State(State::ReplyOn),
            CommandClass::Monitor | CommandClass::Silences | CommandClass::Mode => {
                Self::State(State::Lasting)
            }
            CommandClass::Replication => Self::State(State::Raw),
            // Commands that CLIENT PAUSE holds back would hold these back too.
            CommandClass::Blocks
            | CommandClass::Waits
            | CommandClass::Pauses
            | CommandClass::Overtakes
            | CommandClass::Kills => Self::Alone,
            CommandClass::Auth => Self::Local(Local::Auth),
            CommandClass::Hello | CommandClass::HelloWithArguments => Self::Local(Local::Hello),
            CommandClass::Select => Self::Local(Local::Select),
            CommandClass::Reset => Self::Local(Local::Reset),
            CommandClass::Quit => Self::Local(Local::Quit),
            CommandClass::SetName => Self::Local(Local::SetName),
            CommandClass::Client => of_client(words),
            // Scripts of other clients have connections of their own: FUNCTION STATS does not wait behind them.
            CommandClass::Empty
            | CommandClass::Script
            | CommandClass::Function
            | CommandClass::Cluster
            | CommandClass::Streams { .. }
            | CommandClass::Caching
            | CommandClass::ScriptStats => Self::Ordinary,
        }
    }

    /// Whether enough words of a command have arrived to [classify](Self::of) it: CLIENT with TRACKING is not CLIENT with anything else.
    pub(crate) fn is_known(part: &[u8]) -> bool {
        let words = words(part);
        let count = words.clone().take(3).count();
        count == 3 || !CommandClass::of(words).depends_on(count)
    }
}

/// Commands that mean something to the gateway only.
fn of_others<'a>(name: &[u8], mut words: impl Iterator<Item = &'a [u8]>) -> Class {
    if is_http(name) {
        Class::Local(Local::Http)
    } else if is(name, "INFO") && words.nth(1).is_some_and(|word| is(word, "GATEWAY")) {
        Class::Local(Local::GatewayInfo)
    } else {
        Class::Ordinary
    }
}

/// CLIENT with a subcommand that says or asks something about its own client.
fn of_client<'a>(mut words: impl Iterator<Item = &'a [u8]>) -> Class {
    let answered = [
        ("GETNAME", Local::GetName),
        ("SETINFO", Local::SetInfo),
        ("ID", Local::Id),
        ("INFO", Local::Info),
        ("LIST", Local::List),
        ("KILL", Local::Kill),
        ("UNBLOCK", Local::Unblock),
    ];
    let subcommand = words.nth(1).unwrap_or_default();
    let answer = answered.into_iter().find(|(name, _)| is(subcommand, name));
    answer.map_or(Class::Ordinary, |(_, local)| Class::Local(local))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::words::encode;

    #[test]
    fn commands_are_classified_by_their_first_words() {
        for (line, class) in [
            ("GET multi", Class::Ordinary),
            ("SET k v", Class::Ordinary),
            ("multi", Class::State(State::Multi)),
            ("multi x", Class::Local(Local::WrongArity)),
            ("DISCARD x", Class::Local(Local::WrongArity)),
            ("exec x", Class::State(State::Exec)),
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
            ("reset", Class::Local(Local::Reset)),
            ("RESET x", Class::Local(Local::WrongArity)),
            ("CLUSTER SYNCSLOTS ESTABLISH", Class::State(State::Raw)),
            ("CLUSTER SLOTS", Class::Ordinary),
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
