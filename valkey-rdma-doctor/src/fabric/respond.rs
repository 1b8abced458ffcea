//! The other end of a run: answers, or takes what comes.

use std::future::pending;
use std::pin::pin;

use futures_util::future::try_join_all;
use tokio::net::TcpStream;
use tokio::time::timeout;
use valkey_rdma_transport::TransportError;

use super::error::{FabricError, Failure};
use super::figures::Side;
use super::lane::{Event, Lane};
use super::message::Message;
use super::quota::Quota;
use super::run::{Operation, Run};
use super::session::Session;
use super::tcp;
use super::work::{Wait, work};

/// Answers a run until the driving end says that it is over.
pub(super) async fn respond(session: &mut Session, run: Run) -> Result<(), FabricError> {
    let quota = Quota::endless().map_err(FabricError::Descriptors)?;
    let (mut lanes, mut tcp, patience) = session.take_wires(run);
    let control = &mut session.control;
    let before = Side::now();
    // Of a WRITE or READ this program notices nothing.
    let on_thread = run.is_of_one_lane(lanes.len()) && run.uses_receives();
    let of_work = quota.clone();
    let mut taking = pin!(work(&quota, on_thread, async move |wait| {
        let taken = tokio::select! {
            biased;
            taken = take(&mut lanes, &mut tcp, run, &wait, &of_work) => taken,
            () = of_work.reached() => Ok(()),
        };
        (lanes, tcp, taken)
    }));
    let ended = tokio::select! {
        biased;
        ended = &mut taking => ended,
        message = control.answer_within(run.time() + patience) => match message? {
            Message::Stop { messages } => {
                // If the work has ended meanwhile, its failure counts.
                quota.set(match run.operation {
                    Operation::Tcp => messages.saturating_mul(run.size.into()),
                    Operation::Send | Operation::WriteImm => messages,
                    Operation::Write | Operation::Read => 0,
                });
                // The peer's device has all of them acknowledged; this side may not have looked at the last yet.
                timeout(patience, taking).await.map_err(|_| control.silent(patience))?
            }
            other => return Err(control.unexpected(&other)),
        },
    };
    let (lanes, tcp, taken) = ended;
    if let Err(failure) = taken {
        return Err(session.explain(failure).await);
    }
    (session.lanes, session.tcp) = (lanes, tcp);
    session.control.send(&Message::Done { side: Side::since(before) }).await
}

/// Takes what comes: on a thread until the quota is reached, in a task for ever.
async fn take(
    lanes: &mut [Lane],
    tcp: &mut [TcpStream],
    run: Run,
    wait: &Wait,
    quota: &Quota,
) -> Result<(), Failure> {
    match (run.operation, run.stream) {
        (Operation::Tcp, true) => tcp::take(tcp, quota).await.map(drop).map_err(Failure::Tcp),
        (Operation::Tcp, false) => tcp::echo(&mut tcp[0], run, quota).await.map_err(Failure::Tcp),
        (Operation::Send | Operation::WriteImm, true) => {
            let all = lanes.iter_mut().map(|lane| take_messages(lane, run, wait, quota));
            try_join_all(all).await.map(drop).map_err(Failure::Device)
        }
        (Operation::Send | Operation::WriteImm, false) => {
            take_messages(&mut lanes[0], run, wait, quota).await.map_err(Failure::Device)
        }
        // The device answers, and this program has nothing to do.
        (Operation::Write | Operation::Read, _) => pending().await,
    }
}

/// Takes messages on one queue pair. One that comes alone is answered by one of the same kind.
async fn take_messages(lane: &mut Lane, run: Run, wait: &Wait, quota: &Quota) -> Result<(), TransportError> {
    while let Some(event) = lane.next(wait).await? {
        if let Event::Received(_) = event {
            if !run.stream {
                lane.post_quietly(run.operation, run.size)?;
            }
            quota.count(1);
        }
    }
    Ok(())
}
