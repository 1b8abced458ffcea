//! How much memory a client needs: live heap bytes, counted by an allocator. Alone in its program, so that nothing
//! else allocates. The figures in the README are these.

use dhat::{Alloc, HeapStats, Profiler};
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use valkey_rdma_client::{Client, Command, Endpoint, Transport};

#[global_allocator]
static ALLOC: Alloc = Alloc;

/// The room of the stream below, which is not the client's.
const ROOM: usize = 64 * 1024;

fn live() -> usize {
    HeapStats::get().curr_bytes
}

/// A connection costs little, a command in flight little more than its bytes, and nothing is kept of either.
#[tokio::test]
async fn memory_stays_within_what_the_readme_says() {
    const CONNECTIONS: usize = 100;
    const COMMANDS: usize = 4000;
    const LARGE: usize = 8 << 20;
    let _profiler = Profiler::builder().testing().build();
    let endpoint = Endpoint::new(Transport::Tcp, "test", 1);

    let before = live();
    let mut peers = Vec::new();
    let mut clients = Vec::new();
    for _ in 0..CONNECTIONS {
        let (ours, mut peer) = duplex(ROOM);
        let greet = async {
            let mut hello = [0; 512];
            let _len = peer.read(&mut hello).await.expect("the login");
            peer.write_all(b"%1\r\n$5\r\nproto\r\n:3\r\n+OK\r\n+OK\r\n+PONG\r\n").await.expect("open");
            peer
        };
        let (client, peer) = tokio::join!(Client::from_stream(ours, &endpoint), greet);
        clients.push(client.expect("connected"));
        peers.push(peer);
    }
    let idle = (live() - before) / CONNECTIONS;
    println!("an idle connection, stream and task included: {idle} bytes");

    let (client, mut peer) = (clients.swap_remove(0), peers.swap_remove(0));
    let before = live();
    let filler = vec![b'x'; 1000];
    let mut pipeline = client.pipeline();
    for _ in 0..LARGE / filler.len() {
        pipeline.push(Command::new("SET").arg("k").arg(&filler));
    }
    let count = pipeline.len();
    let serve = async {
        let mut left = count * b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1000\r\n".len() + count * (filler.len() + 2);
        let mut sink = [0; 4096];
        while left > 0 {
            left -= peer.read(&mut sink).await.expect("the commands");
        }
        peer.write_all(&b"+OK\r\n".repeat(count - 1)).await.expect("open");
        peer.write_all(format!("${LARGE}\r\n").as_bytes()).await.expect("open");
        for _ in 0..LARGE / sink.len() {
            peer.write_all(&sink).await.expect("open");
        }
        peer.write_all(b"\r\n").await.expect("open");
    };
    let (replies, ()) = tokio::join!(pipeline.send(), serve);
    let last = replies.expect("replies").pop().expect("one each").expect("a value");
    assert_eq!(last.as_bytes().map(|bytes| bytes.len()), Some(LARGE));
    drop(last);
    let kept = live().saturating_sub(before);
    println!("kept after {LARGE} bytes went out and came in: {kept} bytes");
    assert!(kept < 2 * ROOM + 128 * 1024, "{kept}");

    let (mut reader, mut writer) = tokio::io::split(peer);
    let drain = tokio::spawn(async move {
        let mut sink = [0; 4096];
        while reader.read(&mut sink).await.is_ok_and(|len| len > 0) {}
    });
    let mut tasks = Vec::with_capacity(COMMANDS);
    let before = live();
    for _ in 0..COMMANDS {
        let client = client.clone();
        tasks.push(tokio::spawn(async move { client.command(["GET", "0123456789abcdef"]).await }));
    }
    // The last batch counts when it leaves.
    while client.counters().in_flight < (COMMANDS - 64) as u64 {
        tokio::task::yield_now().await;
    }
    let flying = (live() - before) / COMMANDS;
    println!("a command in flight, with the task that waits for it: {flying} bytes");

    writer.write_all(&b"_\r\n".repeat(COMMANDS)).await.expect("open");
    for task in tasks {
        assert!(task.await.expect("no panic").expect("a reply").is_nil());
    }
    let kept = live().saturating_sub(before);
    println!("kept when all {COMMANDS} were answered, for the next ones: {kept} bytes");
    drop(client);
    drain.await.expect("the connection ends with its client");

    assert!(idle < 64 * 1024, "{idle}");
    assert!(flying < 4096, "{flying}");
    assert!(kept < COMMANDS * 512, "{kept}");
}
