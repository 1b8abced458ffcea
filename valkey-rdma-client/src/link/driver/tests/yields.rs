//! A driver that lets callers run before it sends, on a runtime of several threads.

use std::io::Read;
use std::net::TcpListener;
use std::sync::mpsc;

use tokio::sync::oneshot;
use tokio::task::coop::{consume_budget, has_budget_remaining};

use super::*;
use crate::command::Commands;
use crate::link::queue::Pushed;
use crate::link::reply_slot::Delivery;
use crate::link::request::Request;
use crate::link::task::DriverSlot;

/// Tasks that a worker runs in one turn share tokio's budget. A stream whose budget is used up says that it is not ready, and wakes its
/// task only when this worker has run what is ready.
#[tokio::test]
async fn a_driver_does_not_depend_on_the_budget_that_other_tasks_left() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let stream =
        tokio::net::TcpStream::connect(listener.local_addr().expect("an address")).await.expect("it listens");
    let mut peer = listener.accept().expect("a client").0;
    peer.set_nonblocking(true).expect("a socket");
    let info = ConnectionInfo::plain(Transport::Tcp, Protocol::Resp3);
    let raw = RawConnection::new(AnyStream::Tcp(stream), info, None);
    let events = ServerEvents::alone().reporter(0);
    let state = Arc::new(MultiplexerState::new("test:1".into(), &raw, None, events));
    let queue = Arc::new(SubmitQueue::new());
    let (ping, _wanted) = Request::new(Commands::One(Command::new("PING")), Delivery::Together, None);
    assert!(matches!(queue.push(ping), Pushed::Queued));
    let slot = DriverSlot::default();
    let mut drive = pin!(slot.drive(Driver::new(raw, queue, state, None)));
    while has_budget_remaining() {
        consume_budget().await;
    }
    assert!(drive.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let mut received = [0; PING.len()];
    peer.read_exact(&mut received).expect("it is sent at once");
    assert_eq!(received, *PING);
}

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(10);

/// A stream whose first read makes a task ready that computes on the same worker.
struct ComputesAfterRead(DuplexStream, Option<Box<dyn FnOnce() + Send>>);

impl AsyncRead for ComputesAfterRead {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.0).poll_read(cx, buf))?;
        if let Some(compute) = self.1.take() {
            tokio::spawn(async move { compute() });
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ComputesAfterRead {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_computes_where_the_driver_has_yielded_does_not_hold_up_the_callers() {
    let (answered, answers) = mpsc::channel();
    let (computed, ends) = oneshot::channel();
    let compute = move || {
        let (begin, mut callers) = (Instant::now(), 0);
        while callers < 2 && begin.elapsed() < LONG {
            // The second one wakes the other worker, which then looks for timers. tokio does not see to that: a worker that was
            // about to sleep leaves everything to one that computes.
            drop([(); 2].map(|()| tokio::spawn(async {})));
            callers += usize::from(answers.recv_timeout(MAX_YIELD).is_ok());
        }
        computed.send(callers).expect("the test waits");
    };
    let (ours, mut peer) = duplex(1024);
    let client = client(ComputesAfterRead(ours, Some(Box::new(compute))));
    for _ in 0..2 {
        let (client, answered) = (client.clone(), answered.clone());
        tokio::spawn(async move {
            client.command(["PING"]).await.expect("a reply");
            answered.send(()).expect("the test waits");
        });
    }
    expect(&mut peer, &PING.repeat(2)).await;
    peer.write_all(b"+PONG\r\n+PONG\r\n").await.expect("the client reads");
    assert_eq!(ends.await.expect("no panic"), 2, "callers that were answered while it computed");
}
