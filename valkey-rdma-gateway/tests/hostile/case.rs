//! [`Case`]: what hostile clients do, from one seed; and the smallest part of it that still fails.

use std::cell::Cell;
use std::fmt;
use std::time::Duration;

use fastrand::Rng;
use tokio::io::{AsyncReadExt, AsyncWriteExt, WriteHalf, copy, sink, split};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use valkey_rdma_gateway::Config;

use crate::generate::input;
use crate::support::{Io, Running, start};
use crate::witness::Witness;

/// What one of the clients does.
#[derive(Clone, Debug)]
enum Action {
    Send(Vec<u8>),
    /// Ends its side.
    Finish,
    /// Ends the connection.
    Close,
    /// Lets others run.
    Yield,
}

/// Hostile clients, and what they do in which order.
#[derive(Clone)]
pub(crate) struct Case {
    /// Whether each of them reads its replies.
    reads: [bool; CLIENTS],
    actions: Vec<(usize, Action)>,
}

impl Case {
    pub(crate) fn of(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let mut of_each: Vec<_> = (0..CLIENTS).map(|_| actions(&mut rng)).collect();
        of_each.iter_mut().for_each(|actions| actions.reverse());
        let mut all = Vec::new();
        loop {
            let left: Vec<_> = (0..CLIENTS).filter(|number| !of_each[*number].is_empty()).collect();
            let Some(number) = rng.choice(left) else { break };
            all.extend(of_each[number].pop().map(|action| (number, action)));
        }
        Self { reads: std::array::from_fn(|_| rng.u8(..) > 40), actions: all }
    }

    fn without(&self, from: usize, to: usize) -> Self {
        let mut less = self.clone();
        less.actions.drain(from..to);
        less
    }
}

/// What one client does: its input in pieces.
fn actions(rng: &mut Rng) -> Vec<Action> {
    let bytes = input(rng);
    let (mut rest, mut actions) = (&bytes[..], Vec::new());
    let most = *[1, 3, 20, 500, 100_000].get(rng.usize(..5)).unwrap_or(&1);
    // Single bytes of a long input would take too long.
    let most = most.max(bytes.len() / 200);
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(rng.usize(1..=most).min(rest.len()));
        actions.push(Action::Send(piece.to_vec()));
        rest = after;
        if rng.u8(..) < 60 {
            actions.push(Action::Yield);
        }
    }
    match rng.u8(..4) {
        0 => actions.push(Action::Finish),
        1 => actions.push(Action::Close),
        _ => {}
    }
    actions
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, action) in &self.actions {
            let reads = if self.reads[*number] { "reads" } else { "does not read" };
            match action {
                Action::Send(bytes) => writeln!(f, "client {number} ({reads}): {}", bytes.escape_ascii())?,
                other => writeln!(f, "client {number}: {other:?}")?,
            }
        }
        Ok(())
    }
}

/// A hostile client.
struct Hostile {
    to_gateway: WriteHalf<Box<dyn Io>>,
    /// Takes its replies, if it reads.
    reader: JoinHandle<()>,
}

impl Hostile {
    async fn connect(gateway: &Running, number: usize, reads: bool) -> Self {
        let stream: Box<dyn Io> = match number % 2 {
            0 => Box::new(UnixStream::connect(&gateway.unix).await.expect("connects")),
            _ => Box::new(TcpStream::connect(gateway.tcp).await.expect("connects")),
        };
        let (mut from_gateway, to_gateway) = split(stream);
        let reader = tokio::spawn(async move {
            if reads {
                // It ends with an error or not.
                let _ = copy(&mut from_gateway, &mut sink()).await;
            } else {
                // Keeps the half, and never reads.
                std::future::pending::<()>().await;
                let _ = from_gateway.read_u8().await;
            }
        });
        Self { to_gateway, reader }
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

/// Runs a case while the witness asks on. `Err` if a reply to the witness is missing or wrong.
pub(crate) async fn run(gateway: &Running, witness: &mut Witness, case: &Case) -> Result<(), String> {
    let done = Cell::new(false);
    let hostile = async {
        let mut clients: [Option<Hostile>; CLIENTS] = Default::default();
        for (number, action) in &case.actions {
            if clients[*number].is_none() {
                clients[*number] = Some(Hostile::connect(gateway, *number, case.reads[*number]).await);
            }
            let Some(client) = &mut clients[*number] else { continue };
            match action {
                // The gateway may have closed it. One that does not read may find no room.
                Action::Send(bytes) => drop(timeout(MOMENT, client.to_gateway.write_all(bytes)).await),
                Action::Finish => drop(timeout(MOMENT, client.to_gateway.shutdown()).await),
                Action::Close => clients[*number] = None,
                Action::Yield => tokio::task::yield_now().await,
            }
        }
        done.set(true);
        clients
    };
    // Once more while the clients are there, and then when they have gone.
    let asking = async {
        loop {
            let is_last = done.get();
            witness.ask().await?;
            if is_last {
                return Ok::<_, String>(());
            }
        }
    };
    let (clients, asked) = tokio::join!(hostile, asking);
    asked?;
    drop(clients);
    witness.ask_again(gateway).await
}

/// The smallest case that still fails in front of the same servers, found by leaving out more and more.
pub(crate) async fn shrink(config: &impl Fn() -> Config, mut case: Case) -> String {
    async fn fails(config: &impl Fn() -> Config, case: &Case) -> bool {
        let gateway = start(&config()).await;
        let mut witness = Witness::new(&gateway).await;
        run(&gateway, &mut witness, case).await.is_err()
    }
    if !fails(config, &case).await {
        return format!("it does not fail alone, so the cases before it matter:\n{case}");
    }
    let (mut len, mut tries) = (case.actions.len() / 2, 0);
    while len > 0 && tries < MOST_TRIES {
        let mut from = 0;
        while from < case.actions.len() && tries < MOST_TRIES {
            tries += 1;
            let less = case.without(from, (from + len).min(case.actions.len()));
            match fails(config, &less).await {
                true => case = less,
                false => from += len,
            }
        }
        len /= 2;
    }
    format!("after {tries} attempts to leave something out, this fails:\n{case}")
}

/// Hostile clients at the same time.
const CLIENTS: usize = 3;
/// How long a client waits for room.
const MOMENT: Duration = Duration::from_millis(20);
const MOST_TRIES: usize = 300;
