//! [`ConnectionError`]: why a connection ends. A [`Reporter`] counts and logs it.

use std::any::Any;
use std::error::Error;
use std::future::{Future, poll_fn};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use tracing::{Span, debug, error, error_span, warn};
use valkey_rdma_resp::CommandError;
use valkey_rdma_transport::tls::TlsError;

use crate::monitor::{Cause, Monitor, Traffic};
use crate::peer::Peer;

/// Why a connection was ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectionError {
    /// The peer sent too much without reading replies, or one command that is too large.
    #[error(
        "input limit exceeded: {received} bytes queued (limit {limit}), client has not read {unsent} bytes of replies; \
         see Limits::input_limit"
    )]
    InputLimit { received: usize, limit: usize, unsent: usize },
    /// The peer does not read the messages sent to it.
    #[error("push buffer over {limit} bytes: client is not reading; see Limits::push_limit")]
    PushLimit { limit: usize },
    /// The peer broke the command syntax. It got the error as a reply.
    #[error(transparent)]
    Protocol(#[from] CommandError),
    /// The peer speaks HTTP.
    #[error(
        "possible attack: an HTTP request (POST or Host:), perhaps of a web page that wants a browser on the peer's machine to \
         run commands here"
    )]
    HttpRequest,
    /// The handler panicked.
    #[error("the handler panicked in {place}: {message}")]
    Panic { place: String, message: String },
    /// [`Pusher::close`] was called.
    #[error("closed by the server")]
    Closed,
    /// The handler has dropped a direct transfer, and returned.
    #[error("the handler dropped a direct transfer before it was complete")]
    UnfinishedTransfer,
    /// The peer was idle.
    #[error("idle for {limit:?}")]
    Idle { limit: Duration },
    /// The stream failed, usually because the peer is gone.
    #[error(transparent)]
    Stream(#[from] io::Error),
}

/// Counts and logs why a connection ends.
pub(crate) struct Reporter {
    monitor: Monitor,
    span: Span,
}

impl Reporter {
    pub(crate) fn new(peer: &Peer, monitor: Monitor) -> Self {
        Self { monitor, span: warning_span(peer) }
    }

    /// Counts the connection until the value is dropped.
    pub(crate) fn accepted(&self) -> Traffic {
        self.monitor.accepted()
    }

    /// Counts and logs the first error of a connection.
    pub(crate) fn report(&self, error: &ConnectionError) {
        let cause = match error {
            ConnectionError::Stream(error) if is_of_tls(error) => Cause::BrokenTls,
            ConnectionError::Stream(error) if error.kind() == io::ErrorKind::InvalidData => {
                Cause::BrokenTransport
            }
            ConnectionError::Stream(_) | ConnectionError::Closed | ConnectionError::UnfinishedTransfer => {
                debug!(error = error as &dyn Error, "lost");
                return;
            }
            ConnectionError::Protocol(_) => Cause::BrokenCommands,
            ConnectionError::HttpRequest => Cause::HttpRequests,
            ConnectionError::InputLimit { .. } => Cause::TooMuchInput,
            ConnectionError::PushLimit { .. } => Cause::TooManyMessages,
            ConnectionError::Panic { .. } => Cause::Panics,
            ConnectionError::Idle { .. } => Cause::Idle,
        };
        let is_first = self.monitor.refusals().count(cause);
        // Clients that are idle or break RESP or TLS are routine; exceeded limits are not.
        match cause {
            Cause::Panics if is_first => {
                self.span.in_scope(|| error!(%error, %cause, "closed; {LATER}"));
            }
            Cause::Idle | Cause::BrokenCommands | Cause::BrokenTls => debug!(%error, %cause, "closed"),
            _ if is_first => self.span.in_scope(|| warn!(%error, %cause, "closed; {LATER}")),
            _ => debug!(%error, %cause, "closed"),
        }
    }
}

/// Whether the peer broke TLS. One that only vanished, without the end that TLS has, is lost as over any stream.
fn is_of_tls(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::InvalidData && error.get_ref().is_some_and(|inner| inner.is::<TlsError>())
}

/// The span of a warning about a connection. A program that logs warnings only has no other, because an enabled span costs time
/// in every poll of the connection's task.
pub(crate) fn warning_span(peer: &Peer) -> Span {
    error_span!(parent: None, "connection", id = peer.id(), transport = %peer.transport(), peer = %peer.addr())
}

const LATER: &str = "more of this cause are logged at debug level";

/// Waits for `future`. An error is the message of its panic, which the panic hook has reported already. A handler's panic is caught where it
/// ends a connection, so that the earlier replies are sent, and the log says which connection and which command it was.
///
/// It takes a reference, because a future that is moved into another one takes its place twice.
pub(crate) async fn caught<F: Future>(mut future: Pin<&mut F>) -> Result<F::Output, String> {
    poll_fn(|cx| {
        // What a panic leaves half changed belongs to one connection, which ends. What connections share is the handler's own
        // concern: its locks are poisoned.
        match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
            Ok(poll) => poll.map(Ok),
            Err(payload) => Poll::Ready(Err(message(&*payload))),
        }
    })
    .await
}

fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a payload that is not text").to_owned()
}
