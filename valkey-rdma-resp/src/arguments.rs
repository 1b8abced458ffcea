//! The arguments of a [`Command`], checked. Errors are replies with Valkey's texts.

use bytes::Bytes;

use crate::command::Command;
use crate::integer;
use crate::reply::Reply;

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
