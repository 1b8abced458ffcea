//! Commands about the connection: login, protocol, database.

use bytes::Bytes;

use super::keys::database_index;
use super::transactions::stop_watching;
use super::{Admin, Context, Entry, Failure, NoKey, Outcome, row};
use crate::args::{Options, lowercase};
use crate::membership::Member;
use crate::version::VALKEY_VERSION;
use valkey_rdma_resp::integer;
use valkey_rdma_server::Command;
use valkey_rdma_server::Protocol;
use valkey_rdma_server::Reply;

#[rustfmt::skip] // One row, one line.
pub(super) const TABLE: &[Entry] = &[
    row("auth", -2, Admin, NoKey, "Authenticates the connection.", auth),
    row("echo", 2, Admin, NoKey, "Returns the given string.", echo),
    row("hello", -1, Admin, NoKey, "Greets the server and chooses the protocol.", hello),
    row("ping", -1, Admin, NoKey, "Answers PONG, or the given string.", ping),
    row("quit", -1, Admin, NoKey, "Closes the connection.", quit),
    row("reset", 1, Admin, NoKey, "Resets the connection.", reset),
    row("select", 2, Admin, NoKey, "Selects a database.", select),
];

/// `PING [message]`
fn ping(context: &mut Context<'_>, command: &Command) -> Outcome {
    let client = context.client();
    if client.listens() && client.protocol == Protocol::Resp2 && command.args().len() < 2 {
        // What is sent to a listener must look like a message.
        let message = command.args().first().cloned().unwrap_or_default();
        return Ok(Reply::Array(vec![Reply::bulk("pong"), Reply::Bulk(message)]));
    }
    match command.args() {
        [] => Ok(Reply::simple("PONG")),
        [message] => Ok(Reply::bulk(message.clone())),
        _ => Err(Failure::wrong_arity("ping")),
    }
}

/// `ECHO message`
fn echo(_context: &mut Context<'_>, command: &Command) -> Outcome {
    Ok(Reply::bulk(command.args()[0].clone()))
}

/// `QUIT`
fn quit(context: &mut Context<'_>, _command: &Command) -> Outcome {
    context.peer.close_after_reply();
    Ok(Reply::OK)
}

/// `SELECT index`
fn select(context: &mut Context<'_>, command: &Command) -> Outcome {
    let index = database_index(&command.args()[0])?;
    if index > 0 && context.state.member.is_some() {
        // `cluster-databases` is 1.
        return Err(Failure::new("ERR DB index is out of range"));
    }
    context.client().database = index;
    Ok(Reply::OK)
}

/// `RESET`
fn reset(context: &mut Context<'_>, _command: &Command) -> Outcome {
    stop_watching(context);
    let trusted = context.state.settings.password().is_none();
    if let Some(client) = context.state.clients.get_mut(&context.client) {
        context.state.subscriptions.remove_all(client);
        client.reset(trusted);
    }
    context.peer.set_never_idle(false);
    context.peer.set_protocol(Protocol::Resp2);
    Ok(Reply::simple("RESET"))
}

/// `AUTH [username] password`
fn auth(context: &mut Context<'_>, command: &Command) -> Outcome {
    match command.args() {
        [_] if context.state.settings.password().is_none() => Err(Failure::new(
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
    let accepted =
        user == DEFAULT_USER && context.state.settings.password().is_none_or(|expected| expected == password);
    if !accepted {
        return Err(Failure::WRONG_PASSWORD);
    }
    context.client().authenticated = true;
    Ok(())
}

/// `HELLO [2 | 3 [AUTH username password] [SETNAME name]]`
fn hello(context: &mut Context<'_>, command: &Command) -> Outcome {
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
    if !context.client().authenticated {
        return Err(Failure::new(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the \
             HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and \
             select the RESP protocol version at the same time",
        ));
    }
    if let Some(name) = name {
        context.client().name = Bytes::copy_from_slice(name);
    }
    context.client().protocol = protocol;
    context.peer.set_protocol(protocol);

    let field = |name: &'static str, value| (Reply::bulk(name), value);
    let (mode, role) = match &context.state.member {
        Some(member) => ("cluster", if member.is_replica() { "replica" } else { "master" }),
        None => ("standalone", "master"),
    };
    let mut fields = vec![
        field("server", Reply::bulk("valkey")),
        field("version", Reply::bulk(VALKEY_VERSION)),
        field("proto", Reply::Integer(protocol.version().into())),
        field("id", connection_id(context)),
        field("mode", Reply::bulk(mode)),
        field("role", Reply::bulk(role)),
        field("modules", Reply::Array(vec![])),
    ];
    if let Some(zone) = context.state.member.as_ref().map(Member::zone).filter(|zone| !zone.is_empty()) {
        fields.push(field("availability_zone", Reply::bulk(zone.to_string())));
    }
    Ok(Reply::Map(fields))
}

pub(super) fn connection_id(context: &Context<'_>) -> Reply {
    Reply::Integer(i64::try_from(context.client).unwrap_or(i64::MAX))
}

pub(super) fn check_name(name: &[u8]) -> Result<(), Failure> {
    if is_plain(name) {
        return Ok(());
    }
    Err(Failure::new("ERR Client names cannot contain spaces, newlines or special characters."))
}

/// Only what can stand in the line of `CLIENT INFO` without being taken for something else.
pub(super) fn is_plain(text: &[u8]) -> bool {
    text.iter().all(u8::is_ascii_graphic)
}

pub(super) const DEFAULT_USER: &[u8] = b"default";
