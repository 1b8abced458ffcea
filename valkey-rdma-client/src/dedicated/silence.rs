//! Ends calls that block on a frozen server over TCP. Its kernel keeps their connections alive, and a call may block for ever on purpose: so
//! the server is asked on a connection that it does not block, once for all calls that block.

use std::future::{Future, pending};
use std::pin::Pin;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::command::Command;
use crate::error::{Error, LostCause};
use crate::link::{RawConnection, Whereabouts, keepalive_limit};
use crate::question::Answer;
use crate::server::Server;
use crate::stats::Purpose;

/// Asks about the server of one connection.
pub(super) struct ServerCheck {
    client: Server,
    /// `None`: silence is not limited, or the transport notices it.
    limit: Option<Duration>,
    whereabouts: Option<Whereabouts>,
}

impl ServerCheck {
    pub(super) fn new(client: &Server, raw: &RawConnection) -> Self {
        let limit = keepalive_limit(&raw.info, client.config());
        let whereabouts = client.connector().whereabouts(raw);
        Self { client: client.clone(), limit, whereabouts }
    }

    /// Completes when the server has not answered on another connection, or is not the one that these connect to any more. Runs where the
    /// connections belong. Boxed, because it is part of every call's future, and rarely of use.
    pub(super) fn failed(self) -> Pin<Box<dyn Future<Output = LostCause> + Send>> {
        let Some(limit) = self.limit else { return Box::pin(pending()) };
        let runtime = self.client.runtime().clone();
        let work = async move { self.ask_until_it_fails(limit).await };
        Box::pin(async move { runtime.run(work).await.unwrap_or(LostCause::Stopped) })
    }

    async fn ask_until_it_fails(&self, limit: Duration) -> LostCause {
        let mut known = Instant::now();
        loop {
            sleep_until(known + limit / 2).await;
            if self.whereabouts.as_ref().is_some_and(Whereabouts::has_moved) {
                return LostCause::Moved;
            }
            let ask = || ask(self.client.clone(), limit);
            let (asked, answer) = self.client.question().answer(limit / 2, ask).await;
            match answer {
                // From then on, and not from now: so the calls ask together.
                Answer::Present => known = asked,
                Answer::Moved => return LostCause::Moved,
                Answer::Silent => return LostCause::Silent { limit },
            }
        }
    }
}

/// Asks a server whether it answers, on the client's shared connection, or on a new one if that was lost.
pub(super) async fn ask(client: Server, limit: Duration) -> Answer {
    match client.execute(Command::new("PING").timeout(limit)).await {
        Ok(_) | Err(Error::Server(_)) => Answer::Present,
        Err(Error::Lost(lost)) if matches!(lost.cause(), LostCause::Moved) => Answer::Moved,
        Err(Error::TimedOut(_)) => Answer::Silent,
        // The program wants no more connections.
        Err(_) if client.check_open().is_err() => Answer::Present,
        // That the shared connection was lost says nothing of this one. A refusal is an answer.
        Err(_) => match client.connector().connect(Purpose::Dedicated).await.map_err(Error::from) {
            Err(error) if error.server().is_none() => Answer::Silent,
            _ => Answer::Present,
        },
    }
}
