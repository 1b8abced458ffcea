//! [`CommandClass`]: what a command does to the connection that it runs on. The one list of such commands: the client and the
//! gateway read it. Valkey's own descriptions, [`table`](super::table), have the keys of commands and whether these write.

/// A command that was not sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{command} was not sent: {reason}")]
#[non_exhaustive]
pub struct RefusedCommand {
    /// The command's name as the caller wrote it, with the subcommand of CLIENT, SCRIPT, FUNCTION and CLUSTER.
    pub command: String,
    /// Why, and what to use instead.
    pub reason: &'static str,
}

/// What a command does to the connection that it runs on, from its name and first arguments.
///
/// Size: 8 bytes, so that it stays in a register while a command is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandClass {
    /// No arguments yet, not even a name.
    Empty,
    /// One command, one reply.
    Ordinary,
    /// Ordinary, but it may run for long: it runs a script or a function.
    RunsScript,
    /// CLIENT with a subcommand that is none of those below, or none yet.
    Client,
    /// SCRIPT likewise.
    Script,
    /// FUNCTION likewise.
    Function,
    /// CLUSTER likewise.
    Cluster,
    /// MULTI: opens a transaction.
    Multi,
    /// EXEC or DISCARD: ends a transaction. With arguments too, although the server refuses it then: EXEC discards the transaction, and
    /// DISCARD lets EXEC fail.
    EndMulti,
    /// WATCH.
    Watch,
    /// UNWATCH.
    Unwatch,
    /// Starts to receive messages of this kind.
    Subscribe(SubscriptionKind),
    /// Stops it.
    Unsubscribe(SubscriptionKind),
    /// MONITOR.
    Monitor,
    /// Replication: what follows is not RESP.
    Replication,
    /// CLIENT REPLY OFF or SKIP: commands are not answered.
    Silences,
    /// CLIENT REPLY ON.
    ReplyOn,
    /// CLIENT TRACKING, with ON or another word.
    Tracking(bool),
    /// CLIENT NO-EVICT, with ON or another word.
    NoEvict(bool),
    /// CLIENT NO-TOUCH, with ON or another word.
    NoTouch(bool),
    /// CLIENT CACHING: is about the next command.
    Caching,
    /// CLIENT SETNAME.
    SetName,
    /// Changes how the server treats the connection: READONLY, CLIENT CAPA, SCRIPT DEBUG, ...
    Mode,
    /// SELECT.
    Select,
    /// AUTH.
    Auth,
    /// HELLO without arguments changes nothing.
    Hello,
    /// HELLO with arguments.
    HelloWithArguments,
    /// RESET.
    Reset,
    /// QUIT.
    Quit,
    /// XREAD or XREADGROUP, before BLOCK or STREAMS. The next option is this argument or a later one.
    Streams {
        /// The number of that argument.
        options: u32,
    },
    /// Blocks all later commands of the connection, except within a transaction.
    Blocks,
    /// As `Blocks`, and is about earlier writes of its connection: WAIT and WAITAOF.
    Waits,
    /// CLIENT PAUSE: holds back commands of all connections.
    Pauses,
    /// Is of use while the server holds other commands back, and would be held back behind one of them: SHUTDOWN, CLIENT UNPAUSE.
    Overtakes,
    /// FUNCTION STATS: as `Overtakes`, about a script that runs.
    ScriptStats,
    /// SCRIPT KILL and FUNCTION KILL: as `Overtakes`, and end a script. A pipeline would hold them back too.
    Kills,
}

/// The kinds of subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubscriptionKind {
    /// SUBSCRIBE.
    Channel,
    /// PSUBSCRIBE.
    Pattern,
    /// SSUBSCRIBE.
    Shard,
}

impl CommandClass {
    /// The class of a command from its words, or from as many as there are. Reads no more of them than it needs.
    pub fn of<'a>(words: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut class = Self::Empty;
        for (at, word) in words.into_iter().enumerate() {
            class = class.next(at, word);
            if !class.depends_on(at + 1) {
                break;
            }
        }
        class
    }

    /// True if the class of the command may change with this argument. HELLO is named without arguments.
    pub fn depends_on(self, at: usize) -> bool {
        match self {
            Self::Empty | Self::Client | Self::Script | Self::Function | Self::Cluster => at <= 1,
            Self::Silences | Self::Tracking(false) | Self::NoEvict(false) | Self::NoTouch(false) => at == 2,
            Self::Streams { .. } => true,
            _ => false,
        }
    }

    /// The class of the command after one more argument; `arguments` come before it.
    #[inline]
    pub(super) fn next(self, arguments: usize, arg: &[u8]) -> Self {
        match self {
            // Nearly all, for each of their arguments.
            Self::Ordinary => self,
            // GET, SET, DEL and the like: every special command is longer.
            Self::Empty if arg.len() < 4 => Self::Ordinary,
            Self::Empty => Self::of_name(arg),
            special => special.next_of_special(arguments, arg),
        }
    }

    fn next_of_special(self, arguments: usize, arg: &[u8]) -> Self {
        let is = |word: &str| arg.eq_ignore_ascii_case(word.as_bytes());
        match (arguments, self) {
            (1, Self::Client) => Self::of_client(arg),
            (1, Self::Script) if is("DEBUG") => Self::Mode,
            (1, Self::Script | Self::Function) if is("KILL") => Self::Kills,
            (1, Self::Function) if is("STATS") => Self::ScriptStats,
            // How a node takes over slots: what follows is a replication stream, and no reply.
            (1, Self::Cluster) if is("SYNCSLOTS") => Self::Replication,
            (1, Self::Hello) => Self::HelloWithArguments,
            (2, Self::Silences) if is("ON") => Self::ReplyOn,
            (2, Self::Tracking(_)) => Self::Tracking(is("ON")),
            (2, Self::NoEvict(_)) => Self::NoEvict(is("ON")),
            (2, Self::NoTouch(_)) => Self::NoTouch(is("ON")),
            (at, Self::Streams { options }) if at < options as usize => self,
            (_, Self::Streams { .. }) if is("BLOCK") => Self::Blocks,
            (_, Self::Streams { .. }) if is("STREAMS") => Self::Ordinary,
            // The names of a group and a consumer follow. XREAD has no such option: the server refuses it.
            (at, Self::Streams { .. }) if is("GROUP") => {
                Self::Streams { options: u32::try_from(at + 3).unwrap_or(u32::MAX) }
            }
            (_, class) => class,
        }
    }

    fn of_name(name: &[u8]) -> Self {
        let mut upper = [0; 12];
        let Some(upper) = upper.get_mut(..name.len()) else { return Self::Ordinary };
        upper.copy_from_slice(name);
        upper.make_ascii_uppercase();
        match &*upper {
            b"EVAL" | b"EVALSHA" | b"EVAL_RO" | b"EVALSHA_RO" | b"FCALL" | b"FCALL_RO" => Self::RunsScript,
            b"CLIENT" => Self::Client,
            b"SCRIPT" => Self::Script,
            b"FUNCTION" => Self::Function,
            b"CLUSTER" => Self::Cluster,
            b"MULTI" => Self::Multi,
            b"EXEC" | b"DISCARD" => Self::EndMulti,
            b"WATCH" => Self::Watch,
            b"UNWATCH" => Self::Unwatch,
            b"SUBSCRIBE" => Self::Subscribe(SubscriptionKind::Channel),
            b"PSUBSCRIBE" => Self::Subscribe(SubscriptionKind::Pattern),
            b"SSUBSCRIBE" => Self::Subscribe(SubscriptionKind::Shard),
            b"UNSUBSCRIBE" => Self::Unsubscribe(SubscriptionKind::Channel),
            b"PUNSUBSCRIBE" => Self::Unsubscribe(SubscriptionKind::Pattern),
            b"SUNSUBSCRIBE" => Self::Unsubscribe(SubscriptionKind::Shard),
            b"MONITOR" => Self::Monitor,
            b"SYNC" | b"PSYNC" | b"REPLCONF" => Self::Replication,
            b"ASKING" | b"READONLY" | b"READWRITE" => Self::Mode,
            b"SELECT" => Self::Select,
            b"AUTH" => Self::Auth,
            b"HELLO" => Self::Hello,
            b"RESET" => Self::Reset,
            b"QUIT" => Self::Quit,
            b"XREAD" | b"XREADGROUP" => Self::Streams { options: 1 },
            b"BLPOP" | b"BRPOP" | b"BLMOVE" | b"BRPOPLPUSH" | b"BLMPOP" | b"BZPOPMIN" | b"BZPOPMAX"
            | b"BZMPOP" => Self::Blocks,
            b"WAIT" | b"WAITAOF" => Self::Waits,
            // The server also takes it while a script runs. SHUTDOWN ABORT ends one that waits for replicas.
            b"SHUTDOWN" => Self::Overtakes,
            _ => Self::Ordinary,
        }
    }

    fn of_client(subcommand: &[u8]) -> Self {
        let is = |word: &str| subcommand.eq_ignore_ascii_case(word.as_bytes());
        match subcommand {
            _ if is("REPLY") => Self::Silences,
            _ if is("TRACKING") => Self::Tracking(false),
            _ if is("NO-EVICT") => Self::NoEvict(false),
            _ if is("NO-TOUCH") => Self::NoTouch(false),
            _ if is("CACHING") => Self::Caching,
            _ if is("SETNAME") => Self::SetName,
            _ if is("CAPA") || is("IMPORT-SOURCE") => Self::Mode,
            _ if is("PAUSE") => Self::Pauses,
            _ if is("UNPAUSE") => Self::Overtakes,
            _ => Self::Client,
        }
    }

    /// True if it is answered by one reply, as connections need that match replies to commands.
    pub(super) fn has_one_reply(self) -> bool {
        !matches!(
            self,
            Self::Empty
                | Self::Subscribe(_)
                | Self::Unsubscribe(_)
                | Self::Monitor
                | Self::Replication
                | Self::Silences
        )
    }

    /// Why no connection with other tasks takes it, and what to use instead.
    pub(super) fn why_not_among_tasks(self) -> Option<&'static str> {
        match self {
            Self::Empty => Some(EMPTY),
            Self::Subscribe(_) | Self::Unsubscribe(_) => Some(SUBSCRIBES),
            Self::Monitor => Some(MONITORS),
            Self::Replication => Some(REPLICATES),
            Self::Silences | Self::ReplyOn => Some(SILENCES),
            Self::Watch | Self::Unwatch => Some(WATCHES),
            Self::Tracking(_) => Some(TRACKS),
            Self::SetName => Some(NAMES),
            Self::NoEvict(_) | Self::NoTouch(_) | Self::Caching | Self::Mode => Some(CHANGES_MODE),
            Self::Select => Some(SELECTS),
            Self::Auth => Some(LOGS_IN),
            Self::HelloWithArguments => Some(CHANGES_PROTOCOL),
            Self::Reset => Some(RESETS),
            Self::Quit => Some(QUITS),
            _ => None,
        }
    }
}

const EMPTY: &str = "a command needs at least a name";
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
    use Client::transaction, or MULTI to EXEC in one pipeline to one server";
