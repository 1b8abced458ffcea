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
use crate::command::words::encode;
use crate::session::inbox::Inbox;
use crate::upstream::backend::Attached;
use crate::upstream::private::Private;

/// An attempt.
pub(super) type Attempt = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// What the server says to it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    Unblocked,
    /// It finds no block that it can end.
    NotBlocked,
    /// It takes no such commands of this client.
    Refused,
}

impl Session {
    /// Asks the server to end what the private connection blocks on, if it blocks, and again until it does not. Ready when nothing is in
    /// flight, with whether the server does not end it.
    pub(super) fn poll_unblock(&mut self, cx: &mut Context<'_>, private: &mut Private) -> Poll<bool> {
        loop {
            let server = &self.route.backend.server;
            let attempt = match &mut self.unblock {
                Some(attempt) => attempt,
                None if !private.blocks_now() => return Poll::Ready(false),
                // The server's number of the connection is not known, or the shared connection leads to another server.
                None if private.upstream.id == 0 || !server.is_current(&private.upstream) => {
                    return Poll::Ready(true);
                }
                None => {
                    private.tracker.expect_unblocked();
                    let shared = self.route.backend.shared(&self.identity);
                    self.unblock.insert(Box::pin(attempt(shared, private.upstream.id)))
                }
            };
            let answer = ready!(attempt.as_mut().poll(cx));
            self.unblock = None;
            self.in_vain = if answer == Answer::NotBlocked { self.in_vain + 1 } else { 0 };
            if answer == Answer::Refused || self.in_vain >= MOST_IN_VAIN {
                return Poll::Ready(true);
            }
        }
    }
}

/// With `ERROR`: Valkey's versions before pull request 2117 panic if a client that CLIENT PAUSE holds back is unblocked by a time-out.
async fn attempt(shared: Attached, id: u64) -> Answer {
    let inbox = Arc::new(Inbox::of_gateway());
    let command = encode(["CLIENT", "UNBLOCK", &id.to_string(), "ERROR"]);
    shared.submit(&inbox, &command, 1, Instant::now());
    let reply = inbox.whole_reply().await;
    // The blocked connection's reply is on its way. Or the server has not read the command that blocks.
    sleep(AGAIN).await;
    match reply.as_deref() {
        Some(b":1\r\n") => Answer::Unblocked,
        Some(b":0\r\n") => Answer::NotBlocked,
        _ => Answer::Refused,
    }
}

/// Between two attempts.
const AGAIN: Duration = Duration::from_millis(10);
/// The server does not end the block of a command of a module, nor that of CLIENT PAUSE. Its connection is closed then.
const MOST_IN_VAIN: u32 = 100;
