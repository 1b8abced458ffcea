//! A write that fails says how much the peer may have.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, DuplexStream, ReadBuf, duplex};
use valkey_rdma_transport::AnyStream;

use crate::pair::{Server, client};

/// A stream that breaks when it has taken `left` bytes. Before it breaks, one write finds no room.
struct Breaking {
    inner: DuplexStream,
    left: Arc<AtomicUsize>,
}

impl AsyncRead for Breaking {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl AsyncWrite for Breaking {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let left = self.left.load(Ordering::Relaxed).min(buf.len());
        if left == 0 {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let written = Pin::new(&mut self.inner).poll_write(cx, &buf[..left]);
        if let Poll::Ready(Ok(len)) = written {
            self.left.fetch_sub(len, Ordering::Relaxed);
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

/// Otherwise a client sends commands again that the server has run.
#[tokio::test]
async fn a_peer_has_no_byte_that_a_failed_write_did_not_take() {
    for vectored in [false, true] {
        for taken in [0, 1, 20_000, 40_000, 150_000] {
            let server = Server::new();
            let (breaking, far) = duplex(1 << 20);
            let left = Arc::new(AtomicUsize::new(usize::MAX));
            let breaking = Breaking { inner: breaking, left: left.clone() };
            let both = (AnyStream::Other(Box::new(breaking)), AnyStream::Other(Box::new(far)));
            let (mut client, mut accepted) = server.connect_over(both, &client(&server)).await;
            left.store(taken, Ordering::Relaxed);
            let sent = vec![7; 400_000];
            let mut reported = 0;
            let error = loop {
                let rest = &sent[reported..];
                let mut stream = Pin::new(&mut client);
                let written = match vectored {
                    false => poll_fn(|cx| stream.as_mut().poll_write(cx, rest)).await,
                    true => {
                        poll_fn(|cx| stream.as_mut().poll_write_vectored(cx, &[IoSlice::new(rest)])).await
                    }
                };
                match written {
                    Ok(len) => reported += len,
                    Err(error) => break error,
                }
            };
            assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
            drop(client);
            let mut received = Vec::new();
            accepted.read_to_end(&mut received).await.unwrap_err();
            assert!(received.len() <= reported, "{taken}: {} arrived, of {reported}", received.len());
            // What was never sent may be sent again.
            assert!(taken > 0 || reported == 0, "nothing left, and {reported} were taken");
        }
    }
}
