//! The suite finds what is wrong: a server with one rule broken fails the case that tests this rule. Without the defect all
//! cases pass (`conformance_server.rs`).

use std::time::Duration;

use valkey_rdma_conformance::server::{Options, Target, cases, run};
use valkey_rdma_conformance::{Record, Verdict};
use valkey_rdma_mock::faults::Faults;
use valkey_rdma_mock::{DeviceKind, Mock, Server, TransportConfig};
use valkey_rdma_program::Login;
use valkey_rdma_transport::{Listener, device};

/// A defect, the case that finds it, and a part of its finding.
const PLANTED: &[(&str, &str, &str)] = &[
    ("register-missing", "register-first", "nothing came"),
    ("register-length=1000", "window-length", "1000 bytes"),
    ("register-length=0", "no-features", "clause W-2"),
    ("register-twice", "register-first", "clause W-5"),
    ("register-early", "fill-exactly", "clause W-5"),
    ("register-length=70000@2..", "many-windows", "clause W-3"),
    ("answer-opcode=1", "feature-answer", "clause F-3"),
    ("answer-select", "feature-answer", "selector"),
    ("answer-missing", "feature-answer", "nothing came"),
    ("answer-echo", "feature-bits", "0xffffffffffffffff"),
    ("answer-echo", "own-question", "reserved bits"),
    ("answer-missing", "own-question-pipelined", "nothing came"),
    ("reserved", "register-first", "clause M-2"),
    ("message-length=31", "fill-exactly", "clause M-1"),
    ("opcode=9", "fill-exactly", "0x0009"),
    ("opcode=1", "fill-exactly", "clause F-3"),
    ("imm-swapped", "no-features", "clause I-2"),
    ("imm-over", "no-features", "clause I-2"),
    ("imm-short", "no-features", "clause I-3"),
    ("tail-missing", "odd-window", "nothing came"),
    ("address-off", "from-the-start", "RESP"),
    ("address-stale", "another-buffer", "instead of"),
    ("receives-missing", "five-thousand-bytes", "not acknowledged"),
    ("lenient-opcode", "opcode-9", "still open"),
    ("lenient-length", "message-of-31", "still open"),
    ("lenient-imm", "imm-beyond-window", "still open"),
    ("lenient-imm", "plain-writes-first", "nothing came"),
    ("close-missing", "opcode-4", "still open"),
    ("close-before@2", "quit", "was not answered"),
    ("keepalive-missing", "keepalive", "nothing came"),
    ("garbage", "no-features", "RESP"),
    ("transfer-missing", "value-written", "memory is wrong"),
    ("transfer-late", "value-written", "memory is wrong"),
    ("transfer-off=1", "value-over-ranges", "byte 10 "),
    ("transfer-key", "value-read", "the connection failed"),
];

async fn record(mock: Mock, login: Option<Login>, faults: &str, case: &str) -> Record {
    let config = TransportConfig::default();
    let any = "127.0.0.1:0".parse().expect("an address");
    let kind = DeviceKind::Emulated;
    let mut device = device::listen(kind, any, &config.device_options()).await.expect("listens");
    let faults: Faults = format!("{faults},seed=1").parse().expect("a script");
    device = faults.listener(device);
    let target = Target { login, ..Target::new(kind, device.local_addr()) };
    let server = Server::builder(mock).direct(true).listener(Listener::over(device, &config));
    let server = server.start().await.expect("starts");
    let options = Options { target, patience: Duration::from_secs(8), hostile: true, spawn: None, log: None };
    let found = cases().filter(|found| found.id == case);
    let mut records = run(found, &options, |_| {}).await.expect("connects");
    drop(server);
    records.pop().expect("a case of this name")
}

#[tokio::test(start_paused = true)]
async fn every_planted_defect_is_found_by_the_case_about_its_rule() {
    let mut missed = Vec::new();
    for &(defect, case, finding) in PLANTED {
        match record(Mock::new(), None, defect, case).await.verdict {
            Verdict::Failed(found) if found.contains(finding) => {}
            other => missed.push(format!("{defect} in {case}: {other:?}, not {finding:?}")),
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
}

/// Also where the defect shows in the login already. What was sent to log in stays out of the record.
#[tokio::test(start_paused = true)]
async fn defects_are_found_behind_a_login_and_the_password_is_not_shown() {
    for (defect, case, finding) in [
        ("register-early", "fill-exactly", "clause W-5"),
        ("answer-missing", "feature-answer", "nothing came"),
        ("imm-over", "no-features", "clause I-2"),
        ("address-stale", "another-buffer", "instead of"),
        ("lenient-imm", "imm-beyond-window", "still open"),
    ] {
        let login = Login { user: "default".to_owned(), password: "a secret".to_owned() };
        let record = record(Mock::new().requirepass("a secret"), Some(login), defect, case).await;
        let found = matches!(&record.verdict, Verdict::Failed(found) if found.contains(finding));
        assert!(found, "{defect} in {case}: {record:#?}, not {finding:?}");
        let transcript = record.evidence.join("\n");
        assert!(transcript.contains("(not shown)") && !transcript.contains("a secret"), "{transcript}");
    }
}
