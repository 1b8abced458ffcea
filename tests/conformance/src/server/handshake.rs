//! Connecting and the first Registers.

use std::time::Duration;

use super::Context;
use crate::Case;
use crate::peer::{Finding, Peer, request};

pub(super) const CASES: &[Case<Context>] = &[
    Case::new("register-first", "H-2", "connect, say nothing", "one Register comes by itself", |c| {
        Box::pin(register_first(c))
    }),
    Case::new(
        "window-length",
        "W-2",
        "connect, say nothing",
        "the window has 64 KiB to 16 MiB, unless told otherwise",
        |c| Box::pin(window_length(c)),
    ),
    Case::new("no-features", "H-2", "register and PING, no feature messages", "+PONG", |c| {
        Box::pin(no_features(c))
    }),
    Case::new(
        "register-late",
        "H-3",
        "10 PINGs at once, Register a second later",
        "10 replies, none before the Register",
        |c| Box::pin(register_late(c)),
    ),
    Case::new(
        "hundred-connections",
        "X-3",
        "100 connections one after the other, closed after a PING",
        "each is served",
        |c| Box::pin(hundred_connections(c)),
    ),
    Case::new(
        "many-at-once",
        "H-1",
        "32 connections at once, each with a PING before any reply is read",
        "each is served",
        |c| Box::pin(many_at_once(c)),
    ),
    Case::new(
        "closed-in-handshake",
        "X-3",
        "connect, disconnect before registering, 20 times",
        "others are served",
        |c| Box::pin(closed_in_handshake(c)),
    ),
    Case::new("vanish", "H-6", "connect request whose sender is gone at once", "others are served", |c| {
        Box::pin(vanish(c))
    })
    .hostile(),
];

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

async fn window_length(c: &mut Context) -> Result<(), Finding> {
    let len = c.silent_session().await?.remote().await?.len;
    if (64 << 10..=16 << 20).contains(&len) {
        return Ok(());
    }
    Err(Finding::failed(format!("the window has {len} bytes")))
}

async fn no_features(c: &mut Context) -> Result<(), Finding> {
    c.session().await?.ping().await
}

async fn register_late(c: &mut Context) -> Result<(), Finding> {
    let mut session = c.silent_session().await?;
    session.remote().await?;
    session.write(&request(&[b"PING"]).repeat(10)).await?;
    tokio::time::sleep(LATE).await;
    while let Some(seen) = session.peer.glance()? {
        if matches!(seen, crate::peer::Seen::Announced { .. }) {
            return Err(Finding::failed("the server wrote before it had a window (clause H-3)"));
        }
    }
    session.offer().await?;
    session.pongs(10).await
}

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

async fn closed_in_handshake(c: &mut Context) -> Result<(), Finding> {
    for _ in 0..20 {
        c.peer().await?.disconnect();
    }
    Ok(())
}

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
