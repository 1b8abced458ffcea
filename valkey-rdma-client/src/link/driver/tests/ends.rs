//! The end of a connection while its driver is busy: being polled for the first time, or writing.

use std::sync::{Mutex, OnceLock};

use super::*;

type Hook<T> = Box<dyn FnMut(&mut DuplexStream, &mut Context<'_>, T) + Send>;

/// A stream that runs something before it is read or written.
struct Hooked {
    stream: DuplexStream,
    before_read: Option<Hook<()>>,
    /// Gets the bytes of the write, and may write them too.
    before_write: Option<Hook<Vec<u8>>>,
}

impl AsyncRead for Hooked {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { stream, before_read, .. } = &mut *self;
        if let Some(hook) = before_read {
            hook(stream, cx, ());
        }
        Pin::new(stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Hooked {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let Self { stream, before_write, .. } = &mut *self;
        if let Some(hook) = before_write {
            hook(stream, cx, buf.to_vec());
        }
        Pin::new(stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Polls a future once.
fn poll_once<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[tokio::test(start_paused = true)]
async fn close_is_heard_while_the_driver_is_polled_for_the_first_time() {
    let (stream, _peer) = duplex(1024);
    let closed: Arc<OnceLock<Client>> = Arc::default();
    let before_read: Hook<()> = Box::new({
        let closed = closed.clone();
        let mut first = true;
        move |_, _, ()| {
            if std::mem::take(&mut first) {
                let client = closed.get().expect("connected");
                assert!(poll_once(pin!(client.close())).is_pending());
            }
        }
    });
    let client = client(Hooked { stream, before_read: Some(before_read), before_write: None });
    assert!(closed.set(client.clone()).is_ok());
    let begin = Instant::now();
    let mut unanswered = pin!(client.command(["PING"]));
    assert!(poll_once(unanswered.as_mut()).is_pending());
    let (may_have_run, text) = lost(unanswered.await);
    assert!(may_have_run && text.contains("closed by this program"), "{text}");
    assert_eq!(begin.elapsed().as_secs(), 3, "the time that `close` waits for replies");
}

#[tokio::test]
async fn dropping_the_last_clone_ends_a_connection_whose_write_is_blocked() {
    let (client, _peer, writes) = connection(64);
    let set = start(&client, &["SET", "k", &"v".repeat(10_000)]);
    settle().await;
    set.abort();
    assert!(set.await.expect_err("aborted").is_cancelled());
    assert_eq!(Arc::strong_count(&writes), 2, "ours and the stream's");
    drop(client);
    settle().await;
    assert_eq!(Arc::strong_count(&writes), 1);
}

type Call = Pin<Box<dyn Future<Output = Result<Value, Error>> + Send>>;

/// The stream writes the commands of two callers, on the task of the first, and panics.
#[tokio::test]
async fn a_stream_that_panics_may_have_written_the_commands_of_others() {
    let (stream, mut peer) = duplex(1024);
    let joins: Arc<OnceLock<Client>> = Arc::default();
    let other: Arc<Mutex<Option<Call>>> = Arc::default();
    let before_write: Hook<Vec<u8>> = Box::new({
        let (joins, other) = (joins.clone(), other.clone());
        let mut writes = 0;
        move |stream, cx, bytes| {
            writes += 1;
            if writes == 1 {
                return;
            }
            if writes == 2 {
                // Another thread's caller, which leaves its command to this one.
                let client = joins.get().expect("connected").clone();
                let mut call: Call = Box::pin(async move { client.command(["INCR", "n"]).await });
                assert!(poll_once(call.as_mut()).is_pending());
                *other.lock().expect("no panic") = Some(call);
                return;
            }
            assert!(Pin::new(stream).poll_write(cx, &bytes).is_ready());
            panic!("after all of it was taken");
        }
    });
    let client = client(Hooked { stream, before_read: None, before_write: Some(before_write) });
    assert!(joins.set(client.clone()).is_ok());
    // Sets the timer, so that the next caller sends on its own task.
    let ping = start(&client, &["PING"]);
    expect(&mut peer, PING).await;
    peer.write_all(b"+PONG\r\n").await.expect("open");
    ping.await.expect("no panic").expect("a reply");
    settle().await;
    let first = start(&client, &["PING"]);
    assert!(first.await.expect_err("the panic is its caller's").is_panic());
    let other = other.lock().expect("no panic").take().expect("it joined");
    assert!(lost(other.await).0, "it may have run");
}
