//! A driver that lets callers run before it sends, on a runtime of several threads.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;

use super::*;

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
                for _ in 0..50 {
                    client.command(["PING"]).await.expect("a reply");
                    progress.try_iter().for_each(drop);
                    // The second one wakes the other worker, which then looks for events. tokio itself lets all tasks wait for one that
                    // computes if it was the only one that was ready.
                    drop([(); 2].map(|()| tokio::spawn(async {})));
                    for _ in 0..100 {
                        progress.recv_timeout(LONG).expect("other callers are answered meanwhile");
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
