//! Windows: filled to the last byte, offered again, or changed.

use redis_protocol::resp2::types::OwnedFrame;
use valkey_rdma_transport::device::wire::{ControlMessage, XferMemory};

use super::Context;
use crate::Case;
use crate::peer::{Finding, Session, expect_reply, request};

pub(super) const CASES: &[Case<Context>] = &[
    FILL_EXACTLY,
    ONE_BYTE_SHORT,
    MANY_WINDOWS,
    ODD_WINDOW,
    WINDOW_OF_64_KIB,
    WINDOW_OF_7_BYTES,
    WINDOW_OF_1_BYTE,
    FROM_THE_START,
    ANOTHER_BUFFER,
    REGISTER_TWICE_AT_START,
    REGISTER_EARLY,
    REGISTER_WRONG_KEY,
    REGISTER_RESIZED,
    REGISTER_OF_0,
    REGISTER_OF_4_GIB,
];

fn value(len: usize) -> Vec<u8> {
    (0..len).map(|index| b'a' + (index % 23) as u8).collect()
}

fn ok() -> OwnedFrame {
    OwnedFrame::SimpleString(b"OK".to_vec())
}

/// An ECHO whose bytes are exactly `len`, and the text it echoes.
fn echo_of(len: usize) -> Result<(Vec<u8>, Vec<u8>), Finding> {
    // The header's length depends on the number of digits in it.
    for digits in 1..10 {
        let overhead = request(&[b"ECHO", b""]).len() - 1 + digits;
        let Some(text) = len.checked_sub(overhead) else { break };
        if text.to_string().len() == digits {
            let text = value(text);
            return Ok((request(&[b"ECHO", &text]), text));
        }
    }
    Err(Finding::not_run(format!("no ECHO has exactly {len} bytes")))
}

const FILL_EXACTLY: Case<Context> = Case::new("fill-exactly", |c| Box::pin(fill_exactly(c)))
    .clause("W-4")
    .stimulus("the server's window filled to its last byte, a command across the edge")
    .expected("exactly one new Register; both commands run");

async fn fill_exactly(c: &mut Context) -> Result<(), Finding> {
    let mut session = c.session().await?;
    let room = session.room().await? as usize;
    // 10 bytes beyond the edge.
    let (command, text) = echo_of(room + 10).or_else(|_| echo_of(room + 11))?;
    session.write(&command).await?;
    expect_reply(&session.reply().await?, &OwnedFrame::BulkString(text))?;
    session.ping().await?;
    match session.counts() {
        (2, ..) => Ok(()),
        (registers, ..) => Err(Finding::failed(format!("{registers} Registers instead of two"))),
    }
}

const ONE_BYTE_SHORT: Case<Context> = Case::new("one-byte-short", |c| Box::pin(one_byte_short(c)))
    .clause("W-5")
    .stimulus("the server's window filled but for one byte")
    .expected("no Register; then the byte, and one Register");

async fn one_byte_short(c: &mut Context) -> Result<(), Finding> {
    let mut session = c.session().await?;
    let room = session.room().await? as usize;
    let (command, text) = echo_of(room).or_else(|_| echo_of(room + 1))?;
    session.write(&command[..room - 1]).await?;
    session.ask(1).await?;
    if session.counts().0 != 1 {
        return Err(Finding::failed("a Register before the last byte (clause W-5)"));
    }
    session.write(&command[room - 1..]).await?;
    expect_reply(&session.reply().await?, &OwnedFrame::BulkString(text))?;
    session.ask(2).await?;
    match session.counts() {
        (2, ..) => Ok(()),
        (registers, ..) => Err(Finding::failed(format!("{registers} Registers instead of two"))),
    }
}

const MANY_WINDOWS: Case<Context> = Case::new("many-windows", |c| Box::pin(many_windows(c)))
    .clause("W-4")
    .stimulus("a value of three windows and a bit, set and read back")
    .expected("the same bytes; windows filled to their last byte");

async fn many_windows(c: &mut Context) -> Result<(), Finding> {
    let mut session = c.session().await?;
    let value = value(session.room().await? as usize * 3 + 17);
    let key = b"valkey-rdma-conformance";
    expect_reply(&session.command(&[b"SET", key, &value]).await?, &ok())?;
    let reply = session.command(&[b"GET", key]).await?;
    session.command(&[b"DEL", key]).await?;
    expect_reply(&reply, &OwnedFrame::BulkString(value))
}

const FROM_THE_START: Case<Context> = Case::new("from-the-start", |c| Box::pin(from_the_start(c)))
    .clause("W-1")
    .stimulus("three replies, and the client's window looked at whole")
    .expected("they lie there from its start, one behind the other, and nothing else");

async fn from_the_start(c: &mut Context) -> Result<(), Finding> {
    const LEN: u32 = 65_536;
    let mut session = c.session_with_window(LEN).await?;
    let mut expected = c.login_reply().to_vec();
    for len in [1, 1000, 3] {
        let value = value(len);
        let reply = session.command(&[b"ECHO", &value]).await?;
        expect_reply(&reply, &OwnedFrame::BulkString(value.clone()))?;
        expected.extend_from_slice(format!("${len}\r\n").as_bytes());
        expected.extend_from_slice(&value);
        expected.extend_from_slice(b"\r\n");
    }
    // Memory that was never written is zero.
    expected.resize(LEN as usize, 0);
    let window = session.window_bytes();
    match window.iter().zip(&expected).position(|(found, expected)| found != expected) {
        None => Ok(()),
        Some(at) => Err(Finding::failed(format!("byte {at} of the window is {:#04x}", window[at]))),
    }
}

const ODD_WINDOW: Case<Context> = Case::new("odd-window", |c| Box::pin(small_window(c, 100_001, 300_003)))
    .clause("W-2")
    .stimulus("a client window of 100001 bytes, replies of three times that")
    .expected("the same bytes");

const WINDOW_OF_64_KIB: Case<Context> =
    Case::new("window-of-64-KiB", |c| Box::pin(small_window(c, 65_536, 196_608)))
        .clause("W-2")
        .stimulus("a client window of 64 KiB, replies of three times that")
        .expected("the same bytes");

const WINDOW_OF_7_BYTES: Case<Context> =
    Case::new("window-of-7-bytes", |c| Box::pin(small_window(c, 7, 100)))
        .clause("W-2")
        .stimulus("a client window of 7 bytes")
        .expected("replies in 7-byte pieces");

const WINDOW_OF_1_BYTE: Case<Context> = Case::new("window-of-1-byte", |c| Box::pin(small_window(c, 1, 10)))
    .clause("W-2")
    .stimulus("a client window of one byte")
    .expected("replies byte by byte");

async fn small_window(c: &mut Context, window: u32, reply: usize) -> Result<(), Finding> {
    let mut session = c.session_with_window(window).await?;
    for len in [reply, reply + 1] {
        let value = value(len);
        let reply = session.command(&[b"ECHO", &value]).await?;
        expect_reply(&reply, &OwnedFrame::BulkString(value))?;
    }
    Ok(())
}

/// A session whose window is full, with the rest of the reply, of which it returns the text, still to come.
async fn full_window(c: &mut Context) -> Result<(Session, Vec<u8>), Finding> {
    const LEN: u32 = 65_536;
    let mut session = c.session_with_window(LEN).await?;
    session.withhold();
    let value = value(LEN as usize + 1000);
    session.write(&request(&[b"ECHO", &value])).await?;
    while !session.window_is_full() {
        session.take_next().await?;
    }
    Ok((session, value))
}

const ANOTHER_BUFFER: Case<Context> = Case::new("another-buffer", |c| Box::pin(another_buffer(c)))
    .clause("W-6")
    .stimulus("the client's window full, another of the same length offered")
    .expected("the reply goes on in the new one");

async fn another_buffer(c: &mut Context) -> Result<(), Finding> {
    let (mut session, value) = full_window(c).await?;
    session.change_window(65_536)?;
    session.offer().await?;
    expect_reply(&session.reply().await?, &OwnedFrame::BulkString(value))?;
    session.ping().await
}

const REGISTER_RESIZED: Case<Context> = Case::new("register-resized", |c| Box::pin(register_resized(c)))
    .clause("W-3")
    .stimulus("the client's window full, one of another length offered")
    .expected("the reply goes on there, or the connection ends")
    .hostile();

async fn register_resized(c: &mut Context) -> Result<(), Finding> {
    let (mut session, value) = full_window(c).await?;
    session.change_window(131_072)?;
    session.offer().await?;
    match session.reply().await {
        Ok(reply) => expect_reply(&reply, &OwnedFrame::BulkString(value)),
        Err(_) if session.peer.has_ended() => Ok(()),
        Err(finding) => Err(finding),
    }
}

const REGISTER_TWICE_AT_START: Case<Context> =
    Case::new("register-twice-at-start", |c| Box::pin(register_twice(c)))
        .clause("W-5")
        .stimulus("two Registers before any data, the second for another buffer")
        .expected("the reply is in the second");

async fn register_twice(c: &mut Context) -> Result<(), Finding> {
    let mut session = c.silent_session().await?;
    session.handshake().await?;
    session.change_window(1 << 20)?;
    session.offer().await?;
    c.log_in(&mut session).await?;
    session.ping().await
}

const REGISTER_EARLY: Case<Context> = Case::new("register-early", |c| Box::pin(register_early(c)))
    .clause("W-5")
    .stimulus("a Register with part of the client's window written")
    .expected("the connection ends: bytes may be lost");

async fn register_early(c: &mut Context) -> Result<(), Finding> {
    let mut session = c.session().await?;
    session.ping().await?;
    session.offer().await?;
    c.ended_by_server(session).await
}

const REGISTER_WRONG_KEY: Case<Context> = Case::new("register-wrong-key", |c| Box::pin(wrong_key(c)))
    .clause("L-3")
    .stimulus("a Register with a key that fits nothing, then a PING")
    .expected("that connection ends");

async fn wrong_key(c: &mut Context) -> Result<(), Finding> {
    let mut session = c.silent_session().await?;
    let window = session.peer.window(1 << 20)?;
    session.remote().await?;
    let wrong = XferMemory { addr: window.addr, len: window.len, key: window.rkey ^ 0x00ff_ff00 };
    session.say(ControlMessage::RegisterXferMemory(wrong)).await?;
    // The server can end it before this call is over: how it ended is the next one's.
    session.write_one(&request(&[b"PING"])).await?;
    session.peer.end().await.map(drop)
}

const REGISTER_OF_0: Case<Context> = Case::new("register-of-0", |c| Box::pin(register_of(c, 0)))
    .clause("W-2")
    .stimulus("a first Register of length 0")
    .expected("that connection ends")
    .hostile();

const REGISTER_OF_4_GIB: Case<Context> =
    Case::new("register-of-4-GiB", |c| Box::pin(register_of(c, u32::MAX)))
        .clause("W-2")
        .stimulus("a first Register of 4 GiB - 1 bytes")
        .expected("that connection ends, nothing is allocated")
        .hostile();

async fn register_of(c: &mut Context, len: u32) -> Result<(), Finding> {
    let mut session = c.silent_session().await?;
    let window = session.peer.window(65_536)?;
    session.remote().await?;
    let memory = XferMemory { addr: window.addr, len, key: window.rkey };
    session.say(ControlMessage::RegisterXferMemory(memory)).await?;
    c.ended_by_server(session).await
}
