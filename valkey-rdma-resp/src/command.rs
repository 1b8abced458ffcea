//! [`Command`]: one command, as a client sent it.

use std::fmt;

use bytes::Bytes;

use crate::convert::FromValue;
use crate::unexpected_reply::UnexpectedReply;
use crate::value::Value;

/// A command and its arguments. Both are binary safe, and a command always has a name.
///
/// **Memory**: an argument of at least [`LARGE`](Self::LARGE) bytes has its own allocation. A shorter one is a slice of
/// the connection's read buffer and keeps that whole buffer alive. To store an argument for longer than the call, take
/// it with [`keep`](Self::keep).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    words: Vec<Bytes>,
}

impl Command {
    /// Arguments of at least this many bytes have their own allocation. 16 KiB.
    pub const LARGE: usize = 16 * 1024;

    /// Creates a command as if a client had sent it, for tests of handlers.
    pub fn new(name: impl Into<Bytes>, args: impl IntoIterator<Item = impl Into<Bytes>>) -> Self {
        let words = std::iter::once(name.into()).chain(args.into_iter().map(Into::into)).collect();
        Self { words }
    }

    /// Creates a command from its words. `None` if there is not even a name.
    pub(crate) fn from_words(words: Vec<Bytes>) -> Option<Self> {
        if words.is_empty() { None } else { Some(Self { words }) }
    }

    /// The name as sent. Clients differ in case; compare with [`is`](Self::is).
    pub fn name(&self) -> &[u8] {
        &self.words[0]
    }

    /// Whether the name is `name`, ignoring case.
    pub fn is(&self, name: &str) -> bool {
        self.name().eq_ignore_ascii_case(name.as_bytes())
    }

    /// The arguments after the name.
    pub fn args(&self) -> &[Bytes] {
        &self.words[1..]
    }

    /// Total length of the arguments, in bytes.
    pub fn args_len(&self) -> usize {
        self.args().iter().map(Bytes::len).sum()
    }

    /// Returns a copy of the command that may be stored for long: see [`keep`](Self::keep).
    pub fn kept(&self) -> Self {
        let keep = |word: &Bytes| {
            if word.len() >= Self::LARGE { word.clone() } else { Bytes::copy_from_slice(word) }
        };
        Self { words: self.words.iter().map(keep).collect() }
    }

    /// Returns argument `index` (0 is the first after the name) in a form that may be stored for long: a
    /// [`LARGE`](Self::LARGE) one without a copy, a shorter one as a copy that keeps no other memory alive. `None` if
    /// there are fewer arguments.
    pub fn keep(&self, index: usize) -> Option<Bytes> {
        let arg = self.args().get(index)?;
        Some(if arg.len() >= Self::LARGE { arg.clone() } else { Bytes::copy_from_slice(arg) })
    }
}

/// The name of a command, or the beginning of a long one, to be shown when the command itself is gone. It keeps no memory alive.
#[derive(Clone, Copy, Debug)]
pub struct CommandName {
    bytes: [u8; SHOWN],
    /// Of the whole name, as far as it matters here.
    len: u8,
}

impl CommandName {
    /// Copies a name.
    #[must_use]
    pub fn new(name: &[u8]) -> Self {
        let mut bytes = [0; SHOWN];
        let kept = name.len().min(SHOWN);
        bytes[..kept].copy_from_slice(&name[..kept]);
        Self { bytes, len: name.len().min(SHOWN + 1) as u8 }
    }

    /// Converts the reply to the command. An error names the command.
    ///
    /// # Errors
    /// Those of [`Value::convert`].
    pub fn convert<T: FromValue>(self, reply: Value) -> Result<T, UnexpectedReply> {
        reply.convert().map_err(|error: UnexpectedReply| error.in_reply_to(self.to_string()))
    }
}

/// One line of ASCII, whatever the name has.
impl fmt::Display for CommandName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let len = usize::from(self.len);
        self.bytes[..len.min(SHOWN)].escape_ascii().fmt(f)?;
        f.write_str(if len > SHOWN { "..." } else { "" })
    }
}

/// Longer than any name of Valkey's own commands.
const SHOWN: usize = 23;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_shown_whole_or_marked_as_cut_on_one_line() {
        for (name, shown) in [
            ("GET", "GET"),
            ("georadiusbymember_ro", "georadiusbymember_ro"),
            ("abcdefghijklmnopqrstuvw", "abcdefghijklmnopqrstuvw"),
            ("abcdefghijklmnopqrstuvwx", "abcdefghijklmnopqrstuvw..."),
            ("GET\r\n\u{1b}", r"GET\r\n\x1b"),
        ] {
            assert_eq!(CommandName::new(name.as_bytes()).to_string(), shown);
        }
        assert_eq!(CommandName::new(&[b'x'; 70_000]).to_string(), "x".repeat(SHOWN) + "...");
    }

    #[test]
    fn a_reply_that_does_not_convert_names_its_command() {
        let reply = Value::Array(vec![Value::Int(1), Value::Bulk("x".into())]);
        let error = CommandName::new(b"LRANGE").convert::<Vec<i64>>(reply).expect_err("a string");
        assert_eq!(error.command(), Some("LRANGE"));
        let text = "LRANGE: member 1 of the reply: expected an integer of 64 bits, got a string of 1 bytes";
        assert_eq!(error.to_string(), text);
    }
}
