//! `--url`: servers that answer, and servers that do not.

use std::net::SocketAddr;

use valkey_rdma_client::Endpoint;
use valkey_rdma_doctor::{Report, Verdict, server};
use valkey_rdma_mock::{Mock, Server};
use valkey_rdma_server::{Reply, handler_fn};
use valkey_rdma_transport::{Config, DeviceKind};

fn loopback() -> SocketAddr {
    ([127, 0, 0, 1], 0).into()
}

async fn examined(url: &str) -> Report {
    let endpoint: Endpoint = url.parse().expect("a URL");
    server::examine(&endpoint).await
}

/// The ids of a section's findings, with their verdicts.
fn ids<'a>(report: &'a Report, section: &str) -> Vec<(&'a str, Verdict)> {
    let mut sections = report.sections.iter();
    let found =
        sections.find(|found| found.name == section).unwrap_or_else(|| panic!("no {section} in {report:?}"));
    found.findings.iter().map(|finding| (finding.id.as_str(), finding.verdict)).collect()
}

fn value<'a>(report: &'a Report, id: &str) -> &'a str {
    &report.findings().find(|finding| finding.id == id).expect("a finding").value
}

#[tokio::test]
async fn each_step_of_a_connect_has_its_line() {
    let server = Server::builder(Mock::new()).rdma(DeviceKind::Emulated, loopback(), &Config::default());
    let server = server.start().await.expect("a server");
    let port = server.listening()[0].addr.port();
    let report = examined(&format!("emulated://localhost:{port}?rx_size=65536")).await;
    let ok = |id| (id, Verdict::Ok);
    let steps = ["resolve", "route", "connect", "register", "hello"].map(ok);
    let found: Vec<_> =
        ids(&report, "server").into_iter().filter(|(_, verdict)| *verdict == Verdict::Ok).collect();
    assert!(found.ends_with(&steps[1..]) && found[0] == steps[0], "{report:#?}");
    assert_eq!(value(&report, "windows"), "2 of 65536 bytes here, 1048576 bytes at the server");
    assert!(value(&report, "version").starts_with("Valkey 9.1.2"), "{report:#?}");
    assert!(ids(&report, "known bugs").iter().any(|(_, verdict)| *verdict == Verdict::Warning));
    assert!(report.works(), "{report:#?}");
}

/// The READs are those of the emulated device.
#[tokio::test]
async fn whether_large_values_go_directly_is_a_finding() {
    let emulated = || Server::builder(Mock::new()).rdma(DeviceKind::Emulated, loopback(), &Config::default());
    for (server, verdict, expected) in [
        (emulated(), Verdict::Note, "not offered: large values go over the stream"),
        (emulated().direct(true), Verdict::Ok, "offered, with 4 READs at a time"),
    ] {
        let server = server.start().await.expect("a server");
        let url = server.urls().next().expect("a URL");
        let report = examined(&url).await;
        assert_eq!(value(&report, "direct"), expected);
        assert!(ids(&report, "valkey").contains(&("direct", verdict)), "{report:#?}");
        let json: serde_json::Value = serde_json::from_str(&report.json("server")).expect("JSON");
        let mut findings = json["sections"]
            .as_array()
            .into_iter()
            .flatten()
            .flat_map(|section| section["findings"].as_array());
        assert!(findings.any(|findings| findings.iter().any(|finding| finding["id"] == "direct")), "{json}");
        let other = examined(&format!("{url}?direct_prefix=OTHER")).await;
        assert_eq!(value(&other, "direct").contains("unknown command"), verdict == Verdict::Ok);
    }
    let tcp = Server::builder(Mock::new()).tcp(loopback()).direct(true).start().await.expect("a server");
    let report = examined(&tcp.urls().next().expect("a URL")).await;
    assert!(report.findings().all(|finding| finding.id != "direct"), "{report:#?}");
}

/// A program's own server may answer INFO in any way. Valkey's bugs are not its bugs.
#[tokio::test]
async fn a_server_on_this_projects_library_is_no_valkey() {
    let handler = handler_fn(|command| async move {
        if command.is("INFO") {
            return Ok(Reply::bulk("# Server\r\nvalkey_version:8.1.0\r\n"));
        }
        Err(command.unknown())
    });
    let server = Server::builder(handler).rdma(DeviceKind::Emulated, loopback(), &Config::default());
    let server = server.tcp(loopback()).start().await.expect("a server");
    for url in server.urls().flat_map(|url| [url.clone(), format!("{url}?protocol=resp2")]) {
        let report = examined(&url).await;
        assert!(value(&report, "version").contains("on valkey-rdma-server 0."), "{report:#?}");
        assert!(report.sections.iter().all(|section| section.name != "known bugs"), "{report:#?}");
        assert!(report.findings().all(|finding| finding.id != "rdma listener"), "{report:#?}");
        assert!(report.works());
    }
}

/// A server without RDMA cannot have bugs over RDMA, whichever way it is reached: a gateway passes INFO on.
#[tokio::test]
async fn a_valkey_without_rdma_behind_a_gateway_is_right() {
    let mock = Mock::new();
    mock.on("INFO")
        .reply("valkey_version:9.1.2\r\nserver_mode:standalone\r\nlistener0:name=tcp,bind=*,port=6379\r\n");
    let server =
        Server::builder(mock).rdma(DeviceKind::Emulated, loopback(), &Config::default()).tcp(loopback());
    let server = server.start().await.expect("a server");
    for url in server.urls() {
        let report = examined(&url).await;
        let over_rdma = url.starts_with("emulated");
        assert_eq!(value(&report, "rdma listener").contains("a gateway"), over_rdma, "{report:#?}");
        assert!(report.sections.iter().all(|section| section.name != "known bugs"), "{report:#?}");
    }
}

/// The RDMA clients of a server that is examined over TCP meet its bugs.
#[tokio::test]
async fn over_tcp_the_bugs_over_rdma_of_a_server_that_listens_there_are_named() {
    for (listeners, has_bugs) in [
        ("listener0:name=tcp,bind=*,port=6379\r\nlistener1:name=rdma,bind=10.0.0.1,port=6379\r\n", true),
        ("listener0:name=tcp,bind=*,port=6379\r\n", false),
        // Older than Valkey 8.
        ("", false),
    ] {
        let mock = Mock::new();
        mock.on("INFO").reply(format!("valkey_version:9.1.2\r\nserver_mode:standalone\r\n{listeners}"));
        let server = Server::builder(mock).tcp(loopback()).start().await.expect("a server");
        let report = examined(&server.urls().next().expect("a URL")).await;
        let bugs = report.sections.iter().any(|section| section.name == "known bugs");
        assert_eq!(bugs, has_bugs, "{report:#?}");
    }
}

#[tokio::test]
async fn over_tcp_the_steps_of_rdma_are_left_out() {
    let server = Server::builder(Mock::new()).tcp(loopback()).start().await.expect("a server");
    let report = examined(&format!("valkey://{}", server.listening()[0].addr)).await;
    assert_eq!(ids(&report, "server"), [("connect", Verdict::Ok), ("hello", Verdict::Ok)]);
    assert!(report.works());
}

#[tokio::test]
async fn a_wrong_password_fails_at_hello() {
    let server = Server::builder(Mock::new().requirepass("right"));
    let server =
        server.rdma(DeviceKind::Emulated, loopback(), &Config::default()).start().await.expect("a server");
    let report = examined(&format!("emulated://:wrong@{}", server.listening()[0].addr)).await;
    assert_eq!(ids(&report, "server").last(), Some(&("hello", Verdict::Problem)), "{report:#?}");
    assert!(value(&report, "hello").contains("check user and password"), "{report:#?}");
    assert!(!report.works());
}

/// RDMA fails here with or without a device: nothing listens on it.
#[tokio::test]
async fn a_server_that_refuses_the_login_over_tcp_is_not_taken_for_one_that_is_down() {
    let server =
        Server::builder(Mock::new().requirepass("right")).tcp(loopback()).start().await.expect("a server");
    let report = examined(&format!("rdma://{}?timeout=2s", server.listening()[0].addr)).await;
    let answers = report.findings().find(|finding| finding.id == "answers").expect("it asks over TCP");
    assert!(answers.value.starts_with("yes") && answers.value.contains("give the password"), "{answers:?}");
    assert!(answers.remedy.is_empty(), "{answers:?}");
}

#[tokio::test]
async fn where_nothing_listens_connect_fails() {
    let report = examined("emulated://127.0.0.1:1?device=inprocess").await;
    assert_eq!(ids(&report, "server").last(), Some(&("connect", Verdict::Problem)), "{report:#?}");
}

/// A Valkey server over TCP, for example.
#[tokio::test]
async fn what_emulated_reaches_is_said_where_something_else_listens() {
    let server = Server::builder(Mock::new()).tcp(loopback()).start().await.expect("a server");
    let report = examined(&format!("emulated://{}?timeout=200ms", server.listening()[0].addr)).await;
    let connect = report.findings().find(|finding| finding.id == "connect").expect("it connects");
    assert!(connect.remedy.iter().any(|remedy| remedy.contains("--device emulated")), "{connect:?}");
}

#[tokio::test]
async fn an_interface_that_is_missing_or_unknown_is_named() {
    for (url, expected) in [
        ("valkey://[fe80::1]:1", "add the interface that leads to it"),
        ("valkey://[fe80::1%25nosuch0]:1", "no network interface `nosuch0`"),
        ("rdma://[fe80::1%nosuch0]:1", "no network interface `nosuch0`"),
    ] {
        let report = examined(url).await;
        let (last, _) = *ids(&report, "server").last().expect("a finding");
        assert!(value(&report, last).contains(expected), "{report:#?}");
        let finding = report.findings().find(|finding| finding.id == last).expect("a finding");
        assert!(finding.remedy.is_empty(), "{finding:?}");
    }
}

#[tokio::test]
async fn a_name_that_does_not_resolve_fails_first() {
    let report = examined("valkey://nowhere.invalid").await;
    assert_eq!(ids(&report, "server"), [("resolve", Verdict::Problem)]);
}

#[tokio::test]
async fn a_server_that_does_not_answer_ends_with_the_timeout() {
    let silent = tokio::net::TcpListener::bind(loopback()).await.expect("a listener");
    let addr = silent.local_addr().expect("an address");
    let report = examined(&format!("valkey://{addr}?timeout=200ms")).await;
    assert_eq!(ids(&report, "server"), [("connect", Verdict::Ok), ("hello", Verdict::Problem)]);
}
