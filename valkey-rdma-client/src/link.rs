//! [`Link`]: a connection that comes back. One task drives the connection there is, then makes the next.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout_at};
use tracing::{Instrument, debug, debug_span, info, warn};

use crate::backlog::{Backlog, Stop};
use crate::connect::Connector;
use crate::driver::Driver;
use crate::error::{Error, LostCause};
use crate::reconnect::Backoff;
use crate::request::{Message, Request};
use crate::shared::{PushHook, Shared};
use crate::wire::Wire;

/// Messages that may wait in the queue. Beyond it, callers wait before handing theirs over.
const QUEUE: usize = 512;

/// The clients' end of it. The task ends when every link to it is dropped.
pub(crate) struct Link {
    messages: mpsc::Sender<Message>,
    pub(crate) shared: Arc<Shared>,
}

/// How a link comes back.
#[derive(Clone)]
pub(crate) struct Revival {
    pub(crate) connector: Arc<Connector>,
    pub(crate) backoff: Backoff,
    pub(crate) patience: Option<Duration>,
    pub(crate) retries: u32,
}

impl Link {
    /// Starts the task. Must run inside a runtime.
    pub(crate) fn start(
        wire: Wire,
        peer: Arc<str>,
        revival: Option<Revival>,
        pushes: Option<PushHook>,
    ) -> Self {
        let (messages, queue) = mpsc::channel(QUEUE);
        let shared = Arc::new(Shared::new(peer, &wire, pushes));
        let task = Task { backlog: Backlog::new(queue), shared: shared.clone(), revival };
        tokio::spawn(task.run(wire));
        Self { messages, shared }
    }

    /// Hands a request over. Waits, up to the request's deadline, while the queue is full.
    pub(crate) async fn send(&self, request: Request) -> Result<(), Error> {
        let request = match self.messages.try_send(Message::Request(request)) {
            Ok(()) => return Ok(()),
            Err(mpsc::error::TrySendError::Closed(_)) => return Err(self.shared.dropped(false)),
            Err(mpsc::error::TrySendError::Full(message)) => message,
        };
        let deadline = match &request {
            Message::Request(request) => request.deadline,
            Message::Close(_) => None,
        };
        let sending = self.messages.send(request);
        let sent = match deadline {
            None => sending.await,
            Some(deadline) => timeout_at(deadline.at, sending).await.map_err(|_| {
                self.shared.tally.timed_out();
                self.shared.timed_out(deadline.limit, false)
            })?,
        };
        sent.map_err(|_| self.shared.dropped(false))
    }

    /// Waits for what was asked for.
    pub(crate) async fn receive<T>(&self, answer: oneshot::Receiver<Result<T, Error>>) -> Result<T, Error> {
        answer.await.unwrap_or_else(|_| Err(self.shared.dropped(true)))
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.messages.is_closed()
    }

    /// Ends the link after the replies to everything sent so far.
    pub(crate) async fn close(&self) {
        let (done, ended) = oneshot::channel();
        if self.messages.send(Message::Close(done)).await.is_ok() {
            // Never sent to: dropped at the end.
            drop(ended.await);
        }
    }
}

/// The other end.
struct Task {
    backlog: Backlog,
    shared: Arc<Shared>,
    revival: Option<Revival>,
}

impl Task {
    async fn run(mut self, mut wire: Wire) {
        let retries = self.revival.as_ref().map(|revival| revival.retries);
        let mut attempt = 0;
        loop {
            let span = debug_span!("connection", peer = %self.shared.peer, transport = %wire.info.transport);
            let born = Instant::now();
            let driver = Driver::new(wire, &mut self.backlog, self.shared.clone(), retries);
            let cause = driver.instrument(span).await;
            let revival = match &self.revival {
                Some(revival) if !matches!(*cause, LostCause::Closed) => revival.clone(),
                _ => return self.end(&cause),
            };
            self.shared.disconnected();
            warn!(peer = %self.shared.peer, %cause, "connection lost");
            // A server that takes connections and ends them at once is not to be hurried.
            attempt = if born.elapsed() > Duration::from_secs(1) { 0 } else { attempt + 1 };
            match self.revive(&revival, &cause, attempt).await {
                Some(next) => wire = next,
                None => return,
            }
            self.shared.connected(&wire);
            info!(peer = %self.shared.peer, connection = %wire.info, "connected again");
        }
    }

    /// Tries to connect until it works. None: nobody wants it any more, and everybody was told.
    async fn revive(&mut self, revival: &Revival, cause: &Arc<LostCause>, first: u32) -> Option<Wire> {
        let mut why = self.shared.lost(cause, false);
        for attempt in first.. {
            let offline = self.backlog.wait_offline(revival.patience, |request| {
                if request.may_have_run { self.shared.lost(cause, true) } else { why.clone() }
            });
            tokio::select! {
                stop = offline => return self.stop(stop),
                () = sleep(revival.backoff.wait(attempt)) => {}
            }
            let connecting = revival.connector.connect();
            tokio::pin!(connecting);
            let offline = self.backlog.wait_offline(revival.patience, |request| {
                if request.may_have_run { self.shared.lost(cause, true) } else { why.clone() }
            });
            let connected = tokio::select! {
                connected = &mut connecting => connected,
                stop = offline => {
                    let stopped = self.stop(stop);
                    // A Valkey server does not survive a client that vanishes between request and accept (H-6).
                    drop(connecting.await);
                    return stopped;
                }
            };
            match connected {
                Ok(wire) => return Some(wire),
                Err(error) => {
                    debug!(%error, attempt, "not connected");
                    why = error.into();
                }
            }
        }
        None
    }

    fn stop(&mut self, stop: Stop) -> Option<Wire> {
        self.end(&Arc::new(LostCause::Closed));
        match stop {
            Stop::Close(done) => drop(done),
            Stop::Abandoned => {}
        }
        None
    }

    /// Ends the link for good and tells everybody who waits.
    fn end(&mut self, cause: &Arc<LostCause>) {
        let cause = self.shared.end(cause.clone());
        self.backlog.close(|request| self.shared.lost(&cause, request.may_have_run));
    }
}

#[cfg(test)]
mod tests;
