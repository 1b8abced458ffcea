//! Opens many connections, and leaves no server with a half-made one.
//!
//! A Valkey server does not survive a client that vanishes between its connect request and the accept (spec clause
//! H-6). After a failure or an interrupt no connect is started, and pending connects over a device are awaited.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::background::Background;
use super::dial::DialError;
use valkey_rdma_program::Interrupt;

/// How long the wait for connects that were given up goes without saying.
const QUIET_WAIT: Duration = Duration::from_secs(1);
/// How long it goes on after that. A server that accepts nothing for so long is stuck.
const LONGEST_WAIT: Duration = Duration::from_secs(9);

/// What all threads that open connections share.
#[derive(Debug)]
pub(crate) struct Opening {
    /// How many connects are pending at once. A server accepts one after the other, and pins memory for each: the
    /// last of many would spend its deadline waiting for the others.
    at_once: Semaphore,
    failed: AtomicBool,
    /// Whether pending connects may be dropped: over TCP.
    droppable: bool,
    interrupt: Interrupt,
}

impl Opening {
    /// How many connects are pending at once.
    pub(crate) const AT_ONCE: usize = 8;

    /// Nothing opened yet.
    pub(crate) fn new(droppable: bool, interrupt: Interrupt) -> Opening {
        Opening {
            at_once: Semaphore::new(Self::AT_ONCE),
            failed: AtomicBool::new(false),
            droppable,
            interrupt,
        }
    }

    fn is_over(&self) -> bool {
        self.failed.load(Ordering::Relaxed) || self.interrupt.is_asked()
    }
}

/// Opens `count` connections with `dial`. `None`: the user interrupted, or another thread failed.
///
/// # Errors
/// The first connect that fails. Those that met their deadline may still be completed by the transport then: see
/// [`complete`].
pub(crate) async fn open_all<C, F>(
    count: usize,
    opening: &Opening,
    dial: impl Fn() -> F,
) -> Result<Option<Vec<C>>, DialError>
where
    C: Send + 'static,
    F: Future<Output = Result<C, DialError>> + Send + 'static,
{
    let connecting = all(count, opening, dial);
    let opened = if opening.droppable {
        tokio::select! {
            opened = connecting => opened,
            () = opening.interrupt.asked() => return Ok(None),
        }
    } else {
        connecting.await
    }?;
    Ok((opened.len() == count).then_some(opened))
}

async fn all<C, F>(count: usize, opening: &Opening, dial: impl Fn() -> F) -> Result<Vec<C>, DialError>
where
    C: Send + 'static,
    F: Future<Output = Result<C, DialError>> + Send + 'static,
{
    let mut connects = JoinSet::new();
    let (mut opened, mut failure, mut begun) = (Vec::with_capacity(count), None, 0);
    loop {
        let more = begun < count && failure.is_none() && !opening.is_over();
        tokio::select! {
            biased;
            permit = opening.at_once.acquire(), if more => {
                let Ok(permit) = permit else { break };
                permit.forget();
                if opening.is_over() {
                    opening.at_once.add_permits(1);
                    continue;
                }
                begun += 1;
                connects.spawn(dial());
            }
            ended = connects.join_next(), if !connects.is_empty() => {
                opening.at_once.add_permits(1);
                match ended {
                    Some(Ok(Ok(connection))) => opened.push(connection),
                    Some(Ok(Err(error))) => {
                        opening.failed.store(true, Ordering::Relaxed);
                        failure.get_or_insert(error);
                    }
                    Some(Err(error)) => match error.try_into_panic() {
                        Ok(panic) => std::panic::resume_unwind(panic),
                        Err(_) => unreachable!("connects are never aborted"),
                    },
                    None => {}
                }
            }
            else => break,
        }
    }
    match failure {
        Some(error) => Err(error),
        None => Ok(opened),
    }
}

/// Waits, within limits, until the transport has completed abandoned connects; `say` reports a longer wait.
pub(crate) async fn complete(background: Background, interrupt: &Interrupt, mut say: impl FnMut(&str)) {
    if background.finish(QUIET_WAIT).await {
        return;
    }
    say("waiting for abandoned connects to complete, so that the server survives them; Ctrl-C ends at once");
    tokio::select! {
        _ = background.finish(LONGEST_WAIT) => {}
        // Once more, if there was one before: that ends the process.
        () = interrupt.asked(), if !interrupt.is_asked() => {}
    }
}
