//! Many messages at once, and replies that the client does not take yet.

use redis_protocol::resp2::types::OwnedFrame;

use super::Context;
use crate::Case;
use crate::peer::{Finding, expect_reply, request};

pub(super) const CASES: &[Case<Context>] =
    &[FIVE_THOUSAND_BYTES, NO_RECEIVES, WRITE_ALL_READ_LATER, LATE_WINDOW];

const FIVE_THOUSAND_BYTES: Case<Context> =
    Case::new("five-thousand-bytes", |c| Box::pin(five_thousand_bytes(c)))
        .clause("H-5")
        .stimulus("5000 immediates of one byte each, as fast as they go")
        .expected("none is lost; the connection lives");

async fn five_thousand_bytes(c: &mut Context) -> Result<(), Finding> {
    let mut session = c.session().await?;
    let pings = b"PING\r\n".repeat(5000 / 6 + 1);
    for &byte in &pings[..5000 / 6 * 6] {
        session.write_one(&[byte]).await?;
    }
    session.pongs(5000 / 6).await
}

const NO_RECEIVES: Case<Context> = Case::new("no-receives", |c| Box::pin(no_receives(c)))
    .clause("H-5")
    .stimulus("3000 PINGs, one by one, from a client that posts no receives again until all are sent")
    .expected("3000 replies, once it does");

async fn no_receives(c: &mut Context) -> Result<(), Finding> {
    let mut session = c.session().await?;
    session.ping().await?;
    session.peer.hold_receives();
    let ping = request(&[b"PING"]);
    for _ in 0..3000 {
        session.write_one(&ping).await?;
    }
    session.peer.acknowledged().await?;
    session.peer.release_receives()?;
    session.pongs(3000).await
}

const WRITE_ALL_READ_LATER: Case<Context> =
    Case::new("write-all-read-later", |c| Box::pin(write_all_read_later(c)))
        .clause("C-4")
        .stimulus("512 GETs of 16 KiB written before the first reply is taken")
        .expected("the commands are taken, then all replies come");

async fn write_all_read_later(c: &mut Context) -> Result<(), Finding> {
    const GETS: usize = 512;
    let mut session = c.session_with_window(65_536).await?;
    let key = b"valkey-rdma-conformance";
    let value = vec![b'v'; 16 << 10];
    let stored = session.command(&[b"SET", key, &value]).await?;
    expect_reply(&stored, &OwnedFrame::SimpleString(b"OK".to_vec()))?;
    session.withhold();
    let gets = request(&[b"GET", key]);
    for _ in 0..GETS {
        session.write_one(&gets).await?;
    }
    // The answer proves that the server has taken all of them while their replies wait for a window.
    session.ask(3).await?;
    session.resume().await?;
    for _ in 0..GETS {
        expect_reply(&session.reply().await?, &OwnedFrame::BulkString(value.clone()))?;
    }
    session.command(&[b"DEL", key]).await.map(drop)
}

const LATE_WINDOW: Case<Context> = Case::new("late-window", |c| Box::pin(late_window(c)))
    .clause("H-3")
    .stimulus("a full client window offered again a second later, while replies wait")
    .expected("all replies come");

async fn late_window(c: &mut Context) -> Result<(), Finding> {
    let mut session = c.session_with_window(65_536).await?;
    session.withhold();
    let text = vec![b't'; 10_000];
    session.write(&request(&[b"ECHO", &text]).repeat(10)).await?;
    while !session.window_is_full() {
        session.take_next().await?;
    }
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    session.resume().await?;
    for _ in 0..10 {
        expect_reply(&session.reply().await?, &OwnedFrame::BulkString(text.clone()))?;
    }
    Ok(())
}
