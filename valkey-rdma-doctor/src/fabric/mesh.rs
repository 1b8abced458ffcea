//! A group of machines that check each other, pair by pair.
//!
//! Every node is started with the same list. Each answers checks; the first is the one that says which pair is next, so that
//! no two measure at once. The later of a pair in the list connects to the earlier.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

use super::control::Control;
use super::error::FabricError;
use super::figures::Found;
use super::leader::{check, dial};
use super::matrix::{LARGE, Link, Matrix, SMALL};
use super::message::Message;
use super::options::{Options, Progress};
use super::run::Operation;
use super::service::Service;
use valkey_rdma_transport::Polling;

/// How often a node that is not there yet is tried again.
const AGAIN: Duration = Duration::from_millis(200);
/// Takes part in a mesh: as the first node of `list` whose address is this machine's and free. Every node returns the same
/// matrix. Nodes that do not come within `wait` are missing in it.
///
/// # Errors
/// [`FabricError::NotInMesh`] if no address of the list is this machine's, [`FabricError::Connect`] if the first node does not
/// come, and those of the connection to it.
///
/// Cancel safety: dropping the future ends this node's part.
pub async fn mesh(
    list: &[SocketAddr],
    options: &Options,
    wait: Duration,
    progress: Progress<'_>,
) -> Result<Matrix, FabricError> {
    let (me, service) = take_place(list, options).await?;
    let (sender, joins) = mpsc::unbounded_channel();
    let service = service.with_joins(sender);
    let brief = brief(options);
    let part = async {
        if me == 0 {
            Ok(coordinate(list, wait, &brief, joins, progress).await)
        } else {
            follow(me, list, wait, &brief, progress).await
        }
    };
    tokio::select! {
        matrix = part => matrix,
        Err(error) = service.run(&|_| {}) => Err(error),
    }
}

/// Listens on the first address of the list that can be listened on.
async fn take_place(list: &[SocketAddr], options: &Options) -> Result<(usize, Service), FabricError> {
    let mut last = None;
    for (number, addr) in list.iter().enumerate() {
        match Service::bind(*addr, options).await {
            Ok(service) => return Ok((number, service)),
            Err(error @ FabricError::Listen { .. }) => last = Some(error),
            // The address is this machine's, and its device does not work.
            Err(error) => return Err(error),
        }
    }
    let list = list.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let source = Box::new(last.unwrap_or_else(|| FabricError::Tcp(std::io::ErrorKind::InvalidInput.into())));
    Err(FabricError::NotInMesh { list, source })
}

/// What a pair is checked with.
fn brief(options: &Options) -> Options {
    Options {
        sizes: vec![SMALL, LARGE],
        operations: vec![Operation::WriteImm, Operation::Write],
        polling: vec![Polling::Event],
        tcp: false,
        both_ways: false,
        ..options.clone()
    }
}

/// The first node's part.
async fn coordinate(
    list: &[SocketAddr],
    wait: Duration,
    options: &Options,
    mut joins: mpsc::UnboundedReceiver<(usize, usize, Control)>,
    progress: Progress<'_>,
) -> Matrix {
    let count = list.len();
    let mut nodes: Vec<Option<Control>> = list.iter().map(|_| None).collect();
    let deadline = Instant::now() + wait;
    loop {
        let missing: Vec<String> =
            (1..count).filter(|node| nodes[*node].is_none()).map(|node| list[node].to_string()).collect();
        if missing.is_empty() {
            break;
        }
        progress(0, pairs(count), &format!("waiting for {}", missing.join(", ")));
        match tokio::time::timeout_at(deadline, joins.recv()).await {
            Ok(Some((node, of, control))) if (1..count).contains(&node) && of == count => {
                nodes[node] = Some(control);
            }
            Ok(Some(_)) => {}
            Ok(None) | Err(_) => break,
        }
    }
    let mut links = Vec::new();
    for from in 1..count {
        for to in 0..from {
            progress(links.len(), pairs(count), &format!("{} and {}", list[from], list[to]));
            links.push(ask(&mut nodes, list, from, to, options).await);
        }
    }
    let matrix = Matrix { nodes: list.to_vec(), links };
    for control in nodes.iter_mut().flatten() {
        // A node that is gone needs none.
        let _ = control.send(&Message::Matrix { matrix: matrix.clone() }).await;
    }
    matrix
}

fn pairs(nodes: usize) -> usize {
    nodes * (nodes - 1) / 2
}

/// Has a node check another one.
async fn ask(
    nodes: &mut [Option<Control>],
    list: &[SocketAddr],
    from: usize,
    to: usize,
    options: &Options,
) -> Link {
    let failed =
        |error: String| Link { from, to, latency: None, rate: None, differences: vec![], error: Some(error) };
    for node in [from, to] {
        if node != 0 && nodes[node].is_none() {
            return failed(format!("{} is not there", list[node]));
        }
    }
    let Some(control) = &mut nodes[from] else { return failed("it is not there".to_owned()) };
    control.now(format!("its check of {}", list[to]));
    let outcome = async {
        control.send(&Message::Pair { node: to }).await?;
        // Two sizes, two operations, twice each; and connecting.
        let limit = options.time * 8 + options.patience * 4;
        match control.answer_within(limit).await? {
            Message::Link { link } => Ok(Link { from, to, ..link }),
            other => Err(control.unexpected(&other)),
        }
    };
    match outcome.await {
        Ok(link) => link,
        Err(error) => {
            nodes[from] = None;
            failed(error.to_string())
        }
    }
}

/// The part of every other node.
async fn follow(
    me: usize,
    list: &[SocketAddr],
    wait: Duration,
    options: &Options,
    progress: Progress<'_>,
) -> Result<Matrix, FabricError> {
    progress(0, pairs(list.len()), &format!("waiting for {}", list[0]));
    let deadline = Instant::now() + wait;
    let mut control = loop {
        match dial(list[0], options.patience).await {
            Ok(control) => break control,
            Err(error) if Instant::now() >= deadline => return Err(error),
            Err(_) => sleep(AGAIN).await,
        }
    };
    control.now("the mesh");
    control.send(&Message::Join { node: me, nodes: list.len() }).await?;
    // Others may come late, and all others are checked meanwhile.
    let limit = wait
        + (options.time * 8 + options.patience * 4) * u32::try_from(pairs(list.len())).unwrap_or(u32::MAX);
    let mut done = 0;
    loop {
        match timeout(limit, control.next()).await {
            Ok(message) => match message? {
                Message::Pair { node } if node < me => {
                    progress(done, pairs(list.len()), &format!("checking {}", list[node]));
                    let link = check_one(me, node, list[node], options).await;
                    control.send(&Message::Link { link }).await?;
                    done += 1;
                }
                Message::Matrix { matrix } => return Ok(matrix),
                other => return Err(control.unexpected(&other)),
            },
            Err(_) => return Err(control.silent(limit)),
        }
    }
}

async fn check_one(from: usize, to: usize, addr: SocketAddr, options: &Options) -> Link {
    let mut found = Found::default();
    let outcome = check(addr, options, &mut found, &|_, _, _| {}).await;
    let row = |operation, size, stream| {
        let mut rows = found.rows.iter();
        rows.find(|row| (row.run.operation, row.run.size, row.run.stream) == (operation, size, stream))
    };
    let latency = row(Operation::WriteImm, SMALL, false).and_then(|row| row.figures.latency);
    let rate = row(Operation::Write, LARGE, true).and_then(|row| row.figures.rate);
    Link {
        from,
        to,
        latency: latency.map(|latency| latency.p50),
        rate: rate.map(|rate| rate.bytes),
        differences: found.differences,
        error: outcome.err().map(|error| error.to_string()),
    }
}
