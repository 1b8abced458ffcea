//! Runs the cases against a client, one after the other.

use std::net::IpAddr;
use std::time::Duration;

use tokio::time::Instant;
use valkey_rdma_transport::DeviceKind;

use super::{Context, Subject};
use crate::peer::Transcript;
use crate::{Case, Record, Verdict};

/// Which client is tested, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// The device that the servers listen on.
    pub device: DeviceKind,
    /// Their address; the port is a free one.
    pub bind: IpAddr,
    /// The client.
    pub subject: Subject,
    /// How long the client may take per case, in addition to three times what it took without faults, because its speed depends
    /// on the machine. The case without faults may take ten times this.
    pub patience: Duration,
}

/// Runs `cases`, and passes each record to `report` as soon as it exists.
///
/// # Errors
/// A text for people, if no case was run because the client cannot be started.
pub async fn run(
    cases: impl IntoIterator<Item = &'static Case<Context>>,
    options: &Options,
    mut report: impl FnMut(&Record),
) -> Result<Vec<Record>, String> {
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
            not_started: None,
        };
        let start = Instant::now();
        let result = (case.run)(&mut context).await;
        if let Some(why) = context.not_started.filter(|_| records.is_empty()) {
            return Err(why);
        }
        let record = Record::new(case, result.into(), context.transcript.lines(), start.elapsed());
        match record.verdict {
            Verdict::Failed(_) if honest => unserved = true,
            Verdict::Passed if honest => patience += SLOWDOWN * record.elapsed,
            _ => {}
        }
        report(&record);
        records.push(record);
    }
    Ok(records)
}

/// The case without faults, the first.
const HONEST: &str = "honest";

/// How many times as long as others the case without faults may take.
const HONEST_PATIENCE: u32 = 10;

/// How many times as long as without faults a client may take, on top of its patience.
const SLOWDOWN: u32 = 3;
