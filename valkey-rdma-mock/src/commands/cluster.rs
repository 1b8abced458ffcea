//! Commands of a cluster's nodes.

mod describe;

use super::{Admin, Context, Entry, Failure, NoKey, Outcome, bulks, container, count, row};
use crate::args::{integer, lowercase};
use crate::membership::{Bus, Member, SLOTS, Slot, Topology, slot_of};
use bytes::Bytes;
use std::sync::Arc;
use valkey_rdma_server::Command;
use valkey_rdma_server::Reply;

#[rustfmt::skip] // One row, one line.
pub(super) const TABLE: &[Entry] = &[
    row("asking", 1, Admin, NoKey, "Lets the next command use a slot that arrives.", asking),
    container("cluster", -2, Admin, NoKey, "Describes the cluster, moves slots, fails over.", cluster),
    row("readonly", 1, Admin, NoKey, "Lets a replica answer reads.", readonly),
    row("readwrite", 1, Admin, NoKey, "Lets a replica redirect reads.", readwrite),
];

const DISABLED: Failure = Failure::new("ERR This instance has cluster support disabled");

fn asking(context: &mut Context<'_>, _command: &Command) -> Outcome {
    member(context)?;
    context.client().asking = true;
    Ok(Reply::OK)
}

fn readonly(context: &mut Context<'_>, _command: &Command) -> Outcome {
    context.client().readonly = true;
    Ok(Reply::OK)
}

fn readwrite(context: &mut Context<'_>, _command: &Command) -> Outcome {
    context.client().readonly = false;
    Ok(Reply::OK)
}

fn member(context: &Context<'_>) -> Result<Member, Failure> {
    context.state.member.clone().ok_or(DISABLED)
}

/// `CLUSTER subcommand`
fn cluster(context: &mut Context<'_>, command: &Command) -> Outcome {
    let member = member(context)?;
    let topology = member.topology();
    let (me, subcommand) = (member.index, lowercase(&command.args()[0]));
    match (subcommand.as_str(), &command.args()[1..]) {
        ("slots", []) => Ok(describe::slots(&topology)),
        ("shards", []) => Ok(describe::shards(&topology)),
        ("nodes", []) => Ok(text(describe::nodes(&topology, me))),
        ("info", []) => Ok(text(describe::info(&topology, me))),
        ("myid", []) => Ok(Reply::bulk(topology.nodes[me].id.to_string())),
        ("myshardid", []) => Ok(Reply::bulk(describe::shard_id(topology.nodes[me].shard))),
        ("keyslot", [key]) => Ok(Reply::Integer(slot_of(key).into())),
        ("countkeysinslot", [slot]) => {
            let slot = counted_slot(slot, "ERR Invalid slot")?;
            let keys = context.database().iter().map(|(key, _)| key);
            Ok(count(keys.filter(|key| slot_of(key) == slot).count()))
        }
        ("getkeysinslot", [slot, limit]) => {
            const INVALID: &str = "ERR Invalid slot or number of keys";
            let slot = counted_slot(slot, INVALID)?;
            let limit = usize::try_from(integer(limit)?).map_err(|_| Failure::new(INVALID))?;
            let keys = context.database().iter().map(|(key, _)| key);
            Ok(bulks(keys.filter(|key| slot_of(key) == slot).take(limit)))
        }
        ("replicas" | "slaves", [id]) => {
            let primary = known_node(&topology, id)?;
            if topology.nodes[primary].primary.is_some() {
                return Err(Failure::new("ERR The specified node is not a master"));
            }
            let lines = topology.replicas_of(primary).map(|node| describe::node(&topology, node, me));
            Ok(Reply::Array(lines.map(Reply::bulk).collect()))
        }
        ("setslot", [slot, action, rest @ ..]) => set_slot(context, &member, &topology, slot, action, rest),
        ("failover", options) => fail_over(context, &member, options),
        (known, _) if SUBCOMMANDS.contains(&known) => Err(Failure::wrong_arity(&format!("cluster|{known}"))),
        _ => Err(Failure::unknown_subcommand("CLUSTER", &command.args()[0])),
    }
}

const SUBCOMMANDS: [&str; 12] = [
    "countkeysinslot",
    "getkeysinslot",
    "info",
    "keyslot",
    "myid",
    "myshardid",
    "nodes",
    "replicas",
    "setslot",
    "shards",
    "slaves",
    "slots",
];

fn text(text: String) -> Reply {
    Reply::Verbatim { format: *b"txt", text: text.into() }
}

fn counted_slot(text: &[u8], otherwise: &'static str) -> Result<Slot, Failure> {
    let slot = Slot::try_from(integer(text)?).ok().filter(|slot| *slot < SLOTS);
    slot.ok_or(Failure::new(otherwise))
}

fn known_node(topology: &Topology, id: &Bytes) -> Result<usize, Failure> {
    let unknown = || Failure::from(format!("ERR Unknown node {}", String::from_utf8_lossy(id)));
    topology.node_by_id(id).ok_or_else(unknown)
}

/// `CLUSTER SETSLOT slot IMPORTING id | MIGRATING id | NODE id | STABLE`
fn set_slot(
    context: &mut Context<'_>,
    member: &Member,
    topology: &Arc<Topology>,
    slot: &Bytes,
    action: &Bytes,
    rest: &[Bytes],
) -> Outcome {
    let me = member.index;
    if topology.nodes[me].primary.is_some() {
        return Err(Failure::new("ERR Please use SETSLOT only with masters."));
    }
    let slot = integer(slot).ok().and_then(|slot| Slot::try_from(slot).ok()).filter(|slot| *slot < SLOTS);
    let slot = slot.ok_or(Failure::new("ERR Invalid or out of range slot"))?;
    let primary = |id: &Bytes| {
        let node = topology.node_by_id(id);
        let node = node.ok_or_else(|| {
            Failure::from(format!("ERR I don't know about node {}", String::from_utf8_lossy(id)))
        })?;
        match topology.nodes[node].primary {
            None if node == me => Err(Failure::new("ERR Target node is myself")),
            None => Ok(node),
            Some(_) => Err(Failure::new("ERR Target node is not a master")),
        }
    };
    let bus: &Bus = &member.bus;
    match (lowercase(action).as_str(), rest) {
        ("migrating", [id, ..]) => {
            if topology.owner(slot) != Some(me) {
                return Err(format!("ERR I'm not the owner of hash slot {slot}").into());
            }
            let target = primary(id)?;
            bus.change(|topology| topology.migrating.insert(slot, target));
        }
        ("importing", [id, ..]) => {
            if topology.owner(slot) == Some(me) {
                return Err(format!("ERR I'm already the owner of hash slot {slot}").into());
            }
            let source = primary(id)?;
            bus.change(|topology| topology.importing.insert(slot, (me, source)));
        }
        ("stable", _) => bus.change(|topology| {
            if topology.owner(slot) == Some(me) {
                topology.migrating.remove(&slot);
            }
            if topology.importing.get(&slot).is_some_and(|(target, _)| *target == me) {
                topology.importing.remove(&slot);
            }
        }),
        ("node", [id, ..]) => {
            let owner = known_node(topology, id)?;
            if topology.nodes[owner].primary.is_some() {
                return Err(Failure::new("ERR Target node is not a master"));
            }
            let has_keys = context.database().iter().any(|(key, _)| slot_of(key) == slot);
            if topology.owner(slot) == Some(me) && owner != me && has_keys {
                return Err(format!(
                    "ERR Can't assign hashslot {slot} to a different node while I still hold keys for this hash slot."
                )
                .into());
            }
            bus.change(|topology| {
                topology.assign(slot, Some(owner));
                topology.epoch += 1;
                let epoch = topology.epoch;
                topology.nodes[owner].epoch = epoch;
            });
            context.state.topology_changed = true;
        }
        _ => {
            return Err(Failure::new(
                "ERR Invalid CLUSTER SETSLOT action or number of arguments. Try CLUSTER HELP",
            ));
        }
    }
    Ok(Reply::OK)
}

/// `CLUSTER FAILOVER [FORCE | TAKEOVER]`: completes at once.
fn fail_over(context: &mut Context<'_>, member: &Member, options: &[Bytes]) -> Outcome {
    match options {
        [] => {}
        [option] if matches!(lowercase(option).as_str(), "force" | "takeover") => {}
        _ => return Err(Failure::SYNTAX),
    }
    if !member.bus.change(|topology| topology.promote(member.index)) {
        return Err(Failure::new("ERR You should send CLUSTER FAILOVER to a replica"));
    }
    context.state.topology_changed = true;
    Ok(Reply::OK)
}
