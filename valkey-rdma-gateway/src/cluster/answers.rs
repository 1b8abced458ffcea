//! Commands that mean something else in front of a cluster: local clients see one server without cluster mode.

use valkey_rdma_client::{Client, Command, Error};
use valkey_rdma_resp::{Reply, words};

use super::joined::Joined;
use super::{Member, info};
use crate::command::words::is;
use crate::upstream::private::database;

/// Whether [`special`] answers the command.
pub(super) fn is_special(command: &[u8]) -> bool {
    let mut words = words(command);
    let (name, sub) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    ["PING", "SCAN", "HELLO", "SELECT", "CLUSTER", "CLUSTERSCAN"].iter().any(|special| is(name, special))
        || is(name, "CLIENT") && (is(sub, "KILL") || is(sub, "UNBLOCK"))
        || info::is_about_server(command)
        || Joined::of(command).is_some()
}

/// Answers a command. Some node that is there answers PING and HELLO; and CLIENT KILL and UNBLOCK, by which the session asks whether its user
/// may do that: the number in them is of no client.
pub(super) async fn special(member: &Member, client: &Client, command: &[u8]) -> Result<Reply, Error> {
    let all: Vec<_> = words(command).collect();
    let ask = |command: Command| info::ask_any(client, command);
    let name = all.first().copied().unwrap_or_default();
    if let Some(joined) = Joined::of(command) {
        return Ok(joined.ask(client, Command::from_args(&all)).await?.into());
    }
    if info::is_about_server(command) {
        let command = Command::from_args(&all);
        return match is(name, "INFO") {
            true => info::standalone(client, command).await,
            false => Ok(info::ask(client, command).await?.into()),
        };
    }
    Ok(match &name.to_ascii_uppercase()[..] {
        b"PING" | b"CLIENT" => ask(Command::from_args(&all)).await?.into(),
        b"SCAN" => scan(member, client, &all).await?,
        b"HELLO" => hello(ask(Command::new("HELLO")).await?.into()),
        b"SELECT" if database(command) == Some(member.database) => Reply::OK,
        b"SELECT" => refusal(
            member,
            command,
            &format!(
                "ERR the gateway of a cluster has database {} only; another one has its own URL",
                member.database
            ),
        ),
        _ => refusal(member, command, NO_CLUSTER),
    })
}

/// SCAN. Its client may have got another login since the batch with this command began: then a scan that begins has that one.
async fn scan(member: &Member, client: &Client, words: &[&[u8]]) -> Result<Reply, Error> {
    // Read in this order, so that a client is not taken for one of a later login.
    let login = member.scans.login();
    match member.client() {
        Some(current) => member.scans.step(&current, Some(login), words).await,
        None => member.scans.step(client, None, words).await,
    }
}

/// The answer to a command that the gateway refuses, which it counts.
fn refusal(member: &Member, command: &[u8], text: &str) -> Reply {
    member.metrics.commands_refused.add(1);
    member.note_refusal(command);
    Reply::error(text.to_owned())
}

/// The reply to HELLO of one node, which is a list of names and values in RESP2, with cluster mode off.
fn hello(reply: Reply) -> Reply {
    let pairs = match reply {
        Reply::Map(pairs) => pairs,
        Reply::Array(items) => {
            let mut items = items.into_iter();
            std::iter::from_fn(|| items.next().zip(items.next())).collect()
        }
        other => return other,
    };
    let patched = pairs.into_iter().map(|(name, value)| {
        let value = match &name {
            // Replaced by the local client's.
            Reply::Bulk(name) if name == "id" => Reply::Integer(0),
            Reply::Bulk(name) if name == "mode" => Reply::bulk("standalone"),
            Reply::Bulk(name) if name == "role" => Reply::bulk("master"),
            _ => value,
        };
        (name, value)
    });
    Reply::Map(patched.collect())
}

pub(crate) const NO_CLUSTER: &str = "ERR This instance has cluster support disabled: the gateway is one server in front of the whole cluster; use the client without its cluster mode";
