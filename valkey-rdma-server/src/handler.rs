//! [`Handler`]: the trait that a user of the library implements, and [`handler_fn`], which makes one of a function.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use valkey_rdma_resp::{Command, Reply};

use crate::basics;
use crate::peer::Peer;

/// Answers commands. One handler serves all connections; the state of one connection is its `Session`. For one function without
/// state, use [`handler_fn`](crate::handler_fn).
///
/// ```
/// use valkey_rdma_server::{Command, Handler, Peer, Reply};
///
/// /// Counts the commands of each connection.
/// struct Counting;
///
/// impl Handler for Counting {
///     type Session = i64;
///
///     fn session(&self, _peer: &Peer) -> i64 {
///         0
///     }
///
///     async fn call(&self, peer: &mut Peer, seen: &mut i64, command: Command) -> Result<Reply, Reply> {
///         *seen += 1;
///         if command.is("SKIP") {
///             *seen += command.int(0)?; // an error reply if there is no argument, or no integer
///         }
///         if command.is("BYE") {
///             peer.close_after_reply();
///         }
///         Ok(Reply::from(*seen))
///     }
/// }
/// ```
pub trait Handler: Send + Sync + 'static {
    /// State of one connection, dropped when the connection ends.
    type Session: Send + 'static;

    /// Creates the state of a new connection. Called once per connection, before its first command.
    ///
    /// A panic here ends this connection only.
    fn session(&self, peer: &Peer) -> Self::Session;

    /// Runs one command and returns its reply. `Err` is a reply too, so that `?` works: an own error type needs
    /// `impl From<MyError> for Reply`. [`Command`] has checks of arguments whose errors are Valkey's. A command named `POST` or `Host:`
    /// does not get here: the server closes the connection, because an HTTP request begins with these words.
    ///
    /// Commands of one connection run one after the other, in the order sent; those of different connections run
    /// concurrently. While the future is pending, the server sends the replies before it and receives the commands after
    /// it, within [`Limits::input_limit`](crate::Limits::input_limit). It does neither while the handler computes without
    /// awaiting; an RDMA peer that keeps sending then soon finds no posted receives. A handler that blocks its thread also
    /// stalls the timers and the other connections of that thread, and accepting, unless
    /// [`Builder::threads`](crate::Builder::threads) serves the connections. Run long computations in
    /// `tokio::task::spawn_blocking`.
    ///
    /// Every command has exactly one reply. Clients match replies to commands by their order: after an empty
    /// [`Reply::Sequence`], or one of two replies, the client takes each later reply for that of another command.
    ///
    /// A command that waits should also wait for [`Peer::stopping`].
    ///
    /// **Cancel safety**: the server drops the future if the connection breaks or the peer closes it, and at shutdown after
    /// [`Limits::drain_timeout`](crate::Limits::drain_timeout). Like Valkey, it takes a TCP client that closes its sending
    /// side for one that is gone.
    ///
    /// A panic ends this connection only. The replies before it are sent, and it is logged with the command's name and counted
    /// ([`Refused::panics`](crate::Refused::panics)).
    fn call(
        &self,
        peer: &mut Peer,
        session: &mut Self::Session,
        command: Command,
    ) -> impl Future<Output = Result<Reply, Reply>> + Send;

    /// Answers the commands that clients send about the connection itself, such as a login, before [`call`](Self::call) sees a command.
    /// `None` leaves the command to `call`.
    ///
    /// Default: [`answer_basic`](crate::answer_basic), which answers `HELLO`, `AUTH`, `PING`, `ECHO`, `QUIT`, `RESET`, `SELECT`,
    /// `COMMAND` and, of `CLIENT`, `ID`, `SETNAME`, `GETNAME` and `SETINFO`. Return `None` to turn all of that off, or match
    /// first what the handler answers itself:
    ///
    /// ```
    /// # use valkey_rdma_server::{Command, Handler, Peer, Reply, answer_basic};
    /// # struct Databases;
    /// # impl Handler for Databases {
    /// #     type Session = ();
    /// #     fn session(&self, _: &Peer) {}
    /// #     async fn call(&self, _: &mut Peer, _: &mut (), _: Command) -> Result<Reply, Reply> { Ok(Reply::OK) }
    /// fn basics(&self, peer: &mut Peer, _session: &mut (), command: &Command) -> Option<Reply> {
    ///     if command.is("SELECT") { None } else { answer_basic(peer, command) }
    /// }
    /// # }
    /// ```
    fn basics(&self, peer: &mut Peer, session: &mut Self::Session, command: &Command) -> Option<Reply> {
        let _ = session;
        basics::answer_basic(peer, command)
    }

    /// Forgets what this client has begun, such as a transaction or subscriptions. Called when the [basics](Self::basics) have
    /// answered its `RESET` without an error. Default: the session stays unchanged.
    ///
    /// A connection pool sends `RESET` before it lends a connection to somebody else, so a handler whose session has state
    /// that one user must not leave to the next needs this.
    fn reset(&self, peer: &mut Peer, session: &mut Self::Session) {
        let _ = (peer, session);
    }

    /// Whether the peer may use the memory that [`Limits`](crate::Limits) allow. Called before each command. Default: yes.
    ///
    /// A handler with its own login returns `false` until the peer has logged in. Until then, Valkey's limits for clients that
    /// have not logged in apply: 10 words in a command, 16 KiB in a word, 1 MiB of waiting commands. A connection that
    /// exceeds them is closed. ([`Builder::password`](crate::Builder::password) applies the same limits without this method.)
    fn trusts(&self, _session: &Self::Session) -> bool {
        true
    }
}

/// Lets the caller keep a reference to the handler while the server runs.
impl<H: Handler> Handler for Arc<H> {
    type Session = H::Session;

    fn session(&self, peer: &Peer) -> Self::Session {
        H::session(self, peer)
    }

    fn call(
        &self,
        peer: &mut Peer,
        session: &mut Self::Session,
        command: Command,
    ) -> impl Future<Output = Result<Reply, Reply>> + Send {
        H::call(self, peer, session, command)
    }

    fn basics(&self, peer: &mut Peer, session: &mut Self::Session, command: &Command) -> Option<Reply> {
        H::basics(self, peer, session, command)
    }

    fn reset(&self, peer: &mut Peer, session: &mut Self::Session) {
        H::reset(self, peer, session);
    }

    fn trusts(&self, session: &Self::Session) -> bool {
        H::trusts(self, session)
    }
}

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
