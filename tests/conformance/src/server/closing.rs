//! Keepalives and the end.

use redis_protocol::resp2::types::OwnedFrame;

use super::Context;
use crate::Case;
use crate::peer::{Finding, expect_reply, request};

pub(super) const CASES: &[Case<Context>] =
    &[KEEPALIVE, KEEPALIVE_ONCE, QUIT, LEAVE_MID_COMMAND, LEAVE_WITH_REPLIES_DUE, UNANNOUNCED];

const KEEPALIVE: Case<Context> = Case::new("keepalive", |c| Box::pin(keepalive(c)))
    .clause("K-1")
    .stimulus("a client that says nothing")
    .expected("two keepalives come");

async fn keepalive(c: &mut Context) -> Result<(), Finding> {
    let mut session = c.session().await?;
    for count in 0..2 {
        while session.counts().1 <= count {
            session.take_anything().await?;
        }
    }
    Ok(())
}

const KEEPALIVE_ONCE: Case<Context> = Case::new("keepalive-once", |c| Box::pin(keepalive_once(c)))
    .clause("K-2")
    .stimulus("a client without receives for five of the server's periods, that then posts them again")
    .expected("one keepalive was in flight, not several");

async fn keepalive_once(c: &mut Context) -> Result<(), Finding> {
    let mut session = c.session().await?;
    // One receive is left at most: the next keepalive takes it, the one after that stays in flight.
    session.peer.hold_receives();
    let before = session.counts().1;
    for used in 1.. {
        if used + session.counts().1 - before >= RECEIVES {
            break;
        }
        session.ask(0).await.map_err(|finding| {
            Finding::not_run(format!("the receives could not be used up by questions: {finding}"))
        })?;
    }
    // Five periods, as another connection counts them.
    let mut clock = c.session().await?;
    while clock.counts().1 < 5 {
        clock.take_anything().await?;
    }
    let before = session.counts().1;
    session.peer.release_receives()?;
    session.ask(1).await?;
    match session.counts().1 - before {
        // The one that found a receive, the one that did not, and one that is just due.
        0..=3 => Ok(()),
        several => Err(Finding::failed(format!("{several} keepalives were in flight"))),
    }
}

const QUIT: Case<Context> = Case::new("quit", |c| Box::pin(quit(c)))
    .clause("X-1")
    .stimulus("QUIT, 50 times")
    .expected("+OK arrives before the end every time");

async fn quit(c: &mut Context) -> Result<(), Finding> {
    for number in 1..=50 {
        let mut session = c.session().await?;
        // Looks at nothing that comes: the reply and the end may be here together.
        session.write_one(&request(&[b"QUIT"])).await?;
        let reply = session.reply().await.map_err(|finding| {
            Finding::failed(format!("QUIT number {number} was not answered: {finding}"))
        })?;
        expect_reply(&reply, &OwnedFrame::SimpleString(b"OK".to_vec()))?;
        session.peer.end().await?;
    }
    Ok(())
}

const LEAVE_MID_COMMAND: Case<Context> = Case::new("leave-mid-command", |c| Box::pin(leave_mid_command(c)))
    .clause("X-3")
    .stimulus("disconnect in the middle of a command, 20 times")
    .expected("others are served");

async fn leave_mid_command(c: &mut Context) -> Result<(), Finding> {
    for _ in 0..20 {
        let mut session = c.session().await?;
        session.write(b"*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$100\r\nhalf a val").await?;
        session.peer.disconnect();
    }
    Ok(())
}

const LEAVE_WITH_REPLIES_DUE: Case<Context> =
    Case::new("leave-with-replies-due", |c| Box::pin(leave_with_replies_due(c)))
        .clause("X-3")
        .stimulus("disconnect while large replies wait for a window")
        .expected("others are served")
        .hostile();

async fn leave_with_replies_due(c: &mut Context) -> Result<(), Finding> {
    let mut session = c.session_with_window(65_536).await?;
    session.withhold();
    let text = vec![b't'; 50_000];
    session.write(&request(&[b"ECHO", &text]).repeat(4)).await?;
    while !session.window_is_full() {
        session.take_next().await?;
    }
    session.peer.disconnect();
    Ok(())
}

const UNANNOUNCED: Case<Context> = Case::new("unannounced", |c| Box::pin(unannounced(c)))
    .clause("X-5")
    .stimulus("a SET written and never announced; then disconnect")
    .expected("it is never run");

async fn unannounced(c: &mut Context) -> Result<(), Finding> {
    let key = b"valkey-rdma-conformance-unannounced";
    let mut session = c.session().await?;
    session.command(&[b"DEL", key]).await?;
    let (addr, rkey) = session.place().await?;
    session.peer.write(addr, rkey, &request(&[b"SET", key, b"value"])).await?;
    // The answer proves that the server has read everything sent before it.
    session.ask(1).await?;
    let mut other = c.session().await?;
    expect_reply(&other.command(&[b"GET", key]).await?, &OwnedFrame::Null)?;
    session.peer.disconnect();
    session.peer.end().await?;
    expect_reply(&other.command(&[b"GET", key]).await?, &OwnedFrame::Null)
}

/// Receives that a session posts.
const RECEIVES: u64 = 1024;
