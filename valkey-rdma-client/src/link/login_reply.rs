//! [`Returns`]: what the commands of a login return. A reply of another kind is the reply to another command, or to none: then each later caller
//! would get the reply to the command before its own, so the connection must end.

use valkey_rdma_resp::{ServerError, UnexpectedReply, Value};

use crate::command::{Command, Reply};

/// What a command of the login returns, if it is not refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Returns {
    /// The map of HELLO 3.
    Hello,
    Ok,
    /// The argument of [`probe`].
    Probe,
    Pong,
}

/// The last command of a login: PING with an argument that no other command returns. A reply too many anywhere before it comes in place
/// of this reply.
pub(super) fn probe() -> Command {
    Command::from_args(["PING", PROBE])
}

impl Returns {
    /// Whether a reply can be the one to its command.
    ///
    /// # Errors
    /// What it is instead.
    pub(super) fn check(self, reply: &Reply) -> Result<(), UnexpectedReply> {
        let (wanted, is_right) = match (self, reply) {
            (Self::Hello, Ok(reply)) => ("a map with \"proto\" 3", proto(reply) == Some(3)),
            (Self::Ok, Ok(reply)) => ("the status OK", reply.is_ok()),
            (Self::Probe, Ok(reply)) => ("its argument", is_echo(reply)),
            (Self::Probe, Err(error)) => ("its argument", is_about_ping(error)),
            (Self::Pong, Ok(reply)) => ("the status PONG", is_pong(reply)),
            (Self::Hello | Self::Ok | Self::Pong, Err(_)) => return Ok(()),
        };
        let described = || match reply {
            Ok(reply) => reply.describe(),
            Err(error) => format!("the error \"{error}\""),
        };
        if is_right { Ok(()) } else { Err(UnexpectedReply::new(wanted, described())) }
    }
}

/// The version of the protocol that a reply to HELLO says.
fn proto(reply: &Value) -> Option<i64> {
    let (_, version) = reply.as_map()?.iter().find(|(key, _)| key.as_bytes() == Some(b"proto"))?;
    version.as_int()
}

/// Proxies that answer PING themselves may leave out the argument.
fn is_echo(reply: &Value) -> bool {
    match reply {
        Value::Bulk(text) => text == PROBE.as_bytes(),
        other => is_pong(other),
    }
}

fn is_pong(reply: &Value) -> bool {
    matches!(reply, Value::Simple(status) if status.eq_ignore_ascii_case(b"PONG"))
}

/// Whether an error can be the reply to the probe: a state of the server, such as LOADING, a user who may not ask, or a proxy that does
/// not know the command. The error of SETINFO, which comes before it and which old servers do not know, is none.
fn is_about_ping(error: &ServerError) -> bool {
    let text = error.message.to_ascii_lowercase();
    let names = ["ping", "unknown command", "unsupported command", "wrong number of arguments"];
    !text.contains("setinfo") && (error.code != "ERR" || names.iter().any(|name| text.contains(name)))
}

const PROBE: &str = "valkey-rdma";

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn reply(bytes: &'static [u8]) -> Reply {
        let mut decoder = valkey_rdma_resp::Decoder::new(valkey_rdma_resp::Protocol::Resp3);
        decoder.room().extend_from_slice(bytes);
        match decoder.next().expect("RESP").expect("complete") {
            Value::Error(error) => Err(error),
            value => Ok(value),
        }
    }

    #[test]
    fn only_the_reply_to_the_command_is_accepted() {
        use Returns::{Hello, Ok, Pong, Probe};
        let map = b"%2\r\n$6\r\nserver\r\n$6\r\nvalkey\r\n$5\r\nproto\r\n:3\r\n";
        let accepted: [(Returns, &'static [u8]); 11] = [
            (Hello, map),
            (Hello, b"%1\r\n+proto\r\n:3\r\n"),
            (Hello, b"-ERR unknown command 'HELLO'\r\n"),
            (Ok, b"+OK\r\n"),
            (Ok, b"-ERR no\r\n"),
            (Probe, b"$11\r\nvalkey-rdma\r\n"),
            (Probe, b"+PONG\r\n"),
            (Probe, b"-LOADING Valkey is loading the dataset in memory\r\n"),
            (Probe, b"-NOPERM User app has no permissions to run the 'ping' command\r\n"),
            (Probe, b"-ERR unknown command 'PING'\r\n"),
            (Probe, b"-unsupported command 'PING'\r\n"),
        ];
        for (returns, bytes) in accepted {
            assert!(returns.check(&reply(bytes)).is_ok(), "{returns:?} {}", bytes.escape_ascii());
        }
        let others: [&'static [u8]; 14] = [
            b"+OK\r\n",
            b":1\r\n",
            b"%0\r\n",
            b"%1\r\n$5\r\nproto\r\n:2\r\n",
            b"*2\r\n$5\r\nproto\r\n:3\r\n",
            map,
            b"_\r\n",
            b"$-1\r\n",
            b"$2\r\nOK\r\n",
            b"+PONG\r\n",
            b"$11\r\nvalkey-rdmb\r\n",
            b"-ERR Unknown subcommand or wrong number of arguments for 'setinfo'. Try CLIENT HELP.\r\n",
            b"-NOPERM User app has no permissions to run the 'client|setinfo' command\r\n",
            b"-ERR DB index is out of range\r\n",
        ];
        let may = |returns, bytes: &[u8]| match returns {
            Hello => bytes == map || bytes.starts_with(b"-"),
            Ok => bytes == b"+OK\r\n" || bytes.starts_with(b"-"),
            Probe => bytes == b"+PONG\r\n",
            Pong => bytes == b"+PONG\r\n" || bytes.starts_with(b"-"),
        };
        for returns in [Hello, Ok, Probe, Pong] {
            for bytes in others.iter().filter(|bytes| !may(returns, bytes)) {
                assert!(returns.check(&reply(bytes)).is_err(), "{returns:?} {}", bytes.escape_ascii());
            }
        }
    }

    #[test]
    fn what_came_instead_is_described_and_not_quoted() {
        let wrong = Returns::Hello.check(&Ok(Value::Bulk(Bytes::from_static(b"a secret value"))));
        let text = wrong.map_err(|error| error.in_reply_to("HELLO").to_string());
        assert_eq!(text, Err("HELLO: expected a map with \"proto\" 3, got a string of 14 bytes".to_owned()));
    }
}
