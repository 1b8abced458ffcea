//! Features of this project, which two peers agree on before the first byte (clauses F-5 to F-9).
//!
//! Servers that do not know them pass the first four cases. The others are about servers that require TLS over RDMA: they are run with
//! `rdmas://` URLs, and no other case is. Direct transfers have cases of their own.

use valkey_rdma_transport::FeatureSet;
use valkey_rdma_transport::device::wire::{ControlMessage, Features};

use super::Context;
use crate::Case;
use crate::peer::{Finding, OWN_SELECTOR, Session, request};

pub(super) const CASES: &[Case<Context>] = &[
    OWN_QUESTION,
    OWN_QUESTION_PIPELINED,
    OWN_QUESTION_IN_DATA,
    OWN_CHOICE_IGNORED,
    TLS_OFFERED,
    TLS_OFFERED_AT_ONCE,
    CHOICE_NOT_OFFERED,
    CHOICE_OF_TLS_AND_MORE,
    CHOICE_TWICE,
    CHOICE_LATE,
    TLS_NOT_CHOSEN,
    PLAIN_AFTER_CHOICE,
];

/// Bits that no clause defines.
const RESERVED: u64 = !(FeatureSet::TLS.bits() | FeatureSet::DIRECT.bits());

fn chosen(bits: u64) -> ControlMessage {
    ControlMessage::SetClientFeature(Features { select: OWN_SELECTOR, bits })
}

/// What the server offers. A server that does not know the selector offers nothing.
async fn offered(session: &mut Session, bits: u64) -> Result<u64, Finding> {
    let answer = session.ask_with(Features { select: OWN_SELECTOR, bits }).await?;
    let bits = if answer.select == OWN_SELECTOR { answer.bits } else { 0 };
    match bits & RESERVED {
        0 => Ok(bits),
        reserved => Err(Finding::failed(format!("the server offers reserved bits: {reserved:#x}"))),
    }
}

const OWN_QUESTION: Case<Context> = Case::new("own-question", |c| Box::pin(own_question(c)))
    .clause("F-5")
    .stimulus("GetServerFeature with selector 0x5652, twice, with and without bits")
    .expected("the same answer without reserved bits; PING works");

async fn own_question(c: &mut Context) -> Result<(), Finding> {
    let mut session = c.session().await?;
    same_answer(&mut session).await?;
    session.ping().await
}

async fn same_answer(session: &mut Session) -> Result<u64, Finding> {
    let first = offered(session, 0).await?;
    match offered(session, u64::MAX).await? {
        second if second == first => Ok(first),
        second => Err(Finding::failed(format!("the server offers {first:#x}, and then {second:#x}"))),
    }
}

const OWN_QUESTION_PIPELINED: Case<Context> =
    Case::new("own-question-pipelined", |c| Box::pin(own_question_pipelined(c)))
        .clause("F-5")
        .stimulus(
            "Register and GetServerFeature with selector 0x5652 at once, before the server's Register came",
        )
        .expected("answered; PING works");

async fn own_question_pipelined(c: &mut Context) -> Result<(), Finding> {
    let mut session = c.silent_session().await?;
    session.offer().await?;
    offered(&mut session, 0).await?;
    c.log_in(&mut session).await?;
    session.ping().await
}

const OWN_QUESTION_IN_DATA: Case<Context> =
    Case::new("own-question-in-data", |c| Box::pin(own_question_in_data(c)))
        .clause("F-1")
        .stimulus("GetServerFeature with selector 0x5652 between the halves of a PING")
        .expected("answered; +PONG when the PING is whole");

async fn own_question_in_data(c: &mut Context) -> Result<(), Finding> {
    let mut session = c.session().await?;
    let ping = request(&[b"PING"]);
    let (first, second) = ping.split_at(ping.len() / 2);
    session.write(first).await?;
    offered(&mut session, 0).await?;
    session.write(second).await?;
    session.pongs(1).await
}

const OWN_CHOICE_IGNORED: Case<Context> =
    Case::new("own-choice-ignored", |c| Box::pin(own_choice_ignored(c)))
        .clause("F-6")
        .stimulus("SetClientFeature with selector 0x5652 and the bit of TLS, to a server that offers nothing")
        .expected("no answer; PING works");

async fn own_choice_ignored(c: &mut Context) -> Result<(), Finding> {
    let mut session = c.session().await?;
    if offered(&mut session, 0).await? != 0 {
        return Err(Finding::not_run(
            "the server offers features: test one that requires TLS with an rdmas:// URL",
        ));
    }
    session.say(chosen(FeatureSet::TLS.bits())).await?;
    session.ping().await
}

const TLS_OFFERED: Case<Context> = Case::new("tls-offered", |c| Box::pin(tls_offered(c)))
    .with_tls()
    .clause("F-7")
    .stimulus("GetServerFeature with selector 0x5652, twice; no choice")
    .expected("the bit of TLS, and perhaps that of DIRECT, twice; no data");

async fn tls_offered(c: &mut Context) -> Result<(), Finding> {
    let mut session = c.session().await?;
    is_tls(same_answer(&mut session).await?)?;
    match session.counts() {
        (.., 0) => Ok(()),
        _ => Err(Finding::failed("the server wrote before the client's choice")),
    }
}

fn is_tls(bits: u64) -> Result<(), Finding> {
    if bits & FeatureSet::TLS.bits() != 0 {
        Ok(())
    } else {
        Err(Finding::failed("the server does not offer TLS"))
    }
}

const TLS_OFFERED_AT_ONCE: Case<Context> =
    Case::new("tls-offered-at-once", |c| Box::pin(tls_offered_at_once(c)))
        .with_tls()
        .clause("F-5")
        .stimulus(
            "Register and GetServerFeature with selector 0x5652 at once, before the server's Register came",
        )
        .expected("the bit of TLS");

async fn tls_offered_at_once(c: &mut Context) -> Result<(), Finding> {
    let mut session = c.silent_session().await?;
    session.offer().await?;
    is_tls(offered(&mut session, 0).await?)
}

const CHOICE_NOT_OFFERED: Case<Context> =
    Case::new("choice-not-offered", |c| Box::pin(wrong_choices(c, &[1 << 63])))
        .with_tls()
        .clause("F-6")
        .stimulus("SetClientFeature with selector 0x5652 and bit 63, which was not offered")
        .expected("the connection ends");

const CHOICE_OF_TLS_AND_MORE: Case<Context> =
    Case::new("choice-of-tls-and-more", |c| Box::pin(wrong_choices(c, &[3])))
        .with_tls()
        .clause("F-6")
        .stimulus("SetClientFeature with selector 0x5652, the bit of TLS and one that was not offered")
        .expected("the connection ends");

const CHOICE_TWICE: Case<Context> = Case::new("choice-twice", |c| Box::pin(wrong_choices(c, &[1, 1])))
    .with_tls()
    .clause("F-6")
    .stimulus("SetClientFeature with selector 0x5652 and the bit of TLS, twice")
    .expected("the connection ends");

async fn wrong_choices(c: &mut Context, choices: &[u64]) -> Result<(), Finding> {
    let mut session = c.session().await?;
    is_tls(offered(&mut session, 0).await?)?;
    for bits in choices {
        session.say(chosen(*bits)).await?;
    }
    session.peer.end().await.map(drop)
}

const CHOICE_LATE: Case<Context> = Case::new("choice-late", |c| Box::pin(choice_late(c)))
    .with_tls()
    .clause("F-6")
    .stimulus("the first byte of a command, then SetClientFeature with the bit of TLS")
    .expected("the connection ends, and no command was run");

async fn choice_late(c: &mut Context) -> Result<(), Finding> {
    let mut session = c.session().await?;
    is_tls(offered(&mut session, 0).await?)?;
    session.write(b"*").await?;
    session.say(chosen(FeatureSet::TLS.bits())).await?;
    ends_without_pong(session).await
}

const TLS_NOT_CHOSEN: Case<Context> = Case::new("tls-not-chosen", |c| Box::pin(plain_bytes(c, None)))
    .with_tls()
    .clause("F-8")
    .stimulus("PING without a choice")
    .expected("an error reply, or none; the connection ends");

const PLAIN_AFTER_CHOICE: Case<Context> =
    Case::new("plain-after-choice", |c| Box::pin(plain_bytes(c, Some(FeatureSet::TLS.bits()))))
        .with_tls()
        .clause("F-7")
        .stimulus("SetClientFeature with the bit of TLS, then PING in plain text")
        .expected("PING is not run; the connection ends");

async fn plain_bytes(c: &mut Context, choice: Option<u64>) -> Result<(), Finding> {
    let mut session = c.session().await?;
    is_tls(offered(&mut session, 0).await?)?;
    if let Some(bits) = choice {
        session.say(chosen(bits)).await?;
    }
    session.write(&request(&[b"PING"])).await?;
    ends_without_pong(session).await
}

/// Takes what comes until the server ends the connection. A reply may be an error.
async fn ends_without_pong(mut session: Session) -> Result<(), Finding> {
    loop {
        let taken = session.take_next().await;
        if session.unread().starts_with(b"+") {
            return Err(Finding::failed("a plain command was answered, though the server requires TLS"));
        }
        match taken {
            Ok(()) => {}
            Err(_) if session.peer.has_ended() => return Ok(()),
            Err(finding) => return Err(finding),
        }
    }
}
