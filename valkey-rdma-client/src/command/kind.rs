//! [`Kind`]: what the client must know about a command, learnt from its name and first arguments.

/// What the multiplexer must know about a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// No arguments yet, not even a name.
    Empty,
    /// One command, one reply.
    Ordinary,
    /// CLIENT, before its subcommand is known.
    Client,
    /// HELLO without arguments: harmless until one follows.
    Hello,
    /// Opens a transaction: only inside a pipeline that also ends it.
    Multi,
    /// Ends a transaction: EXEC or DISCARD.
    EndMulti,
    /// SCRIPT, before its subcommand is known.
    Script,
    /// XREAD or XREADGROUP, before BLOCK or STREAMS; options begin with this argument.
    Streams { options: usize },
    /// Holds up all that come after it, except within a transaction.
    Blocks,
    /// Breaks the connection for the other tasks; the text says why.
    Refused(&'static str),
}

impl Kind {
    /// What the command is known to be with one more argument, which comes after so many.
    pub(super) fn after(self, arguments: usize, arg: &[u8]) -> Self {
        let is = |word: &str| arg.eq_ignore_ascii_case(word.as_bytes());
        match (arguments, self) {
            (0, _) => kind_of(arg),
            (1, Kind::Client) if is("REPLY") => Kind::Refused(SILENCES),
            (1, Kind::Client) if is("TRACKING") => Kind::Refused(TRACKS),
            (1, Kind::Client) if is("SETNAME") => Kind::Refused(NAMES),
            (1, Kind::Client) if CLIENT_MODES.into_iter().any(is) => Kind::Refused(CHANGES_MODE),
            (1, Kind::Script) if is("DEBUG") => Kind::Refused(CHANGES_MODE),
            (1, Kind::Hello) => Kind::Refused(CHANGES_PROTOCOL),
            // Refused by the server, which then still waits for one without arguments.
            (1, Kind::EndMulti) => Kind::Ordinary,
            (at, Kind::Streams { options }) if at >= options && is("BLOCK") => Kind::Blocks,
            (at, Kind::Streams { options }) if at >= options && is("STREAMS") => Kind::Ordinary,
            (_, kind) => kind,
        }
    }
}

/// Looks a command's name up among those that are more than one request and one reply.
fn kind_of(name: &[u8]) -> Kind {
    // GET, SET, DEL and the like: none of the others is as short.
    if name.len() < 4 {
        return Kind::Ordinary;
    }
    let mut upper = [0; 12];
    let Some(upper) = upper.get_mut(..name.len()) else { return Kind::Ordinary };
    upper.copy_from_slice(name);
    upper.make_ascii_uppercase();
    match &*upper {
        b"CLIENT" => Kind::Client,
        b"HELLO" => Kind::Hello,
        b"MULTI" => Kind::Multi,
        b"EXEC" | b"DISCARD" => Kind::EndMulti,
        b"SUBSCRIBE" | b"PSUBSCRIBE" | b"SSUBSCRIBE" | b"UNSUBSCRIBE" | b"PUNSUBSCRIBE" | b"SUNSUBSCRIBE" => {
            Kind::Refused(SUBSCRIBES)
        }
        b"SELECT" => Kind::Refused(SELECTS),
        b"AUTH" => Kind::Refused(LOGS_IN),
        b"MONITOR" => Kind::Refused(MONITORS),
        b"QUIT" => Kind::Refused(QUITS),
        b"RESET" => Kind::Refused(RESETS),
        b"WATCH" | b"UNWATCH" => Kind::Refused(WATCHES),
        b"SYNC" | b"PSYNC" | b"REPLCONF" => Kind::Refused(REPLICATES),
        b"ASKING" | b"READONLY" | b"READWRITE" => Kind::Refused(CHANGES_MODE),
        b"SCRIPT" => Kind::Script,
        b"XREAD" => Kind::Streams { options: 1 },
        // GROUP, its name and that of the consumer come first, whatever they are.
        b"XREADGROUP" => Kind::Streams { options: 4 },
        b"BLPOP" | b"BRPOP" | b"BLMOVE" | b"BRPOPLPUSH" | b"BLMPOP" | b"BZPOPMIN" | b"BZPOPMAX"
        | b"BZMPOP" | b"WAIT" | b"WAITAOF" => Kind::Blocks,
        _ => Kind::Ordinary,
    }
}

pub(super) const EMPTY: &str = "a command needs at least a name";
const SUBSCRIBES: &str = "its messages would mix with the replies of other tasks; use Client::subscriber";
const MONITORS: &str = "its output would mix with the replies of other tasks";
const SILENCES: &str = "without replies nobody can tell which command an answer belongs to";
const CHANGES_PROTOCOL: &str = "the protocol is fixed when connecting; use the endpoint's protocol and login";
const QUITS: &str = "the connection is shared; use Client::close";
const RESETS: &str = "it would undo the login and the protocol for every task; connect anew instead";
const WATCHES: &str = "another task could spend it; use Client::watch";
const SELECTS: &str =
    "it would hold for other tasks, and only until a reconnect; put the database into the URL";
const LOGS_IN: &str = "it would hold for other tasks, and only until a reconnect; put the login into the URL";
const TRACKS: &str = "it would hold only until a reconnect; use Cache::connect";
const REPLICATES: &str = "it is part of replication, and not answered like a command";
const NAMES: &str = "it would hold only until a reconnect; use Config::name";
const CHANGES_MODE: &str = "it would hold for other tasks, and only until a reconnect; use Client::dedicated";
pub(super) const BLOCKS: &str = "commands of other tasks would wait behind it; use Client::blocking_command";
pub(super) const LONE_MULTI: &str = "commands of other tasks would get into the transaction; use Client::transaction, or MULTI to EXEC in one pipeline";

/// Subcommands of CLIENT that change how the server treats the connection.
const CLIENT_MODES: [&str; 5] = ["NO-EVICT", "NO-TOUCH", "CACHING", "CAPA", "IMPORT-SOURCE"];
