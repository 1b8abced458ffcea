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
use super::service::{LATE, Service};
use valkey_rdma_transport::Polling;

/// How often a node that is not there yet is tried again.
const AGAIN: Duration = Duration::from_millis(200);

/// A member of a mesh.
pub struct Node {
    number: usize,
    list: Vec<SocketAddr>,
    service: Service,
    /// What a pair is checked with.
    options: Options,
}

impl Node {
    /// Takes the place of the first address of `list` that is this machine's and free.
    ///
    /// # Errors
    /// [`FabricError::NotInMesh`] if no address of the list is this machine's, [`FabricError::Device`] if its device does not
    /// work.
    pub async fn join(list: &[SocketAddr], options: &Options) -> Result<Self, FabricError> {
        let mut last = None;
        for (number, addr) in list.iter().enumerate() {
            match Service::bind(*addr, options).await {
                Ok(service) => {
                    return Ok(Self { number, list: list.to_vec(), service, options: brief(options) });
                }
                Err(error @ FabricError::Listen { .. }) => last = Some(error),
                // The address is this machine's, and its device does not work.
                Err(error) => return Err(error),
            }
        }
        let list = list.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let source =
            Box::new(last.unwrap_or_else(|| FabricError::Tcp(std::io::ErrorKind::InvalidInput.into())));
        Err(FabricError::NotInMesh { list, source })
    }

    /// Its place in the list. The first node says which pair is next.
    pub fn number(&self) -> usize {
        self.number
    }

    /// Takes part until all pairs are checked. Every node ends with the same matrix; before that, it has the pairs whose result
    /// this node knows. Nodes that do not come within `wait` are missing in it.
    ///
    /// # Errors
    /// [`FabricError::Connect`] if the first node does not come, and those of the connection to it.
    ///
    /// Cancel safety: dropping the future ends this node's part.
    pub async fn run(
        self,
        wait: Duration,
        matrix: &mut Matrix,
        progress: Progress<'_>,
    ) -> Result<(), FabricError> {
        let (sender, joins) = mpsc::unbounded_channel();
        let service = if self.number == 0 { self.service.with_joins(sender) } else { self.service };
        let part = async {
            if self.number == 0 {
                coordinate(&self.list, wait, &self.options, joins, matrix, progress).await;
                Ok(())
            } else {
                follow(self.number, &self.list, wait, &self.options, matrix, progress).await
            }
        };
        tokio::select! {
            ended = part => ended,
            Err(error) = service.run(&|_| {}) => Err(error),
        }
    }
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
    matrix: &mut Matrix,
    progress: Progress<'_>,
) {
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
                if let Some(before) = nodes[node].replace(control) {
                    before
                        .dismiss(&format!(
                            "another node has joined as {}: give all nodes the same list, in the same order",
                            list[node]
                        ))
                        .await;
                }
            }
            Ok(Some((.., control))) => {
                control.dismiss(&format!("this mesh has {count} nodes: give all nodes the same list")).await;
            }
            Ok(None) | Err(_) => break,
        }
    }
    joins.close();
    while let Some((.., control)) = joins.recv().await {
        control.dismiss(LATE).await;
    }
    for from in 1..count {
        for to in 0..from {
            progress(matrix.links.len(), pairs(count), &format!("{} and {}", list[from], list[to]));
            let link = ask(&mut nodes, list, from, to, options).await;
            matrix.links.push(link);
        }
    }
    for control in nodes.iter_mut().flatten() {
        // A node that is gone needs none.
        let _ = control.send(&Message::Matrix { matrix: matrix.clone() }).await;
    }
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
    matrix: &mut Matrix,
    progress: Progress<'_>,
) -> Result<(), FabricError> {
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
    loop {
        match timeout(limit, control.next()).await {
            Ok(message) => match message? {
                Message::Pair { node } if node < me => {
                    progress(matrix.links.len(), pairs(list.len()), &format!("checking {}", list[node]));
                    let link = check_one(me, node, list[node], options).await;
                    matrix.links.push(link.clone());
                    control.send(&Message::Link { link }).await?;
                }
                Message::Matrix { matrix: whole } => {
                    *matrix = whole;
                    return Ok(());
                }
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
