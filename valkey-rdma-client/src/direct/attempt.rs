//! One call at one server: on its bulk connection, which is made when the first call needs it.

use super::opening::Opening;
use crate::bulk::{Attempt, Caller, NotDirect, Placed, Request, Transfer};
use crate::endpoint::Transport;
use crate::error::Error;
use crate::link::Deadline;
use crate::server::Server;
use crate::spans;
use crate::stats::Purpose;

impl Server {
    /// Carries a transfer out, directly or over the stream.
    pub(crate) async fn transfer(&self, transfer: Transfer) -> Result<Placed, Error> {
        let deadline = self.config().command_timeout.and_then(Deadline::after);
        let attempt = match self.attempt_once(transfer, false, deadline).await {
            // The server has closed the connection just before, or another is the primary.
            Attempt::Failed(Error::Lost(_), Some(transfer)) => {
                self.attempt_once(transfer, false, deadline).await
            }
            attempt => attempt,
        };
        match attempt {
            Attempt::Done(placed) => Ok(placed),
            Attempt::Failed(error, _) => Err(error),
            Attempt::NotDirect(reason, transfer) => {
                let checkout = self.checkout(Purpose::Dedicated);
                transfer.over_stream(self, checkout, deadline, reason).await.map_err(|(error, _)| error)
            }
        }
    }

    /// Carries a transfer out directly, behind ASKING if that must precede its command.
    pub(crate) async fn attempt_once(
        &self,
        transfer: Transfer,
        asking: bool,
        deadline: Option<Deadline>,
    ) -> Attempt {
        if let Err(error) = self.check_open() {
            return Attempt::Failed(error, Some(transfer));
        }
        if let Some(reason) = self.never_direct(&transfer) {
            return Attempt::NotDirect(reason, transfer);
        }
        let (caller, outcome) = Caller::new(self.peer());
        let request = Request { transfer, asking, deadline, caller };
        if let Some((first, orders)) = self.bulk().begin(request, &self.info()) {
            self.runtime().spawn(Opening::new(self.clone(), orders, first).run());
        }
        let attempt = outcome.await;
        spans::used(|| self.info());
        attempt.unwrap_or_else(|_| Attempt::Failed(self.lost_error().into(), None))
    }

    /// Why no connection is asked for this.
    fn never_direct(&self, transfer: &Transfer) -> Option<NotDirect> {
        if transfer.room() == 0 {
            Some(NotDirect::NoBytes)
        } else if matches!(self.info().transport, Transport::Tcp | Transport::Unix) {
            Some(NotDirect::NotRdma)
        } else if self.connector().endpoint.tls().is_some() {
            Some(NotDirect::Encrypted)
        } else {
            None
        }
    }
}
