//! The connection itself: who it is, what it may do, how it talks.

use bytes::Bytes;

use super::super::args::{Options, integer, lowercase};
use super::super::{DATABASES, VALKEY_VERSION};
use super::{Context, Failure, Outcome};
use crate::command::Command;
use crate::handler::Protocol;
use crate::integer;
use crate::reply::Reply;

/// `PING [message]`
pub(super) fn ping(_context: &mut Context<'_>, command: &Command) -> Outcome {
    match command.args() {
        [] => Ok(Reply::simple("PONG")),
        [message] => Ok(Reply::bulk(message.clone())),
        _ => Err(Failure::wrong_arity("ping")),
    }
}

/// `ECHO message`
pub(super) fn echo(_context: &mut Context<'_>, command: &Command) -> Outcome {
    Ok(Reply::bulk(command.args()[0].clone()))
}

/// `QUIT`
pub(super) fn quit(context: &mut Context<'_>, _command: &Command) -> Outcome {
    context.peer.close_after_reply();
    Ok(Reply::OK)
}

/// `SELECT index`
pub(super) fn select(context: &mut Context<'_>, command: &Command) -> Outcome {
    let Ok(index) = i32::try_from(integer(&command.args()[0])?) else {
        return Err(Failure::new("ERR value is out of range, value must between -2147483648 and 2147483647"));
    };
    let index = usize::try_from(index).ok().filter(|index| *index < DATABASES);
    context.session.database = index.ok_or(Failure::new("ERR DB index is out of range"))?;
    Ok(Reply::OK)
}

/// `RESET`
pub(super) fn reset(context: &mut Context<'_>, _command: &Command) -> Outcome {
    context.session.reset(context.mock.settings().password().is_none());
    context.peer.set_protocol(Protocol::Resp2);
    Ok(Reply::simple("RESET"))
}

/// `AUTH [username] password`
pub(super) fn auth(context: &mut Context<'_>, command: &Command) -> Outcome {
    match command.args() {
        [_] if context.mock.settings().password().is_none() => Err(Failure::new(
            "ERR AUTH <password> called without any password configured for the default user. \
             Are you sure your configuration is correct?",
        )),
        [password] => authenticate(context, DEFAULT_USER, password),
        [user, password] => authenticate(context, user, password),
        _ => Err(Failure::SYNTAX),
    }?;
    Ok(Reply::OK)
}

/// There is one user, `default`; without a password set it accepts any.
fn authenticate(context: &mut Context<'_>, user: &[u8], password: &[u8]) -> Result<(), Failure> {
    let accepted = user == DEFAULT_USER
        && context.mock.settings().password().is_none_or(|expected| expected == password);
    if !accepted {
        return Err(Failure::WRONG_PASSWORD);
    }
    context.session.authenticated = true;
    Ok(())
}

/// `HELLO [2 | 3 [AUTH username password] [SETNAME name]]`
pub(super) fn hello(context: &mut Context<'_>, command: &Command) -> Outcome {
    let mut options = Options::new(command.args());
    let protocol = match options.next().map(|version| integer::parse(version)) {
        None => context.peer.protocol(),
        Some(Some(2)) => Protocol::Resp2,
        Some(Some(3)) => Protocol::Resp3,
        Some(Some(_)) => return Err(Failure::new("NOPROTO unsupported protocol version")),
        Some(None) => return Err(Failure::new("ERR Protocol version is not an integer or out of range")),
    };
    let mut credentials = None;
    let mut name = None;
    while let Some(option) = options.next() {
        match lowercase(option).as_str() {
            "auth" if options.len() >= 2 => credentials = Some((options.value()?, options.value()?)),
            "setname" if options.len() >= 1 => {
                let value = options.value()?;
                check_name(value)?;
                name = Some(value);
            }
            _ => {
                let option = String::from_utf8_lossy(option);
                return Err(format!("ERR Syntax error in HELLO option '{option}'").into());
            }
        }
    }
    if let Some((user, password)) = credentials {
        authenticate(context, user, password)?;
    }
    if !context.session.authenticated {
        return Err(Failure::new(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the \
             HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and \
             select the RESP protocol version at the same time",
        ));
    }
    if let Some(name) = name {
        context.session.name = Bytes::copy_from_slice(name);
    }
    context.peer.set_protocol(protocol);

    let field = |name: &'static str, value| (Reply::bulk(name), value);
    Ok(Reply::Map(vec![
        field("server", Reply::bulk("valkey")),
        field("version", Reply::bulk(VALKEY_VERSION)),
        field("proto", Reply::Integer(protocol.version().into())),
        field("id", connection_id(context)),
        field("mode", Reply::bulk("standalone")),
        field("role", Reply::bulk("master")),
        field("modules", Reply::Array(vec![])),
    ]))
}

/// `CLIENT subcommand`
pub(super) fn client(context: &mut Context<'_>, command: &Command) -> Outcome {
    let subcommand = lowercase(&command.args()[0]);
    let session = &mut *context.session;
    match (subcommand.as_str(), &command.args()[1..]) {
        ("id", []) => Ok(connection_id(context)),
        ("info", []) => Ok(Reply::Verbatim { format: *b"txt", text: describe(context).into() }),
        ("getname", []) if session.name.is_empty() => Ok(Reply::Null),
        ("getname", []) => Ok(Reply::bulk(session.name.clone())),
        ("setname", [name]) => {
            check_name(name)?;
            session.name = Bytes::copy_from_slice(name);
            Ok(Reply::OK)
        }
        ("setinfo", [attribute, value]) => {
            let target = match lowercase(attribute).as_str() {
                "lib-name" => &mut session.library,
                "lib-ver" => &mut session.library_version,
                _ => {
                    let attribute = String::from_utf8_lossy(attribute);
                    return Err(format!("ERR Unrecognized option '{attribute}'").into());
                }
            };
            if !is_plain(value) {
                let attribute = String::from_utf8_lossy(attribute);
                return Err(format!(
                    "ERR {attribute} cannot contain spaces, newlines or special characters."
                )
                .into());
            }
            *target = Bytes::copy_from_slice(value);
            Ok(Reply::OK)
        }
        ("no-evict", [switch]) => {
            session.no_evict = on_or_off(switch)?;
            Ok(Reply::OK)
        }
        ("no-touch", [switch]) => {
            session.no_touch = on_or_off(switch)?;
            Ok(Reply::OK)
        }
        (known @ ("id" | "info" | "getname" | "setname" | "setinfo" | "no-evict" | "no-touch"), _) => {
            Err(Failure::wrong_arity(&format!("client|{known}")))
        }
        _ => Err(Failure::unknown_subcommand("CLIENT", &command.args()[0])),
    }
}

/// The line of `CLIENT INFO`: the fields of Valkey's that mean something here, then what the connection runs on.
fn describe(context: &Context<'_>) -> String {
    let (peer, session) = (&context.peer, &context.session);
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    let mut flags = String::new();
    flags.extend(session.no_evict.then_some('e'));
    flags.extend(session.no_touch.then_some('T'));
    flags.extend(flags.is_empty().then_some('N'));
    let mut line = format!(
        "id={} addr={} laddr={} name={} flags={flags} db={} resp={} lib-name={} lib-ver={} transport={}",
        peer.id(),
        peer.addr(),
        peer.local_addr(),
        text(&session.name),
        session.database,
        peer.protocol().version(),
        text(&session.library),
        text(&session.library_version),
        peer.transport(),
    );
    if let Some(rdma) = peer.rdma() {
        let (info, stats) = (rdma.info(), rdma.stats());
        line.push_str(&format!(
            " window={} peer-window={} pinned={}",
            info.window, info.peer_window, stats.pinned_bytes
        ));
    }
    line.push('\n');
    line
}

fn connection_id(context: &Context<'_>) -> Reply {
    Reply::Integer(i64::try_from(context.peer.id()).unwrap_or(i64::MAX))
}

fn check_name(name: &[u8]) -> Result<(), Failure> {
    if is_plain(name) {
        return Ok(());
    }
    Err(Failure::new("ERR Client names cannot contain spaces, newlines or special characters."))
}

/// Only what can stand in the line of `CLIENT INFO` without being taken for something else.
fn is_plain(text: &[u8]) -> bool {
    text.iter().all(u8::is_ascii_graphic)
}

fn on_or_off(switch: &[u8]) -> Result<bool, Failure> {
    match lowercase(switch).as_str() {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(Failure::SYNTAX),
    }
}

const DEFAULT_USER: &[u8] = b"default";
