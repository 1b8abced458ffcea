//! [`handler_fn`]: a handler that is one function.

use std::fmt;
use std::future::Future;

use valkey_rdma_resp::{Command, Reply};

use crate::handler::Handler;
use crate::peer::Peer;

/// Makes a [`Handler`] of a function from a command to its reply, for servers without state of a single connection.
///
/// ```
/// use std::sync::atomic::{AtomicI64, Ordering};
/// use valkey_rdma_server::{Reply, Server, handler_fn};
///
/// static TOTAL: AtomicI64 = AtomicI64::new(0);
///
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let handler = handler_fn(|command| async move {
///     if command.is("ADD") {
///         let number = command.int(0)?;
///         return Ok(Reply::from(TOTAL.fetch_add(number, Ordering::Relaxed) + number));
///     }
///     Err(command.unknown())
/// });
/// let server = Server::builder(handler).listen("valkey://127.0.0.1:0").start().await?;
/// # server.shutdown().await;
/// # Ok::<_, valkey_rdma_server::BindError>(())
/// # }).unwrap();
/// ```
pub fn handler_fn<F, A>(call: F) -> HandlerFn<F>
where
    F: Fn(Command) -> A + Send + Sync + 'static,
    A: Future<Output = Result<Reply, Reply>> + Send,
{
    HandlerFn(call)
}

/// The handler that [`handler_fn`] makes.
#[derive(Clone)]
pub struct HandlerFn<F>(F);

impl<F> fmt::Debug for HandlerFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandlerFn").finish_non_exhaustive()
    }
}

impl<F, A> Handler for HandlerFn<F>
where
    F: Fn(Command) -> A + Send + Sync + 'static,
    A: Future<Output = Result<Reply, Reply>> + Send,
{
    type Session = ();

    fn session(&self, _peer: &Peer) {}

    fn call(
        &self,
        _peer: &mut Peer,
        _session: &mut (),
        command: Command,
    ) -> impl Future<Output = Result<Reply, Reply>> + Send {
        (self.0)(command)
    }
}
