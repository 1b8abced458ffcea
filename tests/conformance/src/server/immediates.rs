//! Writes and the immediates that announce them.

use redis_protocol::resp2::types::OwnedFrame;
use valkey_rdma_transport::device::work::FailureStatus;

use super::Context;
use crate::Case;
use crate::peer::{Finding, Seen, Session, expect_reply, request};

pub(super) const CASES: &[Case<Context>] = &[
    PLAIN_WRITES_FIRST,
    IMM_OF_0,
    BYTE_BY_BYTE,
    IMM_SHORT,
    GARBAGE,
    WRITE_BEYOND_WINDOW,
    WRITE_BELOW_WINDOW,
    WRITE_WRONG_KEY,
    IMM_BEYOND_WINDOW,
    IMM_WRAPS,
];

const PLAIN_WRITES_FIRST: Case<Context> =
    Case::new("plain-writes-first", |c| Box::pin(plain_writes_first(c)))
        .clause("I-4")
        .stimulus("WRITE 128, WRITE 256, WRITE_WITH_IMM 128 that announces all 512")
        .expected("one command, read in order");

async fn plain_writes_first(c: &mut Context) -> Result<(), Finding> {
    let mut session = c.session().await?;
    // 512 bytes: the header of ECHO and its text.
    let text = vec![b'x'; 512 - request(&[b"ECHO", &[b'x'; 100]]).len() + 100];
    let command = request(&[b"ECHO", &text]);
    let (addr, key) = session.place().await?;
    session.peer.write(addr, key, &command[..128]).await?;
    session.peer.write(addr + 128, key, &command[128..384]).await?;
    session.peer.write_imm(addr + 384, key, &command[384..], command.len() as u32).await?;
    session.wrote(command.len() as u32);
    expect_reply(&session.reply().await?, &OwnedFrame::BulkString(text))?;
    session.ping().await
}

const IMM_OF_0: Case<Context> = Case::new("imm-of-0", |c| Box::pin(imm_of_0(c)))
    .clause("I-5")
    .stimulus("20 writes of nothing with immediate 0, then PING")
    .expected("ignored; +PONG");

async fn imm_of_0(c: &mut Context) -> Result<(), Finding> {
    let mut session = c.session().await?;
    let (addr, key) = session.place().await?;
    for _ in 0..20 {
        session.peer.write_imm(addr, key, b"", 0).await?;
    }
    session.ping().await
}

const BYTE_BY_BYTE: Case<Context> = Case::new("byte-by-byte", |c| Box::pin(byte_by_byte(c)))
    .clause("I-1")
    .stimulus("a command announced byte by byte")
    .expected("one command");

async fn byte_by_byte(c: &mut Context) -> Result<(), Finding> {
    let mut session = c.session().await?;
    for byte in request(&[b"PING"]) {
        session.write_one(&[byte]).await?;
    }
    session.pongs(1).await?;
    session.ping().await
}

const IMM_SHORT: Case<Context> = Case::new("imm-short", |c| Box::pin(imm_short(c)))
    .clause("I-3")
    .stimulus("an immediate smaller than what was written")
    .expected("the connection ends");

async fn imm_short(c: &mut Context) -> Result<(), Finding> {
    let mut session = c.session().await?;
    session.ping().await?;
    let ping = request(&[b"PING"]);
    let (addr, key) = session.place().await?;
    session.peer.write_imm(addr, key, &ping, ping.len() as u32 - 1).await?;
    session.wrote(ping.len() as u32);
    c.ended_by_server(session).await
}

const GARBAGE: Case<Context> = Case::new("garbage", |c| Box::pin(garbage(c)))
    .clause("X-3")
    .stimulus("512 bytes that are not RESP")
    .expected("an error, or the end of that connection");

async fn garbage(c: &mut Context) -> Result<(), Finding> {
    let mut session = c.session().await?;
    let noise: Vec<u8> = (0..512_u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let answer = async {
        session.write(&noise).await?;
        session.write(b"\r\n").await?;
        session.reply().await
    }
    .await;
    match answer {
        Ok(OwnedFrame::Error(_)) => Ok(()),
        Ok(other) => Err(Finding::failed(format!("answered with {other:?}"))),
        Err(_) if session.peer.has_ended() => Ok(()),
        Err(finding) => Err(finding),
    }
}

#[derive(Clone, Copy)]
enum Elsewhere {
    Beyond,
    Below,
    WrongKey,
}

const WRITE_BEYOND_WINDOW: Case<Context> =
    Case::new("write-beyond-window", |c| Box::pin(write_elsewhere(c, Elsewhere::Beyond)))
        .clause("L-3")
        .stimulus("a WRITE past the window's end")
        .expected("remote access error");

const WRITE_BELOW_WINDOW: Case<Context> =
    Case::new("write-below-window", |c| Box::pin(write_elsewhere(c, Elsewhere::Below)))
        .clause("L-3")
        .stimulus("a WRITE below the window")
        .expected("remote access error");

const WRITE_WRONG_KEY: Case<Context> =
    Case::new("write-wrong-key", |c| Box::pin(write_elsewhere(c, Elsewhere::WrongKey)))
        .clause("L-3")
        .stimulus("a WRITE with a wrong key")
        .expected("remote access error");

async fn write_elsewhere(c: &mut Context, elsewhere: Elsewhere) -> Result<(), Finding> {
    let mut session: Session = c.session().await?;
    session.ping().await?;
    let remote = session.remote().await?;
    let (addr, key) = match elsewhere {
        Elsewhere::Beyond => (remote.addr + u64::from(remote.len) - 4, remote.key),
        Elsewhere::Below => (remote.addr - 4, remote.key),
        Elsewhere::WrongKey => (remote.addr, remote.key ^ 0x00ff_ff00),
    };
    session.peer.write(addr, key, b"8 bytes!").await?;
    let mut end = session.peer.end().await?;
    if matches!(end, Seen::Closed(_)) {
        // The connection manager may report the end first.
        end = session.peer.end().await.unwrap_or(end);
    }
    match end {
        Seen::Failed(FailureStatus::RemoteAccess) => Ok(()),
        other => Err(Finding::failed(format!("ended with {other:?}, not with a remote access error"))),
    }
}

const IMM_BEYOND_WINDOW: Case<Context> = Case::new("imm-beyond-window", |c| Box::pin(imm_beyond(c)))
    .clause("I-2")
    .stimulus("an immediate of one more than the window has left")
    .expected("the connection ends")
    .hostile();

async fn imm_beyond(c: &mut Context) -> Result<(), Finding> {
    let mut session = c.session().await?;
    let room = session.room().await?;
    let (addr, key) = session.place().await?;
    session.peer.write_imm(addr, key, b"x", room + 1).await?;
    c.ended_by_server(session).await
}

const IMM_WRAPS: Case<Context> = Case::new("imm-wraps", |c| Box::pin(imm_wraps(c)))
    .clause("I-2")
    .stimulus("a PING, then immediates of 4 GiB - 1")
    .expected("the connection ends")
    .hostile();

async fn imm_wraps(c: &mut Context) -> Result<(), Finding> {
    let mut session = c.session().await?;
    session.ping().await?;
    for _ in 0..3 {
        let (addr, key) = session.place().await?;
        session.peer.write_imm(addr, key, b"x", u32::MAX).await?;
    }
    c.ended_by_server(session).await
}
