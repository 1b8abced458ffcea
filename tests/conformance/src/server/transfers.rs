//! Direct transfers between a server and memory that its client exposes (clauses D-1 to D-4), for servers that offer them and have the
//! commands `BLOB.SET` and `BLOB.GET`.

use redis_protocol::resp2::types::OwnedFrame;
use valkey_rdma_transport::FeatureSet;
use valkey_rdma_transport::device::Access;
use valkey_rdma_transport::device::wire::{ControlMessage, Features};
use valkey_rdma_transport::device::work::Region;

use super::Context;
use crate::Case;
use crate::peer::{Finding, OWN_SELECTOR, Peer, PeerOptions, Session, expect_reply};

pub(super) const CASES: &[Case<Context>] =
    &[VALUE_WRITTEN, VALUE_OVER_RANGES, VALUE_TOO_LARGE, KEY_OF_NOTHING, VALUE_READ, TRANSFER_WITHOUT_CHOICE];

/// A session that has agreed on direct transfers.
async fn direct_session(c: &mut Context) -> Result<Session, Finding> {
    let options = PeerOptions { read_depth: 1, ..c.peer_options() };
    let peer = Peer::connect(c.target.kind, c.target.addr, &options, &c.transcript).await?;
    let mut session = Session::new(peer, 1 << 20)?;
    session.handshake().await?;
    let direct = FeatureSet::DIRECT.bits();
    let answer = session.ask(OWN_SELECTOR).await?;
    if answer.select != OWN_SELECTOR || answer.bits & direct == 0 {
        return Err(Finding::not_run("the server does not offer direct transfers"));
    }
    session.say(ControlMessage::SetClientFeature(Features { select: OWN_SELECTOR, bits: direct })).await?;
    c.log_in(&mut session).await?;
    Ok(session)
}

/// Has the server store a value that is sent over the stream.
async fn store(session: &mut Session, value: &[u8]) -> Result<(), Finding> {
    match session.command(&[b"BLOB.SET", KEY, value]).await? {
        OwnedFrame::Error(error) if error.starts_with("ERR unknown command") => {
            Err(Finding::not_run("the server has no BLOB.SET"))
        }
        reply => expect_reply(&reply, &OwnedFrame::SimpleString(b"OK".to_vec())),
    }
}

/// A command with ranges, each a place in a region.
async fn command(
    session: &mut Session,
    words: &[&[u8]],
    ranges: &[(Region, u32, u32)],
) -> Result<OwnedFrame, Finding> {
    let numbers = ranges.iter().flat_map(|(region, offset, len)| {
        [u64::from(region.rkey), region.addr + u64::from(*offset), u64::from(*len)]
    });
    let numbers: Vec<String> = numbers.map(|number| number.to_string()).collect();
    let words: Vec<&[u8]> = words.iter().copied().chain(numbers.iter().map(String::as_bytes)).collect();
    session.command(&words).await
}

/// Has the server write the value, and expects its length.
async fn load(session: &mut Session, ranges: &[(Region, u32, u32)], len: usize) -> Result<(), Finding> {
    let reply = command(session, &[b"BLOB.GET", KEY], ranges).await?;
    match &reply {
        OwnedFrame::Array(items) if items.first() == Some(&OwnedFrame::Integer(len as i64)) => Ok(()),
        _ => Err(Finding::failed(format!("BLOB.GET was answered with {reply:?}"))),
    }
}

fn expect_bytes(session: &Session, region: &Region, expected: &[u8]) -> Result<(), Finding> {
    let found = session.peer.read(region, 0, region.len);
    match found.iter().zip(expected).position(|(found, expected)| found != expected) {
        None => Ok(()),
        Some(at) => Err(Finding::failed(format!("byte {at} of the client's memory is wrong"))),
    }
}

fn value(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + at / 253 + seed) as u8).collect()
}

/// The bytes in front of a value, the value, and the bytes behind it.
fn guarded(value: &[u8]) -> Vec<u8> {
    [&[GUARD; GUARDED][..], value, &[GUARD; GUARDED]].concat()
}

const VALUE_WRITTEN: Case<Context> = Case::new("value-written", |c| Box::pin(value_written(c)))
    .clause("D-3")
    .stimulus("BLOB.GET with a range of memory, 50 times")
    .expected("when the reply comes, the value is in that range, and the bytes around it are as before");

async fn value_written(c: &mut Context) -> Result<(), Finding> {
    let mut session = direct_session(c).await?;
    for round in 0..50 {
        let value = value(10_000 + round * 997, round);
        store(&mut session, &value).await?;
        let region = session.peer.expose(&guarded(&vec![0; value.len()]), Access::RemoteWrite)?;
        load(&mut session, &[(region, GUARDED as u32, value.len() as u32)], value.len()).await?;
        expect_bytes(&session, &region, &guarded(&value))?;
    }
    Ok(())
}

const VALUE_OVER_RANGES: Case<Context> = Case::new("value-over-ranges", |c| Box::pin(value_over_ranges(c)))
    .clause("D-2")
    .stimulus("BLOB.GET with three ranges, which the value fills in part")
    .expected("the ranges are filled in order, and the bytes around them are as before");

async fn value_over_ranges(c: &mut Context) -> Result<(), Finding> {
    let mut session = direct_session(c).await?;
    let value = value(5000, 1);
    store(&mut session, &value).await?;
    let region = session.peer.expose(&[GUARD; 9000], Access::RemoteWrite)?;
    load(&mut session, &[(region, 6000, 2000), (region, 10, 1), (region, 1000, 4000)], value.len()).await?;
    let mut expected = vec![GUARD; 9000];
    expected[6000..8000].copy_from_slice(&value[..2000]);
    expected[10] = value[2000];
    expected[1000..3999].copy_from_slice(&value[2001..]);
    expect_bytes(&session, &region, &expected)
}

const VALUE_TOO_LARGE: Case<Context> = Case::new("value-too-large", |c| Box::pin(value_too_large(c)))
    .clause("D-2")
    .stimulus("BLOB.GET and BLOB.SET with ranges that are a byte shorter than the value")
    .expected("error replies; the client's memory is as before; PING works");

async fn value_too_large(c: &mut Context) -> Result<(), Finding> {
    let mut session = direct_session(c).await?;
    store(&mut session, &value(3000, 2)).await?;
    let region = session.peer.expose(&[GUARD; 4000], Access::RemoteReadWrite)?;
    let ranges = [(region, 0, 1500), (region, 2000, 1499)];
    for words in [&[&b"BLOB.GET"[..], KEY][..], &[b"BLOB.SET", KEY, b"3000"]] {
        expect_error(&command(&mut session, words, &ranges).await?)?;
    }
    expect_bytes(&session, &region, &[GUARD; 4000])?;
    session.ping().await
}

fn expect_error(reply: &OwnedFrame) -> Result<(), Finding> {
    match reply {
        OwnedFrame::Error(_) => Ok(()),
        other => Err(Finding::failed(format!("the reply is {other:?} instead of an error"))),
    }
}

const KEY_OF_NOTHING: Case<Context> = Case::new("key-of-nothing", |c| Box::pin(key_of_nothing(c)))
    .clause("D-2")
    .stimulus("BLOB.GET with a key that belongs to no memory of the client")
    .expected("the connection ends, and the client's memory is as before; others are served");

async fn key_of_nothing(c: &mut Context) -> Result<(), Finding> {
    let mut session = direct_session(c).await?;
    store(&mut session, &value(3000, 3)).await?;
    let region = session.peer.expose(&[GUARD; 3000], Access::RemoteWrite)?;
    let wrong = Region { rkey: region.rkey ^ 0x5a5a_5a00, ..region };
    if let Ok(reply) = command(&mut session, &[b"BLOB.GET", KEY], &[(wrong, 0, 3000)]).await {
        return Err(Finding::failed(format!("the reply is {reply:?}")));
    }
    if !session.peer.has_ended() {
        return Err(Finding::failed("the connection is still open"));
    }
    expect_bytes(&session, &region, &[GUARD; 3000])
}

const VALUE_READ: Case<Context> = Case::new("value-read", |c| Box::pin(value_read(c)))
    .clause("D-4")
    .stimulus("BLOB.SET with two ranges of memory, then BLOB.GET over the stream")
    .expected("the value is what the ranges had, in order");

async fn value_read(c: &mut Context) -> Result<(), Finding> {
    let mut session = direct_session(c).await?;
    let value = value(60_000, 4);
    store(&mut session, b"another").await?;
    let region = session.peer.expose(&guarded(&value), Access::RemoteRead)?;
    let guard = GUARDED as u32;
    let ranges = [(region, guard, 10_000), (region, guard + 10_000, 50_064)];
    let reply = command(&mut session, &[b"BLOB.SET", KEY, b"60000"], &ranges).await?;
    expect_reply(&reply, &OwnedFrame::SimpleString(b"OK".to_vec()))?;
    expect_reply(&session.command(&[b"BLOB.GET", KEY]).await?, &OwnedFrame::BulkString(value))
}

const TRANSFER_WITHOUT_CHOICE: Case<Context> =
    Case::new("transfer-without-choice", |c| Box::pin(transfer_without_choice(c)))
        .clause("D-1")
        .stimulus("BLOB.GET with a range of memory, on a connection without a choice of features")
        .expected("an error reply; the client's memory is as before; PING works");

async fn transfer_without_choice(c: &mut Context) -> Result<(), Finding> {
    let mut agreed = direct_session(c).await?;
    store(&mut agreed, &value(3000, 5)).await?;
    let mut session = c.session().await?;
    let region = session.peer.expose(&[GUARD; 3000], Access::RemoteWrite)?;
    expect_error(&command(&mut session, &[b"BLOB.GET", KEY], &[(region, 0, 3000)]).await?)?;
    expect_bytes(&session, &region, &[GUARD; 3000])?;
    session.ping().await
}

const KEY: &[u8] = b"valkey-rdma-conformance-blob";

/// What lies around values, and how many bytes of it.
const GUARD: u8 = 0xa5;
const GUARDED: usize = 64;
