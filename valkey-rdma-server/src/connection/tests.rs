use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{advance, timeout};

use super::*;
use crate::link::UNTRUSTED_INPUT_LIMIT;
use crate::monitor::Monitor;
use crate::peer::Transport;
use crate::push::Pusher;

/// `SIZE n` is answered with a string of `n` bytes, `WAIT` when the test allows it, `TURN` after the runtime has scheduled it
/// again. `QUIT` closes, and `PANIC` panics.
struct TestHandler {
    calls: AtomicUsize,
    go: Semaphore,
    trusting: AtomicBool,
}

impl Handler for TestHandler {
    type Session = ();

    fn session(&self, _peer: &Peer) {}

    async fn call(&self, peer: &mut Peer, _session: &mut (), command: Command) -> Result<Reply, Reply> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        if command.is("SIZE") {
            return Ok(Reply::bulk(vec![b'x'; command.int(0)? as usize]));
        }
        if command.is("WAIT") {
            self.go.acquire().await.unwrap().forget();
        }
        if command.is("TURN") {
            consume_budget().await;
        }
        assert!(!command.is("PANIC"), "as the test wants");
        if command.is("QUIT") {
            peer.close_after_reply();
        }
        Ok(Reply::OK)
    }

    fn basics(&self, _peer: &mut Peer, _session: &mut (), _command: &Command) -> Option<Reply> {
        None
    }

    fn trusts(&self, _session: &()) -> bool {
        self.trusting.load(Ordering::Relaxed)
    }
}

/// A connection being served, and the client's end of it.
struct Served {
    client: DuplexStream,
    handler: Arc<TestHandler>,
    pusher: Pusher,
    stop: CancellationToken,
    task: JoinHandle<Result<(), ConnectionError>>,
    monitor: Monitor,
}

/// `in_flight`: bytes the stream holds in each direction.
fn serve(in_flight: usize, limits: &Limits) -> Served {
    let (client, server) = duplex(in_flight);
    let handler = Arc::new(TestHandler {
        calls: AtomicUsize::new(0),
        go: Semaphore::new(0),
        trusting: AtomicBool::new(true),
    });
    let stop = CancellationToken::new();
    let nowhere = "127.0.0.1:1".parse().unwrap();
    let peer = Peer::new(1, Transport::Tcp, nowhere, nowhere);
    let pusher = peer.pusher();
    let monitor = Monitor::default();
    let reporter = Reporter::new(&peer, monitor.clone());
    let task = tokio::spawn({
        let (handler, limits, stop) = (handler.clone(), limits.clone(), stop.clone());
        async move { Connection::new(server, peer, handler, &limits, &reporter).serve(stop).await }
    });
    Served { client, handler, pusher, stop, task, monitor }
}

/// Long enough for a loaded machine; only a failing test waits for it.
const PATIENCE: Duration = Duration::from_secs(60);

impl Served {
    /// Waits until the handler has got `count` commands.
    async fn calls(&self, count: usize) {
        let reached = async {
            while self.handler.calls.load(Ordering::Relaxed) < count {
                yield_now().await;
            }
        };
        timeout(PATIENCE, reached).await.expect("the commands run");
    }

    async fn expect(&mut self, expected: &[u8]) {
        let mut received = vec![0; expected.len()];
        timeout(PATIENCE, self.client.read_exact(&mut received)).await.expect("a reply").unwrap();
        assert_eq!(received.escape_ascii().to_string(), expected.escape_ascii().to_string());
    }

    async fn expect_end(&mut self) {
        assert_eq!(timeout(PATIENCE, self.client.read(&mut [0])).await.expect("the end").unwrap(), 0);
    }
}

#[tokio::test]
async fn replies_of_one_turn_leave_together() {
    let mut served = serve(4096, &Limits::default());
    served.client.write_all(&b"PING\r\n".repeat(100)).await.unwrap();
    let mut reply = [0; 4096];
    assert_eq!(served.client.read(&mut reply).await.unwrap(), 500);
}

/// Blocking clients write a whole pipeline before they read its first reply.
#[tokio::test]
async fn a_client_that_reads_only_after_writing_everything_is_served() {
    let mut served = serve(4096, &Limits::default().output_high_water(10_000));
    let count = 100_000;
    served.client.write_all(&b"SIZE 80\r\n".repeat(count)).await.unwrap();
    let reply = [b"$80\r\n", &[b'x'; 80][..], b"\r\n"].concat();
    for _ in 0..count {
        served.expect(&reply).await;
    }
}

#[tokio::test]
async fn commands_wait_while_replies_pile_up() {
    let mut served = serve(4096, &Limits::default().output_high_water(10_000));
    served.client.write_all(&b"SIZE 1000\r\n".repeat(1000)).await.unwrap();
    // 10 fill the output, 4 are in the stream.
    assert!(served.handler.calls.load(Ordering::Relaxed) < 20);
    let reply = [b"$1000\r\n", &[b'x'; 1000][..], b"\r\n"].concat();
    for _ in 0..1000 {
        served.expect(&reply).await;
    }
}

#[tokio::test]
async fn a_client_that_never_reads_is_cut_off_at_the_input_limit() {
    let limits = Limits::default().output_high_water(1000).input_limit(50_000);
    let mut served = serve(4096, &limits);
    // The write fails once the connection is gone.
    served.client.write_all(&b"PING\r\n".repeat(100_000)).await.unwrap_err();
    match served.task.await.unwrap() {
        Err(ConnectionError::InputLimit { received, limit: 50_000, unsent }) => {
            assert!((50_000..100_000).contains(&received), "{received}");
            assert!((1000..2000).contains(&unsent), "{unsent}");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_command_larger_than_the_input_limit_is_refused() {
    let mut served = serve(4096, &Limits::default().input_limit(100_000));
    served.client.write_all(b"*2\r\n$4\r\nPING\r\n$200000\r\n").await.unwrap();
    served.client.write_all(&vec![b'x'; 200_000]).await.unwrap_err();
    assert!(matches!(served.task.await.unwrap(), Err(ConnectionError::InputLimit { .. })));
}

#[tokio::test]
async fn an_untrusted_client_that_never_reads_is_cut_off_earlier() {
    let mut served = serve(4096, &Limits::default().output_high_water(1000));
    served.handler.trusting.store(false, Ordering::Relaxed);
    served.client.write_all(&b"PING\r\n".repeat(400_000)).await.unwrap_err();
    let outcome = served.task.await.unwrap();
    assert!(matches!(outcome, Err(ConnectionError::InputLimit { limit: UNTRUSTED_INPUT_LIMIT, .. })));
}

#[tokio::test]
async fn a_slow_command_holds_up_only_the_replies_after_it() {
    let mut served = serve(4096, &Limits::default());
    served.client.write_all(b"PING\r\nWAIT\r\nPING\r\n").await.unwrap();
    served.expect(b"+OK\r\n").await;
    assert_eq!(served.handler.calls.load(Ordering::Relaxed), 2);
    served.handler.go.add_permits(1);
    served.expect(b"+OK\r\n+OK\r\n").await;
}

#[tokio::test(start_paused = true)]
async fn a_running_command_ends_with_its_connection() {
    let mut served = serve(4096, &Limits::default());
    served.client.write_all(b"PING\r\nWAIT\r\nPING\r\n").await.unwrap();
    served.expect(b"+OK\r\n").await;
    drop(served.client);
    // On a clock that stands still unless nothing else can happen, so only a failing test waits.
    timeout(Duration::from_secs(60), served.task).await.expect("the end is noticed").unwrap().unwrap();
    assert_eq!(served.handler.calls.load(Ordering::Relaxed), 2);
    assert_eq!(Arc::strong_count(&served.handler), 1);
}

#[tokio::test]
async fn input_is_received_while_a_command_runs() {
    let mut served = serve(64, &Limits::default());
    served.client.write_all(b"WAIT\r\n").await.unwrap();
    served.client.write_all(&b"PING\r\n".repeat(1000)).await.unwrap();
    served.handler.go.add_permits(1);
    served.expect(&b"+OK\r\n".repeat(1001)).await;
}

#[tokio::test]
async fn the_input_limit_holds_while_a_command_runs() {
    let mut served = serve(4096, &Limits::default().input_limit(50_000));
    served.client.write_all(b"WAIT\r\n").await.unwrap();
    served.client.write_all(&b"PING\r\n".repeat(100_000)).await.unwrap_err();
    assert!(matches!(served.task.await.unwrap(), Err(ConnectionError::InputLimit { limit: 50_000, .. })));
}

#[tokio::test]
async fn nothing_runs_after_quit() {
    let mut served = serve(4096, &Limits::default());
    served.client.write_all(b"PING\r\nQUIT\r\nPING\r\n").await.unwrap();
    served.expect(b"+OK\r\n+OK\r\n").await;
    served.expect_end().await;
    assert_eq!(served.handler.calls.load(Ordering::Relaxed), 2);
    drop(served.client);
    served.task.await.unwrap().unwrap();
}

#[tokio::test]
async fn quit_is_answered_although_the_client_goes_on_writing() {
    let mut served = serve(64, &Limits::default());
    served.client.write_all(b"SIZE 1000\r\nQUIT\r\n").await.unwrap();
    served.client.write_all(&vec![b'x'; 100_000]).await.unwrap();
    served.expect(&[b"$1000\r\n", &[b'x'; 1000][..], b"\r\n+OK\r\n"].concat()).await;
    served.expect_end().await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_stays_after_quit_is_left_behind() {
    let mut served = serve(4096, &Limits::default());
    served.client.write_all(b"QUIT\r\n").await.unwrap();
    served.task.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_protocol_error_is_answered_after_the_replies_before_it() {
    let mut served = serve(4096, &Limits::default());
    served.client.write_all(b"PING\r\n*1\r\n:1\r\nPING\r\n").await.unwrap();
    served.expect(b"+OK\r\n-ERR Protocol error: expected '$', got ':'\r\n").await;
    served.expect_end().await;
}

/// The replies before it may never be read.
#[tokio::test(start_paused = true)]
async fn what_ends_a_connection_is_reported_once_and_at_once() {
    for (input, counts) in [("PANIC\r\n", (1, 0)), ("*1\r\n:1\r\n", (0, 1))] {
        let limit = Duration::from_secs(3);
        let mut served = serve(64, &Limits::default().idle_timeout(Some(limit)));
        served.client.write_all(b"SIZE 1000\r\n").await.unwrap();
        served.client.write_all(input.as_bytes()).await.unwrap();
        served.calls(1).await;
        let reported = || {
            let refused = served.monitor.refused();
            (refused.panics, refused.broken_commands)
        };
        while reported() == (0, 0) {
            yield_now().await;
        }
        advance(limit).await;
        served.task.await.unwrap().expect("reported before");
        let refused = served.monitor.refused();
        assert_eq!((refused.panics, refused.broken_commands, refused.idle), (counts.0, counts.1, 0));
    }
}

#[tokio::test]
async fn commands_sent_before_the_end_are_answered() {
    let mut served = serve(4096, &Limits::default().output_high_water(100));
    served.client.write_all(&b"SIZE 1000\r\n".repeat(10)).await.unwrap();
    served.client.write_all(b"PIN").await.unwrap();
    served.client.shutdown().await.unwrap();
    for _ in 0..10 {
        served.expect(&[b"$1000\r\n", &[b'x'; 1000][..], b"\r\n"].concat()).await;
    }
    served.expect_end().await;
    served.task.await.unwrap().unwrap();
}

/// The runtime limits how much a task does at once. A command that is only waiting to be scheduled again is not dropped.
#[tokio::test]
async fn a_pipeline_sent_before_the_end_is_answered_however_long_it_is() {
    let mut served = serve(100_000, &Limits::default());
    served.client.write_all(&b"TURN\r\n".repeat(1000)).await.unwrap();
    served.client.shutdown().await.unwrap();
    served.expect(&b"+OK\r\n".repeat(1000)).await;
    served.expect_end().await;
}

#[tokio::test]
async fn no_message_follows_the_last_reply() {
    let mut served = serve(64, &Limits::default());
    served.client.write_all(b"SIZE 1000\r\nQUIT\r\n").await.unwrap();
    served.calls(2).await;
    assert!(!served.pusher.push(Reply::simple("late")));
    served.expect(&[b"$1000\r\n", &[b'x'; 1000][..], b"\r\n+OK\r\n"].concat()).await;
    served.expect_end().await;
}

#[tokio::test]
async fn a_closing_connection_can_still_be_closed_at_once() {
    let mut served = serve(64, &Limits::default());
    served.client.write_all(b"SIZE 1000\r\nQUIT\r\n").await.unwrap();
    served.calls(2).await;
    served.pusher.close();
    assert!(matches!(served.task.await.unwrap(), Err(ConnectionError::Closed)));
}

#[tokio::test]
async fn messages_to_a_connection_that_is_over_are_refused() {
    let served = serve(4096, &Limits::default());
    assert!(served.pusher.push(Reply::simple("before")));
    drop(served.client);
    let _ = served.task.await.unwrap();
    assert!(!served.pusher.push(Reply::simple("after")));
}

#[tokio::test]
async fn stopping_answers_commands_that_have_arrived_and_closes() {
    let mut served = serve(4096, &Limits::default().output_high_water(100));
    served.client.write_all(b"WAIT\r\nSIZE 1000\r\nPING\r\nSIZE 20").await.unwrap();
    served.calls(1).await;
    served.stop.cancel();
    served.handler.go.add_permits(1);
    served.expect(&[b"+OK\r\n$1000\r\n", &[b'x'; 1000][..], b"\r\n+OK\r\n"].concat()).await;
    served.expect_end().await;
    drop(served.client);
    served.task.await.unwrap().unwrap();
}

/// Unread input would make a TCP socket reset the connection, and the reset might overtake the last replies.
#[tokio::test(start_paused = true)]
async fn input_is_read_while_the_server_stops() {
    let mut served = serve(4096, &Limits::default());
    served.stop.cancel();
    served.expect_end().await;
    served.client.write_all(&b"PING\r\n".repeat(10_000)).await.unwrap();
    drop(served.client);
    served.task.await.unwrap().unwrap();
    assert_eq!(served.handler.calls.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn an_idle_connection_closes_when_the_server_stops() {
    let mut served = serve(4096, &Limits::default());
    served.stop.cancel();
    served.expect_end().await;
    drop(served.client);
    served.task.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_idle_client_is_closed_and_a_busy_one_is_not() {
    let limit = Duration::from_secs(10);
    let mut served = serve(4096, &Limits::default().idle_timeout(Some(limit)));
    for _ in 0..3 {
        served.client.write_all(b"PING\r\n").await.unwrap();
        served.expect(b"+OK\r\n").await;
        advance(limit * 2 / 3).await;
    }
    served.expect_end().await;
    assert!(matches!(served.task.await.unwrap(), Err(ConnectionError::Idle { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_take_its_reply_is_idle() {
    for input in ["SIZE 1000\r\n", "SIZE 1000\r\nQUIT\r\n"] {
        let mut served = serve(64, &Limits::default().idle_timeout(Some(Duration::from_secs(10))));
        served.client.write_all(input.as_bytes()).await.unwrap();
        assert!(matches!(served.task.await.unwrap(), Err(ConnectionError::Idle { .. })), "{input}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_waits_for_a_command_is_not_idle() {
    let limit = Duration::from_secs(10);
    let mut served = serve(4096, &Limits::default().idle_timeout(Some(limit)));
    served.client.write_all(b"PING\r\nWAIT\r\n").await.unwrap();
    served.expect(b"+OK\r\n").await;
    advance(limit * 2).await;
    yield_now().await;
    served.handler.go.add_permits(1);
    served.expect(b"+OK\r\n").await;
    served.expect_end().await;
}

/// A stream of which tokio counts nothing, as one over a device: it has `input` at once, or the same again and again, and takes all output.
struct Uncounted {
    input: &'static [u8],
    repeats: bool,
    taken: Arc<AtomicUsize>,
    stalled: bool,
}

impl AsyncRead for Uncounted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
        buf: &mut tokio::io::ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // The end follows.
        let len = self.input.len().min(buf.remaining());
        buf.put_slice(&self.input[..len]);
        if !self.repeats {
            self.input = &self.input[len..];
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Uncounted {
    fn poll_write(self: Pin<&mut Self>, _cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if self.stalled {
            return Poll::Pending;
        }
        self.taken.fetch_add(buf.len(), Ordering::Relaxed);
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

fn serve_uncounted(stream: Uncounted, limits: Limits) -> JoinHandle<Result<(), ConnectionError>> {
    let handler = Arc::new(TestHandler {
        calls: AtomicUsize::new(0),
        go: Semaphore::new(0),
        trusting: AtomicBool::new(true),
    });
    let nowhere = "127.0.0.1:1".parse().unwrap();
    let peer = Peer::new(1, Transport::Tcp, nowhere, nowhere);
    let reporter = Reporter::new(&peer, Monitor::default());
    tokio::spawn(async move {
        Connection::new(stream, peer, handler, &limits, &reporter).serve(CancellationToken::new()).await
    })
}

/// The replies to one read take many turns, and each of them finds room at once.
#[tokio::test]
async fn a_pipeline_does_not_keep_other_tasks_from_running() {
    const COUNT: usize = 2000;
    let taken = Arc::<AtomicUsize>::default();
    let input = b"PING\r\n".repeat(COUNT).leak();
    let stream = Uncounted { input, repeats: false, taken: taken.clone(), stalled: false };
    // One reply fills it.
    let task = serve_uncounted(stream, Limits::default().output_high_water(1));
    let mut turns = 0;
    while !task.is_finished() {
        let before = taken.load(Ordering::Relaxed);
        yield_now().await;
        turns += usize::from((1..COUNT * 5).contains(&before));
    }
    assert_eq!(taken.load(Ordering::Relaxed), COUNT * 5);
    assert!(turns > 1, "another task ran {turns} times in between");
}

/// It has quit, does not read its replies, and sends more and more.
#[tokio::test(start_paused = true)]
async fn a_peer_that_only_sends_does_not_keep_other_tasks_from_running_at_its_end() {
    for stalled in [true, false] {
        let taken = Arc::<AtomicUsize>::default();
        let stream = Uncounted { input: b"QUIT\r\n", repeats: true, taken, stalled };
        let task = serve_uncounted(stream, Limits::default());
        for _ in 0..10 {
            yield_now().await;
        }
        task.abort();
        assert!(task.await.unwrap_err().is_cancelled());
    }
}

/// A device whose settings let it close slowly.
#[tokio::test(start_paused = true)]
async fn only_tls_has_a_limit_of_ours_to_close() {
    for (is_encrypted, expected) in [(false, Ok(())), (true, Err(io::ErrorKind::TimedOut))] {
        let mut slow = SlowEnd(Box::pin(tokio::time::sleep(Duration::from_secs(30))));
        let closed = crate::link::close(&mut slow, is_encrypted).await;
        assert_eq!(closed.map_err(|error| error.kind()), expected);
    }
}

struct SlowEnd(Pin<Box<tokio::time::Sleep>>);

impl AsyncWrite for SlowEnd {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.as_mut().poll(cx).map(Ok)
    }
}
