//! A server whose bytes are changed on their way, RESP2 and RESP3: each caller gets the reply to its command or an error, never the
//! reply to another. A mutation changes the reply of one caller at most; what that caller gets is not looked at.
//!
//! `VALKEY_RDMA_TEST_CASES` says how many cases each test runs, 1000 by default, half of them in each protocol. A failure names its seed; `VALKEY_RDMA_TEST_SEED` begins there.

use bytes::BufMut;
use fastrand::Rng;
use futures_util::future::join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use valkey_rdma_client::{Client, Command, Endpoint, Error, Value};
use valkey_rdma_resp::{Parser, Room};

const CALLERS: usize = 6;
const MAP: &[u8] = b"%2\r\n$6\r\nserver\r\n$6\r\nvalkey\r\n$5\r\nproto\r\n:3\r\n";
const ECHO: &[u8] = b"$11\r\nvalkey-rdma\r\n";

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().expect("a number"))
}

fn endpoint(is_resp3: bool) -> Endpoint {
    let url = if is_resp3 { "valkey://test" } else { "valkey://test?protocol=resp2" };
    url.parse().expect("a good URL")
}

/// The value of a caller's key. No part of it can be taken for the beginning of a reply.
fn value(caller: usize) -> String {
    format!("v{caller}-{}", "abcdefghij".repeat(caller % 3))
}

/// The right replies to the login and to the callers, one by one.
fn replies(is_resp3: bool) -> Vec<Vec<u8>> {
    let mut replies = if is_resp3 { vec![MAP.to_vec()] } else { Vec::new() };
    replies.extend([b"+OK\r\n".to_vec(), b"+OK\r\n".to_vec(), ECHO.to_vec()]);
    replies.extend((0..CALLERS).map(|caller| {
        let value = value(caller);
        format!("${}\r\n{value}\r\n", value.len()).into_bytes()
    }));
    replies
}

/// Changes one reply in a way that makes no whole reply of a part of it.
fn mutate(reply: &mut Vec<u8>, rng: &mut Rng) {
    let at = rng.usize(..reply.len());
    let bytes = b"$*+-:_#,(!=%~>|0123456789\r\n \0xk\xff";
    match rng.u8(..5) {
        0 => reply[at] = bytes[rng.usize(..bytes.len())],
        1 => reply[at] ^= 1 << rng.u8(..8),
        2 => {
            // Without LF, so that it completes nothing.
            let garbage: Vec<u8> =
                (0..rng.usize(1..6)).map(|_| rng.u8(..)).filter(|byte| *byte != b'\n').collect();
            reply.splice(at..at, garbage);
        }
        3 => {
            let most = (reply.len() - at).min(reply.len() - 1);
            reply.drain(at..at + rng.usize(..=most));
        }
        _ => {
            let digit = reply.iter().position(u8::is_ascii_digit);
            if let Some(digit) = digit {
                reply[digit] = b'0' + rng.u8(..10);
            }
        }
    }
}

/// Waits until this many commands have come. `false`: the client has given up before.
async fn commands(stream: &mut DuplexStream, parser: &mut Parser, mut count: usize) -> bool {
    while count > 0 {
        while let Some(_command) = parser.next_command(true).expect("commands") {
            count -= 1;
            if count == 0 {
                return true;
            }
        }
        let mut piece = [0; 512];
        let Ok(len @ 1..) = stream.read(&mut piece).await else { return false };
        match parser.room() {
            Room::Buffer(buffer) => buffer.put_slice(&piece[..len]),
            Room::Argument(_) => unreachable!("no argument is large"),
        }
    }
    true
}

/// Writes bytes in pieces, between which the client may run.
async fn say(stream: &mut DuplexStream, bytes: &[u8], rng: &mut Rng) {
    let mut rest = bytes;
    while !rest.is_empty() {
        let (piece, later) = rest.split_at(rng.usize(1..=rest.len()));
        // The client may have ended the connection.
        let _written = stream.write_all(piece).await;
        for _ in 0..rng.u8(..3) {
            tokio::task::yield_now().await;
        }
        rest = later;
    }
}

/// What the callers get from a server that says these bytes: `login` at first, the rest once all have asked.
async fn ask(is_resp3: bool, replies: &[Vec<u8>], rng: &mut Rng) -> Option<Vec<Result<Value, Error>>> {
    let (ours, mut peer) = duplex(4096);
    let login = replies.len() - CALLERS;
    let commands_of_login = 3 + usize::from(is_resp3);
    let server = async {
        let mut parser = Parser::new(1 << 20);
        if commands(&mut peer, &mut parser, commands_of_login).await {
            say(&mut peer, &replies[..login].concat(), rng).await;
        }
        if commands(&mut peer, &mut parser, CALLERS).await {
            say(&mut peer, &replies[login..].concat(), rng).await;
        }
        peer.shutdown().await.expect("in memory");
        let mut rest = Vec::new();
        let _end = peer.read_to_end(&mut rest).await;
    };
    let client = async {
        let client = Client::from_stream(ours, &endpoint(is_resp3)).await.ok()?;
        let asked = (0..CALLERS).map(|caller| client.command(Command::new("GET").arg(format!("k{caller}"))));
        Some(join_all(asked).await)
    };
    tokio::join!(client, server).0
}

/// Everybody but the caller whose reply was changed has its own value or an error.
fn check(outcome: Option<Vec<Result<Value, Error>>>, changed: Option<usize>, context: &str) {
    let outcome = outcome.unwrap_or_default();
    // A longer length may take whole replies to others into the string, and end where one of them ends. RESP has no means against that.
    let has_others = |reply: &Value| reply.as_bytes().is_some_and(|bytes| bytes.contains(&b'\n'));
    if changed.and_then(|caller| outcome.get(caller)?.as_ref().ok()).is_some_and(has_others) {
        return;
    }
    for (caller, reply) in outcome.into_iter().enumerate() {
        if let Ok(reply) = reply
            && changed != Some(caller)
        {
            assert_eq!(reply.as_str(), Some(&*value(caller)), "caller {caller}: {context}");
        }
    }
}

/// Time passes only while everybody waits: some mutations make the client wait for its limit.
fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().start_paused(true).build().expect("a runtime")
}

fn run(case: impl AsyncFn(&mut Rng, bool, &str)) {
    let runtime = runtime();
    let first = number("VALKEY_RDMA_TEST_SEED", 1);
    for seed in first..first + number("VALKEY_RDMA_TEST_CASES", 1000) / 2 {
        for is_resp3 in [false, true] {
            let context = format!("seed {seed}, resp3 {is_resp3}");
            runtime.block_on(case(&mut Rng::with_seed(seed), is_resp3, &context));
        }
    }
}

#[test]
fn a_reply_that_is_changed_changes_no_other() {
    run(async |rng, is_resp3, context| {
        let mut replies = replies(is_resp3);
        let changed = rng.usize(..replies.len());
        let before = replies[changed].clone();
        mutate(&mut replies[changed], rng);
        let context = format!("{context}, {} -> {}", before.escape_ascii(), replies[changed].escape_ascii());
        let login = replies.len() - CALLERS;
        let outcome = ask(is_resp3, &replies, rng).await;
        check(outcome, changed.checked_sub(login), &context);
    });
}

/// Whatever comes too many: in the login, before it, or behind it before anybody asks.
#[test]
fn a_reply_too_many_in_the_login_reaches_nobody() {
    let strays: [&[u8]; 9] = [
        b"+OK\r\n",
        b":1\r\n",
        b"$-1\r\n",
        b"*0\r\n",
        b"$2\r\nv0\r\n",
        b"-ERR x\r\n",
        b"%0\r\n",
        b"_\r\n",
        MAP,
    ];
    run(async |rng, is_resp3, context| {
        let mut replies = replies(is_resp3);
        let login = replies.len() - CALLERS;
        let at = rng.usize(..login);
        let stray = strays[rng.usize(..strays.len())];
        replies[at] = [stray, &replies[at]].concat();
        let context = format!("{context}, {} before reply {at}", stray.escape_ascii());
        let outcome = ask(is_resp3, &replies, rng).await;
        check(outcome, None, &context);
    });
}

#[test]
fn a_connection_that_ends_anywhere_gives_right_replies_or_errors() {
    run(async |rng, is_resp3, context| {
        let mut replies = replies(is_resp3);
        let last = rng.usize(..replies.len());
        for reply in &mut replies[last + 1..] {
            reply.clear();
        }
        let len = rng.usize(..replies[last].len());
        replies[last].truncate(len);
        let outcome = ask(is_resp3, &replies, rng).await;
        check(outcome, None, &format!("{context}, {len} bytes of reply {last}"));
    });
}

/// What a script or a module of one caller can make a server say: the replies to others follow.
#[test]
fn a_strange_reply_to_one_caller_is_an_error_or_nil_for_that_caller_only() {
    let deep = [&b"*1\r\n".repeat(8000)[..], b":1\r\n"].concat();
    let long = |kind: &str| [kind.as_bytes(), &vec![b'9'; 2 << 20], b"\r\n"].concat();
    let runtime = runtime();
    let both: [(&[u8], bool); 5] =
        [(&deep, false), (&long("+"), false), (&long("-"), false), (b"$-1\r\n", true), (b"*-1\r\n", true)];
    let resp3: [(&[u8], bool); 3] = [(&long("("), false), (b"(12x\r\n", false), (b"(\r\n", false)];
    let all = both.iter().map(|case| (false, case)).chain(both.iter().chain(&resp3).map(|case| (true, case)));
    for (is_resp3, (reply, is_nil)) in all {
        let mut replies = replies(is_resp3);
        let login = replies.len() - CALLERS;
        replies[login + 2] = reply.to_vec();
        let outcome = runtime.block_on(ask(is_resp3, &replies, &mut Rng::with_seed(7))).expect("connected");
        for (caller, got) in outcome.iter().enumerate() {
            let shown = &reply[..reply.len().min(9)];
            match got {
                Ok(value) if caller == 2 && *is_nil => assert!(value.is_nil()),
                Err(Error::Server(_)) if caller == 2 => {}
                Ok(Value::Array(_)) if caller == 2 && reply == &&*deep => {}
                got => {
                    let text = got.as_ref().ok().and_then(Value::as_str);
                    assert_eq!(text, Some(&*value(caller)), "{caller}, {}", shown.escape_ascii());
                }
            }
        }
    }
}
