//! How often a request allocates, counted by an allocator. Alone in its program, so that nothing else allocates; the
//! server is a thread that answers from the stack, and with TLS a process of its own.

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

/// Serves with TLS until its standard input ends.
#[cfg(feature = "tls")]
#[tokio::test]
#[ignore = "a server, which the other test starts in a process of its own"]
async fn serve_encrypted() {
    use valkey_rdma_mock::{Mock, MockServer, ServerTls};

    let issuer = valkey_rdma_testkit::Authority::new("Issuer of tests");
    let pair = issuer.issue(&["127.0.0.1"]);
    let mock = MockServer::start_encrypted(Mock::new(), ServerTls::new(pair.cert, pair.key)).await;
    let mock = mock.expect("free ports");
    mock.set("key", "abc");
    println!("\nready {}?ca={}", mock.tcp_url(), issuer.ca().display());
    let _ended = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await;
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
/// none for being received: that memory is kept. TLS allocates for each record, and a batch of requests is one record, as are its replies.
#[tokio::test]
async fn a_request_allocates_once_and_tls_once_for_a_record() {
    let _profiler = Profiler::builder().testing().build();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let addr = listener.local_addr().expect("an address");
    let server = std::thread::spawn(move || serve(listener.accept().expect("a client").0));
    let stream = tokio::net::TcpStream::connect(addr).await.expect("connected");
    let endpoint = Endpoint::new(Transport::Tcp, "test", 1);
    let client = Client::from_stream(stream, &endpoint).await.expect("logged in");
    // Queues and buffers are renewed now and then.
    stay_below(&client, [(1, 1.1), (50, 1.1)]).await;
    client.close().await;
    server.join().expect("no panic");
    #[cfg(feature = "tls")]
    encrypted().await;
}

/// Each limit is a number of tasks, and the most blocks of each request.
async fn stay_below(client: &Client, limits: [(u64, f64); 2]) {
    for (tasks, most) in limits {
        let blocks = per_request(client, tasks, 1000).await;
        assert!(
            (1.0..most).contains(&blocks),
            "{tasks} tasks: {blocks} blocks per request, {}",
            client.info()
        );
    }
}

#[cfg(feature = "tls")]
async fn encrypted() {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    let mut server = Command::new(std::env::current_exe().expect("this program"));
    server.args(["--exact", "serve_encrypted", "--ignored", "--nocapture"]);
    let mut server = server.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("started");
    let mut lines = BufReader::new(server.stdout.take().expect("piped")).lines();
    let url = lines.find_map(|line| Some(line.ok()?.strip_prefix("ready ")?.to_owned())).expect("it listens");
    let client = Client::connect(url).await.expect("connected");
    stay_below(&client, [(1, 3.1), (50, 1.5)]).await;
    client.close().await;
    drop(server.stdin.take());
    server.wait().expect("it ends");
}
