//! Runs the cases against a client, one after the other.

use std::net::IpAddr;
use std::time::Duration;

use tokio::time::Instant;
use valkey_rdma_transport::DeviceKind;

use super::{Context, Subject};
use crate::conformance::{Case, Record, Verdict};
use crate::peer::Transcript;

/// Which client, and where its servers listen.
#[derive(Clone, Debug)]
pub struct Options {
    /// The device that the servers listen on.
    pub device: DeviceKind,
    /// Their address; the port is a free one.
    pub bind: IpAddr,
    /// The client.
    pub subject: Subject,
    /// How long the client may take per case.
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
    for case in cases {
        let mut context = Context {
            device: options.device,
            bind: options.bind,
            subject: options.subject.clone(),
            patience: options.patience,
            transcript: Transcript::default(),
            unserved,
        };
        let start = Instant::now();
        let result = (case.run)(&mut context).await;
        let record = Record::new(case, result.into(), context.transcript.lines(), start.elapsed());
        unserved |= case.id == "honest" && matches!(record.verdict, Verdict::Failed(_));
        tell(&record);
        records.push(record);
    }
    records
}
