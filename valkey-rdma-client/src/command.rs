//! [`Command`]: arguments encoded once as RESP, ready to be sent. [`IntoCommand`], [`cmd!`](crate::cmd): what makes one.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
pub(crate) use valkey_rdma_resp::CommandName;
use valkey_rdma_resp::{ServerError, Value, put_header};

mod class;
mod encode;
pub(crate) mod table;
mod to_arg;
mod words;

pub use self::class::{CommandClass, RefusedCommand, SubscriptionKind};
pub(crate) use self::encode::{Commands, EncodeBuffer, EncodedPipeline};
pub use self::to_arg::ToArg;

/// The reply to one command: a value, or the server's error.
pub(crate) type Reply = Result<Value, ServerError>;

/// The CRLF that ends every line and string.
pub(crate) const CRLF: usize = 2;

/// [`Bytes`] arguments of this size or more are sent from where they are instead of being copied.
pub(crate) const SHARED_FROM: usize = 8 * 1024;

/// Initial capacity, enough for most commands.
const TYPICAL: usize = 64;

/// A command, encoded for the wire.
///
/// [`cmd!`](crate::cmd) makes one in a line. Keep a `Command` to send it again: clones share the arguments of at least 8 KiB that
/// were not copied.
///
/// ```
/// use bytes::Bytes;
/// use valkey_rdma_client::Command;
///
/// let chunk = Bytes::from(vec![7; 32 << 20]);
/// let set = Command::new("SET").arg("kv:17").arg(chunk);
/// let again = set.clone(); // the 32 MiB are not copied
/// ```
#[derive(Clone)]
pub struct Command {
    arguments: usize,
    /// Encoded arguments up to and including the last shared one.
    parts: Vec<Bytes>,
    /// Encoded arguments after `parts`.
    tail: Vec<u8>,
    class: CommandClass,
    idempotent: bool,
    timeout: Option<Duration>,
}

impl Command {
    /// A command with this name.
    #[must_use]
    pub fn new(name: impl ToArg) -> Self {
        Self::empty().arg(name)
    }

    pub(crate) fn empty() -> Self {
        Self {
            arguments: 0,
            parts: Vec::new(),
            tail: Vec::with_capacity(TYPICAL),
            class: CommandClass::Empty,
            idempotent: false,
            timeout: None,
        }
    }

    /// A command from its name and arguments together.
    #[must_use]
    pub fn from_args(args: impl IntoIterator<Item = impl ToArg>) -> Self {
        args.into_iter().fold(Self::empty(), Self::arg)
    }

    /// Takes a complete, well-formed RESP command encoded by another library.
    #[cfg(feature = "redis")]
    pub(crate) fn from_packed(packed: Vec<u8>) -> Self {
        let mut command = Self::empty();
        let mut rest = Bytes::from(packed);
        let count = take_number(&mut rest);
        let mut args = rest.clone();
        // The first two arguments decide the class of most commands.
        for at in 0..count {
            if at > 1 && !command.class.depends_on(at) {
                break;
            }
            let len = take_number(&mut args).min(args.len());
            command.classify_arg(&args.split_to(len));
            let _crlf = args.split_to(args.len().min(2));
        }
        command.arguments = count;
        command.parts.push(rest);
        command
    }

    /// Adds an argument: text, bytes, a number, or whatever implements [`ToArg`]. `Bytes`, and `String` and `Vec<u8>` passed by
    /// value, are not copied if they have at least 8 KiB. Over RDMA they are copied into the send buffer later, unless they
    /// lie in a [`BufferPool`](crate::BufferPool): then they are sent from there.
    #[must_use]
    pub fn arg(mut self, arg: impl ToArg) -> Self {
        arg.move_to(&mut self);
        self
    }

    /// Adds an argument in place, for loops and for implementations of [`ToArg`].
    pub fn push(&mut self, arg: impl ToArg) -> &mut Self {
        arg.move_to(self);
        self
    }

    /// Declares that running the command twice has the same effect as once. The client may then send it again if the
    /// connection is lost before its reply. SET without options is such a command; INCR is not. Commands that only read, such
    /// as GET, need no declaration: the client has Valkey's own descriptions of its commands. Those of modules need it.
    ///
    /// ```no_run
    /// # async fn example(client: valkey_rdma_client::Client) -> Result<(), valkey_rdma_client::Error> {
    /// use valkey_rdma_client::Command;
    ///
    /// client.command(Command::new("SET").arg("key").arg("value").idempotent()).await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn idempotent(mut self) -> Self {
        self.set_idempotent();
        self
    }

    /// As [`idempotent`](Self::idempotent), in place.
    pub(crate) fn set_idempotent(&mut self) {
        self.idempotent = true;
    }

    /// Limits the duration of this command, instead of the client's
    /// [`command_timeout`](crate::Config::command_timeout). In a pipeline, the longest limit applies. With a limit of zero, the command is
    /// not sent, and fails with [`Error::TimedOut`](crate::Error::TimedOut).
    #[must_use]
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = Some(limit);
        self
    }

    pub(crate) fn is_idempotent(&self) -> bool {
        self.idempotent
    }

    pub(crate) fn limit(&self) -> Option<Duration> {
        self.timeout
    }

    pub(crate) fn class(&self) -> CommandClass {
        self.class
    }

    /// The refusal of this command on a dedicated connection, if any.
    pub(crate) fn dedicated_refusal(&self) -> Option<RefusedCommand> {
        if self.class.has_one_reply() { None } else { self.refusal() }
    }

    /// True if the command may block.
    pub(crate) fn blocks(&self) -> bool {
        matches!(self.class, CommandClass::Blocks | CommandClass::Waits)
    }

    /// True if it must not wait behind other commands: it is sent on a connection of its own.
    #[inline]
    pub(crate) fn overtakes(&self) -> bool {
        matches!(self.class, CommandClass::Overtakes | CommandClass::ScriptStats | CommandClass::Kills)
    }

    /// The refusal of this command among others that share its connection: in a pipeline or transaction.
    pub(crate) fn refusal_among_others(&self) -> Option<RefusedCommand> {
        match self.class {
            CommandClass::Kills => Some(self.refused(class::KILLS)),
            _ => self.refusal(),
        }
    }

    /// The refusal of this command on a shared connection, if any.
    pub(crate) fn refusal(&self) -> Option<RefusedCommand> {
        self.class.why_not_among_tasks().map(|reason| self.refused(reason))
    }

    /// The refusal of this command outside a pipeline, on any connection but a dedicated one.
    pub(crate) fn refusal_outside_pipeline(&self) -> Option<RefusedCommand> {
        match self.class {
            CommandClass::Multi => Some(self.refused(class::MULTI_OUTSIDE_PIPELINE)),
            CommandClass::Waits => Some(self.refused(class::WAITS)),
            _ => self.refusal(),
        }
    }

    /// As [`refusal_outside_pipeline`](Self::refusal_outside_pipeline), on the shared connection.
    pub(crate) fn shared_refusal(&self) -> Option<RefusedCommand> {
        match self.class {
            CommandClass::Ordinary => None,
            CommandClass::Blocks => Some(self.refused(class::BLOCKS)),
            _ => self.refusal_outside_pipeline(),
        }
    }

    fn refused(&self, reason: &'static str) -> RefusedCommand {
        let mut command = self.name();
        // Others of its subcommands are not refused.
        if ["CLIENT", "SCRIPT", "FUNCTION", "CLUSTER"].iter().any(|name| command.eq_ignore_ascii_case(name))
            && let Some(subcommand) = self.words().nth(1)
        {
            command = format!("{command} {}", String::from_utf8_lossy(subcommand));
        }
        RefusedCommand { command, reason }
    }

    /// The name, for error texts.
    pub(crate) fn name(&self) -> String {
        let name = self.words().next();
        name.map_or("an empty command".into(), String::from_utf8_lossy).into_owned()
    }

    /// The encoded form: the number of arguments, then the encoded arguments in order.
    pub(crate) fn encoded(&self) -> (usize, &[Bytes], &[u8]) {
        (self.arguments, &self.parts, &self.tail)
    }

    /// Adds the name and the arguments of another command.
    pub(crate) fn followed_by(mut self, other: &Self) -> Self {
        for word in other.words() {
            self.class = self.class.next(self.arguments, word);
            self.arguments += 1;
        }
        for part in &other.parts {
            self.parts.push(std::mem::take(&mut self.tail).into());
            self.parts.push(part.clone());
        }
        self.tail.extend_from_slice(&other.tail);
        self
    }

    /// Adds one argument, which is copied once.
    fn push_copied(&mut self, arg: &[u8]) {
        self.classify_arg(arg);
        self.tail.reserve(arg.len() + HEADER_ROOM + 2);
        put_header(&mut self.tail, b'$', arg.len());
        self.tail.extend_from_slice(arg);
        self.tail.extend_from_slice(b"\r\n");
        if self.tail.len() >= SHARED_FROM {
            self.parts.push(std::mem::take(&mut self.tail).into());
        }
    }

    /// Adds one argument without copying it, if it is large.
    fn push_shared(&mut self, arg: Bytes) {
        if arg.len() < SHARED_FROM {
            self.push_copied(&arg);
        } else {
            self.classify_arg(&arg);
            put_header(&mut self.tail, b'$', arg.len());
            self.parts.push(std::mem::take(&mut self.tail).into());
            self.parts.push(arg);
            self.tail.extend_from_slice(b"\r\n");
        }
    }

    /// Counts an argument and updates the class of the command.
    fn classify_arg(&mut self, arg: &[u8]) {
        self.class = self.class.next(self.arguments, arg);
        self.arguments += 1;
    }
}

/// What [`Client::command`](crate::Client::command), [`Client::query`](crate::Client::query) and pipelines take: a [`Command`],
/// which [`cmd!`](crate::cmd) makes, or a name and arguments in an array or iterator.
/// The members of an array have one type: for `["SET", "visits", 5]`, the compiler says "mismatched types", and `cmd!` is what takes it.
///
/// ```no_run
/// # async fn example(client: valkey_rdma_client::Client) -> Result<(), valkey_rdma_client::Error> {
/// use valkey_rdma_client::{Command, cmd};
///
/// client.command(["SET", "greeting", "hello"]).await?;
/// client.command(cmd!["SET", "greeting", "hello", "EX", 60]).await?;
/// client.command(Command::new("SET").arg("greeting").arg("hello").idempotent()).await?;
/// # Ok(())
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a command",
    note = "use `cmd![\"SET\", key, value]`, an array such as `[\"PING\"]`, or a `Command`",
    note = "arguments of different types need `cmd!`: an array has one type"
)]
pub trait IntoCommand {
    /// Returns the command.
    fn into_command(self) -> Command;

    /// Passes the command by reference to a function. A `&Command` is not cloned for it.
    fn with_command<R>(self, take: impl FnOnce(&Command) -> R) -> R
    where
        Self: Sized,
    {
        take(&self.into_command())
    }
}

impl IntoCommand for Command {
    fn into_command(self) -> Command {
        self
    }
}

/// Clones it: see [`Command`] for what is shared.
impl IntoCommand for &Command {
    fn into_command(self) -> Command {
        self.clone()
    }

    fn with_command<R>(self, take: impl FnOnce(&Command) -> R) -> R {
        take(self)
    }
}

// What the compiler would ask for instead of a command is of no use to the caller.
#[diagnostic::do_not_recommend]
impl<I: IntoIterator<Item: ToArg>> IntoCommand for I {
    fn into_command(self) -> Command {
        Command::from_args(self)
    }
}

/// Makes a [`Command`](crate::Command) of a name and arguments of any types that implement [`ToArg`](crate::ToArg).
///
/// ```no_run
/// # async fn example(client: valkey_rdma_client::Client) -> Result<(), valkey_rdma_client::Error> {
/// use valkey_rdma_client::cmd;
///
/// let (key, value, seconds) = (format!("user:{}", 17), vec![1, 2, 3], 60);
/// client.command(cmd!["SET", &key, value, "EX", seconds]).await?;
/// let rest: i64 = client.query(cmd!["TTL", key]).await?;
/// let keys = ["a", "b"];
/// let removed: u64 = client.query(cmd!["DEL", keys]).await?; // one argument for each member
/// let fields = [("name", "Ada"), ("born", "1815")];
/// let new: u64 = client.query(cmd!["HSET", "user:1", fields]).await?; // two for each pair, also of a HashMap
/// # Ok(())
/// # }
/// ```
///
/// Arguments are moved, as those of a function are: use `&value` to keep a value. Large values that are moved are not copied.
#[macro_export]
macro_rules! cmd {
    ($name:expr $(, $arg:expr)* $(,)?) => {
        $crate::Command::new($name)$(.arg($arg))*
    };
}

/// Shows name and number of arguments only: arguments may be secret.
impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let arguments = self.arguments.saturating_sub(1);
        f.debug_struct("Command").field("name", &self.name()).field("arguments", &arguments).finish()
    }
}

/// Room for `$`, the digits of a length and CRLF.
const HEADER_ROOM: usize = 23;

/// Takes `*3\r\n` and the like.
#[cfg(feature = "redis")]
fn take_number(bytes: &mut Bytes) -> usize {
    let end = bytes.iter().position(|&byte| byte == b'\n').map_or(bytes.len(), |at| at + 1);
    let digits = bytes.split_to(end);
    digits
        .iter()
        .filter(|byte| byte.is_ascii_digit())
        .fold(0, |number, digit| number * 10 + usize::from(digit - b'0'))
}

#[cfg(test)]
mod tests;
