//! Ends what a client blocks on, because the client has closed its side or the gateway stops.
//!
//! The server ends the block by `CLIENT UNBLOCK`, and not by the end of the connection: then its reply is an element that it has removed
//! already, which the client receives, or `-UNBLOCKED`.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::Session;
use crate::inbox::Inbox;
use crate::pool::Attached;
use crate::private::Private;
use crate::words::encode;

/// An attempt. Returns whether the server takes such commands of this client.
pub(super) type Attempt = Pin<Box<dyn Future<Output = bool> + Send>>;

impl Session {
    /// Asks the server to end what the private connection blocks on, if it blocks, and again until it does not. Ready when nothing is in
    /// flight, with whether the server has refused.
    pub(super) fn poll_unblock(&mut self, cx: &mut Context<'_>, private: &mut Private) -> Poll<bool> {
        loop {
            let attempt = match &mut self.unblock {
                Some(attempt) => attempt,
                None if !private.blocks_now() => return Poll::Ready(false),
                // The server's number of the connection is not known.
                None if private.upstream.id == 0 => return Poll::Ready(true),
                None => {
                    private.tracker.expect_unblocked();
                    let shared = self.route.pool.shared(&self.identity);
                    self.unblock.insert(Box::pin(attempt(shared, private.upstream.id)))
                }
            };
            let accepted = ready!(attempt.as_mut().poll(cx));
            self.unblock = None;
            if !accepted {
                return Poll::Ready(true);
            }
        }
    }
}

/// With `ERROR`: Valkey's versions before pull request 2117 panic if a client that CLIENT PAUSE holds back is unblocked by a time-out.
async fn attempt(shared: Attached, id: u64) -> bool {
    let inbox = Arc::new(Inbox::of_gateway());
    let command = encode(["CLIENT", "UNBLOCK", &id.to_string(), "ERROR"]);
    shared.submit(&inbox, &command, 1, Instant::now());
    let reply = inbox.whole_reply().await;
    // The blocked connection's reply is on its way. Or the server has not read the command that blocks.
    sleep(AGAIN).await;
    reply.is_some_and(|reply| reply.starts_with(b":"))
}

/// Between two attempts.
const AGAIN: Duration = Duration::from_millis(10);
