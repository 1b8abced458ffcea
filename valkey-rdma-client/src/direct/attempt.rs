//! One call at one server: on its bulk connection, which is made when the first call needs it.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout_at;

use crate::bulk::{Attempt, NotDirect, Placed, Request, State, Task, Transfer, not_sent};
use crate::endpoint::Transport;
use crate::error::Error;
use crate::link::Deadline;
use crate::server::Server;
use crate::stats::Purpose;

impl Server {
    /// Carries a transfer out, directly or over the stream.
    pub(crate) async fn transfer(&self, transfer: Transfer) -> Result<Placed, Error> {
        let limit = self.config().command_timeout;
        match self.attempt(transfer, false, limit.and_then(Deadline::after)).await {
            Attempt::Done(placed) => Ok(placed),
            Attempt::Failed(error, _) => Err(error),
            Attempt::NotDirect(reason, transfer) => {
                let connection = self.checkout(Purpose::Dedicated).await?;
                transfer.over_stream(connection, limit, reason).await.map_err(|(error, _)| error)
            }
        }
    }

    /// Carries a transfer out directly, behind ASKING if that must precede its command.
    pub(crate) async fn attempt(
        &self,
        transfer: Transfer,
        asking: bool,
        deadline: Option<Deadline>,
    ) -> Attempt {
        // The server may have closed the connection just before, which is not known yet.
        match self.attempt_once(transfer, asking, deadline).await {
            Attempt::Failed(Error::Lost(_), Some(transfer)) => {
                self.attempt_once(transfer, asking, deadline).await
            }
            outcome => outcome,
        }
    }

    async fn attempt_once(&self, transfer: Transfer, asking: bool, deadline: Option<Deadline>) -> Attempt {
        if transfer.room() == 0 {
            return Attempt::NotDirect(NotDirect::NoBytes, transfer);
        }
        let connecting = async {
            match deadline {
                Some(deadline) => {
                    match self.runtime().timed(|| timeout_at(deadline.at, self.bulk_requests())).await {
                        Ok(connected) => connected,
                        Err(_) => Err(self.late(deadline)),
                    }
                }
                None => self.bulk_requests().await,
            }
        };
        let requests = match connecting.await {
            Ok(Ok(requests)) => requests,
            Ok(Err(reason)) => return Attempt::NotDirect(reason, transfer),
            Err(error) => return Attempt::Failed(error, Some(transfer)),
        };
        let (done, outcome) = oneshot::channel();
        match requests.send(Request { transfer, asking, deadline, done }) {
            Ok(()) => outcome.await.unwrap_or_else(|_| Attempt::Failed(self.lost_error().into(), None)),
            Err(mpsc::error::SendError(request)) => not_sent(self.lost_error(), request.transfer),
        }
    }

    /// The connection's task, or why there is none.
    async fn bulk_requests(&self) -> Result<Result<mpsc::UnboundedSender<Request>, NotDirect>, Error> {
        self.check_open()?;
        let (endpoint, shared) = (&self.connector().endpoint, self.info());
        if matches!(shared.transport, Transport::Tcp | Transport::Unix) {
            return Ok(Err(NotDirect::NotRdma));
        }
        if endpoint.tls().is_some() {
            return Ok(Err(NotDirect::Encrypted));
        }
        let mut state = self.bulk().0.lock().await;
        match &*state {
            Some(State::Open(requests)) if !requests.is_closed() => return Ok(Ok(requests.clone())),
            Some(State::NotOffered(server)) if Arc::ptr_eq(server, &shared) => {
                return Ok(Err(NotDirect::NotOffered));
            }
            _ => {}
        }
        let raw = self.connect_another(Purpose::Bulk).await?;
        // With `fallback=tcp`, RDMA may have failed this time. The next call tries it again.
        if matches!(raw.info.transport, Transport::Tcp | Transport::Unix) {
            return Ok(Err(NotDirect::NotRdma));
        }
        if !raw.socket.may_expose() {
            *state = Some(State::NotOffered(shared));
            return Ok(Err(NotDirect::NotOffered));
        }
        let (requests, received) = mpsc::unbounded_channel();
        self.runtime().spawn(Task::new(raw, self.connector(), received).run());
        *state = Some(State::Open(requests.clone()));
        Ok(Ok(requests))
    }
}
