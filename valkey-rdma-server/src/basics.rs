//! The commands that clients send about the connection itself: greeting, login, name, farewell.
//!
//! Texts are Valkey's (`src/networking.c`, `helloCommand` and `clientCommand`; `src/acl.c`, `authCommand`).

use bytes::Bytes;
use valkey_rdma_resp::{Command, Protocol, Reply, integer};

use crate::peer::Peer;

/// Answers a command about the connection itself: the default of [`Handler::basics`](crate::Handler::basics). `None` if
/// `command` is another one.
///
/// | Command | Answer |
/// |---|---|
/// | `HELLO [2\|3 [AUTH user password] [SETNAME name]]` | changes the protocol; this server's name and version |
/// | `AUTH [user] password` | checks [`Builder::password`](crate::Builder::password) |
/// | `PING [message]`, `ECHO message` | `PONG`, or the message |
/// | `QUIT` | `OK`, then closes |
/// | `RESET` | forgets protocol, name and login; then [`Handler::reset`](crate::Handler::reset) |
/// | `SELECT index` | `OK` for 0: there is one database |
/// | `CLIENT ID\|GETNAME\|SETNAME\|SETINFO` | as Valkey does; other subcommands are left to the handler |
/// | `COMMAND`, `COMMAND COUNT\|DOCS\|LIST\|INFO` | an empty list, or 0 |
pub fn answer_basic(peer: &mut Peer, command: &Command) -> Option<Reply> {
    let args = command.args();
    // Most commands are not among these; all names have 4 to 7 letters.
    let mut name = [0; 7];
    let name = name.get_mut(..command.name().len())?;
    name.copy_from_slice(command.name());
    name.make_ascii_lowercase();
    Some(match (&*name, args) {
        (b"ping", []) => Reply::simple("PONG"),
        (b"ping" | b"echo", [message]) => Reply::bulk(message.clone()),
        (b"hello", _) => hello(peer, args).unwrap_or_else(|error| error),
        (b"auth", [password]) => auth(peer, None, password),
        (b"auth", [user, password]) => auth(peer, Some(user), password),
        (b"quit", []) => {
            peer.close_after_reply();
            Reply::OK
        }
        (b"reset", []) => reset(peer),
        (b"select", [_]) => match command.int(0) {
            Ok(0) => Reply::OK,
            Ok(_) => Reply::error("ERR DB index is out of range"),
            Err(error) => error,
        },
        (b"client", [subcommand, args @ ..]) => return client(peer, subcommand, args),
        (b"command", []) => Reply::Array(Vec::new()),
        (b"command", [subcommand, ..]) => match &subcommand.to_ascii_lowercase()[..] {
            b"count" => Reply::Integer(0),
            b"docs" => Reply::Map(Vec::new()),
            b"list" | b"info" => Reply::Array(Vec::new()),
            _ => return None,
        },
        (b"ping" | b"echo" | b"auth" | b"quit" | b"reset" | b"select" | b"client", _) => {
            command.wrong_arity()
        }
        _ => return None,
    })
}

/// Whether `command` may be answered before the login.
pub(crate) fn is_for_strangers(command: &Command) -> bool {
    ["AUTH", "HELLO", "QUIT", "RESET"].into_iter().any(|name| command.is(name))
}

pub(crate) const NOAUTH: Reply = Reply::Error(std::borrow::Cow::Borrowed("NOAUTH Authentication required."));

const WRONGPASS: &str = "WRONGPASS invalid username-password pair or user is disabled.";

fn auth(peer: &mut Peer, user: Option<&[u8]>, password: &[u8]) -> Reply {
    if user.is_none() && peer.password.is_none() {
        return Reply::error(
            "ERR AUTH <password> called without any password configured for the default user. \
             Are you sure your configuration is correct?",
        );
    }
    if !accepts(peer, user.unwrap_or(DEFAULT_USER), password) {
        return Reply::error(WRONGPASS);
    }
    peer.authenticated = true;
    Reply::OK
}

/// Whether the login is right. Without a password set, any password is. The time does not depend on which bytes differ.
fn accepts(peer: &Peer, user: &[u8], password: &[u8]) -> bool {
    let right = peer.password.as_ref().is_none_or(|expected| {
        let differences = expected.iter().zip(password).fold(0, |sum, (one, other)| sum | (one ^ other));
        expected.len() == password.len() && differences == 0
    });
    user == DEFAULT_USER && right
}

fn hello(peer: &mut Peer, args: &[Bytes]) -> Result<Reply, Reply> {
    let protocol = match args.first().map(|version| integer::parse(version)) {
        None => peer.protocol(),
        Some(Some(2)) => Protocol::Resp2,
        Some(Some(3)) => Protocol::Resp3,
        Some(Some(_)) => return Err(Reply::error("NOPROTO unsupported protocol version")),
        Some(None) => {
            return Err(Reply::error("ERR Protocol version is not an integer or out of range"));
        }
    };
    let (mut login, mut name) = (None, None);
    let mut options = args.get(1..).unwrap_or_default();
    while let [option, rest @ ..] = options {
        options = match rest {
            [user, password, rest @ ..] if option.eq_ignore_ascii_case(b"AUTH") => {
                login = Some((user, password));
                rest
            }
            [value, rest @ ..] if option.eq_ignore_ascii_case(b"SETNAME") => {
                name = Some(checked(value)?);
                rest
            }
            _ => {
                let option = String::from_utf8_lossy(option);
                return Err(Reply::error(format!("ERR Syntax error in HELLO option '{option}'")));
            }
        };
    }
    if let Some((user, password)) = login {
        if !accepts(peer, user, password) {
            return Err(Reply::error(WRONGPASS));
        }
        peer.authenticated = true;
    }
    if !peer.authenticated {
        return Err(Reply::error(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the \
             HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and \
             select the RESP protocol version at the same time",
        ));
    }
    if let Some(name) = name {
        peer.name = name;
    }
    peer.set_protocol(protocol);
    let field = |name: &'static str, value| (Reply::bulk(name), value);
    Ok(Reply::Map(vec![
        field("server", Reply::bulk(env!("CARGO_PKG_NAME"))),
        field("version", Reply::bulk(env!("CARGO_PKG_VERSION"))),
        field("proto", Reply::Integer(protocol.version().into())),
        field("id", id(peer)),
        field("mode", Reply::bulk("standalone")),
        field("role", Reply::bulk("master")),
        field("modules", Reply::Array(Vec::new())),
    ]))
}

fn reset(peer: &mut Peer) -> Reply {
    peer.authenticated = peer.password.is_none();
    peer.name = Bytes::new();
    peer.set_protocol(Protocol::Resp2);
    peer.set_never_idle(false);
    Reply::simple("RESET")
}

fn client(peer: &mut Peer, subcommand: &[u8], args: &[Bytes]) -> Option<Reply> {
    Some(match (&subcommand.to_ascii_lowercase()[..], args) {
        (b"id", []) => id(peer),
        (b"getname", []) if peer.name.is_empty() => Reply::Null,
        (b"getname", []) => Reply::Bulk(peer.name.clone()),
        (b"setname", [name]) => match checked(name) {
            Ok(name) => {
                peer.name = name;
                Reply::OK
            }
            Err(error) => error,
        },
        (b"setinfo", [_, _]) => Reply::OK,
        _ => return None,
    })
}

/// A name without anything that could be misread in a log line.
fn checked(name: &Bytes) -> Result<Bytes, Reply> {
    if name.iter().all(u8::is_ascii_graphic) {
        // A copy: the original would keep the whole read buffer.
        return Ok(Bytes::copy_from_slice(name));
    }
    Err(Reply::error("ERR Client names cannot contain spaces, newlines or special characters."))
}

fn id(peer: &Peer) -> Reply {
    Reply::Integer(i64::try_from(peer.id()).unwrap_or(i64::MAX))
}

const DEFAULT_USER: &[u8] = b"default";
