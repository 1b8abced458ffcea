//! The client for programs without an async runtime.
//!
//! ```no_run
//! use valkey_rdma_client::blocking::Client;
//!
//! let client = Client::connect("rdma://10.0.0.7")?;
//! client.command(["SET", "greeting", "hello"])?;
//! let greeting: String = client.query(["GET", "greeting"])?;
//! # Ok::<(), valkey_rdma_client::Error>(())
//! ```

use std::fmt;
use std::future::{Future, ready};
use std::sync::Arc;

use futures_util::future::join_all;
use tokio::time::Instant;
use valkey_rdma_resp::{FromValue, Value};
use valkey_rdma_transport::blocking::Reactor;

use crate::command::IntoCommand;
use crate::config::Config;
use crate::endpoint::Endpoint;
use crate::error::{ConnectCause, ConnectError, Error};
use crate::into_endpoint::IntoEndpoint;
use crate::server::Server;

/// The async [`Client`](crate::Client) with calls that wait for their replies. Clone it into as many threads as you
/// like: they share a connection, and commands that wait at the same time are sent together.
///
/// A thread that calls alone reads its reply from the connection itself. While several threads call, and while none does, a background
/// thread reads for all of them. It also does once [`client`](Self::client) or [`wait`](Self::wait) was called: the program may then use
/// the async client elsewhere. It leaves signals to the program's threads.
///
/// A client belongs to the process that connected it. In a child that was forked from that, its calls fail with [`ConnectCause::Forked`],
/// and dropping it does nothing. Only process ids are compared, because each call does this: a descendant that got the id of the process
/// that connected, which is dead, must not use the client.
///
/// # End
/// Dropping the last clone ends the connections, and does not wait for that. [`close`](Self::close) waits first for replies to commands already
/// sent. Over RDMA, the background thread reads outstanding replies before the disconnect, as those of the
/// [async client](crate::Client#end) are read. The end of the process cuts that short.
#[derive(Clone)]
pub struct Client {
    client: crate::Client,
    reactor: Reactor,
}

impl Client {
    /// As [`Client::connect`](crate::Client::connect).
    ///
    /// # Errors
    /// Same errors as [`Client::connect`](crate::Client::connect).
    ///
    /// # Panics
    /// Inside an async runtime, as [`wait`](Self::wait).
    pub fn connect(endpoint: impl IntoEndpoint) -> Result<Self, Error> {
        Self::connect_with(endpoint, &Config::default())
    }

    /// As [`Client::connect_with`](crate::Client::connect_with).
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub fn connect_with(endpoint: impl IntoEndpoint, config: &Config) -> Result<Self, Error> {
        let endpoint = endpoint.into_endpoint()?;
        let reactor = Reactor::new("valkey-client", || {})
            .map_err(|error| failure(&endpoint, ConnectCause::Io(Arc::new(error))))?;
        let client = reactor.call(crate::Client::connect_with(endpoint, config))?;
        Ok(Self::new(client, reactor))
    }

    fn new(client: crate::Client, reactor: Reactor) -> Self {
        // The reactor keeps the client until then: in a forked child for ever, so that no connection of its parent ends there.
        reactor.at_end(part(client.clone()));
        Self { client, reactor }
    }

    /// Sends a command and returns its reply, as [`Client::command`](crate::Client::command) does.
    ///
    /// # Errors
    /// Same errors as [`Client::command`](crate::Client::command), and [`ConnectCause::Forked`] in a forked child.
    pub fn command(&self, command: impl IntoCommand) -> Result<Value, Error> {
        self.call(self.client.command(command))
    }

    /// Sends a command and converts its reply, as [`Client::query`](crate::Client::query) does.
    ///
    /// # Errors
    /// Same errors as [`Client::query`](crate::Client::query), and [`ConnectCause::Forked`] in a forked child.
    pub fn query<T: FromValue>(&self, command: impl IntoCommand) -> Result<T, Error> {
        let command = command.into_command();
        let name = command.kept_name();
        Ok(name.convert(self.command(command)?)?)
    }

    /// Sends commands together and returns all replies, as [`Pipeline::send`](crate::Pipeline::send) does.
    ///
    /// # Errors
    /// Same errors as [`Pipeline::send`](crate::Pipeline::send), and [`ConnectCause::Forked`] in a forked child.
    pub fn pipeline(
        &self,
        commands: impl IntoIterator<Item = impl IntoCommand>,
    ) -> Result<Vec<Result<Value, Error>>, Error> {
        let mut pipeline = self.client.pipeline();
        for command in commands {
            pipeline.push(command);
        }
        self.call(pipeline.send())
    }

    /// Reads a value into the caller's memory, as [`Client::get_into`](crate::Client::get_into) does.
    ///
    /// # Errors
    /// Same errors as [`Client::get_into`](crate::Client::get_into), and [`ConnectCause::Forked`] in a forked child.
    pub fn get_into(&self, key: impl AsRef<[u8]>, buffer: &mut [u8]) -> Result<Option<usize>, Error> {
        self.call(self.client.get_into(key, buffer))
    }

    /// # Errors
    /// The future's, and [`ConnectCause::Forked`] in a child of the process that connected.
    fn call<T>(&self, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        match self.reactor.owner_elsewhere() {
            None => self.reactor.call(work),
            Some(owner) => Err(failure(self.client.endpoint(), ConnectCause::Forked { owner }).into()),
        }
    }

    /// Waits for anything that the async client does: transactions, scripts, subscriptions. From then on, a background thread reads all
    /// replies.
    ///
    /// ```no_run
    /// # fn example(client: valkey_rdma_client::blocking::Client) -> Result<(), valkey_rdma_client::Error> {
    /// let job = client.wait(client.client().blocking_command(["BLPOP", "jobs", "0"]))?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The future's own.
    ///
    /// # Panics
    /// Inside an async runtime, as every method of this client that waits: it would stall the runtime. Use the async client
    /// there, or `spawn_blocking`. `tokio::task::block_in_place` panics in the future, because the runtime has one thread.
    pub fn wait<T>(&self, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        // As the other methods, it panics inside an async runtime.
        self.call(ready(Ok(())))?;
        self.reactor.keep_in_background();
        self.reactor.wait(work)
    }

    /// The async client below. From then on, a background thread reads all replies.
    #[must_use]
    pub fn client(&self) -> &crate::Client {
        self.reactor.keep_in_background();
        &self.client
    }

    /// As [`Client::close`](crate::Client::close).
    ///
    /// # Panics
    /// Inside an async runtime, as [`wait`](Self::wait).
    pub fn close(&self) {
        // A child of the process that connected has nothing to close.
        let _ = self.call(async {
            self.client.close().await;
            Ok(())
        });
    }
}

/// Ends the connections, and waits until the replies are read that servers still send.
async fn part(client: crate::Client) {
    let servers = client.servers();
    // A cluster would connect to its nodes anew.
    drop(client);
    join_all(servers.iter().map(part_from)).await;
}

async fn part_from(server: &Server) {
    server.begin_to_close(Some(Instant::now())).await;
    server.connector().registry.drained().await;
}

fn failure(endpoint: &Endpoint, cause: ConnectCause) -> ConnectError {
    let (peer, tls) = (endpoint.authority().into(), endpoint.tls().is_some());
    ConnectError { peer, transport: Some(endpoint.transport()), tls, cause }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.client.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use std::mem;

    use futures_util::FutureExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::link::tests::{Peer, pair};

    /// A client with an idle connection beside the shared one, and the server's ends of both.
    fn connected() -> (Client, Peer, Peer) {
        let reactor = Reactor::new("test", || {}).expect("starts");
        let (client, shared, own) = reactor.call(async {
            let (client, door, shared) = pair(&Config::default()).await;
            let mut own = door.admit();
            let serve = async {
                own.greet().await;
                own.expect("*3\r\n$5\r\nBLPOP\r\n$1\r\nl\r\n$1\r\n0\r\n").await;
                own.say(b"_\r\n").await;
            };
            let (popped, ()) = tokio::join!(client.blocking_command(["BLPOP", "l", "0"]), serve);
            assert!(popped.expect("a reply").is_nil());
            (client, shared, own)
        });
        (Client::new(client, reactor), shared, own)
    }

    #[test]
    fn a_forked_child_that_drops_its_copy_ends_no_connection_of_its_parent() {
        let (client, _shared, mut own) = connected();
        // In a child, what the reactor holds is never dropped.
        mem::forget(client.reactor.clone());
        drop(client.clone());
        drop(client);
        assert!(own.0.read(&mut [0; 1]).now_or_never().is_none(), "the idle connection is open");
    }

    /// Valkey 8.1.1 does not survive a disconnect in the middle of a reply over RDMA.
    #[test]
    fn a_reply_is_read_to_its_end_after_the_last_clone_was_dropped() {
        let (client, mut shared, _own) = connected();
        let asks = client.client().clone();
        let ask = async {
            let _task = tokio::spawn(async move { asks.command(["GET", "k"]).await });
            Ok(())
        };
        client.wait(ask).expect("it has begun");
        let server = Reactor::new("server", || {}).expect("starts");
        server.call(shared.expect("*2\r\n$3\r\nGET\r\n$1\r\nk\r\n"));
        drop(client);
        // Many times what fits between client and server.
        let value = "v".repeat(1 << 20);
        server.call(async {
            let reply = format!("${}\r\n{value}\r\n", value.len());
            shared.0.write_all(reply.as_bytes()).await.expect("every byte is taken");
            assert_eq!(shared.0.read(&mut [0; 1]).await.expect("the disconnect"), 0);
        });
    }
}
