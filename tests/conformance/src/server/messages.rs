//! Control messages, right and wrong.

use valkey_rdma_transport::device::wire::{ControlMessage, Features};

use super::Context;
use crate::Case;
use crate::peer::{Finding, Peer, PeerOptions, Session};

pub(super) const CASES: &[Case<Context>] = &[
    FEATURE_ANSWER,
    FEATURE_BITS,
    FEATURES_SET,
    FEATURES_UNKNOWN,
    RESERVED_NOISE,
    CLIENT_KEEPALIVE,
    OPCODE_4,
    OPCODE_9,
    OPCODE_FFFF,
    MESSAGE_OF_0,
    MESSAGE_OF_31,
    MESSAGE_OF_33,
    QUESTION_FLOOD,
];

const FEATURE_ANSWER: Case<Context> = Case::new("feature-answer", |c| Box::pin(feature_answer(c)))
    .clause("F-1")
    .stimulus("GetServerFeature with selector 0x1234")
    .expected("answered with opcode 0 and the selector");

async fn feature_answer(c: &mut Context) -> Result<(), Finding> {
    let answer = c.session().await?.ask(0x1234).await?;
    match answer.select {
        0x1234 => Ok(()),
        other => Err(Finding::failed(format!("the answer's selector is {other:#x}"))),
    }
}

const FEATURE_BITS: Case<Context> = Case::new("feature-bits", |c| Box::pin(feature_bits(c)))
    .clause("F-1")
    .stimulus("GetServerFeature without feature bits, then with all of them")
    .expected("the answers have no feature bit: none is defined, and those of the question are ignored");

async fn feature_bits(c: &mut Context) -> Result<(), Finding> {
    let mut session = c.session().await?;
    for asked in [0, u64::MAX] {
        let answered = session.ask_with(Features { select: 0, bits: asked }).await?.bits;
        if answered != 0 {
            return Err(Finding::failed(format!(
                "asked with bits {asked:#x}, the server answers with bits {answered:#x}"
            )));
        }
    }
    Ok(())
}

const FEATURES_SET: Case<Context> = Case::new("features-set", |c| Box::pin(features_set(c, 0)))
    .clause("F-2")
    .stimulus("SetClientFeature with no bits")
    .expected("no answer; PING works");

const FEATURES_UNKNOWN: Case<Context> =
    Case::new("features-unknown", |c| Box::pin(features_set(c, u64::MAX)))
        .clause("F-2")
        .stimulus("SetClientFeature with unknown bits")
        .expected("no answer; PING works");

async fn features_set(c: &mut Context, bits: u64) -> Result<(), Finding> {
    let mut session = c.session().await?;
    session.say(ControlMessage::SetClientFeature(Features { select: 7, bits })).await?;
    let answer = session.ask(8).await?;
    if answer.select != 8 {
        return Err(Finding::failed(format!("SetClientFeature was answered: {answer:?}")));
    }
    session.ping().await
}

const RESERVED_NOISE: Case<Context> = Case::new("reserved-noise", |c| Box::pin(reserved_noise(c)))
    .clause("M-2")
    .stimulus("noise in the reserved bytes of every message")
    .expected("all works as without");

async fn reserved_noise(c: &mut Context) -> Result<(), Finding> {
    let mut session = c.silent_session().await?;
    session.make_noise();
    session.handshake().await?;
    c.log_in(&mut session).await?;
    session.say(ControlMessage::Keepalive).await?;
    let answer = session.ask(0x77).await?;
    if answer.select != 0x77 {
        return Err(Finding::failed(format!("the answer is {answer:?}")));
    }
    session.ping().await
}

const CLIENT_KEEPALIVE: Case<Context> = Case::new("client-keepalive", |c| Box::pin(client_keepalive(c)))
    .clause("K-1")
    .stimulus("10 keepalives from the client")
    .expected("no answer; PING works");

async fn client_keepalive(c: &mut Context) -> Result<(), Finding> {
    let mut session = c.session().await?;
    for _ in 0..10 {
        session.say(ControlMessage::Keepalive).await?;
    }
    session.ping().await
}

const OPCODE_4: Case<Context> = Case::new("opcode-4", |c| Box::pin(opcode(c, 4)))
    .clause("M-2")
    .stimulus("a message with opcode 4")
    .expected("the connection ends")
    .hostile();

const OPCODE_9: Case<Context> = Case::new("opcode-9", |c| Box::pin(opcode(c, 9)))
    .clause("M-2")
    .stimulus("a message with opcode 9")
    .expected("the connection ends")
    .hostile();

const OPCODE_FFFF: Case<Context> = Case::new("opcode-ffff", |c| Box::pin(opcode(c, 0xffff)))
    .clause("M-2")
    .stimulus("a message with opcode 0xffff")
    .expected("the connection ends")
    .hostile();

async fn opcode(c: &mut Context, opcode: u16) -> Result<(), Finding> {
    let mut session = c.session().await?;
    session.ping().await?;
    let mut message = ControlMessage::Keepalive.encode();
    message[..2].copy_from_slice(&opcode.to_be_bytes());
    session.peer.send(&message).await?;
    c.ended_by_server(session).await
}

const MESSAGE_OF_0: Case<Context> = Case::new("message-of-0", |c| Box::pin(message_of(c, 0)))
    .clause("M-1")
    .stimulus("a message of 0 bytes")
    .expected("the connection ends")
    .hostile();

const MESSAGE_OF_31: Case<Context> = Case::new("message-of-31", |c| Box::pin(message_of(c, 31)))
    .clause("M-1")
    .stimulus("a message of 31 bytes")
    .expected("the connection ends")
    .hostile();

const MESSAGE_OF_33: Case<Context> = Case::new("message-of-33", |c| Box::pin(message_of(c, 33)))
    .clause("M-1")
    .stimulus("a message of 33 bytes")
    .expected("the connection ends");

async fn message_of(c: &mut Context, len: usize) -> Result<(), Finding> {
    let mut session = c.session().await?;
    session.ping().await?;
    let mut message = ControlMessage::Keepalive.encode().to_vec();
    message.resize(len, 0);
    session.peer.send(&message).await?;
    c.ended_by_server(session).await
}

const QUESTION_FLOOD: Case<Context> = Case::new("question-flood", |c| Box::pin(question_flood(c)))
    .clause("F-4")
    .stimulus("3000 questions from a client with 4 receives")
    .expected("answers, or the end of that connection")
    .hostile();

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
