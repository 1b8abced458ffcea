//! What a client library under load must offer: [`Library`] and [`Connection`].

use std::future::Future;

use bytes::Bytes;
use valkey_rdma_client::{Endpoint, Transport, Value};
use valkey_rdma_transport::Stats;

use super::dial::{DialError, Target};
use super::link_info::LinkInfo;

/// A client library that can be put under load beside this project's own.
///
/// The load tool builds each command anew, as applications do, paces requests, times and checks each reply, and ends the wait for replies that do not come, in
/// the same way for every library. A library only connects, builds commands, and sends them.
pub trait Library: Send + Sync + 'static {
    /// A connection that tasks share.
    type Connection: Connection;

    /// Its name: the value of `--library`.
    fn name(&self) -> &'static str;

    /// Whether [`connect`](Self::connect) makes TLS connections where the endpoint [asks for them](Endpoint::tls). Default: no. Such an endpoint is then
    /// refused, so that nothing is sent unencrypted.
    fn encrypts(&self) -> bool {
        false
    }

    /// Connects to `server` and logs in, over TCP.
    ///
    /// Calls have a time limit, as those of applications have: [`CALL_LIMIT`](crate::CALL_LIMIT). It never ends one, because `--reply-timeout` does.
    /// Only calls that block need a shorter limit.
    ///
    /// Called in the runtime that drives the connection.
    ///
    /// # Errors
    /// What failed, in words.
    fn connect(&self, server: &Endpoint) -> impl Future<Output = Result<Self::Connection, String>> + Send;
}

/// A connection of a [`Library`]. Clones are handles of the same connection: each task has one.
pub trait Connection: Clone + Send + Sync + 'static {
    /// A command as the library sends it.
    type Command: Send + 'static;

    /// Whether calls block the thread. Each task then has a thread of its own, and the library ends calls without a reply.
    const BLOCKS: bool = false;

    /// A command without arguments.
    fn command(name: &[u8]) -> Self::Command;

    /// Adds an argument.
    fn push(command: &mut Self::Command, argument: &[u8]);

    /// Adds an argument of 8 KiB or more, which the library need not copy.
    fn push_shared(command: &mut Self::Command, argument: Bytes) {
        Self::push(command, &argument);
    }

    /// Sends a command and waits for its reply. An error reply is a value: [`Value::Error`].
    ///
    /// # Errors
    /// There will be no reply.
    ///
    /// # Cancel safety
    /// Dropping the future gives up the reply, and must not shift the replies to other calls.
    fn call(&mut self, command: Self::Command) -> impl Future<Output = Result<Value, Failure>> + Send;

    /// Sends commands together, and passes their replies to `each` in order, as early as the library allows.
    ///
    /// # Errors
    /// There will be no replies but those that were passed on.
    ///
    /// # Cancel safety
    /// As [`call`](Self::call).
    fn call_all(
        &mut self,
        commands: impl Iterator<Item = Self::Command> + Send,
        each: impl FnMut(Result<Value, Failure>) + Send,
    ) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Whether the connection is lost for good, so that a new one is opened in its place.
    fn is_closed(&self) -> bool;
}

/// Why a call has no reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The library does not send such a command on a shared connection, for this reason.
    Refused(String),
    /// The connection was lost, or the library gave up waiting: what it said.
    Lost(String),
}

/// Where shared connections come from, and what is known of them: this project's client, or any [`Library`].
pub(super) trait Source: Send + Sync + 'static {
    type Connection: Connection;

    fn called(&self) -> &'static str;

    /// Which way values go.
    fn way(&self) -> &'static str {
        "stream"
    }

    /// Why it cannot be used with this server.
    fn refuses(&self, endpoint: &Endpoint) -> Option<String>;

    fn dial(&self, target: &Target) -> impl Future<Output = Result<Self::Connection, DialError>> + Send;

    /// What a connection runs on.
    fn link_info(&self, _: &Self::Connection) -> LinkInfo {
        LinkInfo::default()
    }

    /// The transport's counters of a connection that has them.
    fn stats(&self, _: &Self::Connection) -> Vec<Stats> {
        Vec::new()
    }
}

impl<L: Library> Source for L {
    type Connection = L::Connection;

    fn called(&self) -> &'static str {
        self.name()
    }

    /// Other libraries speak TCP, and not all of them TLS.
    fn refuses(&self, endpoint: &Endpoint) -> Option<String> {
        let (name, transport) = (self.name(), endpoint.transport());
        if transport != Transport::Tcp {
            return Some(format!("{name} speaks TCP, but its server is reached over {transport}"));
        }
        if endpoint.tls().is_some() && !self.encrypts() {
            return Some(format!("{name} is measured without TLS only, and its server's URL asks for TLS"));
        }
        endpoint
            .password_file()
            .is_some()
            .then(|| format!("{name} takes no password_file=: give the password in VALKEY_RDMA_PASSWORD"))
    }

    async fn dial(&self, target: &Target) -> Result<L::Connection, DialError> {
        self.connect(&target.endpoint).await.map_err(|error| DialError::other(target, &error))
    }
}
