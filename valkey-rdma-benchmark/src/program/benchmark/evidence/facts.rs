//! What a reader needs to trust the figures: this machine, the server, and how they were measured.

use std::net::IpAddr;
use std::time::Duration;

use serde_json::Value;
use valkey_rdma_client::{Client, Endpoint};
use valkey_rdma_doctor::machine::{self, Root, Wishes};
use valkey_rdma_doctor::probe;

use super::hidden::Hidden;
use crate::drive::link_info;
use crate::measure::{About, Environment};
use crate::program::args::Args;
use crate::program::benchmark::RunError;
use crate::run::ServerInfo;

/// The fields of `INFO` that are kept, with their sections. The others have names, addresses and paths, or say nothing of speed.
const FIELDS: [(&str, &[&str]); 4] = [
    (
        "server",
        &[
            "server_name",
            "valkey_version",
            "valkey_release_stage",
            "redis_version",
            "server_mode",
            "os",
            "arch_bits",
            "gcc_version",
            "multiplexing_api",
            "monotonic_clock",
            "io_threads_active",
            "uptime_in_seconds",
            "hz",
        ],
    ),
    ("clients", &["connected_clients", "maxclients"]),
    ("memory", &["mem_allocator", "total_system_memory", "maxmemory", "maxmemory_policy"]),
    ("replication", &["role", "connected_slaves"]),
];
/// The settings that are asked for. A server that does not let them be read has no such lines.
const SETTINGS: [&str; 6] =
    ["io-threads", "save", "appendonly", "server-cpulist", "bio-cpulist", "tcp-nodelay"];
/// Findings of the doctor that are about addresses.
const OF_ADDRESSES: [&str; 3] = ["gid", "interface", "route"];

/// Where and how the cells are measured, by a connection over RDMA and one over TCP.
pub(super) async fn about(
    args: &Args,
    turn: Duration,
    endpoint: &Endpoint,
    (rdma, tcp): (&Client, &Client),
    hidden: &Hidden,
) -> About {
    let version = match ServerInfo::ask(tcp, "server").await {
        Some(info) => info.version(),
        None => None,
    };
    let mut client = Environment::look(&link_info(rdma), version, &endpoint.polling().to_string());
    if !hidden.shows_all() {
        client.facts.retain(|(name, _)| *name != "gid");
    }
    About {
        command: args.typed.clone(),
        rounds: args.rounds,
        turn,
        client,
        server: server(tcp).await,
        machine: this_machine(hidden).await,
    }
}

/// Refuses two addresses of different servers, as far as these say who they are.
pub(super) async fn check_same_server(rdma: &Client, tcp: &Client) -> Result<(), RunError> {
    let mut ids = Vec::new();
    for client in [rdma, tcp] {
        let info = ServerInfo::ask(client, "server").await;
        ids.push(info.and_then(|info| info.field("run_id").map(str::to_owned)));
    }
    match &ids[..] {
        [Some(one), Some(other)] if one != other => Err(RunError::Refused(
            "--evidence: the two addresses lead to different servers (run_id of INFO): \
             give the TCP address of the same server, --compare valkey://HOST:PORT"
                .to_owned(),
        )),
        _ => Ok(()),
    }
}

async fn server(client: &Client) -> Vec<(&'static str, String)> {
    let mut facts = Vec::new();
    for (section, names) in FIELDS {
        let Some(info) = ServerInfo::ask(client, section).await else { continue };
        facts.extend(names.iter().filter_map(|name| Some((*name, info.field(name)?.to_owned()))));
    }
    for name in SETTINGS {
        facts.extend(setting(client, name).await.map(|value| (name, value)));
    }
    facts
}

async fn setting(client: &Client, name: &str) -> Option<String> {
    let asked = client.command(["CONFIG", "GET", name]);
    let reply = tokio::time::timeout(ServerInfo::PATIENCE, asked).await.ok()?.ok()?;
    reply.into_fields().ok()?.take(name).ok()
}

/// The doctor's report on this machine.
async fn this_machine(hidden: &Hidden) -> Value {
    let root = Root::of_this_machine();
    let probes = probe::this_machine(&root, None).await;
    let mut report = machine::examine(&root, &probes, Wishes::default());
    if !hidden.shows_all() {
        for section in &mut report.sections {
            section.findings.retain(|finding| !OF_ADDRESSES.iter().any(|name| finding.id.starts_with(name)));
        }
    }
    let here: Vec<IpAddr> = probes.interfaces.iter().map(|(_, address)| *address).collect();
    let mut document = serde_json::from_str(&report.json("machine")).unwrap_or_default();
    hidden.document(&mut document, &here);
    document
}
