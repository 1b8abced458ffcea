//! A driver that lets callers run before it sends, on a runtime of several threads.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;

use tokio::sync::oneshot;
use tokio::task::coop::{consume_budget, has_budget_remaining};

use super::*;
use crate::multiplexer::request::{Replies, ReplySink, Request};
use crate::multiplexer::submit::{Claim, Pushed};
use crate::multiplexer::task::DriverSlot;

/// Answers PINGs on a thread, until the client leaves.
fn serve(mut peer: TcpStream) {
    let (mut input, mut received) = ([0; 4096], 0);
    while let Ok(len @ 1..) = peer.read(&mut input) {
        received += len;
        let replies = b"+PONG\r\n".repeat(received / PING.len());
        received %= PING.len();
        if peer.write_all(&replies).is_err() {
            return;
        }
    }
}

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(10);

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
    let events = EventReporter::new(Arc::new(EventHub::new(1)), 0);
    let state = Arc::new(MultiplexerState::new("test:1".into(), &raw, None, events));
    let queue = Arc::new(RequestQueue::new());
    let (reply, _wanted) = oneshot::channel();
    let sink = ReplySink::Many(reply, Replies::Kept(Vec::new()));
    let ping = Request::new(Commands::One(Command::new("PING")), sink, None);
    assert!(matches!(queue.submitted.push(ping, Claim::New), Pushed::Queued));
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

/// One of the callers computes until others were answered many times. It may be on the thread where the driver has yielded.
#[test]
fn a_task_that_computes_for_long_does_not_hold_up_the_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let addr = listener.local_addr().expect("an address");
    let server = thread::spawn(move || serve(listener.accept().expect("a client").0));
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("threads");
    runtime.block_on(async {
        let client = client(tokio::net::TcpStream::connect(addr).await.expect("it listens"));
        let (answered, progress) = mpsc::channel();
        let callers: Vec<_> = (0..8)
            .map(|_| {
                let (client, answered) = (client.clone(), answered.clone());
                // Until the counting has ended.
                tokio::spawn(async move {
                    while answered.send(()).is_ok() {
                        client.command(["PING"]).await.expect("a reply");
                    }
                })
            })
            .collect();
        let computes = tokio::spawn({
            let client = client.clone();
            async move {
                for _ in 0..1000 {
                    client.command(["PING"]).await.expect("a reply");
                    progress.try_iter().for_each(drop);
                    let (begin, mut answered) = (Instant::now(), 0);
                    while answered < 100 {
                        assert!(begin.elapsed() < LONG, "other callers are answered meanwhile");
                        // The second one wakes the other worker, which then looks for events. tokio does not see to that: a worker
                        // that was about to sleep may leave tasks that are ready to one that computes.
                        drop([(); 2].map(|()| tokio::spawn(async {})));
                        answered += usize::from(progress.recv_timeout(MAX_YIELD).is_ok());
                    }
                }
            }
        });
        computes.await.expect("no panic");
        for caller in callers {
            caller.await.expect("no panic");
        }
        client.close().await;
    });
    server.join().expect("no panic");
}
