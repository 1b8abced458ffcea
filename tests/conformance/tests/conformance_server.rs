//! The suite's server mode is green against the mock, and its verdicts are about the rules.

use std::time::Duration;

use valkey_rdma_conformance::server::{Options, Target, cases, run};
use valkey_rdma_conformance::{Record, Verdict};
use valkey_rdma_mock::{DeviceKind, Mock, Server, TransportConfig};

/// Longer than anything takes here, unless it does not come at all.
const PATIENCE: Duration = Duration::from_secs(20);

async fn suite(config: &TransportConfig) -> Vec<Record> {
    let any = "127.0.0.1:0".parse().expect("an address");
    let server =
        Server::builder(Mock::new()).rdma(DeviceKind::Emulated, any, config).start().await.expect("listens");
    let target = Target::new(DeviceKind::Emulated, server.listening()[0].addr);
    let options = Options { target, patience: PATIENCE, hostile: true, spawn: None, log: None };
    let records = run(cases(), &options, |_| {}).await.expect("connects");
    server.shutdown().await;
    records
}

#[tokio::test(start_paused = true)]
async fn the_mock_passes_every_case_and_takes_commands_while_replies_wait_c4() {
    let config = TransportConfig::default().keepalive(Some(Duration::from_millis(200)));
    let records = suite(&config).await;
    let failed: Vec<_> = records.iter().filter(|record| record.verdict != Verdict::Passed).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    assert_eq!(records.len(), cases().count());
}
