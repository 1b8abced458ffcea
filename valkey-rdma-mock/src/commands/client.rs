//! `CLIENT`: connections, this one and others.

use bytes::Bytes;

use super::connection::{DEFAULT_USER, check_name, connection_id, is_plain};
use super::{Admin, Context, Entry, Failure, NoKey, Outcome, container, count};
use crate::args::{Options, integer, lowercase};
use crate::client::{Client, Replies};
use valkey_rdma_server::Command;
use valkey_rdma_server::Reply;

#[rustfmt::skip] // One row, one line.
pub(super) const TABLE: &[Entry] = &[
    container("client", -2, Admin, NoKey, "Shows and changes connections: ID, LIST, KILL, TRACKING, REPLY and others.", client),
];

/// `CLIENT subcommand`
pub(super) fn client(context: &mut Context<'_>, command: &Command) -> Outcome {
    let subcommand = lowercase(&command.args()[0]);
    let client = context.client();
    match (subcommand.as_str(), &command.args()[1..]) {
        ("id", []) => Ok(connection_id(context)),
        ("info", []) => Ok(text(client.describe())),
        ("list", options) => list(context, options),
        ("kill", options @ [_, ..]) => kill(context, options),
        ("unblock", [id]) => unblock(context, id, false),
        ("unblock", [id, how]) => match lowercase(how).as_str() {
            "timeout" => unblock(context, id, false),
            "error" => unblock(context, id, true),
            _ => Err(Failure::new("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR")),
        },
        ("getname", []) if client.name.is_empty() => Ok(Reply::Null),
        ("getname", []) => Ok(Reply::bulk(client.name.clone())),
        ("setname", [name]) => {
            check_name(name)?;
            client.name = Bytes::copy_from_slice(name);
            Ok(Reply::OK)
        }
        ("setinfo", [attribute, value]) => set_info(client, attribute, value),
        ("no-evict", [switch]) => {
            client.no_evict = on_or_off(switch)?;
            Ok(Reply::OK)
        }
        ("no-touch", [switch]) => {
            client.no_touch = on_or_off(switch)?;
            Ok(Reply::OK)
        }
        ("reply", [how]) => {
            client.replies = match lowercase(how).as_str() {
                "on" => Replies::On,
                "off" => Replies::Off,
                // Off stays off.
                "skip" if client.replies == Replies::Off => Replies::Off,
                "skip" => Replies::SkipNext,
                _ => return Err(Failure::SYNTAX),
            };
            Ok(Reply::OK)
        }
        ("tracking", options @ [_, ..]) => tracking(client, options),
        (known, _) if SUBCOMMANDS.contains(&known) => Err(Failure::wrong_arity(&format!("client|{known}"))),
        _ => Err(Failure::unknown_subcommand("CLIENT", &command.args()[0])),
    }
}

const SUBCOMMANDS: [&str; 11] = [
    "getname", "id", "info", "kill", "no-evict", "no-touch", "reply", "setinfo", "setname", "tracking",
    "unblock",
];

fn text(text: String) -> Reply {
    Reply::Verbatim { format: *b"txt", text: text.into() }
}

fn set_info(client: &mut Client, attribute: &[u8], value: &[u8]) -> Outcome {
    let target = match lowercase(attribute).as_str() {
        "lib-name" => &mut client.library,
        "lib-ver" => &mut client.library_version,
        _ => {
            let attribute = String::from_utf8_lossy(attribute);
            return Err(format!("ERR Unrecognized option '{attribute}'").into());
        }
    };
    if !is_plain(value) {
        let attribute = String::from_utf8_lossy(attribute);
        return Err(format!("ERR {attribute} cannot contain spaces, newlines or special characters.").into());
    }
    *target = Bytes::copy_from_slice(value);
    Ok(Reply::OK)
}

/// `CLIENT LIST [TYPE type] [ID id ...]`
fn list(context: &mut Context<'_>, options: &[Bytes]) -> Outcome {
    let filter = Filter::parse(options, "list")?;
    let me = context.client;
    let found = context.state.clients.values().filter(|client| filter.matches(client, me));
    let mut found: Vec<&Client> = found.collect();
    found.sort_by_key(|client| client.id);
    Ok(text(found.into_iter().map(Client::describe).collect()))
}

/// `CLIENT KILL addr`, `CLIENT KILL [ID id] [TYPE type] [ADDR addr] [LADDR addr] [USER user] [SKIPME yes | no]`
fn kill(context: &mut Context<'_>, options: &[Bytes]) -> Outcome {
    let me = context.client;
    let by_address = options.len() == 1;
    let filter = if by_address {
        Filter { address: Some(String::from_utf8_lossy(&options[0]).into_owned()), ..Filter::default() }
    } else {
        Filter::parse(options, "kill")?
    };
    let victims: Vec<u64> = context
        .state
        .clients
        .values()
        .filter(|client| filter.matches(client, me))
        .map(|client| client.id)
        .collect();
    for victim in &victims {
        if *victim == me {
            context.peer.close_after_reply();
        } else {
            context.state.kill(*victim);
        }
    }
    match (by_address, victims.is_empty()) {
        (true, true) => Err(Failure::new("ERR No such client")),
        (true, false) => Ok(Reply::OK),
        (false, _) => Ok(count(victims.len())),
    }
}

/// Which clients are meant.
#[derive(Default)]
struct Filter {
    ids: Vec<u64>,
    listeners: Option<bool>,
    none: bool,
    address: Option<String>,
    local_address: Option<String>,
    skip_me: bool,
}

impl Filter {
    fn parse(options: &[Bytes], command: &str) -> Result<Self, Failure> {
        let mut filter = Self { skip_me: command == "kill", ..Self::default() };
        let mut options = Options::new(options);
        while let Some(option) = options.next() {
            match lowercase(option).as_str() {
                "id" => {
                    let id = options.value()?;
                    match client_id(id) {
                        Err(_) if command == "kill" && valkey_rdma_resp::integer::parse(id).is_none() => {
                            return Err(Failure::SYNTAX);
                        }
                        id => filter.ids.push(id?),
                    }
                    // Several ids may follow each other.
                    while let Some(id) = options.rest().first().and_then(|id| client_id(id).ok()) {
                        filter.ids.push(id);
                        options.next();
                    }
                }
                "type" => match lowercase(options.value()?).as_str() {
                    "normal" => filter.listeners = Some(false),
                    "pubsub" => filter.listeners = Some(true),
                    "master" | "primary" | "replica" | "slave" => filter.none = true,
                    other => return Err(format!("ERR Unknown client type '{other}'").into()),
                },
                "addr" => filter.address = Some(String::from_utf8_lossy(options.value()?).into_owned()),
                "laddr" => {
                    filter.local_address = Some(String::from_utf8_lossy(options.value()?).into_owned())
                }
                "user" => {
                    let user = options.value()?;
                    if &user[..] != DEFAULT_USER {
                        return Err(format!("ERR No such user '{}'", String::from_utf8_lossy(user)).into());
                    }
                }
                "skipme" => match lowercase(options.value()?).as_str() {
                    "yes" => filter.skip_me = true,
                    "no" => filter.skip_me = false,
                    _ => return Err(Failure::SYNTAX),
                },
                _ => return Err(Failure::SYNTAX),
            }
        }
        Ok(filter)
    }

    fn matches(&self, client: &Client, me: u64) -> bool {
        !self.none
            && (self.ids.is_empty() || self.ids.contains(&client.id))
            && self.listeners.is_none_or(|listeners| listeners == client.listens())
            && self.address.as_ref().is_none_or(|address| *address == client.addr.to_string())
            && self.local_address.as_ref().is_none_or(|address| *address == client.local_addr.to_string())
            && !(self.skip_me && client.id == me)
    }
}

fn client_id(text: &[u8]) -> Result<u64, Failure> {
    let id =
        valkey_rdma_resp::integer::parse(text).and_then(|id| u64::try_from(id).ok()).filter(|id| *id > 0);
    id.ok_or(Failure::new("ERR Invalid client ID"))
}

fn unblock(context: &mut Context<'_>, id: &[u8], error: bool) -> Outcome {
    let id = u64::try_from(integer(id)?).unwrap_or(0);
    let Some(waiter) = context.state.waiters.get(id) else { return Ok(Reply::Integer(0)) };
    let reply = if error {
        Reply::error("UNBLOCKED client unblocked via CLIENT UNBLOCK")
    } else {
        waiter.on_timeout.clone()
    };
    Ok(count(usize::from(context.state.answer(id, reply))))
}

/// `CLIENT TRACKING ON | OFF`, in the default mode
fn tracking(client: &mut Client, options: &[Bytes]) -> Outcome {
    client.tracking = on_or_off(&options[0])?;
    match &options[1..] {
        [] => Ok(Reply::OK),
        _ => Err(Failure::new("ERR this mock tracks in the default mode only, without options")),
    }
}

fn on_or_off(switch: &[u8]) -> Result<bool, Failure> {
    match lowercase(switch).as_str() {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(Failure::SYNTAX),
    }
}
