use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, DuplexStream, ReadBuf, duplex};
use tokio::time::timeout;
use valkey_rdma_resp::{Protocol, Value};

use super::*;
use crate::client::Client;
use crate::command::Command;
use crate::config::Config;
use crate::endpoint::{Endpoint, Transport};
use crate::error::Error;
use crate::events::ServerEvents;
use crate::link::Connector;
use crate::link::multiplexer::Multiplexer;
use crate::link::queue::{BATCH_BYTES, BATCH_COMMANDS};
use crate::link::state::PushHook;
use crate::link::tests::settle;
use crate::server::Server;
use crate::stats::ConnectionInfo;
use valkey_rdma_transport::{AnyStream, Duplex};

mod batches;
mod ends;
mod exclusive;
mod lost;
mod replies;
mod yields;

/// Counts the writes that a stream is asked for and does not put off.
struct Counted<S> {
    stream: S,
    writes: Arc<AtomicUsize>,
    /// What happens to the third instead. A stream that has one is never done with its shutdown.
    third: Option<Write<S>>,
}

/// `poll_write` of a stream.
type Write<S> = fn(&mut S, &mut Context<'_>, &[u8]) -> Poll<io::Result<usize>>;

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let Self { stream, writes, third } = &mut *self;
        if let Some(third) = third
            && writes.load(Ordering::Relaxed) == 2
        {
            writes.fetch_add(1, Ordering::Relaxed);
            return third(stream, cx, buf);
        }
        let written = ready!(Pin::new(stream).poll_write(cx, buf))?;
        writes.fetch_add(1, Ordering::Relaxed);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.third.is_some() {
            return Poll::Pending;
        }
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

fn client(stream: impl Duplex + 'static) -> Client {
    client_over(vec![Box::new(stream)])
}

/// A client without handshake, with a connection over each stream.
fn client_over(streams: Vec<Box<dyn Duplex>>) -> Client {
    client_with(streams, None)
}

fn client_with(streams: Vec<Box<dyn Duplex>>, pushes: Option<PushHook>) -> Client {
    let events = ServerEvents::alone();
    let info = ConnectionInfo::plain(Transport::Tcp, Protocol::Resp3);
    let multiplexers = streams.into_iter().map(|stream| {
        let raw = RawConnection::new(AnyStream::Other(stream), info.clone(), None);
        let reporter = events.reporter(0);
        Multiplexer::start(raw, "test:1".into(), None, pushes.clone(), reporter)
    });
    let multiplexers = multiplexers.collect();
    let endpoint = Endpoint::new(Transport::Tcp, "test", 1);
    Server::assemble(multiplexers, Arc::new(Connector::once(endpoint, Config::default())), events).into()
}

/// A client without handshake, its peer, and the count of its writes. `room` bytes fit between them each way.
fn connection(room: usize) -> (Client, DuplexStream, Arc<AtomicUsize>) {
    let (ours, peer) = duplex(room);
    let writes = Arc::new(AtomicUsize::new(0));
    let stream = Counted { stream: ours, writes: writes.clone(), third: None };
    (client(stream), peer, writes)
}

async fn expect(peer: &mut DuplexStream, bytes: &[u8]) {
    let mut received = vec![0; bytes.len()];
    peer.read_exact(&mut received).await.expect("the client writes");
    assert_eq!(Bytes::from(received), bytes);
}

/// Starts a task that sends a command.
fn start(client: &Client, args: &[&str]) -> tokio::task::JoinHandle<Result<Value, Error>> {
    let (client, args) = (client.clone(), args.iter().map(|&arg| arg.to_owned()).collect::<Vec<_>>());
    tokio::spawn(async move { client.command(args).await })
}

fn bulk(text: &str) -> Value {
    Value::Bulk(Bytes::copy_from_slice(text.as_bytes()))
}

fn lost(result: Result<impl std::fmt::Debug, Error>) -> (bool, String) {
    let error = result.expect_err("the connection is lost");
    assert!(matches!(error, Error::Lost(_)), "{error:?}");
    (error.may_have_run(), format!("{error:#}"))
}

const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";
