//! [`Command`]: one command, as a client sent it, and its arguments, checked with Valkey's error texts. [`CommandName`]: what is kept of it.

use std::fmt;

use bytes::Bytes;

use crate::convert::FromValue;
use crate::convert::UnexpectedReply;
use crate::integer;
use crate::reply::Reply;
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// # Arguments, checked
/// Indexes count from 0: 0 is the first argument after the name. The errors are the replies that a server sends:
///
/// ```
/// use valkey_rdma_resp::{Command, Reply};
///
/// fn run(command: &Command) -> Result<Reply, Reply> {
///     if command.is("ADD") {
///         let [_, _] = command.exactly()?;
///         return Ok(Reply::from(command.int(0)?.saturating_add(command.int(1)?)));
///     }
///     Err(command.unknown())
/// }
///
/// assert_eq!(run(&Command::new("ADD", ["1", "2"])), Ok(Reply::Integer(3)));
/// let text = "ERR wrong number of arguments for 'add' command";
/// assert_eq!(run(&Command::new("ADD", ["1"])), Err(Reply::error(text)));
/// ```
impl Command {
    /// Argument `index`.
    ///
    /// # Errors
    /// [`wrong_arity`](Self::wrong_arity) if there are fewer arguments.
    pub fn arg(&self, index: usize) -> Result<&Bytes, Reply> {
        self.args().get(index).ok_or_else(|| self.wrong_arity())
    }

    /// Argument `index` as text.
    ///
    /// # Errors
    /// As [`arg`](Self::arg), and an error reply if it is not UTF-8.
    pub fn text(&self, index: usize) -> Result<&str, Reply> {
        str::from_utf8(self.arg(index)?).map_err(|_| Reply::error("ERR value is not text in UTF-8"))
    }

    /// Argument `index` as an integer, with Valkey's grammar.
    ///
    /// # Errors
    /// As [`arg`](Self::arg), and an error reply if it is not an integer.
    pub fn int(&self, index: usize) -> Result<i64, Reply> {
        integer::parse(self.arg(index)?)
            .ok_or_else(|| Reply::error("ERR value is not an integer or out of range"))
    }

    /// Argument `index` as a number.
    ///
    /// # Errors
    /// As [`arg`](Self::arg), and an error reply if it is not a number.
    pub fn float(&self, index: usize) -> Result<f64, Reply> {
        let text = str::from_utf8(self.arg(index)?).unwrap_or_default();
        let number: Option<f64> = text.parse().ok();
        number.filter(|number| !number.is_nan()).ok_or_else(|| Reply::error("ERR value is not a valid float"))
    }

    /// All arguments, if there are exactly `N`: `let [key, value] = command.exactly()?;`
    ///
    /// # Errors
    /// [`wrong_arity`](Self::wrong_arity) for any other number.
    pub fn exactly<const N: usize>(&self) -> Result<&[Bytes; N], Reply> {
        self.args().try_into().map_err(|_| self.wrong_arity())
    }

    /// The error reply to a wrong number of arguments.
    pub fn wrong_arity(&self) -> Reply {
        let name = String::from_utf8_lossy(self.name()).to_ascii_lowercase();
        Reply::error(format!("ERR wrong number of arguments for '{name}' command"))
    }

    /// The error reply to a command that the server does not know. Quotes at most 128 bytes of the arguments, so that a megabyte
    /// sent by mistake does not come back.
    pub fn unknown(&self) -> Reply {
        let name = String::from_utf8_lossy(&self.name()[..self.name().len().min(QUOTED)]);
        let mut quoted = String::new();
        for arg in self.args() {
            if quoted.len() >= QUOTED {
                break;
            }
            let shown = &arg[..arg.len().min(QUOTED - quoted.len())];
            quoted.push_str(&format!("'{}' ", String::from_utf8_lossy(shown)));
        }
        Reply::error(format!("ERR unknown command '{name}'{QUOTES}: {quoted}"))
    }
}

/// An error reply up to the arguments that servers quote of a command that they do not know. Those of a login contain the password.
pub fn without_arguments(error: &[u8]) -> &[u8] {
    let quotes = error.windows(QUOTES.len()).position(|part| part == QUOTES.as_bytes());
    &error[..quotes.unwrap_or(error.len())]
}

/// What stands before the quoted arguments.
const QUOTES: &str = ", with args beginning with";

/// The most bytes of a command that an error quotes.
const QUOTED: usize = 128;

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

    #[test]
    fn arguments_are_checked_with_valkeys_texts() {
        let command = Command::new("Visit", ["7", "x", "1.5"]);
        assert_eq!(command.arg(1).map(|arg| &arg[..]), Ok(&b"x"[..]));
        assert_eq!((command.int(0), command.text(1), command.float(2)), (Ok(7), Ok("x"), Ok(1.5)));
        let integer = Reply::error("ERR value is not an integer or out of range");
        assert_eq!(command.int(1), Err(integer));
        assert_eq!(command.float(1), Err(Reply::error("ERR value is not a valid float")));
        assert_eq!(Command::new("X", ["nan"]).float(0), Err(Reply::error("ERR value is not a valid float")));
        assert_eq!(
            Command::new("X", [&b"\xff"[..]]).text(0),
            Err(Reply::error("ERR value is not text in UTF-8"))
        );
        let arity = Reply::error("ERR wrong number of arguments for 'visit' command");
        assert_eq!(command.arg(3), Err(arity.clone()));
        assert_eq!(command.exactly::<2>(), Err(arity));
        assert!(matches!(command.exactly(), Ok([_, _, _])));
    }

    #[test]
    fn an_unknown_command_is_quoted_in_bounds() {
        let none = Command::new("NO", [""; 0]);
        assert_eq!(none.unknown(), Reply::error("ERR unknown command 'NO', with args beginning with: "));
        let Reply::Error(text) = Command::new("n".repeat(1000), ["x".repeat(1000)]).unknown() else {
            panic!("an error reply");
        };
        assert!(text.len() < 400, "{text}");
    }

    #[test]
    fn quoted_arguments_are_cut_off() {
        for (error, kept) in [
            (
                "ERR unknown command 'HELLO', with args beginning with: '3' 'AUTH' 'me' 'hush' ",
                "ERR unknown command 'HELLO'",
            ),
            ("ERR unknown command `AUTH`, with args beginning with: `hush`, ", "ERR unknown command `AUTH`"),
            ("WRONGPASS invalid username-password pair", "WRONGPASS invalid username-password pair"),
            ("", ""),
        ] {
            assert_eq!(without_arguments(error.as_bytes()), kept.as_bytes());
        }
    }
}
