//! How much memory a connection keeps and how often a command allocates, counted by an allocator. Alone in its program, so that
//! nothing else allocates; the clients keep their bytes on the stack.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use bytes::Bytes;
use dhat::{Alloc, HeapStats, Profiler};
use tokio::task::yield_now;
use valkey_rdma_server::{Command, Handler, Peer, Reply, Server};

#[global_allocator]
static ALLOC: Alloc = Alloc;

/// Answers every command with this.
struct One(Bytes);

impl Handler for One {
    type Session = ();

    fn session(&self, _peer: &Peer) {}

    async fn call(&self, _peer: &mut Peer, _session: &mut (), _command: Command) -> Result<Reply, Reply> {
        Ok(Reply::Bulk(self.0.clone()))
    }
}

const GET: &[u8] = b"*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n";

/// Sends `count` commands at once and reads their replies of `len` bytes each. Server and client are on one thread, so the
/// server is at rest whenever the test runs.
async fn get(client: &mut TcpStream, count: usize, len: usize) {
    let mut buffer = [0; 4096];
    for at in 0..count {
        buffer[at * GET.len()..][..GET.len()].copy_from_slice(GET);
    }
    client.write_all(&buffer[..count * GET.len()]).unwrap();
    let mut left = count * len;
    while left > 0 {
        let most = left.min(buffer.len());
        match client.read(&mut buffer[..most]) {
            Ok(len) => left -= len,
            Err(error) if error.kind() == ErrorKind::WouldBlock => yield_now().await,
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::test]
async fn an_idle_connection_keeps_little_and_a_command_allocates_once() {
    const CONNECTIONS: usize = 100;
    let _profiler = Profiler::builder().testing().build();
    for (value, len, burst) in [(3, 9, 1), (1000, 1007, 100), (10_000, 10_010, 100)] {
        let any_port = "127.0.0.1:0".parse().unwrap();
        let server = Server::builder(One(vec![b'x'; value].into())).tcp(any_port).start().await.unwrap();
        let mut clients = Vec::with_capacity(2 * CONNECTIONS);
        let mut connect = async |count| {
            for _ in 0..count {
                let mut client = TcpStream::connect(server.listening()[0].addr).unwrap();
                client.set_nonblocking(true).unwrap();
                get(&mut client, burst, len).await;
                clients.push(client);
            }
            HeapStats::get()
        };
        // What grows by doubling grows in the first round.
        let before = connect(CONNECTIONS + 1).await;
        let after = connect(CONNECTIONS - 1).await;
        let idle = (after.curr_bytes - before.curr_bytes) / (CONNECTIONS - 1);
        println!("a connection after {burst} replies of {len} bytes keeps {idle} bytes");
        assert!(idle < 3 * 1024, "{idle}");

        let before = HeapStats::get();
        for client in &mut clients {
            get(client, burst, len).await;
        }
        let after = HeapStats::get();
        let commands = (2 * CONNECTIONS * burst) as u64;
        let allocations = after.total_blocks - before.total_blocks;
        println!("{allocations} allocations for {commands} commands");
        // A few more for buffers that a burst outgrows.
        assert!(allocations <= commands + commands / 10, "{allocations}");
    }
}
