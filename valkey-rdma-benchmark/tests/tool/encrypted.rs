//! Runs over TLS.

use tokio::runtime::Runtime;
use valkey_rdma_mock::{Mock, MockServer, ServerTls};
use valkey_rdma_testkit::{Authority, Folder};

use crate::modes::right;
use crate::scripted::{stderr, stdout, tool};

/// A mock with TLS for 127.0.0.1, and the runtime that it lives in.
struct Running {
    // Fields are dropped in this order: the server lives in the runtime.
    server: MockServer,
    _runtime: Runtime,
    authority: Authority,
}

fn mock() -> Running {
    let authority = Authority::new("issuer");
    let pair = authority.issue(&["127.0.0.1"]);
    let runtime = Runtime::new().unwrap();
    let tls = ServerTls::new(&pair.cert, &pair.key);
    let server = runtime.block_on(MockServer::start_encrypted(Mock::new(), tls)).unwrap();
    Running { server, _runtime: runtime, authority }
}

/// The flags in a line, after others.
fn with<'a>(first: &[&'a str], line: &'a str) -> Vec<&'a str> {
    first.iter().copied().chain(line.split(' ')).collect()
}

#[test]
fn replies_are_right_over_tls_in_every_shape() {
    let mock = mock();
    let ca = mock.authority.ca().display().to_string();
    for url in [mock.server.url(), mock.server.tcp_url()] {
        for shape in [
            "-c 3 -P 4 -d 5000 -r 50",
            "-c 2 -k 0",
            "-c 1 --tasks-per-connection 9 -d 40000",
            "-c 1 -d 3000000 -n 20",
        ] {
            let count = if shape.contains("-n") { "" } else { " -n 200" };
            let flags = format!("-t ping_mbulk,set,get --verify full -q {shape}{count}");
            let output = tool(&with(&["-u", url, "--cacert", &ca], &flags));
            assert_eq!(right(&output).lines().count(), 3, "{url} {shape}");
        }
    }
}

#[test]
fn a_report_says_which_version_and_cipher_the_connections_have() {
    let (mock, folder) = (mock(), Folder::new("tls"));
    let ca = mock.authority.ca().display().to_string();
    let (json, html) = (folder.file("run.json"), folder.file("run.html"));
    let files = ["-u", mock.server.tcp_url(), "--tls", "--cacert", &ca, "--json", &json, "--html", &html];
    let output = tool(&with(&files, "-t ping_mbulk -n 50 -c 2"));
    assert!(right(&output).contains("transport   tcp+tls, RESP2, TLS 1.3 TLS_"), "{output:?}");
    let json: serde_json::Value = serde_json::from_str(&folder.read("run.json")).unwrap();
    assert!(json["tests"][0]["tls"].as_str().unwrap().starts_with("TLS 1.3 TLS_"), "{json}");
    assert_eq!(json["tests"][0]["run"]["transport"], "tcp+tls");
    assert!(folder.read("run.html").contains("tcp+tls, RESP2, TLS 1.3 TLS_"));
    let output = tool(&with(&["-u", mock.server.url()], "--insecure -t ping_mbulk -n 50 -c 2"));
    let table = stdout(&output);
    assert!(output.status.success(), "{output:?}");
    assert!(
        table.contains("transport   emulated+tls,") && table.contains("(server not verified)"),
        "{table}"
    );
    // Once, however many connections there are.
    let warnings = stderr(&output);
    assert_eq!(warnings.matches("is not verified (--insecure, verify=none)").count(), 1, "{warnings}");
}

#[test]
fn a_server_that_is_not_verified_gets_no_command() {
    let (mock, other) = (mock(), Authority::new("another issuer"));
    let ca = other.ca().display().to_string();
    let output = tool(&with(&["-u", mock.server.tcp_url(), "--cacert", &ca], "-t ping_mbulk -n 5 -c 1"));
    assert_eq!(output.status.code(), Some(1));
    let text = stderr(&output);
    assert!(
        text.contains(
            "an issuer that is not trusted here: give that issuer's certificate with --cacert FILE"
        ),
        "{text}"
    );
    assert!(mock.server.received().is_empty(), "nothing is sent");
}
