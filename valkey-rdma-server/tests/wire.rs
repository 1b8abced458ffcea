//! Commands and replies as bytes, over every transport.

mod support;

use support::{Store, Wire, start, store, until, wires};
use tokio::task::JoinSet;
use valkey_rdma_server::Limits;

#[tokio::test]
async fn resp_and_inline_commands_are_answered() {
    let server = store().await;
    for wire in &mut wires(&server).await {
        wire.send("*1\r\n$4\r\nPING\r\n").await;
        wire.expect("+PONG\r\n").await;
        wire.send("PING\r\n").await;
        wire.expect("+PONG\r\n").await;
        wire.send("*2\r\n$4\r\necho\r\n$6\r\na\r\n\0b\r\r\n").await;
        wire.expect("$6\r\na\r\n\0b\r\r\n").await;
    }
}

#[tokio::test]
async fn a_pipeline_split_at_every_byte_is_answered_in_order() {
    let server = store().await;
    for wire in &mut wires(&server).await {
        let pipeline =
            b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4\r\na\r\nb\r\nGET k\r\n*2\r\n$3\r\nDEL\r\n$1\r\nk\r\n";
        for at in 0..=pipeline.len() {
            wire.send(&pipeline[..at]).await;
            tokio::task::yield_now().await;
            wire.send(&pipeline[at..]).await;
            wire.expect("+OK\r\n$4\r\na\r\nb\r\n:1\r\n").await;
        }
    }
}

/// From one byte to four times any window in use.
#[tokio::test]
async fn values_of_any_size_come_back_whole() {
    let server = store().await;
    for wire in &mut wires(&server).await {
        for len in [1, 3, 1023, 16_383, 16_384, 65_536, 1_000_003, 4 * 1024 * 1024 + 7, 16 * 1024 * 1024] {
            let value: Vec<u8> = (0..len).map(|at| (at * 7 + at / 251) as u8).collect();
            let bulk = [format!("${len}\r\n").as_bytes(), &value, b"\r\n"].concat();
            wire.send([b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n", &bulk[..]].concat()).await;
            wire.expect("+OK\r\n").await;
            wire.send("GET k\r\n").await;
            wire.expect(&bulk).await;
        }
    }
}

/// Blocking clients write a whole pipeline before they read its first reply.
#[tokio::test]
async fn a_pipeline_with_replies_of_8_mib_may_be_written_before_it_is_read() {
    let server = store().await;
    for wire in &mut wires(&server).await {
        let value = vec![b'v'; 8192];
        wire.send([b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$8192\r\n", &value[..], b"\r\n"].concat()).await;
        wire.expect("+OK\r\n").await;
        wire.send("*2\r\n$3\r\nGET\r\n$1\r\nk\r\n".repeat(1024)).await;
        let reply = [b"$8192\r\n", &value[..], b"\r\n"].concat();
        for _ in 0..1024 {
            wire.expect(&reply).await;
        }
    }
}

#[tokio::test]
async fn ten_thousand_commands_at_once_are_answered_in_order() {
    let server = store().await;
    for wire in &mut wires(&server).await {
        wire.dialogue(&[("DEL n", ":0\r\n")]).await;
        wire.send("INCR n\r\n".repeat(10_000)).await;
        let replies: String = (1..=10_000).map(|n| format!(":{n}\r\n")).collect();
        wire.expect(replies).await;
        wire.dialogue(&[("DEL n", ":1\r\n")]).await;
    }
}

#[tokio::test]
async fn a_protocol_error_is_answered_and_ends_the_connection() {
    let server = store().await;
    for (input, error) in [
        ("*x\r\n", "invalid multibulk length"),
        ("*2147483648\r\n", "invalid multibulk length"),
        ("*1\r\n:4\r\n", "expected '$', got ':'"),
        ("*1\r\n$-2\r\n", "invalid bulk length"),
        ("*3\r\n$3\r\nSET\r\n$1\r\nx\r\n$536870913\r\n", "invalid bulk length"),
        ("*1\r\n$4\r\nPINGxx", "invalid CRLF in request"),
        ("*1\r\n$4\rPING\r\n", "invalid CRLF in request"),
        ("*1\rx", "invalid CRLF in request"),
        ("ECHO 'a\r\n", "unbalanced quotes in request"),
    ] {
        for wire in &mut wires(&server).await {
            wire.send(format!("PING\r\n{input}PING\r\n")).await;
            wire.expect(format!("+PONG\r\n-ERR Protocol error: {error}\r\n")).await;
            wire.expect_end().await;
        }
    }
}

/// Servers before Valkey 7 accept 1 048 576.
#[tokio::test]
async fn a_command_of_two_million_words_runs() {
    let server = store().await;
    for wire in &mut wires(&server).await {
        let words = 2_000_000;
        let command =
            [format!("*{words}\r\n$4\r\nECHO\r\n").as_bytes(), &b"$1\r\nx\r\n".repeat(words - 1)].concat();
        wire.send(command).await;
        wire.expect("-ERR wrong number of arguments for 'echo' command\r\n").await;
    }
}

/// Each word counts with the memory that it takes, however short it is.
#[tokio::test]
async fn words_without_end_are_bounded_by_the_input_limit() {
    let server = start(Store::default(), &Limits::default().input_limit(1 << 20)).await;
    for wire in &mut wires(&server).await {
        wire.send("*2147483647\r\n").await;
        // 32 bytes each in memory, six on the wire: that is more than the limit, sent as less.
        wire.send("$0\r\n\r\n".repeat(100_000)).await;
        wire.expect_cut().await;
    }
}

/// A web page can make a browser send it to any port.
#[tokio::test]
async fn an_http_request_ends_the_connection_before_its_body_runs() {
    let server = store().await;
    let bodies = ["POST / HTTP/1.1\r\n", "GET / HTTP/1.1\r\nhost: 127.0.0.1\r\n", "*1\r\n$4\r\npost\r\n"];
    for head in bodies {
        for wire in &mut wires(&server).await {
            wire.send(format!("{head}\r\nSET pwned 1\r\n")).await;
            wire.expect_cut().await;
        }
    }
    until("all are counted", async || server.refused().http_requests == 6).await;
    for wire in &mut wires(&server).await {
        wire.dialogue(&[("GET pwned", "$-1\r\n")]).await;
    }
}

#[tokio::test]
async fn an_argument_longer_than_allowed_is_refused_before_it_is_sent() {
    let server = start(Store::default(), &Limits::default().max_argument_len(1000)).await;
    for wire in &mut wires(&server).await {
        wire.send("*2\r\n$4\r\nECHO\r\n$1001\r\n").await;
        wire.expect("-ERR Protocol error: invalid bulk length\r\n").await;
        wire.expect_end().await;
    }
}

/// The reply to QUIT must not be lost in the end of the connection.
#[tokio::test]
async fn quit_is_answered_before_the_end() {
    let server = store().await;
    let mut clients = JoinSet::new();
    for listening in server.listening().repeat(200) {
        clients.spawn(async move {
            let mut wire = Wire::connect(&listening).await;
            wire.send("PING\r\nQUIT\r\nPING\r\n").await;
            wire.expect("+PONG\r\n+OK\r\n").await;
            wire.expect_end().await;
        });
    }
    clients.join_all().await;
}
