//! Servers that still read their data: they accept connections, and answer commands with LOADING.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout_at;
use valkey_rdma_resp::ServerErrorKind;

use super::connect::{ConnectDeadline, Connector};
use super::login_reply::Returns;
use super::raw::RawConnection;
use crate::command::Command;
use crate::error::{ConnectCause, ConnectError, LostCause};
use crate::stats::Purpose;

/// The longest wait before such a server is asked again, which costs little.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_millis(500);

impl Connector {
    /// Connects, and asks with PING whether the server has its data. If it has not, that is the failure, and the connection is
    /// left in `loading`: the next call asks on it again. Only a server with its data counts as [reached](Connector::reached).
    ///
    /// Any other error will do, NOPERM too.
    pub(crate) async fn connect_loaded(
        &self,
        purpose: Purpose,
        loading: &mut Option<RawConnection>,
    ) -> Result<RawConnection, ConnectError> {
        let mut raw = match loading.take() {
            Some(raw) => raw,
            None => self.connect_quietly(purpose).await?,
        };
        let deadline = ConnectDeadline::of(&self.endpoint);
        let replies = match timeout_at(deadline.at, raw.exchange(&[Command::new("PING")])).await {
            Ok(Ok(replies)) => replies,
            Ok(Err(cause)) => return Err(self.failure(ConnectCause::Lost(Arc::new(cause)))),
            Err(_) => return Err(self.failure(deadline.passed(true))),
        };
        let reply = replies.into_iter().next();
        if let Some(Err(other)) = reply.as_ref().map(|reply| Returns::Pong.check(reply)) {
            let cause = LostCause::OutOfStep(other.in_reply_to("PING"));
            return Err(self.failure(ConnectCause::Lost(Arc::new(cause))));
        }
        match reply {
            Some(Err(error)) if error.kind() == ServerErrorKind::Loading => {
                // Another server may become the primary meanwhile.
                if self.locator().is_none() {
                    *loading = Some(raw);
                }
                Err(self.failure(ConnectCause::Rejected(error)))
            }
            _ => {
                self.reached.send_replace(());
                Ok(raw)
            }
        }
    }
}
