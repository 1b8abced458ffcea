//! Runs the cases against a client, one after the other.

use std::net::IpAddr;
use std::time::Duration;

use tokio::time::Instant;
use valkey_rdma_transport::DeviceKind;

use super::{Context, Subject};
use crate::peer::Transcript;
use crate::{Case, Record, Verdict};

/// Which client, and where its servers listen.
#[derive(Clone, Debug)]
pub struct Options {
    /// The device that the servers listen on.
    pub device: DeviceKind,
    /// Their address; the port is a free one.
    pub bind: IpAddr,
    /// The client.
    pub subject: Subject,
    /// How long the client may take per case, beyond three times what it took without faults: how fast an honest client is
    /// depends on the machine. The case without faults may take ten times as long.
    pub patience: Duration,
}

/// Runs `cases`, and tells each record as soon as it is there.
pub async fn run(
    cases: impl IntoIterator<Item = &'static Case<Context>>,
    options: &Options,
    mut tell: impl FnMut(&Record),
) -> Vec<Record> {
    let mut records = Vec::new();
    let mut unserved = false;
    let mut patience = options.patience;
    for case in cases {
        let honest = case.id == HONEST;
        let mut context = Context {
            device: options.device,
            bind: options.bind,
            subject: options.subject.clone(),
            patience: if honest { HONEST_PATIENCE * patience } else { patience },
            transcript: Transcript::default(),
            unserved,
        };
        let start = Instant::now();
        let result = (case.run)(&mut context).await;
        let record = Record::new(case, result.into(), context.transcript.lines(), start.elapsed());
        match record.verdict {
            Verdict::Failed(_) if honest => unserved = true,
            Verdict::Passed if honest => patience += SLOWDOWN * record.elapsed,
            _ => {}
        }
        tell(&record);
        records.push(record);
    }
    records
}

/// The case without faults, the first.
const HONEST: &str = "honest";

/// How many times as long as others the case without faults may take.
const HONEST_PATIENCE: u32 = 10;

/// How many times as long as without faults a client may take, on top of its patience.
const SLOWDOWN: u32 = 3;
