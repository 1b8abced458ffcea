//! [`Command`]: arguments to RESP bytes, encoded once and ready to leave.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;

use crate::error::RefusedCommand;

/// Arguments from this size on, if given as [`Bytes`], travel as they are instead of being copied.
pub(crate) const SHARED_FROM: usize = 8 * 1024;

/// Room for most commands, so that encoding them allocates once.
const TYPICAL: usize = 64;

/// A command, encoded as it goes over the wire.
///
/// Most callers use [`Client::command`](crate::Client::command). Build a `Command` to hand over large arguments
/// without a copy, or to send the same one again: a clone shares the arguments added by
/// [`arg_bytes`](Self::arg_bytes).
///
/// ```
/// use bytes::Bytes;
/// use valkey_rdma_client::Command;
///
/// let chunk = Bytes::from(vec![7; 32 << 20]);
/// let set = Command::new("SET").arg("kv:17").arg_bytes(chunk);
/// let again = set.clone(); // the 32 MiB are not copied
/// ```
#[derive(Clone)]
pub struct Command {
    arguments: usize,
    /// Encoded arguments up to and including the last shared one.
    parts: Vec<Bytes>,
    /// Encoded arguments after `parts`.
    tail: Vec<u8>,
    kind: Kind,
    idempotent: bool,
    timeout: Option<Duration>,
}

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

impl Command {
    /// A command with this name.
    #[must_use]
    pub fn new(name: impl AsRef<[u8]>) -> Self {
        Self::empty().arg(name)
    }

    pub(crate) fn empty() -> Self {
        Self {
            arguments: 0,
            parts: Vec::new(),
            tail: Vec::with_capacity(TYPICAL),
            kind: Kind::Empty,
            idempotent: false,
            timeout: None,
        }
    }

    /// Encodes a name and its arguments.
    pub(crate) fn from_args(args: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Self {
        let mut command = Self::empty();
        for arg in args {
            command.push(arg.as_ref());
        }
        command
    }

    /// Takes over a whole command in RESP, well formed, as another library has encoded it.
    #[cfg(feature = "redis")]
    pub(crate) fn from_packed(packed: Vec<u8>) -> Self {
        let mut command = Self::empty();
        let mut rest = Bytes::from(packed);
        let count = take_number(&mut rest);
        let mut args = rest.clone();
        // The first two say what kind of command it is, of most.
        for at in 0..count {
            if at > 1 && !matches!(command.kind, Kind::Streams { .. }) {
                break;
            }
            let len = take_number(&mut args).min(args.len());
            command.note(&args.split_to(len));
            let _crlf = args.split_to(args.len().min(2));
        }
        command.arguments = count;
        command.parts.push(rest);
        command
    }

    /// Adds an argument: any bytes at all. They are copied, once.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<[u8]>) -> Self {
        self.push(arg.as_ref());
        self
    }

    /// Adds an argument without copying it, if it is large enough (8 KiB) for that to pay. Over RDMA it is copied into the
    /// send buffer later, unless it lies in a [`BufferPool`](crate::BufferPool): then it is sent from there.
    #[must_use]
    pub fn arg_bytes(mut self, arg: Bytes) -> Self {
        if arg.len() < SHARED_FROM {
            self.push(&arg);
        } else {
            self.note(&arg);
            put_header(&mut self.tail, b'$', arg.len());
            self.parts.push(std::mem::take(&mut self.tail).into());
            self.parts.push(arg);
            self.tail.extend_from_slice(b"\r\n");
        }
        self
    }

    /// Declares that running the command twice is as good as once, so that the client may send it again when the
    /// connection is lost before its reply. GET is such a command, and SET without options; INCR is not.
    ///
    /// ```no_run
    /// # async fn example(client: valkey_rdma_client::Client) -> Result<(), valkey_rdma_client::Error> {
    /// use valkey_rdma_client::Command;
    ///
    /// let value = client.execute(Command::new("GET").arg("key").idempotent()).await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn idempotent(mut self) -> Self {
        self.idempotent = true;
        self
    }

    /// Limits how long this command may take, from the call to its reply, instead of the client's
    /// [`command_timeout`](crate::Config::command_timeout). In a pipeline, the longest limit counts.
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

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// The refusal of a command without even a name.
    pub(crate) fn without_name(&self) -> Option<RefusedCommand> {
        if self.kind == Kind::Empty { self.refusal() } else { None }
    }

    /// Whether its reply may be a long time coming.
    pub(crate) fn blocks(&self) -> bool {
        self.kind == Kind::Blocks
    }

    /// The reason not to send this command on a shared connection, if there is one.
    pub(crate) fn refusal(&self) -> Option<RefusedCommand> {
        let reason = match self.kind {
            Kind::Empty => "a command needs at least a name",
            Kind::Refused(reason) => reason,
            _ => return None,
        };
        Some(RefusedCommand { command: self.name(), reason })
    }

    /// As [`refusal`](Self::refusal), for a command that is sent by itself, on any connection but its caller's own.
    pub(crate) fn lone_refusal(&self) -> Option<RefusedCommand> {
        match self.kind {
            Kind::Multi => Some(RefusedCommand { command: self.name(), reason: LONE_MULTI }),
            _ => self.refusal(),
        }
    }

    /// As [`lone_refusal`](Self::lone_refusal), on the shared connection.
    pub(crate) fn shared_refusal(&self) -> Option<RefusedCommand> {
        match self.kind {
            Kind::Blocks => Some(RefusedCommand { command: self.name(), reason: BLOCKS }),
            _ => self.lone_refusal(),
        }
    }

    /// The name for messages.
    pub(crate) fn name(&self) -> String {
        let first = self.parts.first().map_or(&self.tail[..], |part| &part[..]);
        match first.split(|&byte| byte == b'\n').nth(1) {
            Some(name) => String::from_utf8_lossy(name.strip_suffix(b"\r").unwrap_or(name)).into_owned(),
            None => "an empty command".to_owned(),
        }
    }

    /// The bytes for the wire, in order: how many arguments, then the encoded arguments in pieces.
    pub(crate) fn wire(&self) -> (usize, &[Bytes], &[u8]) {
        (self.arguments, &self.parts, &self.tail)
    }

    fn push(&mut self, arg: &[u8]) {
        self.note(arg);
        self.tail.reserve(arg.len() + HEADER_ROOM + 2);
        put_header(&mut self.tail, b'$', arg.len());
        self.tail.extend_from_slice(arg);
        self.tail.extend_from_slice(b"\r\n");
        if self.tail.len() >= SHARED_FROM {
            self.parts.push(std::mem::take(&mut self.tail).into());
        }
    }

    /// Counts an argument and learns from it what kind of command this is.
    fn note(&mut self, arg: &[u8]) {
        let is = |word: &str| arg.eq_ignore_ascii_case(word.as_bytes());
        self.kind = match (self.arguments, self.kind) {
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
        };
        self.arguments += 1;
    }
}

/// Name and number of arguments only: what a command carries may be secret, a password most of all.
impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let arguments = self.arguments.saturating_sub(1);
        f.debug_struct("Command").field("name", &self.name()).field("arguments", &arguments).finish()
    }
}

/// Room for `$`, the digits of a length and CRLF.
const HEADER_ROOM: usize = 23;

/// Writes `*3\r\n` and the like.
pub(crate) fn put_header(buffer: &mut Vec<u8>, kind: u8, mut number: usize) {
    // Most of them, at once.
    match number {
        0..10 => return buffer.extend_from_slice(&[kind, b'0' + number as u8, b'\r', b'\n']),
        10..100 => {
            let (tens, ones) = (b'0' + (number / 10) as u8, b'0' + (number % 10) as u8);
            return buffer.extend_from_slice(&[kind, tens, ones, b'\r', b'\n']);
        }
        _ => {}
    }
    let mut digits = [0; HEADER_ROOM];
    let mut at = HEADER_ROOM - 2;
    digits[at..].copy_from_slice(b"\r\n");
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    at -= 1;
    digits[at] = kind;
    buffer.extend_from_slice(&digits[at..]);
}

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
const BLOCKS: &str = "commands of other tasks would wait behind it; use Client::blocking_command";
const LONE_MULTI: &str = "commands of other tasks would get into the transaction; use Client::transaction, or MULTI to EXEC in one pipeline";

/// Subcommands of CLIENT that change how the server treats the connection.
const CLIENT_MODES: [&str; 5] = ["NO-EVICT", "NO-TOUCH", "CACHING", "CAPA", "IMPORT-SOURCE"];

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

#[cfg(test)]
mod tests {
    use super::*;

    fn wire(command: Command) -> Vec<u8> {
        let (arguments, parts, tail) = command.wire();
        let mut bytes = Vec::new();
        put_header(&mut bytes, b'*', arguments);
        for part in parts {
            bytes.extend_from_slice(part);
        }
        bytes.extend_from_slice(tail);
        bytes
    }

    #[test]
    fn arguments_of_any_bytes_are_length_prefixed() {
        let command = Command::from_args([&b"SET"[..], b"", b"\0\r\n$5\r\n"]);
        assert_eq!(wire(command), b"*3\r\n$3\r\nSET\r\n$0\r\n\r\n$7\r\n\0\r\n$5\r\n\r\n");
    }

    #[test]
    fn large_shared_arguments_keep_their_place_and_are_not_copied() {
        let big = Bytes::from(vec![b'x'; SHARED_FROM]);
        let command = Command::new("SET").arg("k").arg_bytes(big.clone()).arg("NX");
        assert!(command.parts.iter().any(|part| part.as_ptr() == big.as_ptr()));

        let mut expected = b"*4\r\n$3\r\nSET\r\n$1\r\nk\r\n$8192\r\n".to_vec();
        expected.extend_from_slice(&big);
        expected.extend_from_slice(b"\r\n$2\r\nNX\r\n");
        assert_eq!(wire(command), expected);
    }

    #[test]
    fn small_shared_arguments_are_copied() {
        let command = Command::new("GET").arg_bytes(Bytes::from_static(b"k"));
        assert_eq!(wire(command), b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n");
    }

    #[test]
    fn headers_hold_any_length() {
        let mut buffer = Vec::new();
        put_header(&mut buffer, b'$', usize::MAX);
        for number in [0, 9, 10, 99, 100] {
            put_header(&mut buffer, b'*', number);
        }
        assert_eq!(&buffer[..], b"$18446744073709551615\r\n*0\r\n*9\r\n*10\r\n*99\r\n*100\r\n");
    }

    #[test]
    fn debug_output_holds_no_arguments() {
        let login = Command::from_args(["AUTH", "me", "hush"]);
        assert_eq!(format!("{login:?}"), "Command { name: \"AUTH\", arguments: 2 }");
        let shared = Command::new("HELLO").arg_bytes(Bytes::from("hush".repeat(SHARED_FROM)));
        assert_eq!(format!("{shared:?}"), "Command { name: \"HELLO\", arguments: 1 }");
        assert_eq!(format!("{:?}", Command::empty()), "Command { name: \"an empty command\", arguments: 0 }");
    }

    #[test]
    fn commands_that_break_sharing_are_recognised_in_any_case() {
        for args in [
            &["subscribe", "a"][..],
            &["Monitor"],
            &["QUIT"],
            &["client", "reply", "off"],
            &["HELLO", "3"],
            &["REPLCONF", "ACK", "1"],
            &["script", "debug", "sync"],
            &["asking"],
            &["ReadOnly"],
            &["READWRITE"],
            &["CLIENT", "SETNAME", "x"],
            &["CLIENT", "no-touch", "on"],
            &["CLIENT", "NO-EVICT", "on"],
        ] {
            let refusal = Command::from_args(args).refusal().expect("refused");
            assert_eq!(refusal.command, args[0]);
        }
        assert_eq!(Command::empty().refusal().expect("refused").command, "an empty command");
        for args in [
            &["GET", "a"][..],
            &["CLIENT", "ID"],
            &["HELLO"],
            &["SUBSCRIBERS"],
            &["", "x"],
            &["GET", "MONITOR"],
            &["SCRIPT", "LOAD", "DEBUG"],
        ] {
            assert_eq!(Command::from_args(args).refusal(), None, "{args:?}");
        }
    }

    #[test]
    fn commands_that_block_are_recognised_and_those_that_only_may_are_not() {
        let kind = |line: &str| Command::from_args(line.split(' ')).kind();
        for blocks in [
            "blpop l 0",
            "BLMPOP 0 1 l LEFT",
            "BZPOPMIN z 0",
            "WAIT 1 0",
            "XREAD BLOCK 0 STREAMS s $",
            "xread count 1 block 0 streams s $",
            "XREADGROUP GROUP g c COUNT 1 BLOCK 5 STREAMS s >",
        ] {
            assert_eq!(kind(blocks), Kind::Blocks, "{blocks}");
            let refusal = Command::from_args(blocks.split(' ')).shared_refusal().expect("refused");
            assert!(refusal.reason.contains("blocking_command"), "{refusal}");
            assert_eq!(Command::from_args(blocks.split(' ')).lone_refusal(), None);
        }
        for ordinary in
            ["LPOP l", "XREAD STREAMS block $", "XREADGROUP GROUP block BLOCK STREAMS block >", "XREAD"]
        {
            assert_eq!(Command::from_args(ordinary.split(' ')).shared_refusal(), None, "{ordinary}");
        }
    }

    #[cfg(feature = "redis")]
    #[test]
    fn what_another_library_has_encoded_is_recognised_too() {
        let packed = |line: &str| Command::from_packed(wire(Command::from_args(line.split(' '))));
        assert_eq!(packed("XREADGROUP GROUP g c BLOCK 5 STREAMS s >").kind(), Kind::Blocks);
        assert_eq!(packed("XREADGROUP GROUP g c STREAMS block >").kind(), Kind::Ordinary);
        assert_eq!(packed("EXEC").kind(), Kind::EndMulti);
        assert_eq!(packed("DISCARD extra").kind(), Kind::Ordinary);
        assert_eq!(wire(packed("SET k v")), wire(Command::from_args(["SET", "k", "v"])));
    }
}
