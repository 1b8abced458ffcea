//! The suite's client mode is green against our client, and finds each rule that a client breaks.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use valkey_rdma_client::{Client, DirectMemory, Endpoint, Error, Placed, Transport, Way};
use valkey_rdma_conformance::client::{CASES, Options, Running, Subject, run};
use valkey_rdma_conformance::peer::{Peer, PeerOptions, Session, Transcript};
use valkey_rdma_conformance::{Record, Verdict};
use valkey_rdma_mock::faults::Faults;
use valkey_rdma_mock::{DeviceKind, TransportConfig};
use valkey_rdma_transport::device::wire::{ControlMessage, Features};
use valkey_rdma_transport::{Stream, device};

/// A defect, the case that finds it, and a part of its finding.
const PLANTED: &[(&str, &str, &str)] = &[
    ("register-missing", "honest", "the client failed"),
    ("register-length=1000", "honest", "clause W-2"),
    ("register-length=70000@2..", "honest", "clause W-3"),
    ("register-early", "honest", "clause W-5"),
    ("reserved", "honest", "clause M-2"),
    ("opcode=9", "honest", "0x0009"),
    ("opcode=0,opcode=0", "honest", "clause C-3"),
    ("message-length=31", "honest", "clause M-1"),
    ("imm-over", "honest", "clause I-2"),
    ("imm-short", "honest", "clause I-3"),
    ("imm-swapped", "honest", "clause I-2"),
    ("tail-missing", "window-of-64-KiB", "no reply"),
    ("lenient-opcode", "opcode-9", "ended with success"),
    ("lenient-length", "message-of-31", "ended with success"),
    ("lenient-imm", "imm-short", "clause W-5"),
    ("receives-missing", "keepalive-flood", "no reply"),
    ("garbage", "honest", "the client failed"),
];

/// A client that sets and gets values that fill windows, and small ones, all at once and one by one.
async fn work(addr: SocketAddr, faults: Option<&str>) -> Result<(), String> {
    let config = TransportConfig::default();
    let options = config.device_options();
    let text = |error: &dyn std::error::Error| error.to_string();
    let mut device =
        device::open(DeviceKind::Emulated, addr, &options).await.map_err(|error| text(&error))?;
    if let Some(faults) = faults {
        let faults: Faults = format!("{faults},seed=1").parse().expect("a script");
        device = faults.endpoint(device).map_err(|error| text(&error))?;
    }
    let stream = Stream::connect_over(device, &config).await.map_err(|error| text(&error))?;
    let endpoint = Endpoint::new(Transport::Emulated, addr.ip().to_string(), addr.port());
    let client = Client::from_stream(stream, &endpoint).await.map_err(|error| text(&error))?;
    for len in [3, 300_000, 900_000, 1000] {
        let value: Vec<u8> = (0..len).map(|index| index as u8).collect();
        client.command([&b"SET"[..], b"key", &value]).await.map_err(|error| text(&error))?;
        let reply = client.command(["GET", "key"]).await.map_err(|error| text(&error))?;
        if reply != valkey_rdma_client::Value::Bulk(value.into()) {
            return Err("another value came back".to_owned());
        }
    }
    for _ in 0..20 {
        let replies = (0..100).map(|_| client.command(["PING", "a text of some length"]));
        for reply in replies {
            reply.await.map_err(|error| text(&error))?;
        }
    }
    client.close().await;
    if faults.is_some() { Ok(()) } else { transfers(addr).await }
}

/// A client that stores and reads a value by direct transfers.
async fn transfers(addr: SocketAddr) -> Result<(), String> {
    let endpoint = Endpoint::new(Transport::Emulated, addr.ip().to_string(), addr.port());
    let text = |error: Error| error.to_string();
    let client = Client::connect(&endpoint).await.map_err(text)?;
    let memory = DirectMemory::allocate(100_000).expect("a length that is allowed");
    for byte in 1..3 {
        let mut slice = memory.take(0..100_000).map_err(|error| error.to_string())?;
        slice.fill(byte);
        let Placed { mut slices, way, .. } = client.set_direct("key", [slice]).await.map_err(text)?;
        slices[0].fill(0);
        let placed = client.get_direct("key", slices).await.map_err(text)?;
        if !matches!((way, placed.way), (Way::Direct, Way::Direct)) || placed.slices[0][..] != [byte; 100_000]
        {
            return Err("the value did not come back directly".to_owned());
        }
    }
    client.close().await;
    Ok(())
}

async fn suite(faults: Option<&'static str>, only: Option<&str>) -> Vec<Record> {
    suite_of(Arc::new(move |addr| Box::pin(work(addr, faults))), only).await
}

async fn suite_of(
    client: Arc<dyn Fn(SocketAddr) -> Running + Send + Sync>,
    only: Option<&str>,
) -> Vec<Record> {
    suite_with(client, Duration::from_secs(60), |id| only.is_none_or(|only| id == only)).await
}

async fn suite_with(
    client: Arc<dyn Fn(SocketAddr) -> Running + Send + Sync>,
    patience: Duration,
    wanted: impl Fn(&str) -> bool,
) -> Vec<Record> {
    let options = Options {
        device: DeviceKind::Emulated,
        bind: "127.0.0.1".parse().expect("an address"),
        subject: Subject::InProcess(client),
        patience,
    };
    let cases = CASES.iter().filter(|case| wanted(case.id));
    run(cases, &options, |_| {}).await.expect("it starts")
}

#[tokio::test(start_paused = true)]
async fn our_client_passes_every_case() {
    let records = suite(None, None).await;
    let failed: Vec<_> = records.iter().filter(|record| record.verdict != Verdict::Passed).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    assert_eq!(records.len(), CASES.len());
}

#[tokio::test(start_paused = true)]
async fn every_planted_defect_is_found() {
    let mut missed = Vec::new();
    for &(defect, case, finding) in PLANTED {
        let verdict = suite(Some(defect), Some(case)).await.pop().expect("a case of this name").verdict;
        match verdict {
            Verdict::Failed(found) if found.contains(finding) => {}
            other => missed.push(format!("{defect} in {case}: {other:?}, not {finding:?}")),
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
}

/// Sends 2000 messages without counting credits.
async fn careless(addr: SocketAddr) -> Result<(), String> {
    let talk = async {
        let options = PeerOptions::default();
        let peer = Peer::connect(DeviceKind::Emulated, addr, &options, &Transcript::default()).await?;
        let mut session = Session::new(peer, 1 << 20)?;
        session.handshake().await?;
        for _ in 0..2000 {
            session.write_one(b"PING\r\n").await?;
        }
        session.pongs(2000).await
    };
    talk.await.map_err(|finding| finding.to_string())
}

#[tokio::test(start_paused = true)]
async fn a_client_that_counts_no_credits_is_found_c1() {
    let mut records = suite_of(Arc::new(|addr| Box::pin(careless(addr))), Some("stalled-server")).await;
    let Some(Verdict::Failed(found)) = records.pop().map(|record| record.verdict) else {
        panic!("it is found");
    };
    assert!(found.contains("clause C-1"), "{found}");
}

/// Does the same, and takes every error for success.
async fn credulous(addr: SocketAddr) -> Result<(), String> {
    work(addr, None).await.or(Ok(()))
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reports_no_failed_transfer_is_found_d2() {
    for case in ["transfer-outside", "transfer-stalled"] {
        let mut records = suite_of(Arc::new(|addr| Box::pin(credulous(addr))), Some(case)).await;
        let verdict = records.pop().map(|record| record.verdict);
        let is_found =
            matches!(&verdict, Some(Verdict::Failed(found)) if found.contains("ended with success"));
        assert!(is_found, "{case}: {verdict:?}");
    }
}

/// Says something of its own between its Register and a PING, and again after that.
async fn talkative(
    addr: SocketAddr,
    before: &[ControlMessage],
    after: &[ControlMessage],
) -> Result<(), String> {
    let talk = async {
        let options = PeerOptions::default();
        let peer = Peer::connect(DeviceKind::Emulated, addr, &options, &Transcript::default()).await?;
        let mut session = Session::new(peer, 1 << 20)?;
        session.handshake().await?;
        for message in before {
            session.say(*message).await?;
        }
        session.ping().await?;
        for message in after {
            session.say(*message).await?;
        }
        session.ping().await
    };
    talk.await.map_err(|finding| finding.to_string())
}

#[tokio::test(start_paused = true)]
async fn a_client_that_asks_or_chooses_out_of_turn_is_found_f6() {
    let question = ControlMessage::GetServerFeature(Features { select: 0x5652, bits: 0 });
    let choice = |bits| ControlMessage::SetClientFeature(Features { select: 0x5652, bits });
    for (before, after, rule) in [
        (vec![question], vec![], None),
        (vec![question], vec![question], Some("clause F-5")),
        (vec![], vec![question], Some("clause F-5")),
        (vec![choice(1)], vec![], Some("not offered (clause F-6)")),
        (vec![choice(0), choice(0)], vec![], Some("a second choice")),
        (vec![], vec![choice(0)], Some("after data (clause F-6)")),
    ] {
        let client = move |addr| -> Running {
            let (before, after) = (before.clone(), after.clone());
            Box::pin(async move { talkative(addr, &before, &after).await })
        };
        let mut records = suite_of(Arc::new(client), Some("honest")).await;
        let verdict = records.pop().map(|record| record.verdict);
        let found = match (&verdict, rule) {
            (Some(Verdict::Passed), None) => true,
            (Some(Verdict::Failed(found)), Some(rule)) => found.contains(rule),
            _ => false,
        };
        assert!(found, "{rule:?}: {verdict:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_client_is_distinguished_from_one_that_hangs() {
    let slow = |addr| -> Running {
        Box::pin(async move {
            tokio::time::sleep(Duration::from_secs(25)).await;
            work(addr, None).await
        })
    };
    let cases = ["honest", "replies-in-3", "no-keepalives"];
    let records = suite_with(Arc::new(slow), Duration::from_secs(10), |id| cases.contains(&id)).await;
    let verdicts: Vec<_> = records.iter().map(|record| &record.verdict).collect();
    assert_eq!(verdicts, [&Verdict::Passed; 3]);

    let hangs = |_| -> Running { Box::pin(std::future::pending()) };
    let records = suite_with(Arc::new(hangs), Duration::from_secs(10), |id| id == "honest").await;
    let verdict = &records[0].verdict;
    assert!(matches!(verdict, Verdict::Failed(found) if found.contains("hung")), "{verdict:?}");
}
