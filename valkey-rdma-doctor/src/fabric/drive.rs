//! The driving end of a run: sends, and measures.

use std::mem;
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use tokio::net::TcpStream;
use tokio::time::timeout;
use valkey_rdma_transport::TransportError;

use super::error::{FabricError, Failure};
use super::figures::{Figures, Latencies, Latency, Rate, Side, WARM_UP};
use super::lane::{Event, Lane};
use super::message::Message;
use super::quota::Quota;
use super::run::{Operation, Run};
use super::session::Session;
use super::tcp;
use super::work::{Wait, work};

/// Messages posted with one doorbell at most, of which the last one completes. Each doorbell is a system call, and each completion
/// is looked for; a device in software needs the processor for the messages.
const BATCH: u32 = 32;

/// Drives a run, and has the peer say that everything has arrived.
pub(super) async fn drive(session: &mut Session, run: Run) -> Result<Figures, FabricError> {
    let quota = Quota::endless().map_err(FabricError::Descriptors)?;
    let (mut lanes, mut tcp, patience) = session.take_wires(run);
    let control = &mut session.control;
    let (begun, before) = (Instant::now(), Side::now());
    let measuring = work(&quota, run.is_of_one_lane(lanes.len()), async move |wait| {
        let measured = measure(&mut lanes, &mut tcp, run, &wait).await;
        (lanes, tcp, measured)
    });
    let ended = control.silent_during(timeout(run.time() + patience, measuring)).await?;
    let (lanes, tcp, measured) = ended.map_err(|_| control.silent(patience))?;
    let (messages, latency) = match measured {
        Ok(measured) => measured,
        Err(error) => return Err(session.explain(error).await),
    };
    let mut elapsed = begun.elapsed();
    let here = Side::since(before);
    (session.lanes, session.tcp) = (lanes, tcp);
    let control = &mut session.control;
    control.send(&Message::Stop { messages }).await?;
    let there = match control.answer_within(patience).await? {
        Message::Done { side } => side,
        other => return Err(control.unexpected(&other)),
    };
    if run.operation == Operation::Tcp {
        // Only the peer knows when the last byte has arrived.
        elapsed = begun.elapsed();
    }
    Ok(Figures {
        messages,
        latency,
        rate: run.stream.then(|| rate(messages, run.size, elapsed)),
        here,
        there,
    })
}

fn rate(messages: u64, size: u32, elapsed: Duration) -> Rate {
    let per_second = messages as f64 / elapsed.as_secs_f64();
    Rate { messages: per_second, bytes: per_second * f64::from(size) }
}

type Measured = (u64, Option<Latency>);

async fn measure(
    lanes: &mut [Lane],
    tcp: &mut [TcpStream],
    run: Run,
    wait: &Wait,
) -> Result<Measured, Failure> {
    let (messages, latencies) = match (run.operation, run.stream) {
        (Operation::Tcp, true) => (tcp::send(tcp, run).await?, None),
        (Operation::Tcp, false) => tcp::ping(&mut tcp[0], run).await?,
        (_, true) => {
            let counts = try_join_all(lanes.iter_mut().map(|lane| stream(lane, run, wait))).await?;
            (counts.iter().sum(), None)
        }
        (_, false) => ping(&mut lanes[0], run, wait).await?,
    };
    Ok((messages, latencies.map(|latencies| latencies.percentiles())))
}

/// One message after the other, each answered by the peer or acknowledged by its device.
async fn ping(lane: &mut Lane, run: Run, wait: &Wait) -> Result<(u64, Option<Latencies>), TransportError> {
    let answered = matches!(run.operation, Operation::Send | Operation::WriteImm);
    let end = Instant::now() + run.time();
    let mut latencies = Latencies::new();
    let mut messages = 0;
    let mut begun = Instant::now();
    loop {
        let done = if answered {
            lane.post_quietly(run.operation, run.size)?;
            lane.received(wait).await?.is_some()
        } else {
            lane.post(run.operation, run.size, 1)?;
            lane.sent(wait).await?.is_some()
        };
        let now = Instant::now();
        let took = now - mem::replace(&mut begun, now);
        messages += 1;
        let over = now >= end || !done;
        // At least one is counted, however slow they are.
        if messages > WARM_UP || over {
            latencies.add(if answered { took / 2 } else { took });
        }
        if over {
            return Ok((messages, Some(latencies)));
        }
    }
}

/// As many messages in flight as fit. Returns how many arrived.
async fn stream(lane: &mut Lane, run: Run, wait: &Wait) -> Result<u64, TransportError> {
    let mut flight = Flight::new(run);
    while flight.fill(lane)? {
        let Some(event) = lane.next(wait).await? else { break };
        flight.take(event);
    }
    Ok(flight.done)
}

/// Messages in flight on one queue pair.
struct Flight {
    run: Run,
    batch: u32,
    end: Instant,
    posted: u64,
    done: u64,
    /// The id of the first post. Completions of an earlier run may come late.
    first: Option<u64>,
}

impl Flight {
    fn new(run: Run) -> Self {
        // A quarter of what is in flight: while it completes, the rest is on its way.
        let batch = (run.most_in_flight() / 4).clamp(1, BATCH);
        Self { run, batch, end: Instant::now() + run.time(), posted: 0, done: 0, first: None }
    }

    /// Posts what fits, until the time is over. Returns whether anything is still in flight.
    fn fill(&mut self, lane: &mut Lane) -> Result<bool, TransportError> {
        let (most, batch) = (u64::from(self.run.most_in_flight()), u64::from(self.batch));
        while self.posted - self.done + batch <= most && (self.posted == 0 || Instant::now() < self.end) {
            let id = lane.post(self.run.operation, self.run.size, self.batch)?;
            self.first.get_or_insert(id);
            self.posted += batch;
        }
        Ok(self.posted > self.done)
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Sent(id) if Some(id) >= self.first => self.done += u64::from(self.batch),
            // Of an earlier run.
            Event::Sent(_) | Event::Received(_) => {}
        }
    }
}
