//! [`CommandClass`]: what the client must know about a command, derived from its name and first arguments.

/// A command that was not sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{command} was not sent: {reason}")]
#[non_exhaustive]
pub struct RefusedCommand {
    /// The command's name as the caller wrote it, with the subcommand of CLIENT and SCRIPT.
    pub command: String,
    /// Why, and what to use instead.
    pub reason: &'static str,
}

/// What the multiplexer must know about a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommandClass {
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
    /// FUNCTION, before its subcommand is known.
    Function,
    /// XREAD or XREADGROUP, before BLOCK or STREAMS. The next option is this argument or a later one.
    Streams { options: usize },
    /// Blocks all later commands of the connection, except within a transaction.
    Blocks,
    /// As `Blocks`, and is about earlier writes of its connection: WAIT and WAITAOF.
    Waits,
    /// Is of use while the server holds other commands back, and would be held back behind one of them. The client sends it on
    /// a connection of its own.
    Overtakes,
    /// As `Overtakes`, and ends a command: SCRIPT KILL and FUNCTION KILL. A pipeline would hold it back too.
    Kills,
    /// Changes or breaks the connection for other tasks; the text says why.
    Refused(&'static str),
    /// Not answered by one reply, so that no connection takes it that matches replies to commands; the text says why.
    Unanswered(&'static str),
}

impl CommandClass {
    /// The class of the command after one more argument; `arguments` come before it.
    pub(super) fn next(self, arguments: usize, arg: &[u8]) -> Self {
        let is = |word: &str| arg.eq_ignore_ascii_case(word.as_bytes());
        match (arguments, self) {
            (0, _) => classify_name(arg),
            (1, CommandClass::Client) if is("REPLY") => CommandClass::Unanswered(SILENCES),
            (2, CommandClass::Unanswered(SILENCES)) if is("ON") => CommandClass::Refused(SILENCES),
            (1, CommandClass::Client) if is("TRACKING") => CommandClass::Refused(TRACKS),
            (1, CommandClass::Client) if is("UNPAUSE") => CommandClass::Overtakes,
            (1, CommandClass::Client) if is("SETNAME") => CommandClass::Refused(NAMES),
            (1, CommandClass::Client) if CLIENT_MODES.into_iter().any(is) => {
                CommandClass::Refused(CHANGES_MODE)
            }
            (1, CommandClass::Script) if is("DEBUG") => CommandClass::Refused(CHANGES_MODE),
            (1, CommandClass::Script | CommandClass::Function) if is("KILL") => CommandClass::Kills,
            (1, CommandClass::Function) if is("STATS") => CommandClass::Overtakes,
            (1, CommandClass::Hello) => CommandClass::Refused(CHANGES_PROTOCOL),
            // The server refuses it and keeps the transaction open.
            (1, CommandClass::EndMulti) => CommandClass::Ordinary,
            (at, CommandClass::Streams { options }) if at >= options && is("BLOCK") => CommandClass::Blocks,
            (at, CommandClass::Streams { options }) if at >= options && is("STREAMS") => {
                CommandClass::Ordinary
            }
            // The names of a group and a consumer follow. XREAD has no such option: the server refuses it.
            (at, CommandClass::Streams { options }) if at >= options && is("GROUP") => {
                CommandClass::Streams { options: at + 3 }
            }
            (_, kind) => kind,
        }
    }
}

/// Classifies a command by its name.
fn classify_name(name: &[u8]) -> CommandClass {
    // GET, SET, DEL and the like: every special command is longer.
    if name.len() < 4 {
        return CommandClass::Ordinary;
    }
    let mut upper = [0; 12];
    let Some(upper) = upper.get_mut(..name.len()) else { return CommandClass::Ordinary };
    upper.copy_from_slice(name);
    upper.make_ascii_uppercase();
    match &*upper {
        b"CLIENT" => CommandClass::Client,
        b"HELLO" => CommandClass::Hello,
        b"MULTI" => CommandClass::Multi,
        b"EXEC" | b"DISCARD" => CommandClass::EndMulti,
        b"SUBSCRIBE" | b"PSUBSCRIBE" | b"SSUBSCRIBE" | b"UNSUBSCRIBE" | b"PUNSUBSCRIBE" | b"SUNSUBSCRIBE" => {
            CommandClass::Unanswered(SUBSCRIBES)
        }
        b"SELECT" => CommandClass::Refused(SELECTS),
        b"AUTH" => CommandClass::Refused(LOGS_IN),
        b"MONITOR" => CommandClass::Unanswered(MONITORS),
        b"QUIT" => CommandClass::Refused(QUITS),
        b"RESET" => CommandClass::Refused(RESETS),
        b"WATCH" | b"UNWATCH" => CommandClass::Refused(WATCHES),
        b"SYNC" | b"PSYNC" | b"REPLCONF" => CommandClass::Unanswered(REPLICATES),
        b"ASKING" | b"READONLY" | b"READWRITE" => CommandClass::Refused(CHANGES_MODE),
        b"SCRIPT" => CommandClass::Script,
        b"FUNCTION" => CommandClass::Function,
        // The server also takes it while a script runs. SHUTDOWN ABORT ends one that waits for replicas.
        b"SHUTDOWN" => CommandClass::Overtakes,
        b"XREAD" | b"XREADGROUP" => CommandClass::Streams { options: 1 },
        b"BLPOP" | b"BRPOP" | b"BLMOVE" | b"BRPOPLPUSH" | b"BLMPOP" | b"BZPOPMIN" | b"BZPOPMAX"
        | b"BZMPOP" => CommandClass::Blocks,
        b"WAIT" | b"WAITAOF" => CommandClass::Waits,
        _ => CommandClass::Ordinary,
    }
}

pub(super) const EMPTY: &str = "a command needs at least a name";
const SUBSCRIBES: &str = "its messages would mix with the replies to commands; use Client::subscriber";
const MONITORS: &str = "its output would mix with the replies to commands; use `valkey-cli monitor`";
const SILENCES: &str = "without replies, answers cannot be matched to commands; to wait once for many of them, use Client::pipeline";
const CHANGES_PROTOCOL: &str = "the protocol is fixed when connecting; use the endpoint's protocol and login";
const QUITS: &str = "the connection is shared; use Client::close";
const RESETS: &str = "it would undo the login and the protocol for every task; connect anew instead";
const WATCHES: &str = "another task could spend it; use Client::watch";
const SELECTS: &str =
    "it would hold for other tasks, and only until a reconnect; put the database into the URL";
const LOGS_IN: &str = "it would hold for other tasks, and only until a reconnect; put the login into the URL";
const TRACKS: &str = "it would hold only until a reconnect; use Cache::connect";
const REPLICATES: &str =
    "it is part of replication, and not answered like a command; use Dialer::dial, which gives a byte stream";
const NAMES: &str = "it would hold only until a reconnect; use Config::name";
const CHANGES_MODE: &str = "it would hold for other tasks, and only until a reconnect; use Client::dedicated";
pub(super) const BLOCKS: &str = "commands of other tasks would wait behind it; use Client::blocking_command, \
    from the blocking client with wait(client().blocking_command(..))";
pub(super) const WAITS: &str =
    "it counts the writes of its own connection only; send both on Client::dedicated";
pub(super) const KILLS: &str =
    "it would wait behind the script that it is to end; send it alone, with Client::command";
pub(super) const MULTI_OUTSIDE_PIPELINE: &str = "commands of other tasks would get into the transaction; \
    use Client::transaction or ClusterClient::transaction, or MULTI to EXEC in one pipeline of a Client";

/// Subcommands of CLIENT that change how the server treats the connection.
const CLIENT_MODES: [&str; 5] = ["NO-EVICT", "NO-TOUCH", "CACHING", "CAPA", "IMPORT-SOURCE"];
