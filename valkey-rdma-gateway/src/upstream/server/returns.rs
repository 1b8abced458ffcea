//! [`Returns`]: what the commands of a login return. A reply of another kind is the reply to another command, or to none: then each
//! client would get the reply to the command before its own, so the connection must not be used.

use valkey_rdma_resp::{Decoder, Protocol, Value};

use crate::command::words::number;

/// What a command of a login returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Returns {
    /// OK, and not an error.
    Required,
    /// The same, from SELECT.
    Selected,
    /// The map of HELLO 3, and not an error.
    Hello,
    /// OK, from CLIENT SETNAME.
    Name,
    /// The array of ROLE.
    Role,
    /// The number of CLIENT ID.
    Id,
    /// PONG.
    Pong,
}

impl Returns {
    /// Whether an error ends the connection.
    pub(super) fn is_required(self) -> bool {
        matches!(self, Self::Required | Self::Selected | Self::Hello)
    }

    /// Whether a reply, or an error, can be the one to its command.
    ///
    /// # Errors
    /// What was expected, and what came.
    pub(super) fn check(self, reply: &[u8]) -> Result<(), String> {
        let is_error = reply.starts_with(b"-");
        let (command, wanted, is_right) = match self {
            Self::Required | Self::Selected => {
                ("a command of the login", "the status OK", reply == b"+OK\r\n")
            }
            Self::Hello => ("HELLO", "a map with \"proto\" 3", proto(reply) == Some(3)),
            Self::Name => ("CLIENT SETNAME", "the status OK", reply == b"+OK\r\n"),
            Self::Role => ("ROLE", "an array", reply.starts_with(b"*")),
            // The error of an earlier command is not that of this one.
            Self::Id if is_error => ("CLIENT ID", "a number", !names(reply, "setname")),
            Self::Id => ("CLIENT ID", "a number", id(reply).is_some()),
            Self::Pong => ("PING", "the status PONG", reply.eq_ignore_ascii_case(b"+PONG\r\n")),
        };
        if is_right || is_error && self != Self::Id {
            return Ok(());
        }
        Err(format!("it broke the protocol: {command}: expected {wanted}, got {}", described(reply)))
    }
}

/// The number in the reply to CLIENT ID.
pub(super) fn id(reply: &[u8]) -> Option<u64> {
    number(reply.strip_prefix(b":")?.strip_suffix(b"\r\n")?)
}

/// The version of the protocol that a reply to HELLO says.
fn proto(reply: &[u8]) -> Option<i64> {
    let reply = decoded(reply)?;
    let (_, version) = reply.as_map()?.iter().find(|(key, _)| key.as_bytes() == Some(b"proto"))?;
    version.as_int()
}

fn described(reply: &[u8]) -> String {
    decoded(reply).map_or_else(|| "bytes that are not a reply".to_owned(), |reply| reply.describe())
}

fn decoded(reply: &[u8]) -> Option<Value> {
    let mut decoder = Decoder::new(Protocol::Resp3);
    decoder.room().extend_from_slice(reply);
    decoder.next().ok().flatten()
}

/// Whether the text of an error names a command.
fn names(error: &[u8], command: &str) -> bool {
    error.windows(command.len()).any(|word| word.eq_ignore_ascii_case(command.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_reply_to_the_command_is_accepted() {
        use Returns::{Hello, Id, Name, Pong, Required, Role};
        let map = b"%2\r\n$6\r\nserver\r\n$6\r\nvalkey\r\n$5\r\nproto\r\n:3\r\n";
        let cases: [(&[u8], &[Returns]); 12] = [
            (b"+OK\r\n", &[Required, Name]),
            (map, &[Hello]),
            (b"%1\r\n$5\r\nproto\r\n:2\r\n", &[]),
            (b"%0\r\n", &[]),
            (b":7\r\n", &[Id]),
            (b":-7\r\n", &[]),
            (b"*3\r\n$6\r\nmaster\r\n:1\r\n*0\r\n", &[Role]),
            (b"+PONG\r\n", &[Pong]),
            (b"_\r\n", &[]),
            (b"$2\r\nOK\r\n", &[]),
            (
                b"-NOPERM no permissions to run the 'client|id' command\r\n",
                &[Required, Hello, Name, Role, Id, Pong],
            ),
            (b"-ERR Unknown subcommand 'SETNAME'\r\n", &[Required, Hello, Name, Role, Pong]),
        ];
        for (reply, accepted) in cases {
            for returns in [Required, Hello, Name, Role, Id, Pong] {
                let is_accepted = returns.check(reply).is_ok();
                assert_eq!(is_accepted, accepted.contains(&returns), "{returns:?} {}", reply.escape_ascii());
            }
        }
        assert_eq!(
            Hello.check(b"+OK\r\n"),
            Err("it broke the protocol: HELLO: expected a map with \"proto\" 3, got a status of 2 bytes"
                .to_owned())
        );
    }
}
