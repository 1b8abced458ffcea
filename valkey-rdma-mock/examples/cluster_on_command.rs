//! A cluster of mocks whose slots move and whose nodes fail on command, for tests in other languages.
//!
//! `cluster_on_command PRIMARIES REPLICAS` listens on the emulated device, or with a third argument `tcp` on TCP. It prints
//! `ready URL` for each node, primaries first, and then reads commands, one a line. It answers each with `ok`:
//!
//! | line | effect |
//! |---|---|
//! | `move FIRST LAST NODE` | gives these slots, with their keys, to a primary |
//! | `begin FIRST LAST NODE` | begins to give them, with the keys that are there: from now on they are asked for with ASK |
//! | `kill NODE` | ends the node, as the death of its process does |
//! | `restart NODE` | starts it again |
//! | `promote NODE` | makes a replica the primary of its shard |
//! | `freeze NODE` | lets the node answer nothing; its connections stay |
//! | `fail NODE` | shows the node as failed: maps leave failed replicas out |
//!
//! It ends with its standard input.

use std::error::Error;
use std::io::{self, BufRead, Write};

use valkey_rdma_mock::{DeviceKind, MockCluster, Transports};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (shape, tcp) = match &arguments[..] {
        [primaries, replicas] => ([primaries, replicas], false),
        [primaries, replicas, transport] if transport == "tcp" => ([primaries, replicas], true),
        _ => return Err("usage: cluster_on_command PRIMARIES REPLICAS [tcp]".into()),
    };
    let transports = if tcp { Transports::Tcp } else { Transports::Rdma(DeviceKind::Emulated) };
    let builder = MockCluster::builder(shape[0].parse()?).replicas(shape[1].parse()?).transports(transports);
    let cluster = builder.start().await?;
    let mut stdout = io::stdout();
    for url in cluster.urls() {
        writeln!(stdout, "ready {url}")?;
    }
    stdout.flush()?;
    // Reading blocks a thread of its own: the nodes are served by others.
    let (lines, mut commands) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || io::stdin().lock().lines().try_for_each(|line| lines.send(line)));
    while let Some(line) = commands.recv().await {
        obey(&cluster, &line?).await?;
        writeln!(stdout, "ok")?;
        stdout.flush()?;
    }
    Ok(())
}

async fn obey(cluster: &MockCluster, line: &str) -> Result<(), Box<dyn Error>> {
    match line.split(' ').collect::<Vec<_>>()[..] {
        ["move", first, last, node] => cluster.move_slots(first.parse()?..=last.parse()?, node.parse()?),
        ["begin", first, last, node] => {
            let (first, last) = (first.parse()?, last.parse()?);
            cluster.begin_migration(first..=last, node.parse()?);
            for slot in first..=last {
                cluster.move_keys(slot, usize::MAX);
            }
        }
        ["kill", node] => cluster.kill(node.parse()?).await,
        ["restart", node] => cluster.restart(node.parse()?).await?,
        ["freeze", node] => cluster.freeze(node.parse()?),
        ["fail", node] => cluster.mark_failed(node.parse()?, true),
        ["promote", node] => cluster.fail_over(node.parse()?),
        _ => return Err(format!("unknown command: {line}").into()),
    }
    Ok(())
}
