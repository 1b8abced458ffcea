//! How often a request allocates, counted by an allocator. Alone in its program, so that nothing else allocates; the
//! server is a thread that answers from the stack.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use dhat::{Alloc, HeapStats, Profiler};
use tokio::task::JoinSet;
use valkey_rdma_client::{Client, Command, Endpoint, Transport};

#[global_allocator]
static ALLOC: Alloc = Alloc;

const REQUEST: &[u8] = b"*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n";

/// Answers the login, then every GET with a short string.
fn serve(mut peer: TcpStream) {
    let mut input = [0; 16 * 1024];
    let _login = peer.read(&mut input).expect("the login");
    peer.write_all(b"%1\r\n$5\r\nproto\r\n:3\r\n+OK\r\n+OK\r\n+PONG\r\n").expect("open");
    let (mut waiting, mut output) = (0, [0; 16 * 1024]);
    while let Ok(len @ 1..) = peer.read(&mut input) {
        waiting += len;
        let (requests, mut end) = (waiting / REQUEST.len(), 0);
        waiting %= REQUEST.len();
        for _ in 0..requests {
            output[end..end + 9].copy_from_slice(b"$3\r\nabc\r\n");
            end += 9;
        }
        if peer.write_all(&output[..end]).is_err() {
            return;
        }
    }
}

async fn ask(client: &Client, command: &Command, times: u64) {
    for _ in 0..times {
        let reply = client.command(command.clone()).await.expect("a reply");
        assert_eq!(reply.as_str(), Some("abc"));
    }
}

/// Blocks allocated per request, by so many tasks that ask in turns.
async fn per_request(client: &Client, tasks: u64, times: u64) -> f64 {
    let mut running = JoinSet::new();
    // The first requests grow what is kept: queues, buffers, the tasks themselves.
    let (ready, mut all_ready) = tokio::sync::mpsc::channel::<()>(1);
    let (go, _) = tokio::sync::broadcast::channel::<()>(1);
    for _ in 0..tasks {
        let (client, ready, mut told) = (client.clone(), ready.clone(), go.subscribe());
        running.spawn(async move {
            let command = Command::new("GET").arg("key");
            ask(&client, &command, times).await;
            drop(ready);
            told.recv().await.expect("told");
            ask(&client, &command, times).await;
        });
    }
    drop(ready);
    assert_eq!(all_ready.recv().await, None);
    let before = HeapStats::get().total_blocks;
    go.send(()).expect("tasks wait");
    while let Some(ended) = running.join_next().await {
        ended.expect("no panic");
    }
    (HeapStats::get().total_blocks - before) as f64 / (tasks * times) as f64
}

/// One block for the command's bytes, which the caller makes. None for being sent, none for the way back of its reply and
/// none for being received: that memory is kept.
#[tokio::test]
async fn a_request_allocates_once() {
    let _profiler = Profiler::builder().testing().build();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let addr = listener.local_addr().expect("an address");
    let server = std::thread::spawn(move || serve(listener.accept().expect("a client").0));
    let stream = tokio::net::TcpStream::connect(addr).await.expect("connected");
    let endpoint = Endpoint::new(Transport::Tcp, "test", 1);
    let client = Client::from_stream(stream, &endpoint).await.expect("logged in");
    for tasks in [1, 50] {
        let blocks = per_request(&client, tasks, 1000).await;
        println!("{tasks} tasks: {blocks:.3} blocks per request");
        // Queues and buffers are renewed now and then.
        assert!((1.0..1.1).contains(&blocks), "{tasks} tasks: {blocks} blocks per request");
    }
    client.close().await;
    server.join().expect("no panic");
}
