//! Publish and subscribe.
//!
//! The confirmations of a subscription go the way of the messages, so that a message never comes before the
//! confirmation of its subscription or after that of its end.

use bytes::Bytes;

use super::{Admin, Context, Entry, Failure, NoKey, Outcome, bulks, container, count, row};
use crate::args::lowercase;
use crate::glob;
use crate::membership::Publication;
use crate::store::keep;
use crate::subscriptions::Channel;
use valkey_rdma_server::Command;
use valkey_rdma_server::Protocol;
use valkey_rdma_server::Reply;

#[rustfmt::skip] // One row, one line.
pub(super) const TABLE: &[Entry] = &[
    row("psubscribe", -2, Admin, NoKey, "Listens to channels that match patterns.", psubscribe),
    row("publish", 3, Admin, NoKey, "Sends a message to a channel.", publish),
    container("pubsub", -2, Admin, NoKey, "Returns subscriptions: CHANNELS, NUMSUB, NUMPAT, SHARDCHANNELS, SHARDNUMSUB.", pubsub),
    row("punsubscribe", -1, Admin, NoKey, "Stops listening to channels that match patterns.", punsubscribe),
    row("spublish", 3, Admin, NoKey, "Sends a message to a shard channel.", spublish),
    row("ssubscribe", -2, Admin, NoKey, "Listens to shard channels.", ssubscribe),
    row("subscribe", -2, Admin, NoKey, "Listens to channels.", subscribe),
    row("sunsubscribe", -1, Admin, NoKey, "Stops listening to shard channels.", sunsubscribe),
    row("unsubscribe", -1, Admin, NoKey, "Stops listening to channels.", unsubscribe),
];

fn publish(context: &mut Context<'_>, command: &Command) -> Outcome {
    send(context, command, Channel::Plain)
}

fn spublish(context: &mut Context<'_>, command: &Command) -> Outcome {
    send(context, command, Channel::Shard)
}

fn send(context: &mut Context<'_>, command: &Command, kind: Channel) -> Outcome {
    let [channel, message] = command.args() else { return Err(Failure::SYNTAX) };
    if context.state.member.is_some() {
        let (channel, message) = (keep(channel), keep(message));
        context.state.publications.push(Publication { sharded: kind == Channel::Shard, channel, message });
    }
    Ok(count(context.state.subscriptions.publish(kind, channel, message, &context.state.clients)))
}

fn subscribe(context: &mut Context<'_>, command: &Command) -> Outcome {
    begin(context, command, Channel::Plain)
}

fn psubscribe(context: &mut Context<'_>, command: &Command) -> Outcome {
    begin(context, command, Channel::Pattern)
}

fn ssubscribe(context: &mut Context<'_>, command: &Command) -> Outcome {
    begin(context, command, Channel::Shard)
}

fn unsubscribe(context: &mut Context<'_>, command: &Command) -> Outcome {
    end(context, command, Channel::Plain)
}

fn punsubscribe(context: &mut Context<'_>, command: &Command) -> Outcome {
    end(context, command, Channel::Pattern)
}

fn sunsubscribe(context: &mut Context<'_>, command: &Command) -> Outcome {
    end(context, command, Channel::Shard)
}

fn begin(context: &mut Context<'_>, command: &Command, kind: Channel) -> Outcome {
    if context.in_transaction && context.client().protocol == Protocol::Resp2 {
        return Err(Failure::new("ERR Command not allowed inside a transaction"));
    }
    for name in command.args() {
        let Some(client) = context.state.clients.get_mut(&context.client) else { break };
        context.state.subscriptions.add(kind, name, client);
        confirm(context, kind, "subscribe", Some(name));
    }
    context.peer.set_never_idle(true);
    Ok(Reply::Sequence(vec![]))
}

fn end(context: &mut Context<'_>, command: &Command, kind: Channel) -> Outcome {
    let mut names: Vec<Option<Bytes>> = command.args().iter().cloned().map(Some).collect();
    if names.is_empty() {
        names = context.client().subscribed[kind as usize].iter().cloned().map(Some).collect();
    }
    if names.is_empty() {
        // Nothing to end, and this is how Valkey says so.
        names.push(None);
    }
    for name in names {
        let Some(client) = context.state.clients.get_mut(&context.client) else { break };
        if let Some(name) = &name {
            context.state.subscriptions.remove(kind, name, client);
        }
        confirm(context, kind, "unsubscribe", name.as_ref());
    }
    let listens = context.client().listens();
    context.peer.set_never_idle(listens);
    Ok(Reply::Sequence(vec![]))
}

fn confirm(context: &mut Context<'_>, kind: Channel, what: &str, name: Option<&Bytes>) {
    let prefix = match kind {
        Channel::Plain => "",
        Channel::Pattern => "p",
        Channel::Shard => "s",
    };
    let client = context.client();
    let left =
        if kind == Channel::Shard { client.subscribed[kind as usize].len() } else { client.subscriptions() };
    let name = name.map_or(Reply::Null, |name| Reply::bulk(Bytes::copy_from_slice(name)));
    client.pusher.push(Reply::Push(vec![Reply::bulk(format!("{prefix}{what}")), name, count(left)]));
}

/// `PUBSUB CHANNELS [pattern]`, `PUBSUB NUMSUB [channel ...]`, `PUBSUB NUMPAT` and the same for shard channels
fn pubsub(context: &mut Context<'_>, command: &Command) -> Outcome {
    let subscriptions = &context.state.subscriptions;
    let subcommand = lowercase(&command.args()[0]);
    let kind = if subcommand.as_str().starts_with("shard") { Channel::Shard } else { Channel::Plain };
    match (subcommand.as_str(), &command.args()[1..]) {
        ("channels" | "shardchannels", []) => Ok(bulks(subscriptions.names(kind))),
        ("channels" | "shardchannels", [pattern]) => {
            Ok(bulks(subscriptions.names(kind).filter(|name| glob::matches_exactly(pattern, name))))
        }
        ("numsub" | "shardnumsub", names) => Ok(Reply::Array(
            names
                .iter()
                .flat_map(|name| [Reply::Bulk(name.clone()), count(subscriptions.listeners(kind, name))])
                .collect(),
        )),
        ("numpat", []) => Ok(count(subscriptions.names(Channel::Pattern).count())),
        (known @ ("channels" | "shardchannels" | "numpat"), _) => {
            Err(Failure::wrong_arity(&format!("pubsub|{known}")))
        }
        _ => Err(Failure::unknown_subcommand("PUBSUB", &command.args()[0])),
    }
}
