//! The handshake: login, database, name and tracking, in one exchange.
//!
//! A reply of another kind than its command [returns](Returns) is the reply to another command, or to none: then each later caller would get
//! the reply to the command before its own, so the connection must end.

use std::sync::Arc;

use tokio::time::timeout_at;
use tracing::debug;
use valkey_rdma_resp::{Protocol, ServerError, ServerErrorKind, UnexpectedReply, Value, without_arguments};

use super::connect::{ConnectDeadline, Connector, Login};
use super::raw::RawConnection;
use crate::command::{Command, Reply};
use crate::config::Credentials;
use crate::error::{ConnectCause, LostCause};
use crate::stats::Purpose;

impl Connector {
    /// Applies the settings of endpoint and config to a connection. All commands are sent in one write. The first
    /// refusal that matters is the failure, even if the server closes the connection after it. So is a reply that is not what its
    /// command returns: the replies to callers would be out of step too. A plain login leaves out what only some servers know.
    pub(super) async fn set_up(
        &self,
        mut raw: RawConnection,
        login: Login<'_>,
        deadline: &ConnectDeadline,
    ) -> Result<RawConnection, ConnectCause> {
        let (commands, steps): (Vec<_>, Vec<_>) = self.steps(login).unzip();
        let names: Vec<_> = commands.iter().map(|command| command.kept_name().to_string()).collect();
        let mut replies = Vec::with_capacity(commands.len());
        let outcome = timeout_at(deadline.at, raw.exchange_into(&commands, &mut replies)).await;
        // A server that refuses the connection says so in its only reply.
        let is_only = replies.len() == 1;
        let mut ignored = None;
        for ((reply, step), name) in replies.into_iter().zip(steps).zip(names) {
            if let Err(other) = step.returns().check(&reply) {
                return Err(ConnectCause::Lost(Arc::new(LostCause::OutOfStep(other.in_reply_to(name)))));
            }
            match reply {
                Ok(reply) if step == Step::Hello => {
                    raw.role = reply.into_fields().ok().and_then(|mut fields| fields.take("role").ok());
                }
                Ok(reply) if step == Step::Identity => self.check_identity(&reply)?,
                Ok(_) => {}
                Err(error) if step == Step::ReadReplicas && error.kind() == ServerErrorKind::NoPerm => {
                    Arc::make_mut(&mut raw.info).may_read_replica = false;
                }
                // A script runs. The connection is for the command that ends it, and Valkey 8.1 refuses all settings meanwhile. No other
                // call may use it.
                Err(error) if error.kind() == ServerErrorKind::Busy && step.may_be_missing(login.purpose) => {
                    debug!(%error, "ignored");
                    raw.is_provisional = true;
                }
                Err(error) if step == Step::IfAllowed && error.kind() == ServerErrorKind::NoPerm => {
                    debug!(%error, "ignored");
                }
                Err(error)
                    if step == Step::Identity && may_be_node(&error)
                        || step.is_best_effort() && error.kind() != ServerErrorKind::NoAuth =>
                {
                    debug!(%error, "ignored");
                    ignored = is_only.then_some(error);
                }
                Err(mut error) => {
                    let shown = without_arguments(error.message.as_bytes()).len();
                    error.message.truncate(shown);
                    return Err(ConnectCause::Rejected(error));
                }
            }
        }
        match (outcome, ignored) {
            // A plain login may have only one command, which then gets the refusal of the connection.
            (Ok(Ok(())), Some(error)) if !is_about_ping(&error) => Err(ConnectCause::Rejected(error)),
            (Ok(Ok(())), _) => {
                raw.expect_no_reply().map_err(|cause| ConnectCause::Lost(Arc::new(cause)))?;
                Ok(raw)
            }
            // What it refused is then why it closes the connection.
            (Ok(Err(cause)), ignored) => {
                Err(ignored.map_or_else(|| ConnectCause::of_login(cause), ConnectCause::Rejected))
            }
            (Err(_), _) => Err(deadline.passed(true)),
        }
    }

    /// The handshake, in order.
    fn steps(&self, login: Login<'_>) -> impl Iterator<Item = (Command, Step)> {
        let Login { purpose, credentials, is_plain } = login;
        let endpoint = &self.endpoint;
        let login = log_in(endpoint.protocol(), credentials);
        let login_step = match endpoint.protocol() {
            Protocol::Resp3 => Step::Hello,
            Protocol::Resp2 => Step::Required,
        };
        let database = endpoint.database();
        let select = (database != 0).then(|| Command::new("SELECT").arg(database.to_string()));
        let name = self.config.name.as_deref().filter(|_| !is_plain);
        let name = name.map(|name| Command::from_args(["CLIENT", "SETNAME", name]));
        // The server sends invalidations to the connection that read the key. Only shared ones listen.
        let is_tracked = self.config.tracking && purpose == Purpose::Shared;
        let tracking = is_tracked.then(|| Command::from_args(["CLIENT", "TRACKING", "ON"]));
        let library = Command::from_args(["CLIENT", "SETINFO", "LIB-NAME", env!("CARGO_PKG_NAME")]);
        let version = Command::from_args(["CLIENT", "SETINFO", "LIB-VER", env!("CARGO_PKG_VERSION")]);
        let probe = match is_plain {
            true => (Some(Command::new("PING")), Step::PlainProbe),
            // Without a login command, only this shows that the server requires one: SETINFO is allowed before a login.
            false => (Some(probe()), Step::Probe),
        };
        let replicas = self.config.read_replicas.then(|| Command::new("READONLY"));
        // Servers that know no such command have no ids that could be known.
        let identity = self.members.are_compared().then(|| Command::from_args(["CLUSTER", "MYID"]));
        [
            (login, login_step),
            (select, Step::Required),
            (name, Step::IfAllowed),
            (tracking, Step::Required),
            (replicas, Step::ReadReplicas),
            (identity, Step::Identity),
            ((!is_plain).then_some(library), Step::BestEffort),
            ((!is_plain).then_some(version), Step::BestEffort),
            probe,
        ]
        .into_iter()
        .filter_map(|(command, step)| Some((command?, step)))
    }

    /// The address of a node that is gone may belong to another cluster by now. Its node would take commands for the old one.
    fn check_identity(&self, reply: &Value) -> Result<(), ConnectCause> {
        match reply.as_str() {
            Some(id) if !self.members.accept(id) => Err(ConnectCause::AnotherCluster { id: id.into() }),
            _ => Ok(()),
        }
    }
}

/// Whether a server that does not say which node it is may get commands. One without cluster mode is not a node. One that reads its data would get
/// them later, when nothing asks for its id any more. One that runs a script may: the connection is for SCRIPT KILL too.
fn may_be_node(refusal: &ServerError) -> bool {
    refusal.kind() != ServerErrorKind::Loading && !refusal.message.contains("cluster support disabled")
}

/// What a refusal of a handshake command means.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    /// The connection would not match the settings. Only one for a command that ends a script [does without](Self::may_be_missing).
    Required,
    /// As `Required`. The reply names the server's role.
    Hello,
    /// The connection works without it for a user who may not run it. Other refusals mean what they mean for `Required`.
    IfAllowed,
    /// As `IfAllowed`, but a replica then redirects reads to its primary.
    ReadReplicas,
    /// The connection works without it if the server [may be a node](may_be_node). A reply that names another node ends it.
    Identity,
    /// Some servers do not know the command or do not allow it. Still shows that a login is missing.
    BestEffort,
    /// As `BestEffort`. The reply shows that all replies before it were those to the commands before it.
    Probe,
    /// As `Probe`, without an argument: some proxies know no other form.
    PlainProbe,
}

impl Step {
    fn is_best_effort(self) -> bool {
        matches!(self, Self::BestEffort | Self::Probe | Self::PlainProbe)
    }

    /// True if a connection of this purpose is of use without it while a script runs. All others must have their database and their name.
    fn may_be_missing(self, purpose: Purpose) -> bool {
        purpose == Purpose::Overtaking
            && matches!(self, Self::Required | Self::IfAllowed | Self::ReadReplicas)
    }

    fn returns(self) -> Returns {
        match self {
            Self::Hello => Returns::Hello,
            Self::Probe => Returns::Probe,
            Self::PlainProbe => Returns::Pong,
            Self::Identity => Returns::Id,
            Self::Required | Self::IfAllowed | Self::ReadReplicas | Self::BestEffort => Returns::Ok,
        }
    }
}

/// The command that logs in and chooses the protocol, if one is needed.
fn log_in(protocol: Protocol, credentials: Option<&Credentials>) -> Option<Command> {
    match (protocol, credentials) {
        (Protocol::Resp3, None) => Some(Command::from_args(["HELLO", "3"])),
        (Protocol::Resp3, Some(login)) => {
            let user = login.user().unwrap_or("default");
            Some(Command::from_args(["HELLO", "3", "AUTH", user, login.password()]))
        }
        (Protocol::Resp2, None) => None,
        (Protocol::Resp2, Some(login)) => Some(match login.user() {
            // Servers before 6.0 have no users.
            None => Command::from_args(["AUTH", login.password()]),
            Some(user) => Command::from_args(["AUTH", user, login.password()]),
        }),
    }
}

/// What a command of the login returns, if it is not refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Returns {
    /// The map of HELLO 3.
    Hello,
    Ok,
    /// The argument of [`probe`].
    Probe,
    Pong,
    /// The id of a node.
    Id,
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
            (Self::Id, Ok(reply)) => ("the id of a node", matches!(reply, Value::Bulk(_))),
            (Self::Hello | Self::Ok | Self::Pong | Self::Id, Err(_)) => return Ok(()),
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
        let mut decoder = valkey_rdma_resp::Decoder::new(Protocol::Resp3);
        decoder.room().extend_from_slice(bytes);
        match decoder.next().expect("RESP").expect("complete") {
            Value::Error(error) => Err(error),
            value => Ok(value),
        }
    }

    #[test]
    fn only_the_reply_to_the_command_is_accepted() {
        use Returns::{Hello, Id, Ok, Pong, Probe};
        let map = b"%2\r\n$6\r\nserver\r\n$6\r\nvalkey\r\n$5\r\nproto\r\n:3\r\n";
        let accepted: [(Returns, &'static [u8]); 13] = [
            (Hello, map),
            (Hello, b"%1\r\n+proto\r\n:3\r\n"),
            (Hello, b"-ERR unknown command 'HELLO'\r\n"),
            (Ok, b"+OK\r\n"),
            (Ok, b"-ERR no\r\n"),
            (Id, b"$3\r\nabc\r\n"),
            (Id, b"-NOPERM no id\r\n"),
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
            Id => bytes.starts_with(b"-") || bytes.starts_with(b"$2") || bytes.starts_with(b"$11"),
        };
        for returns in [Hello, Ok, Probe, Pong, Id] {
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
