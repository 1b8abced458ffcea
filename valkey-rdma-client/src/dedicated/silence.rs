//! Ends calls that block on a frozen server over TCP. Its kernel keeps their connections alive, and a call may block for ever on purpose: so
//! the server is asked on a connection that it does not block.

use std::time::Duration;

use tokio::time::sleep;

use crate::client::Client;
use crate::connection::{RawConnection, Whereabouts, silence_limit_over_tcp};
use crate::error::{Error, LostCause};
use crate::resp::Command;

/// Asks about the server of one connection.
pub(super) struct SilenceCheck {
    client: Client,
    /// `None`: silence is not limited, or the transport notices it.
    limit: Option<Duration>,
    whereabouts: Option<Whereabouts>,
}

impl SilenceCheck {
    pub(super) fn new(client: &Client, raw: &RawConnection) -> Self {
        let limit = silence_limit_over_tcp(&raw.info, client.config());
        let whereabouts = client.connector().whereabouts(raw);
        Self { client: client.clone(), limit, whereabouts }
    }

    /// Completes when the server has not answered PING on a shared connection, or is not the one that these connect to any more.
    pub(super) async fn failed(self) -> LostCause {
        let Some(limit) = self.limit else { return std::future::pending().await };
        loop {
            sleep(limit / 2).await;
            if self.whereabouts.as_ref().is_some_and(Whereabouts::has_moved) {
                return LostCause::Moved;
            }
            match self.client.execute(Command::new("PING").timeout(limit)).await {
                Ok(_) | Err(Error::Server(_)) => {}
                // Nothing can be asked any more.
                Err(Error::Lost(lost)) if matches!(lost.cause(), LostCause::Moved) => {
                    return LostCause::Moved;
                }
                Err(_) if self.client.is_closed() => return std::future::pending().await,
                Err(_) => return LostCause::Silent { limit },
            }
        }
    }
}
