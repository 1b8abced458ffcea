//! A server whose every byte is scripted.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::support::{PATIENCE, encode};

pub(crate) struct Scripted {
    listener: TcpListener,
    pub(crate) url: String,
}

impl Scripted {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("valkey://{}", listener.local_addr().unwrap());
        Self { listener, url }
    }

    /// The gateway's next connection, which does not log in.
    pub(crate) async fn accept_raw(&self) -> TcpStream {
        timeout(PATIENCE, self.listener.accept()).await.expect("in time").unwrap().0
    }

    /// The gateway's next connection, which checks logins and does not log in itself.
    pub(crate) async fn accept_checker(&self) -> TcpStream {
        let mut stream = self.accept_raw().await;
        expect(&mut stream, &encode(["PING"])).await;
        stream.write_all(b"+PONG\r\n").await.unwrap();
        stream
    }

    /// The gateway's next shared connection, logged in.
    pub(crate) async fn accept(&self) -> TcpStream {
        self.accept_as("valkey-rdma-gateway", 7).await
    }

    /// The gateway's next connection, logged in with this name. The server's number of it is `id`.
    pub(crate) async fn accept_as(&self, name: &str, id: u64) -> TcpStream {
        self.accept_after(&[], name, id).await
    }

    /// Same, after commands that succeed.
    pub(crate) async fn accept_after(&self, commands: &[&[u8]], name: &str, id: u64) -> TcpStream {
        log_in(self.accept_raw().await, commands, name, id).await
    }

    /// The gateway's next connection, if it comes soon.
    pub(crate) async fn accept_soon(&self) -> Option<TcpStream> {
        Some(timeout(SOON, self.listener.accept()).await.ok()?.unwrap().0)
    }
}

/// Answers the login of a new connection.
pub(crate) async fn log_in<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    commands: &[&[u8]],
    name: &str,
    id: u64,
) -> S {
    let begin = commands.concat();
    let last = [encode(["CLIENT", "SETNAME", name]), encode(["PING"]), encode(["CLIENT", "ID"])].concat();
    expect(&mut stream, &[begin, last].concat()).await;
    let replies = format!("{}+OK\r\n+PONG\r\n:{id}\r\n", "+OK\r\n".repeat(commands.len()));
    stream.write_all(replies.as_bytes()).await.unwrap();
    stream
}

const SOON: Duration = Duration::from_millis(20);

/// Exactly these bytes come next.
pub(crate) async fn expect(stream: &mut (impl AsyncRead + Unpin), bytes: &[u8]) {
    let mut received = vec![0; bytes.len()];
    timeout(PATIENCE, stream.read_exact(&mut received)).await.expect("in time").expect("open");
    assert_eq!(received.escape_ascii().to_string(), bytes.escape_ascii().to_string());
}
