//! A server that sends what it must not: a typed error, the connection closed where it cannot be trusted any more, and
//! never a panic, a hang, or memory set aside on its word.

use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use valkey_rdma_client::{Client, Command, Endpoint, Error, Fate, LostCause, RespError, Transport, Value};

/// What a command gets from a server that answers it with these bytes, and whether the client lives on.
async fn answered_with(bytes: Vec<u8>) -> (Result<Value, Error>, bool) {
    let (ours, mut peer) = duplex(64 * 1024);
    let endpoint = Endpoint::new(Transport::Tcp, "test", 1);
    let server = async {
        let mut received = [0; 512];
        let _login = peer.read(&mut received).await.expect("the login");
        peer.write_all(b"%1\r\n$5\r\nproto\r\n:3\r\n+OK\r\n+OK\r\n+PONG\r\n").await.expect("open");
        let _command = peer.read(&mut received).await.expect("the command");
        // The client may end the connection before it has all of it.
        let _written = peer.write_all(&bytes).await;
        let mut rest = Vec::new();
        let _end = peer.read_to_end(&mut rest).await;
    };
    let client = async {
        let client = Client::from_stream(ours, &endpoint).await.expect("connected");
        let reply = client.command(Command::new("GET").arg("k")).await;
        // Lets the driver see what comes after the reply.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        let alive = !client.is_closed();
        (reply, alive)
    };
    tokio::join!(client, server).0
}

fn protocol_error(reply: Result<Value, Error>) -> RespError {
    match reply {
        Err(Error::Lost(lost)) => match lost.cause() {
            LostCause::Protocol(error) => error.clone(),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_reply_that_is_not_resp_ends_the_connection() {
    let (reply, alive) = answered_with(b"HTTP/1.1 400 Bad Request\r\n".to_vec()).await;
    assert!(matches!(protocol_error(reply), RespError::UnknownType { byte: b'H', .. }));
    assert!(!alive);
}

#[tokio::test]
async fn nesting_beyond_reason_ends_the_connection() {
    let (reply, alive) = answered_with(b"*1\r\n".repeat(100_000)).await;
    assert!(matches!(protocol_error(reply), RespError::TooDeep { .. }));
    assert!(!alive);
}

#[tokio::test]
async fn lengths_beyond_reason_end_the_connection() {
    for header in
        ["$9223372036854775808", "$18446744073709551616", "$-2", "*9223372036854775807", "%-1", "$ 1"]
    {
        let (reply, alive) = answered_with(format!("{header}\r\n").into_bytes()).await;
        assert!(matches!(protocol_error(reply), RespError::BadLength { .. }), "{header}");
        assert!(!alive);
    }
}

#[tokio::test]
async fn a_reply_nobody_asked_for_ends_the_connection_after_the_one_asked_for() {
    let (reply, alive) = answered_with(b"+OK\r\n+OK\r\n".to_vec()).await;
    assert!(reply.is_ok_and(|value| value.is_ok()));
    assert!(!alive);
}

#[tokio::test]
async fn a_lost_reply_says_that_the_command_may_have_run() {
    let (reply, _) = answered_with(b"?\r\n".to_vec()).await;
    assert_eq!(reply.expect_err("lost").fate(), Fate::MayHaveRun);
}

#[tokio::test]
async fn error_replies_of_any_form_leave_the_connection() {
    for error in [&b"-ERR \xff\xfe\r\n"[..], b"-\r\n", b"!8\r\nERR a\r\nb\r\n", b"-NOSPACE\r\n"] {
        let (reply, alive) = answered_with(error.to_vec()).await;
        assert!(matches!(reply, Err(Error::Server(_))), "{reply:?}");
        assert!(alive);
    }
}
