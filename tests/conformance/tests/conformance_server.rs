//! The suite's server mode is green against the mock, and its verdicts are about the rules.

use std::time::Duration;

use valkey_rdma_conformance::server::{Options, Target, cases, run};
use valkey_rdma_conformance::{Record, Verdict};
use valkey_rdma_mock::{DeviceKind, Mock, Server, TransportConfig};
use valkey_rdma_program::Login;

/// Longer than anything takes here, unless it does not come at all.
const PATIENCE: Duration = Duration::from_secs(60);

async fn suite(mock: Mock, direct: bool, login: Option<Login>) -> Vec<Record> {
    let any = "127.0.0.1:0".parse().expect("an address");
    let config = TransportConfig::default().keepalive(Duration::from_millis(200));
    let server = Server::builder(mock).direct(direct).rdma(DeviceKind::Emulated, any, &config).start();
    let server = server.await.expect("listens");
    let target = Target { login, ..Target::new(DeviceKind::Emulated, server.listening()[0].addr) };
    let options = Options { target, patience: PATIENCE, hostile: true, spawn: None, log: None };
    let records = run(options.target.cases(), &options, |_| {}).await.expect("connects");
    server.shutdown().await;
    records
}

/// Each case of `not_run` says why, and all others pass.
fn all_passed(records: &[Record], not_run: &[&str]) {
    let as_expected = |record: &&Record| match &record.verdict {
        Verdict::NotRun(why) => not_run.contains(&record.id) && why.contains("offer"),
        verdict => *verdict == Verdict::Passed && !not_run.contains(&record.id),
    };
    let failed: Vec<_> = records.iter().filter(|record| !as_expected(record)).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    assert_eq!(records.len(), cases().filter(|case| !case.with_tls).count());
}

/// The case that needs a server without features of this project.
const WITHOUT_FEATURES: &[&str] = &["own-choice-ignored"];

#[tokio::test(start_paused = true)]
async fn the_mock_passes_every_case_and_takes_commands_while_replies_wait_c4() {
    let transfers: Vec<_> =
        cases().filter(|case| case.clause.starts_with("D-")).map(|case| case.id).collect();
    all_passed(&suite(Mock::new(), false, None).await, &transfers);
}

#[tokio::test(start_paused = true)]
async fn the_mock_with_direct_transfers_passes_every_case_about_them() {
    all_passed(&suite(Mock::new(), true, None).await, WITHOUT_FEATURES);
}

/// The login takes bytes of both windows before the case begins. No verdict depends on that.
#[tokio::test(start_paused = true)]
async fn the_mock_with_a_password_passes_every_case() {
    for user in ["", "default"] {
        let login = Login { user: user.to_owned(), password: "a secret".to_owned() };
        all_passed(&suite(Mock::new().requirepass("a secret"), true, Some(login)).await, WITHOUT_FEATURES);
    }
}
