//! The other end of a run: answers, or takes what comes.

use std::cell::Cell;
use std::convert::Infallible;
use std::future::{pending, poll_fn};
use std::pin::pin;
use std::task::Poll;

use futures_util::future::try_join_all;
use tokio::net::TcpStream;
use tokio::time::timeout;
use valkey_rdma_transport::TransportError;

use super::error::{FabricError, Failure};
use super::figures::Side;
use super::lane::{Event, Lane};
use super::message::Message;
use super::run::{Operation, Run};
use super::session::Session;
use super::tcp;

/// Answers a run until the driving end says that it is over.
pub(super) async fn respond(session: &mut Session, run: Run) -> Result<(), FabricError> {
    let Session { control, lanes, tcp, .. } = session;
    control.now(run.to_string());
    lanes.iter_mut().for_each(|lane| lane.set_polling(run.polling()));
    let before = Side::now();
    // Messages, or over TCP bytes.
    let received = Cell::new(0);
    let failure = {
        let mut work = pin!(take(lanes, tcp, run, &received));
        let limit = run.time() + control.patience;
        let stop = tokio::select! {
            biased;
            failure = &mut work => Err(failure),
            message = control.answer_within(limit) => Ok(message?),
        };
        match stop {
            Err(failure) => Some(failure),
            Ok(Message::Stop { messages }) => {
                let expected = match run.operation {
                    Operation::Tcp => messages * u64::from(run.size),
                    Operation::Send | Operation::WriteImm => messages,
                    Operation::Write | Operation::Read => 0,
                };
                // The peer's device has all of them acknowledged; this side may not have looked at the last yet.
                let arrived = async {
                    tokio::select! {
                        biased;
                        failure = &mut work => Some(failure),
                        () = reached(&received, expected) => None,
                    }
                };
                match timeout(control.patience, arrived).await {
                    Ok(failure) => failure,
                    Err(_) => {
                        let (peer, during, limit) =
                            (control.peer(), control.during.clone(), control.patience);
                        return Err(FabricError::Silent { peer, during, limit });
                    }
                }
            }
            Ok(other) => return Err(control.unexpected(&other)),
        }
    };
    if let Some(failure) = failure {
        return Err(session.explain(failure).await);
    }
    control.send(&Message::Done { side: Side::since(before) }).await
}

/// Is ready when so much was received. It is polled after what receives.
async fn reached(received: &Cell<u64>, expected: u64) {
    poll_fn(|_| if received.get() >= expected { Poll::Ready(()) } else { Poll::Pending }).await;
}

/// Takes what comes until something fails.
async fn take(lanes: &mut [Lane], tcp: &mut [TcpStream], run: Run, received: &Cell<u64>) -> Failure {
    let ended: Result<Vec<Infallible>, Failure> = match (run.operation, run.stream) {
        (Operation::Tcp, true) => tcp::take(tcp, received).await.map_err(Failure::Tcp),
        (Operation::Tcp, false) => {
            tcp::echo(&mut tcp[0], run, received).await.map(|never| vec![never]).map_err(Failure::Tcp)
        }
        (Operation::Send | Operation::WriteImm, false) => {
            echo(&mut lanes[0], run, received).await.map(|never| vec![never]).map_err(Failure::Device)
        }
        (Operation::Send | Operation::WriteImm, true) => {
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

/// Answers each message with one of the same kind.
async fn echo(lane: &mut Lane, run: Run, received: &Cell<u64>) -> Result<Infallible, TransportError> {
    loop {
        lane.received().await?;
        lane.post_quietly(run.operation, run.size)?;
        received.set(received.get() + 1);
    }
}

async fn absorb(lane: &mut Lane, received: &Cell<u64>) -> Result<Infallible, TransportError> {
    loop {
        if let Event::Received { .. } = lane.next().await? {
            received.set(received.get() + 1);
        }
    }
}
