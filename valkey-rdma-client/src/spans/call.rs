//! [`Call`]: the span of a call. [`connect`]: that of an attempt to connect.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use tracing::field::Empty;
use tracing::{Level, Span, debug_span, span_enabled};
use valkey_rdma_resp::Value;

use super::failure::Failure;
use super::{Batch, TARGET};
use crate::command::{Command, CommandName, EncodedPipeline};
use crate::endpoint::{Endpoint, Transport};
use crate::error::{ConnectCause, Error};
use crate::stats::{ConnectionInfo, Purpose};

thread_local! {
    /// What the call that this thread polls has used.
    static USED: RefCell<Used> = const { RefCell::new(Used::Unwatched) };
}

/// The connection that the call used last, in this poll: in the last one, it is the connection that the reply came on.
enum Used {
    /// Nothing with a span is polled.
    Unwatched,
    Nothing,
    Connection(Arc<ConnectionInfo>),
}

/// The connection of a call has done its part, or has failed.
#[inline]
pub(crate) fn used(connection: impl FnOnce() -> Arc<ConnectionInfo>) {
    USED.with_borrow_mut(|used| {
        if !matches!(used, Used::Unwatched) {
            *used = Used::Connection(connection());
        }
    });
}

/// The span of a call. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Call {
    span: Span,
    has_failed: AtomicBool,
}

/// No span.
impl Default for Call {
    fn default() -> Self {
        Span::none().into()
    }
}

impl From<Span> for Call {
    fn from(span: Span) -> Self {
        Self { span, has_failed: AtomicBool::new(false) }
    }
}

impl Call {
    /// One command.
    #[inline]
    pub(crate) fn command(endpoint: &Endpoint, command: &Command) -> Self {
        Self::open(endpoint, None, || command.kept_name().to_string())
    }

    /// A pipeline to one server.
    pub(crate) fn pipeline(endpoint: &Endpoint, commands: &mut EncodedPipeline) -> Self {
        let count = commands.count();
        Self::open(endpoint, Some(count), || operation(Batch::Pipeline, count, commands.names()))
    }

    /// Commands that go together.
    pub(crate) fn batch(endpoint: &Endpoint, batch: Batch, commands: &[Command]) -> Self {
        let names = || operation(batch, commands.len(), commands.iter().map(Command::kept_name));
        Self::open(endpoint, Some(commands.len()), names)
    }

    /// A command of this name, several times.
    pub(crate) fn times(endpoint: &Endpoint, name: &str, count: usize) -> Self {
        let names = || std::iter::repeat_n(CommandName::new(name.as_bytes()), count);
        Self::open(endpoint, Some(count), || operation(Batch::Pipeline, count, names()))
    }

    /// Opens the span, if something is interested in it. The conventions' name for a batch of one is that of its command.
    fn open(endpoint: &Endpoint, count: Option<usize>, operation: impl FnOnce() -> String) -> Self {
        if !span_enabled!(target: TARGET, Level::DEBUG) {
            return Self::default();
        }
        let operation = operation();
        let (address, port) = server(endpoint);
        debug_span!(
            target: TARGET,
            "call",
            otel.name = operation,
            otel.kind = "client",
            otel.status_code = Empty,
            db.system.name = SYSTEM,
            db.operation.name = operation,
            db.namespace = %endpoint.database(),
            db.operation.batch.size = count.filter(|count| *count != 1).map(number),
            server.address = address,
            server.port = port,
            network.transport = Empty,
            network.peer.address = Empty,
            network.peer.port = Empty,
            db.response.status_code = Empty,
            error.type = Empty,
            valkey.transfer = Empty,
        )
        .into()
    }

    /// Does the first part of the call, whose end is the end of the call only if it fails.
    pub(crate) async fn begin<T>(&self, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let (outcome, used) = self.poll_within(work).await;
        if let Err(error) = &outcome {
            self.ended(used, Some(error.into()));
        }
        outcome
    }

    /// Does the call.
    pub(crate) async fn run<T>(&self, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let (outcome, used) = self.poll_within(work).await;
        self.ended(used, outcome.as_ref().err().map(Failure::from));
        outcome
    }

    /// As [`run`](Self::run), for commands that go together. It has failed if one of them has.
    pub(crate) async fn run_all<E>(
        &self,
        work: impl Future<Output = Result<Vec<Result<Value, E>>, Error>>,
    ) -> Result<Vec<Result<Value, E>>, Error>
    where
        for<'e> Failure<'e>: From<&'e E>,
    {
        let outcome = self.run(work).await;
        if let Ok(replies) = &outcome
            && !self.span.is_disabled()
            && let Some(error) = replies.iter().find_map(|reply| reply.as_ref().err())
        {
            self.failed(error);
        }
        outcome
    }

    /// A part of the call has failed. The first failure stands.
    pub(crate) fn failed<'e, E>(&self, error: &'e E)
    where
        Failure<'e>: From<&'e E>,
    {
        if self.span.is_disabled() || self.has_failed.swap(true, Ordering::Relaxed) {
            return;
        }
        record_failure(&self.span, error.into());
    }

    /// Which way the bytes of a direct call went.
    pub(crate) fn moved(&self, way: &str) {
        self.span.record("valkey.transfer", way);
    }

    /// Polls work within the span. Returns the connection that it used last too.
    async fn poll_within<T>(&self, work: impl Future<Output = T>) -> (T, Option<Arc<ConnectionInfo>>) {
        let mut work = pin!(work);
        poll_fn(|cx| {
            if self.span.is_disabled() {
                return work.as_mut().poll(cx).map(|outcome| (outcome, None));
            }
            let _entered = self.span.enter();
            let around = USED.replace(Used::Nothing);
            let polled = work.as_mut().poll(cx);
            match (polled, USED.replace(around)) {
                (Poll::Ready(outcome), Used::Connection(info)) => Poll::Ready((outcome, Some(info))),
                (polled, _) => polled.map(|outcome| (outcome, None)),
            }
        })
        .await
    }

    fn ended(&self, used: Option<Arc<ConnectionInfo>>, failure: Option<Failure<'_>>) {
        if let Some(info) = used {
            record_connection(&self.span, &info);
        }
        if let Some(failure) = failure
            && !self.span.is_disabled()
            && !self.has_failed.swap(true, Ordering::Relaxed)
        {
            record_failure(&self.span, failure);
        }
    }
}

/// Attempts to connect to the address of an endpoint, in a span of its own. Without a purpose, nothing logs in.
pub(crate) async fn connect<T>(
    endpoint: &Endpoint,
    purpose: Option<Purpose>,
    work: impl Future<Output = Result<T, ConnectCause>>,
) -> Result<T, ConnectCause> {
    let (address, port) = server(endpoint);
    let call = Call::from(debug_span!(
        target: TARGET,
        "connect",
        otel.name = "connect",
        otel.kind = "client",
        otel.status_code = Empty,
        db.system.name = SYSTEM,
        db.namespace = %endpoint.database(),
        server.address = address,
        server.port = port,
        network.transport = Empty,
        network.peer.address = Empty,
        network.peer.port = Empty,
        db.response.status_code = Empty,
        error.type = Empty,
        valkey.connection.purpose = purpose.map(tracing::field::display),
    ));
    let (outcome, used) = call.poll_within(work).await;
    call.ended(used, outcome.as_ref().err().map(Failure::from));
    outcome
}

/// The conventions have no name for Valkey, so it is the product's, in small letters.
const SYSTEM: &str = "valkey";

/// `server.address` and `server.port`: what the program has configured. Of a cluster, the first node; of Sentinels, the name of the service;
/// of a Unix socket, its path.
fn server(endpoint: &Endpoint) -> (&str, Option<i64>) {
    let has_port = endpoint.transport() != Transport::Unix && endpoint.sentinels().is_none();
    (endpoint.host(), has_port.then(|| endpoint.port().into()))
}

/// A number that `tracing-opentelemetry` exports as one: of unsigned numbers it makes text.
fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// The name of commands that go together: with that of their command, if all have the same.
fn operation(batch: Batch, count: usize, mut names: impl Iterator<Item = CommandName>) -> String {
    let first = names.next().filter(|first| names.all(|name| name == *first));
    match (batch, first) {
        (Batch::Pipeline, Some(name)) if count == 1 => name.to_string(),
        (Batch::Pipeline, Some(name)) => format!("PIPELINE {name}"),
        (Batch::Pipeline, None) => "PIPELINE".to_owned(),
        (Batch::Transaction, Some(name)) => format!("MULTI {name}"),
        (Batch::Transaction, None) => "MULTI".to_owned(),
    }
}

fn record_connection(span: &Span, info: &ConnectionInfo) {
    span.record("network.transport", tracing::field::display(info.transport));
    if let Some(peer) = info.peer {
        span.record("network.peer.address", tracing::field::display(peer.ip()));
        span.record("network.peer.port", i64::from(peer.port()));
    }
}

fn record_failure(span: &Span, failure: Failure<'_>) {
    span.record("otel.status_code", "ERROR");
    span.record("error.type", failure.kind);
    if let Some(code) = failure.code {
        span.record("db.response.status_code", code);
    }
}
