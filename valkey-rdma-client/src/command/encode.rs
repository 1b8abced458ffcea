//! [`EncodeBuffer`]: encoded bytes, small runs copied together, large ones shared. [`EncodedPipeline`]: encoded
//! commands.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use valkey_rdma_resp::put_header;

use super::table::is_harmless;
use super::words::Words;
use super::{Command, CommandName, SHARED_FROM};

/// Bytes in order. Small runs are copied together so that they are sent in one write; large ones are shared.
#[derive(Clone, Default)]
pub(crate) struct EncodeBuffer {
    pub(crate) parts: VecDeque<Bytes>,
    /// What comes after `parts`.
    pub(crate) tail: Vec<u8>,
}

impl EncodeBuffer {
    /// Appends a command. Returns its length.
    pub(crate) fn push(&mut self, command: &Command) -> usize {
        let (arguments, parts, tail) = command.encoded();
        let before = self.tail.len();
        put_header(&mut self.tail, b'*', arguments);
        let mut len = self.tail.len() - before + tail.len();
        for part in parts {
            self.push_bytes(part);
            len += part.len();
        }
        self.tail.extend_from_slice(tail);
        len
    }

    /// Appends bytes as they are.
    pub(crate) fn push_bytes(&mut self, bytes: &Bytes) {
        if bytes.len() < SHARED_FROM {
            return self.tail.extend_from_slice(bytes);
        }
        if !self.tail.is_empty() {
            self.parts.push_back(std::mem::take(&mut self.tail).into());
        }
        self.parts.push_back(bytes.clone());
    }

    /// Appends another buffer. Returns its length.
    pub(crate) fn append(&mut self, other: &EncodeBuffer) -> usize {
        for part in &other.parts {
            self.push_bytes(part);
        }
        self.tail.extend_from_slice(&other.tail);
        other.len()
    }

    /// The first two words of each command: its name, and its subcommand if it has one.
    fn heads(&mut self) -> impl Iterator<Item = [Option<&[u8]>; 2]> {
        let mut words = Words::new(self.parts.make_contiguous(), &self.tail);
        std::iter::from_fn(move || {
            let count = words.command()?;
            let mut command = words.by_ref().take(count);
            let head = [command.next(), command.next()];
            command.for_each(drop);
            Some(head)
        })
    }

    fn len(&self) -> usize {
        self.parts.iter().map(Bytes::len).sum::<usize>() + self.tail.len()
    }
}

/// Initial capacity, enough for most pipelines.
const TYPICAL: usize = 1024;

/// Commands encoded one after the other, to be sent together.
#[derive(Clone, Default)]
pub(crate) struct EncodedPipeline {
    pub(crate) encoded: EncodeBuffer,
    count: usize,
    /// Length of the first command.
    first: usize,
    /// Positions of those that were declared idempotent.
    declared: Vec<usize>,
    limit: Option<Duration>,
}

impl EncodedPipeline {
    pub(crate) fn push(&mut self, command: &Command) {
        if self.count == 0 {
            self.encoded.tail.reserve(TYPICAL);
        }
        let len = self.encoded.push(command);
        if self.count == 0 {
            self.first = len;
        }
        if command.is_idempotent() {
            self.declared.push(self.count);
        }
        self.count += 1;
        self.limit = self.limit.max(command.limit());
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// The names of the commands, in order. Read back, so that pipelines that need none do not pay for them.
    pub(crate) fn names(&mut self) -> impl Iterator<Item = CommandName> {
        // A command may have no name at all: it is refused later.
        self.encoded.heads().map(|[name, _]| CommandName::new(name.unwrap_or_default()))
    }

    /// Length of the first command. Once that much was sent, the server may run it.
    pub(crate) fn first(&self) -> usize {
        self.first
    }

    /// True if running them twice does no harm. Read back too: few pipelines are lost.
    pub(crate) fn may_run_twice(&mut self) -> bool {
        let mut declared = self.declared.iter().peekable();
        let harmless = self.encoded.heads().enumerate().filter(|(at, head)| {
            declared.next_if_eq(&at).is_some() || is_harmless(head.iter().copied().flatten())
        });
        // Counted, so that a command that is not read back is none that may run twice.
        harmless.count() == self.count
    }

    /// The longest time limit of its commands, if any has one.
    pub(crate) fn limit(&self) -> Option<Duration> {
        self.limit
    }
}

impl<'a> FromIterator<&'a Command> for EncodedPipeline {
    fn from_iter<I: IntoIterator<Item = &'a Command>>(commands: I) -> Self {
        let mut joined = Self::default();
        commands.into_iter().for_each(|command| joined.push(command));
        joined
    }
}

/// Shows the number of commands only: arguments may be secret.
impl fmt::Debug for EncodedPipeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EncodedPipeline").field("commands", &self.count).finish_non_exhaustive()
    }
}

/// One command or a pipeline of them.
pub(crate) enum Commands {
    One(Command),
    Many(EncodedPipeline),
}

impl Commands {
    pub(crate) fn count(&self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::Many(pipeline) => pipeline.count(),
        }
    }

    /// True if large bytes are shared. A stream that knows their memory sends them from where they lie, without a copy.
    pub(crate) fn has_shared_bytes(&self) -> bool {
        let is_shared = |part: &Bytes| part.len() >= SHARED_FROM;
        match self {
            Self::One(command) => command.encoded().1.iter().any(is_shared),
            Self::Many(pipeline) => pipeline.encoded.parts.iter().any(is_shared),
        }
    }

    /// Length of the encoded commands in bytes.
    pub(crate) fn encoded_len(&self) -> usize {
        match self {
            Self::One(command) => {
                let (arguments, parts, tail) = command.encoded();
                // That of `*3\r\n` and the like.
                let header = arguments.checked_ilog10().unwrap_or(0) as usize + 4;
                header + parts.iter().map(Bytes::len).sum::<usize>() + tail.len()
            }
            Self::Many(pipeline) => pipeline.encoded.len(),
        }
    }

    /// Copies the encoded commands to the start of `room`, which has space for them. Returns their length.
    pub(crate) fn copy_to(&self, room: &mut [u8]) -> usize {
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            room[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        match self {
            Self::One(command) => {
                let (arguments, parts, tail) = command.encoded();
                if let 0..10 = arguments {
                    put(&[b'*', b'0' + arguments as u8, b'\r', b'\n']);
                } else {
                    put(format!("*{arguments}\r\n").as_bytes());
                }
                parts.iter().for_each(|part| put(part));
                put(tail);
            }
            Self::Many(pipeline) => {
                pipeline.encoded.parts.iter().for_each(|part| put(part));
                put(&pipeline.encoded.tail);
            }
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_lie_one_behind_the_other() {
        let joined: EncodedPipeline =
            [&Command::from_args(["GET", "a"]), &Command::new("PING")].into_iter().collect();
        assert_eq!(joined.encoded.tail, b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n*1\r\n$4\r\nPING\r\n");
        assert!(joined.encoded.parts.is_empty());
        assert_eq!((joined.count(), joined.first()), (2, 20));
    }

    #[test]
    fn a_large_argument_is_shared_through_every_step() {
        let big = Bytes::from(vec![b'x'; SHARED_FROM]);
        let joined: EncodedPipeline = [&Command::new("ECHO").arg(big.clone())].into_iter().collect();
        let mut pieces = EncodeBuffer::default();
        let len = pieces.append(&joined.encoded);
        assert_eq!(len, joined.first());
        assert!(pieces.parts.iter().any(|part| part.as_ptr() == big.as_ptr()));
        let total = pieces.parts.iter().map(Bytes::len).sum::<usize>() + pieces.tail.len();
        assert_eq!(total, len);
    }

    #[test]
    fn the_names_of_the_commands_are_read_back() {
        let big = Bytes::from(vec![b'*'; SHARED_FROM]);
        let mut joined: EncodedPipeline = [
            &Command::new("SET").arg("k").arg(big.clone()),
            &Command::new("PING"),
            &Command::new("MSET").arg(big.clone()).arg(big.clone()).arg("k").arg("*2\r\n"),
            &Command::new("ECHO").arg(&big[..]),
            &Command::new("GET").arg(""),
            &Command::empty(),
            &Command::new(big.clone()),
            &Command::new("APPEND").arg("k").arg(big),
        ]
        .into_iter()
        .collect();
        let names: Vec<_> = joined.names().map(|name| name.to_string()).collect();
        let cut = "*".repeat(23) + "...";
        assert_eq!(names, ["SET", "PING", "MSET", "ECHO", "GET", "", &cut, "APPEND"]);
    }

    #[test]
    fn together_commands_are_as_delicate_and_as_patient_as_the_most_of_them() {
        let get = Command::new("GET").timeout(Duration::from_secs(1));
        let set = Command::new("SET").idempotent();
        let incr = Command::new("INCR").timeout(Duration::from_secs(2));
        let big = Command::new("SET").arg(Bytes::from(vec![b'x'; SHARED_FROM])).idempotent();
        let mut joined: EncodedPipeline = [&get, &set, &get, &big, &get].into_iter().collect();
        assert!(joined.may_run_twice());
        joined.push(&Command::from_args(["MEMORY", "USAGE", "k"]));
        assert!(joined.may_run_twice(), "its subcommand only reads");
        joined.push(&incr);
        assert!(!joined.may_run_twice());
        assert_eq!(joined.limit(), Some(Duration::from_secs(2)));
    }

    #[test]
    fn the_length_and_the_copy_match_what_is_pushed() {
        let mut many = Command::new("DEL");
        for count in 1..120 {
            let one = Commands::One(many.clone());
            let pipeline = Commands::Many([&many, &Command::new("PING")].into_iter().collect());
            for commands in [one, pipeline] {
                let mut pushed = EncodeBuffer::default();
                match &commands {
                    Commands::One(command) => pushed.push(command),
                    Commands::Many(pipeline) => pushed.append(&pipeline.encoded),
                };
                let expected: Vec<u8> = pushed.parts.iter().flatten().chain(&pushed.tail).copied().collect();
                let mut room = vec![0; commands.encoded_len()];
                assert_eq!(commands.copy_to(&mut room), room.len());
                assert_eq!(room, expected, "{count} arguments");
            }
            many = many.arg("x".repeat(count));
        }
    }
}
