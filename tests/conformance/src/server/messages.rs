//! Control messages, right and wrong.

use valkey_rdma_transport::device::wire::{ControlMessage, Features};

use super::Context;
use crate::Case;
use crate::peer::{Finding, Peer, PeerOptions, Session};

pub(super) const CASES: &[Case<Context>] = &[
    Case::new(
        "feature-answer",
        "F-1",
        "GetServerFeature with selector 0x1234",
        "answered with opcode 0 and the selector",
        |c| Box::pin(feature_answer(c)),
    ),
    Case::new("feature-bits", "F-1", "GetServerFeature", "no feature bit is set: none is defined", |c| {
        Box::pin(feature_bits(c))
    }),
    Case::new("features-set", "F-2", "SetClientFeature with no bits", "no answer; PING works", |c| {
        Box::pin(features_set(c, 0))
    }),
    Case::new(
        "features-unknown",
        "F-2",
        "SetClientFeature with unknown bits",
        "no answer; PING works",
        |c| Box::pin(features_set(c, u64::MAX)),
    ),
    Case::new(
        "reserved-noise",
        "M-2",
        "noise in the reserved bytes of every message",
        "all works as without",
        |c| Box::pin(reserved_noise(c)),
    ),
    Case::new("client-keepalive", "K-1", "10 keepalives from the client", "no answer; PING works", |c| {
        Box::pin(client_keepalive(c))
    }),
    Case::new("opcode-4", "M-2", "a message with opcode 4", "the connection ends", |c| {
        Box::pin(opcode(c, 4))
    })
    .hostile(),
    Case::new("opcode-9", "M-2", "a message with opcode 9", "the connection ends", |c| {
        Box::pin(opcode(c, 9))
    })
    .hostile(),
    Case::new("opcode-ffff", "M-2", "a message with opcode 0xffff", "the connection ends", |c| {
        Box::pin(opcode(c, 0xffff))
    })
    .hostile(),
    Case::new("message-of-0", "M-1", "a message of 0 bytes", "the connection ends", |c| {
        Box::pin(message_of(c, 0))
    })
    .hostile(),
    Case::new("message-of-31", "M-1", "a message of 31 bytes", "the connection ends", |c| {
        Box::pin(message_of(c, 31))
    })
    .hostile(),
    Case::new("message-of-33", "M-1", "a message of 33 bytes", "the connection ends", |c| {
        Box::pin(message_of(c, 33))
    }),
    Case::new(
        "question-flood",
        "F-4",
        "3000 questions from a client with 4 receives",
        "answers, or the end of that connection",
        |c| Box::pin(question_flood(c)),
    )
    .hostile(),
];

async fn feature_answer(c: &mut Context) -> Result<(), Finding> {
    let answer = c.session().await?.ask(0x1234).await?;
    match answer.select {
        0x1234 => Ok(()),
        other => Err(Finding::failed(format!("the answer's selector is {other:#x}"))),
    }
}

async fn feature_bits(c: &mut Context) -> Result<(), Finding> {
    match c.session().await?.ask(0).await?.bits {
        0 => Ok(()),
        bits => Err(Finding::failed(format!("the answer's bits are {bits:#x}"))),
    }
}

async fn features_set(c: &mut Context, bits: u64) -> Result<(), Finding> {
    let mut session = c.session().await?;
    session.say(ControlMessage::SetClientFeature(Features { select: 7, bits })).await?;
    let answer = session.ask(8).await?;
    if answer.select != 8 {
        return Err(Finding::failed(format!("SetClientFeature was answered: {answer:?}")));
    }
    session.ping().await
}

async fn reserved_noise(c: &mut Context) -> Result<(), Finding> {
    let mut session = c.silent_session().await?;
    session.make_noise();
    session.handshake().await?;
    session.say(ControlMessage::Keepalive).await?;
    let answer = session.ask(0x77).await?;
    if answer.select != 0x77 {
        return Err(Finding::failed(format!("the answer is {answer:?}")));
    }
    session.ping().await
}

async fn client_keepalive(c: &mut Context) -> Result<(), Finding> {
    let mut session = c.session().await?;
    for _ in 0..10 {
        session.say(ControlMessage::Keepalive).await?;
    }
    session.ping().await
}

async fn opcode(c: &mut Context, opcode: u16) -> Result<(), Finding> {
    let mut session = c.session().await?;
    session.ping().await?;
    let mut message = ControlMessage::Keepalive.encode();
    message[..2].copy_from_slice(&opcode.to_be_bytes());
    session.peer.send(&message).await?;
    c.ended_by_server(session).await
}

async fn message_of(c: &mut Context, len: usize) -> Result<(), Finding> {
    let mut session = c.session().await?;
    session.ping().await?;
    let mut message = ControlMessage::Keepalive.encode().to_vec();
    message.resize(len, 0);
    session.peer.send(&message).await?;
    c.ended_by_server(session).await
}

async fn question_flood(c: &mut Context) -> Result<(), Finding> {
    let options = PeerOptions { receives: 4, ..c.peer_options() };
    let peer = Peer::connect(c.target.kind, c.target.addr, &options, &c.transcript).await?;
    let mut session = Session::new(peer, 1 << 20)?;
    session.handshake().await?;
    session.peer.hold_receives();
    let question = ControlMessage::GetServerFeature(Features { select: 1, bits: 0 });
    for _ in 0..3000 {
        if session.peer.has_ended() {
            return Ok(());
        }
        match session.say(question).await {
            Ok(()) => {}
            Err(_) if session.peer.has_ended() => return Ok(()),
            Err(finding) => return Err(finding),
        }
    }
    session.peer.release_receives()?;
    let mut answered = 0;
    while answered < 3000 {
        match session.take_answers().await {
            Ok(answers) => answered += answers,
            Err(_) if session.peer.has_ended() => return Ok(()),
            Err(finding) => {
                return Err(Finding::failed(format!("{answered} of 3000 answered, then {finding}")));
            }
        }
    }
    Ok(())
}
