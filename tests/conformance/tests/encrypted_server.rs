//! The suite against a server that requires TLS: the mock passes every case, and defects are found.
#![cfg(feature = "tls")]

use std::time::Duration;

use valkey_rdma_conformance::server::{Options, Target, run};
use valkey_rdma_conformance::{Record, Verdict};
use valkey_rdma_mock::faults::Faults;
use valkey_rdma_mock::{Address, DeviceKind, Mock, Server, ServerTls, TransportConfig};
use valkey_rdma_testkit::Authority;
use valkey_rdma_transport::{Listener, device};

/// A defect, the case that finds it, and a part of its finding.
const PLANTED: &[(&str, &str, &str)] = &[
    ("answer-missing", "tls-offered-at-once", "nothing came"),
    ("answer-select", "tls-offered", "does not offer TLS"),
    ("answer-echo", "tls-offered", "does not offer TLS"),
    ("close-missing", "choice-not-offered", "still open"),
    ("close-missing", "choice-of-tls-and-more", "still open"),
    ("close-missing", "choice-twice", "still open"),
    ("close-missing", "choice-late", "nothing came"),
    ("close-missing", "tls-not-chosen", "nothing came"),
    ("close-missing", "plain-after-choice", "nothing came"),
];

/// Those of the cases whose names contain `only`, against a mock that requires TLS and has these faults.
async fn records(faults: Option<&str>, only: &str) -> Vec<Record> {
    let issuer = Authority::new("Issuer of mocks");
    let pair = issuer.issue(&["127.0.0.1"]);
    let any = "127.0.0.1:0".parse().expect("an address");
    let (kind, config) = (DeviceKind::Emulated, TransportConfig::default());
    let mut device = device::listen(kind, any, &config.device_options()).await.expect("listens");
    if let Some(faults) = faults {
        device = faults.parse::<Faults>().expect("a script").listener(device);
    }
    let address = Address::from(Listener::over(device, &config)).tls(ServerTls::new(pair.cert, pair.key));
    let server = Server::builder(Mock::new()).listen(address).start().await.expect("starts");
    let url = server.urls().next().expect("it listens");
    let target = Target::parse(&url, None).await.expect("a URL");
    assert_eq!(target.to_string(), url);
    let options = Options { target, patience: Duration::from_secs(8), hostile: true, spawn: None, log: None };
    let cases = options.target.cases().filter(|case| case.id.contains(only));
    run(cases, &options, |_| {}).await.expect("connects")
}

#[tokio::test(start_paused = true)]
async fn the_mock_with_tls_passes_every_case() {
    let records = records(None, "").await;
    let failed: Vec<_> = records.iter().filter(|record| record.verdict != Verdict::Passed).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    assert!(!records.is_empty());
}

#[tokio::test(start_paused = true)]
async fn every_planted_defect_is_found_by_the_case_about_its_rule() {
    let mut missed = Vec::new();
    for &(defect, case, finding) in PLANTED {
        let record = records(Some(defect), case).await.pop().expect("a case of this name");
        match record.verdict {
            Verdict::Failed(found) if found.contains(finding) => {}
            other => missed.push(format!("{defect} in {case}: {other:?}, not {finding:?}")),
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
}
