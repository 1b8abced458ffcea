//! The suite's server mode is green against the mock, and its verdicts are about the rules.

use std::time::Duration;

use valkey_rdma_conformance::server::{Login, Options, Target, cases, run};
use valkey_rdma_conformance::{Record, Verdict};
use valkey_rdma_mock::{DeviceKind, Mock, Server, TransportConfig};

/// Longer than anything takes here, unless it does not come at all.
const PATIENCE: Duration = Duration::from_secs(60);

async fn suite(mock: Mock, login: Option<Login>) -> Vec<Record> {
    let any = "127.0.0.1:0".parse().expect("an address");
    let config = TransportConfig::default().keepalive(Duration::from_millis(200));
    let server = Server::builder(mock).rdma(DeviceKind::Emulated, any, &config).start();
    let server = server.await.expect("listens");
    let target = Target { login, ..Target::new(DeviceKind::Emulated, server.listening()[0].addr) };
    let options = Options { target, patience: PATIENCE, hostile: true, spawn: None, log: None };
    let records = run(cases(), &options, |_| {}).await.expect("connects");
    server.shutdown().await;
    records
}

fn all_passed(records: &[Record]) {
    let failed: Vec<_> = records.iter().filter(|record| record.verdict != Verdict::Passed).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    assert_eq!(records.len(), cases().count());
}

#[tokio::test(start_paused = true)]
async fn the_mock_passes_every_case_and_takes_commands_while_replies_wait_c4() {
    all_passed(&suite(Mock::new(), None).await);
}

/// The login takes bytes of both windows before the case begins. No verdict depends on that.
#[tokio::test(start_paused = true)]
async fn the_mock_with_a_password_passes_every_case() {
    for user in [None, Some("default".to_owned())] {
        let login = Login::new(user, "a secret".to_owned());
        all_passed(&suite(Mock::new().requirepass("a secret"), Some(login)).await);
    }
}
