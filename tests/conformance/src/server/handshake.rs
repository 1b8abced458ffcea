//! Connecting and the first Registers.

use std::time::Duration;

use super::Context;
use crate::Case;
use crate::peer::{Finding, Peer, request};

pub(super) const CASES: &[Case<Context>] = &[
    REGISTER_FIRST,
    WINDOW_LENGTH,
    NO_FEATURES,
    REGISTER_LATE,
    HUNDRED_CONNECTIONS,
    MANY_AT_ONCE,
    CLOSED_IN_HANDSHAKE,
    VANISH,
];

const REGISTER_FIRST: Case<Context> = Case::new("register-first", |c| Box::pin(register_first(c)))
    .clause("H-2")
    .stimulus("connect, say nothing")
    .expected("one Register arrives, unasked");

async fn register_first(c: &mut Context) -> Result<(), Finding> {
    let mut session = c.silent_session().await?;
    session.remote().await?;
    // The answer comes after all that the server had to say of itself.
    session.ask(0).await?;
    match session.counts() {
        (1, ..) => Ok(()),
        (registers, ..) => Err(Finding::failed(format!("{registers} Registers instead of one"))),
    }
}

const WINDOW_LENGTH: Case<Context> = Case::new("window-length", |c| Box::pin(window_length(c)))
    .clause("W-2")
    .stimulus("connect, say nothing")
    .expected("the window has 64 KiB to 16 MiB, unless configured otherwise");

async fn window_length(c: &mut Context) -> Result<(), Finding> {
    let len = c.silent_session().await?.remote().await?.len;
    if (64 << 10..=16 << 20).contains(&len) {
        return Ok(());
    }
    Err(Finding::failed(format!("the window has {len} bytes")))
}

const NO_FEATURES: Case<Context> = Case::new("no-features", |c| Box::pin(no_features(c)))
    .clause("H-2")
    .stimulus("register and PING, no feature messages")
    .expected("+PONG");

async fn no_features(c: &mut Context) -> Result<(), Finding> {
    c.session().await?.ping().await
}

const REGISTER_LATE: Case<Context> = Case::new("register-late", |c| Box::pin(register_late(c)))
    .clause("H-3")
    .stimulus("10 PINGs at once, Register a second later")
    .expected("10 replies, none before the Register");

async fn register_late(c: &mut Context) -> Result<(), Finding> {
    let mut session = c.silent_session().await?;
    session.remote().await?;
    c.send_login(&mut session).await?;
    session.write(&request(&[b"PING"]).repeat(10)).await?;
    tokio::time::sleep(LATE).await;
    while let Some(seen) = session.peer.glance()? {
        if matches!(seen, crate::peer::Seen::Announced { .. }) {
            return Err(Finding::failed("the server wrote before it had a window (clause H-3)"));
        }
    }
    session.offer().await?;
    c.login_accepted(&mut session).await?;
    session.pongs(10).await
}

const HUNDRED_CONNECTIONS: Case<Context> =
    Case::new("hundred-connections", |c| Box::pin(hundred_connections(c)))
        .clause("X-3")
        .stimulus("100 connections one after the other, closed after a PING")
        .expected("each is served");

async fn hundred_connections(c: &mut Context) -> Result<(), Finding> {
    for number in 1..=100 {
        let served = async {
            let mut session = c.session().await?;
            session.ping().await?;
            session.peer.disconnect();
            Ok::<_, Finding>(())
        };
        served.await.map_err(|finding| Finding::failed(format!("connection {number}: {finding}")))?;
    }
    Ok(())
}

const MANY_AT_ONCE: Case<Context> = Case::new("many-at-once", |c| Box::pin(many_at_once(c)))
    .clause("H-1")
    .stimulus("32 connections at once, each with a PING before any reply is read")
    .expected("each is served");

async fn many_at_once(c: &mut Context) -> Result<(), Finding> {
    let mut sessions = Vec::new();
    for _ in 0..32 {
        let mut session = c.session().await?;
        session.write(&request(&[b"PING"])).await?;
        sessions.push(session);
    }
    for session in &mut sessions {
        session.pongs(1).await?;
    }
    Ok(())
}

const CLOSED_IN_HANDSHAKE: Case<Context> =
    Case::new("closed-in-handshake", |c| Box::pin(closed_in_handshake(c)))
        .clause("X-3")
        .stimulus("connect, disconnect before registering, 20 times")
        .expected("others are served");

async fn closed_in_handshake(c: &mut Context) -> Result<(), Finding> {
    for _ in 0..20 {
        c.peer().await?.disconnect();
    }
    Ok(())
}

const VANISH: Case<Context> = Case::new("vanish", |c| Box::pin(vanish(c)))
    .clause("H-6")
    .stimulus("connect request whose sender is gone at once")
    .expected("others are served")
    .hostile();

async fn vanish(c: &mut Context) -> Result<(), Finding> {
    for _ in 0..5 {
        let mut peer =
            Peer::unconnected(c.target.kind, c.target.addr, &c.peer_options(), &c.transcript).await?;
        peer.request()?;
        drop(peer);
    }
    // Published servers die of it when their keepalive timer fires, after three seconds.
    tokio::time::sleep(AFTERMATH).await;
    Ok(())
}

/// How late a Register comes.
const LATE: Duration = Duration::from_secs(1);

/// Longer than a published server's keepalive period.
const AFTERMATH: Duration = Duration::from_secs(5);
