//! `--url` with TLS: what a server shows of itself, and each failure with what to do.

use std::path::Path;

use valkey_rdma_client::Endpoint;
use valkey_rdma_doctor::{Finding, Report, Verdict, server};
use valkey_rdma_mock::{Mock, MockServer, Server, ServerTls};
use valkey_rdma_testkit::{Authority, Pair};

async fn mock(pair: &Pair) -> MockServer {
    let tls = ServerTls::new(&pair.cert, &pair.key);
    MockServer::start_encrypted(Mock::new(), tls).await.expect("a server")
}

async fn examined(url: &str, ca: &Path) -> Report {
    let and = if url.contains('?') { '&' } else { '?' };
    let endpoint: Endpoint = format!("{url}{and}ca={}", ca.display()).parse().expect("a URL");
    server::examine(&endpoint).await
}

/// The finding of this id in this section.
fn finding<'a>(report: &'a Report, section: &str, id: &str) -> &'a Finding {
    let sections = report.sections.iter().filter(|found| found.name == section);
    let found = sections.flat_map(|section| &section.findings).find(|finding| finding.id == id);
    found.unwrap_or_else(|| panic!("no {id} of {section} in {report:#?}"))
}

/// What the report says of a server whose certificate it must refuse.
async fn refused(url: &str, ca: &Path, said: &str) -> Report {
    let report = examined(url, ca).await;
    let step = finding(&report, "server", "tls");
    assert!(step.verdict == Verdict::Problem && step.value.contains(said), "{said}: {report:#?}");
    assert!(report.findings().all(|finding| finding.id != "hello"), "nothing is sent: {report:#?}");
    report
}

#[tokio::test]
async fn a_server_with_tls_is_shown_with_its_certificate() {
    let authority = Authority::new("issuer");
    let server = mock(&authority.issue(&["localhost", "127.0.0.1"])).await;
    for url in [server.url(), server.tcp_url()] {
        let report = examined(url, &authority.ca()).await;
        let step = finding(&report, "server", "tls");
        assert!(step.verdict == Verdict::Ok && step.value.starts_with("TLS 1.3 TLS_"), "{report:#?}");
        let shown =
            report.sections.iter().find(|section| section.name == "certificate").expect("it is shown");
        let ids: Vec<_> = shown.findings.iter().map(|finding| finding.id.as_str()).collect();
        assert_eq!(ids, ["subject", "names", "issuer", "ends", "verified"]);
        assert!(shown.findings.iter().all(|finding| finding.verdict == Verdict::Ok), "{report:#?}");
        assert!(report.works(), "{report:#?}");
    }
}

#[tokio::test]
async fn a_certificate_that_ends_soon_and_one_that_is_not_verified_are_warnings() {
    let authority = Authority::new("issuer");
    let server = mock(&authority.issue_for_days(&["elsewhere"], -1, 5)).await;
    for (verify, said) in [("none", "nothing (verify=none)"), ("ca", "issuer and dates, not the name")] {
        let report = examined(&format!("{}?verify={verify}", server.tcp_url()), &authority.ca()).await;
        let ends = finding(&report, "certificate", "ends");
        assert!(ends.verdict == Verdict::Warning && !ends.remedy.is_empty(), "{report:#?}");
        let verified = finding(&report, "certificate", "verified");
        assert!(verified.verdict == Verdict::Warning && verified.value.contains(said), "{report:#?}");
        assert!(report.works(), "{report:#?}");
    }
}

#[tokio::test]
async fn a_certificate_for_another_name_is_shown_with_its_names() {
    let authority = Authority::new("issuer");
    let server = mock(&authority.issue(&["store.example", "10.0.0.7"])).await;
    for url in [server.url(), server.tcp_url()] {
        let report = refused(url, &authority.ca(), "server_name=NAME").await;
        assert_eq!(finding(&report, "certificate", "names").value, "store.example, 10.0.0.7");
    }
    let report = examined(&format!("{}?server_name=store.example", server.tcp_url()), &authority.ca()).await;
    assert!(report.works(), "{report:#?}");
}

#[tokio::test]
async fn an_issuer_that_is_not_trusted_is_named() {
    let (authority, other) = (Authority::new("their issuer"), Authority::new("ours"));
    let server = mock(&authority.issue(&["127.0.0.1"])).await;
    let report = refused(server.tcp_url(), &other.ca(), "ca=FILE").await;
    assert!(finding(&report, "certificate", "issuer").value.contains("CN=their issuer"), "{report:#?}");
}

#[tokio::test]
async fn a_certificate_that_has_ended_or_not_begun_is_shown_with_the_day() {
    let authority = Authority::new("issuer");
    let server = mock(&authority.issue_for_days(&["127.0.0.1"], -9, -3)).await;
    let report = refused(server.tcp_url(), &authority.ca(), "has expired 3 days ago: renew it").await;
    assert!(finding(&report, "certificate", "ends").value.ends_with("3 days ago"), "{report:#?}");
    let server = mock(&authority.issue_for_days(&["127.0.0.1"], 2, 30)).await;
    let report = refused(server.tcp_url(), &authority.ca(), "is not valid yet: compare the clocks").await;
    assert!(finding(&report, "certificate", "begins").value.contains(", in "), "{report:#?}");
}

#[tokio::test]
async fn a_server_that_requires_a_certificate_says_so() {
    let authority = Authority::new("issuer");
    let pair = authority.issue(&["127.0.0.1"]);
    let tls = ServerTls::new(&pair.cert, &pair.key).with_client_ca(authority.ca());
    let server = MockServer::start_encrypted(Mock::new(), tls).await.expect("a server");
    let report = examined(server.tcp_url(), &authority.ca()).await;
    let problem = report.findings().find(|finding| finding.verdict == Verdict::Problem).expect("a problem");
    assert!(problem.id == "tls" && problem.value.contains("cert=FILE and key=FILE"), "{report:#?}");
    let (cert, key) = (pair.cert.display(), pair.key.display());
    let url = format!("{}?cert={cert}&key={key}", server.tcp_url());
    assert!(examined(&url, &authority.ca()).await.works());
}

#[tokio::test]
async fn a_file_that_cannot_be_read_is_named() {
    let authority = Authority::new("issuer");
    let server = mock(&authority.issue(&["127.0.0.1"])).await;
    let report = refused(server.tcp_url(), Path::new("/nowhere/ca.crt"), "/nowhere/ca.crt").await;
    assert!(report.sections.iter().all(|section| section.name != "certificate"), "{report:#?}");
}

#[tokio::test]
async fn tls_at_a_server_without_it_is_said() {
    let authority = Authority::new("issuer");
    let server = Server::builder(Mock::new()).listen("valkey://127.0.0.1:0").listen("emulated://127.0.0.1:0");
    let server = server.start().await.expect("a server");
    let [over_tcp, emulated] = [0, 1].map(|listener| server.listening()[listener].addr);
    let url = format!("valkeys://{over_tcp}");
    let report = refused(&format!("{url}?timeout=1s"), &authority.ca(), "TLS").await;
    let answers = finding(&report, "without tls instead", "answers");
    assert!(answers.value.starts_with("yes") && answers.remedy[0].contains("tls-port"), "{report:#?}");
    refused(&format!("emulateds://{emulated}"), &authority.ca(), "valkey-rdma-gateway").await;
}

#[tokio::test]
async fn a_plain_url_at_a_tls_port_is_said() {
    let authority = Authority::new("issuer");
    let server = mock(&authority.issue(&["127.0.0.1"])).await;
    let endpoint: Endpoint = server.tcp_url().replace("valkeys://", "valkey://").parse().expect("a URL");
    let report = server::examine(&endpoint).await;
    assert_eq!(finding(&report, "server", "hello").verdict, Verdict::Problem);
    let answers = finding(&report, "with tls instead", "answers");
    assert!(answers.value.starts_with("yes, TLS 1.3") && answers.remedy == ["use valkeys://"], "{report:#?}");
}

#[tokio::test]
async fn a_handshake_that_stops_ends_with_the_timeout() {
    let authority = Authority::new("issuer");
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a listener");
    let url = format!("valkeys://{}?timeout=200ms", silent.local_addr().expect("an address"));
    refused(&url, &authority.ca(), "did not complete the TLS handshake within").await;
}
