//! The other end of a run: answers, or takes what comes.

use std::convert::Infallible;
use std::future::{pending, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use futures_util::future::try_join_all;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::timeout;
use valkey_rdma_transport::TransportError;

use super::apart::apart;
use super::error::{FabricError, Failure};
use super::figures::Side;
use super::lane::{Event, Lane};
use super::message::Message;
use super::run::{Operation, Run};
use super::session::Session;
use super::tcp;
use super::thread::{Quota, on_thread};

/// Answers a run until the driving end says that it is over.
pub(super) async fn respond(session: &mut Session, run: Run) -> Result<(), FabricError> {
    let quota = Quota::endless().map_err(FabricError::Descriptors)?;
    let (mut lanes, mut tcp) = session.take_wires();
    let control = &mut session.control;
    let patience = control.patience_for(run.bytes_in_flight(lanes.len()));
    control.now(run.to_string());
    lanes.iter_mut().for_each(|lane| lane.set_polling(run.polling()));
    let before = Side::now();
    let (stop, stopped) = oneshot::channel();
    let mut work = pin!(async {
        // Of a WRITE or READ this program notices nothing.
        if run.is_of_one_lane(lanes.len()) && run.uses_receives() {
            let (lanes, failure) = on_thread(&quota, move |quota| {
                let taken = take_here(&mut lanes[0], run, quota);
                (lanes, taken.err().map(Failure::Device))
            })
            .await;
            return (lanes, tcp, failure);
        }
        apart(async move {
            let failure = take_until(&mut lanes, &mut tcp, run, stopped).await;
            (lanes, tcp, failure)
        })
        .await
    });
    let ended = tokio::select! {
        biased;
        ended = &mut work => ended,
        message = control.answer_within(run.time() + patience) => match message? {
            Message::Stop { messages } => {
                let expected = match run.operation {
                    Operation::Tcp => messages.saturating_mul(run.size.into()),
                    Operation::Send | Operation::WriteImm => messages,
                    Operation::Write | Operation::Read => 0,
                };
                // If the work has ended meanwhile, its failure counts.
                let _ = stop.send(expected);
                quota.set(expected);
                // The peer's device has all of them acknowledged; this side may not have looked at the last yet.
                timeout(patience, work).await.map_err(|_| control.silent(patience))?
            }
            other => return Err(control.unexpected(&other)),
        },
    };
    let (lanes, tcp, failure) = ended;
    if let Some(failure) = failure {
        return Err(session.explain(failure).await);
    }
    (session.lanes, session.tcp) = (lanes, tcp);
    session.control.send(&Message::Done { side: Side::since(before) }).await
}

/// Takes what comes until as much has come as `stopped` says: messages, or over TCP bytes. Returns what failed, if anything did.
async fn take_until(
    lanes: &mut [Lane],
    tcp: &mut [TcpStream],
    run: Run,
    stopped: oneshot::Receiver<u64>,
) -> Option<Failure> {
    let received = AtomicU64::new(0);
    let mut work = pin!(take(lanes, tcp, run, &received));
    let all = async {
        match stopped.await {
            Ok(expected) => reached(&received, expected).await,
            // The session has failed, and ends this task.
            Err(_) => pending().await,
        }
    };
    tokio::select! {
        biased;
        failure = &mut work => Some(failure),
        () = all => None,
    }
}

/// Is ready when so much was received. It is polled after what receives.
async fn reached(received: &AtomicU64, expected: u64) {
    poll_fn(|_| if received.load(Ordering::Relaxed) >= expected { Poll::Ready(()) } else { Poll::Pending })
        .await;
}

/// Takes what comes until something fails.
async fn take(lanes: &mut [Lane], tcp: &mut [TcpStream], run: Run, received: &AtomicU64) -> Failure {
    let ended: Result<Vec<Infallible>, Failure> = match (run.operation, run.stream) {
        (Operation::Tcp, true) => tcp::take(tcp, received).await.map_err(Failure::Tcp),
        (Operation::Tcp, false) => {
            tcp::echo(&mut tcp[0], run, received).await.map(|never| vec![never]).map_err(Failure::Tcp)
        }
        (Operation::Send | Operation::WriteImm, _) => {
            let all = lanes.iter_mut().map(|lane| absorb(lane, received));
            try_join_all(all).await.map_err(Failure::Device)
        }
        // The device answers, and this program has nothing to do.
        (Operation::Write | Operation::Read, _) => pending().await,
    };
    match ended {
        Err(failure) => failure,
        Ok(_) => pending().await,
    }
}

/// Takes messages on one queue pair, blocking the thread, until there are enough. One that comes alone is answered by one of the same
/// kind.
fn take_here(lane: &mut Lane, run: Run, quota: &Quota) -> Result<(), TransportError> {
    let mut received = 0;
    while !quota.is_reached(received) {
        if let Some(Event::Received { .. }) = lane.next_here(quota)? {
            if !run.stream {
                lane.post_quietly(run.operation, run.size)?;
            }
            received += 1;
        }
    }
    Ok(())
}

async fn absorb(lane: &mut Lane, received: &AtomicU64) -> Result<Infallible, TransportError> {
    loop {
        if let Event::Received { .. } = lane.next().await? {
            received.fetch_add(1, Ordering::Relaxed);
        }
    }
}
