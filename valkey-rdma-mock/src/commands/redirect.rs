//! Before a command runs on a cluster's node: whether another node must run it.

use bytes::Bytes;

use super::transactions::stop_watching;
use super::{CHANNELS, Context, Entry, Failure, NoKey, Write};
use crate::membership::{Asked, Destination, Member, Topology, redirection, route, slot_of};
use valkey_rdma_server::Command;

/// Refuses a command that belongs elsewhere, with the error that says where.
pub(super) fn check(
    context: &mut Context<'_>,
    member: &Member,
    entry: &'static Entry,
    command: &Command,
) -> Result<(), Failure> {
    let topology = member.topology();
    let transaction = if entry.name == "exec" { context.client().transaction.take() } else { None };
    let outcome = {
        let queued = transaction.as_ref().map_or(&[][..], |transaction| &transaction.commands);
        let commands = std::iter::once(command).chain(queued);
        decide(context, member, &topology, commands)
    };
    if transaction.is_some() {
        match outcome {
            Ok(()) => context.client().transaction = transaction,
            // As in Valkey, the transaction is over.
            Err(_) => stop_watching(context),
        }
    }
    outcome
}

fn decide<'a>(
    context: &mut Context<'_>,
    member: &Member,
    topology: &Topology,
    commands: impl Iterator<Item = &'a Command>,
) -> Result<(), Failure> {
    let client = context.client();
    let mut asked = Asked {
        keys: Vec::new(),
        channels: false,
        writes: false,
        queued: client.transaction.is_some(),
        asking: client.asking,
        readonly: client.readonly,
    };
    for command in commands {
        let Some(entry) = Entry::find(command.name()) else { continue };
        asked.keys.extend(keys(entry, command));
        asked.channels |= CHANNELS.contains(&entry.name);
        asked.writes |= entry.kind == Write;
    }
    if asked.keys.is_empty() {
        if asked.writes && topology.nodes[member.index].primary.is_some() {
            return Err(Failure::new("READONLY You can't write against a read only replica."));
        }
        return Ok(());
    }
    let destination = match member.behaviour.moves_to() {
        Some(node) => Destination::Moved(slot_of(asked.keys[0]), node),
        None => {
            let database = context.database();
            route(topology, member.index, &asked, |key| database.contains(key))
        }
    };
    redirection(destination, topology).map_or(Ok(()), Err)
}

fn keys<'a>(entry: &Entry, command: &'a Command) -> Vec<&'a Bytes> {
    match entry.name {
        "spublish" => command.args().iter().take(1).collect(),
        name if CHANNELS.contains(&name) => command.args().iter().collect(),
        _ if matches!(entry.keys, NoKey) => Vec::new(),
        _ => entry.keys.of(command),
    }
}
