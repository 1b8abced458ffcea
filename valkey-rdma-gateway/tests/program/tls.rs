//! Flags, signals and log of encrypted listeners.

use std::fs;
use std::path::Path;

use tokio::net::TcpStream;
use valkey_rdma_mock::Mock;
use valkey_rdma_testkit::{Authority, Child, Pair, Signal};
use valkey_rdma_transport::AnyStream;
use valkey_rdma_transport::tls::{ClientTls, TlsConnector};

use crate::program;
use crate::support::{Client, PATIENCE, mock_with, socket_path, text};

async fn client(addr: &str, tls: ClientTls) -> Option<Client> {
    let stream = AnyStream::Tcp(TcpStream::connect(addr).await.unwrap());
    let encrypted = TlsConnector::new(tls).connect("127.0.0.1", stream).await;
    encrypted.ok().map(Client::new)
}

fn flags(pair: &Pair) -> [&str; 4] {
    ["--tls-cert", pair.cert.to_str().unwrap(), "--tls-key", pair.key.to_str().unwrap()]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_are_flags_and_a_hang_up_reads_them_again() {
    let (_server, _, url) = mock_with(Mock::new()).await;
    let (issuer, next) = (Authority::new("An issuer"), Authority::new("The next one"));
    let pair = issuer.issue(&["127.0.0.1"]);
    let trusts = |issuer: &Authority| ClientTls::default().with_ca(issuer.ca());
    let mut command = program(&["--listen", "tls:127.0.0.1:0", "--server", &url]);
    let mut child = Child::start(command.args(flags(&pair))).unwrap();
    let ready = child.line_with("ready ", PATIENCE).unwrap();
    let addr = ready.strip_prefix("ready tls:").unwrap_or_else(|| panic!("{ready}"));
    let mut before = client(addr, trusts(&issuer)).await.unwrap();
    assert_eq!(before.say("SET k v").await, "OK");

    fs::write(&pair.key, "s3cret").unwrap();
    child.signal(Signal::HUP);
    let line = child.line_with("the configuration has not changed", PATIENCE).unwrap();
    assert!(line.contains(pair.key.to_str().unwrap()) && !line.contains("s3cret"), "{line}");
    assert!(client(addr, trusts(&issuer)).await.is_some());

    let renewed = next.issue_for_days(&["127.0.0.1"], -9, 3);
    fs::copy(&renewed.key, &pair.key).unwrap();
    fs::copy(&renewed.cert, &pair.cert).unwrap();
    child.signal(Signal::HUP);
    child.line_with("the files with password and certificates are read again", PATIENCE).unwrap();
    child.line_with("the certificate ends soon", PATIENCE).unwrap();
    assert!(client(addr, trusts(&issuer)).await.is_none());
    assert_eq!(client(addr, trusts(&next)).await.unwrap().say("GET k").await, "v");
    assert_eq!(before.say("GET k").await, "v");
    child.signal(Signal::TERM);
    assert!(child.wait(PATIENCE).unwrap().success());
    before.expect_end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_without_tls_are_logged_seldom_and_with_the_reason() {
    let (_server, _, url) = mock_with(Mock::new()).await;
    let issuer = Authority::new("An issuer");
    let pair = issuer.issue(&["127.0.0.1"]);
    let mut command = program(&["--listen", "tls:127.0.0.1:0", "--server", &url]);
    let mut child = Child::start(command.args(flags(&pair))).unwrap();
    let ready = child.line_with("ready ", PATIENCE).unwrap();
    let addr = ready.strip_prefix("ready tls:").unwrap();
    for _ in 0..20 {
        let mut client = Client::new(TcpStream::connect(addr).await.unwrap());
        client.command("AUTH s3cret").await;
        assert!(text(&client.reply().await).contains("this port requires TLS"));
    }
    child.signal(Signal::TERM);
    assert!(child.wait(PATIENCE).unwrap().success());
    let log = child.stderr();
    let lines: Vec<_> = log.lines().filter(|line| line.contains("no TLS connection with a client")).collect();
    assert!((1..20).contains(&lines.len()), "{log}");
    let parts = ["WARN", "peer=\"127.0.0.1:", "the peer does not use TLS"];
    assert!(parts.iter().all(|part| lines[0].contains(part)) && !log.contains("s3cret"), "{log}");
}

#[test]
fn flags_that_do_not_go_together_are_refused() {
    let issuer = Authority::new("An issuer");
    let pair = issuer.issue(&["localhost"]);
    let (cert, key) = (pair.cert.to_str().unwrap(), pair.key.to_str().unwrap());
    let (plain, tls) = (["--listen", "tcp:127.0.0.1:0"], ["--listen", "tls:127.0.0.1:0"]);
    for (listen, more, part) in [
        (tls, &[][..], "needs a certificate: --tls-cert and --tls-key"),
        (tls, &["--tls-cert", cert], "--tls-key <FILE>"),
        (tls, &["--tls-key", key], "--tls-cert <FILE>"),
        (plain, &["--tls-client-auth", "no"], "--tls-cert <FILE>"),
        (plain, &["--tls-cert", cert, "--tls-key", key], "no listener that uses it"),
        (
            tls,
            &["--tls-cert", cert, "--tls-key", key, "--tls-client-auth", "maybe"],
            "no, optional or required",
        ),
        (tls, &["--tls-cert", cert, "--tls-key", key, "--tls-client-auth", "required"], "client_ca"),
        (tls, &["--tls-cert", key, "--tls-key", cert], "but a private key"),
        (tls, &["--tls-cert", "/absent", "--tls-key", key], "cannot read the certificate /absent"),
    ] {
        let flags = [&listen[..], more, &["--server", "valkey://127.0.0.1:1", "--check"]].concat();
        let refused = program(&flags).output().unwrap();
        let error = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{flags:?}: {error}");
        assert!(error.contains(part), "{part} in: {error}");
    }
}

/// As systemd's `LoadCredential=`: the key need not be readable for the gateway's user elsewhere.
#[test]
fn certificates_are_credentials() {
    let issuer = Authority::new("An issuer");
    let pair = issuer.issue(&["localhost"]);
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    let file = socket_path().with_extension("toml");
    let text = format!(
        "[[route]]\nlisten = [\"tls:127.0.0.1:0\"]\nserver = \"valkey://127.0.0.1:1\"\n[route.tls]\ncert = {:?}\nkey = {:?}\n",
        name(&pair.cert),
        name(&pair.key)
    );
    fs::write(&file, text).unwrap();
    let mut check = program(&["--config", file.to_str().unwrap(), "--check"]);
    assert_eq!(check.output().unwrap().status.code(), Some(2));
    assert!(check.env("CREDENTIALS_DIRECTORY", issuer.folder()).status().unwrap().success());
    fs::remove_file(&file).unwrap();
}

/// The server starts with such certificates, and its clients refuse them.
#[test]
fn a_check_says_when_the_certificate_ends_and_why_clients_refuse_it() {
    let issuer = Authority::new("An issuer");
    for (pair, warning, ends) in [
        (issuer.issue_for_days(&["localhost"], -1, 90), None, ["in 89 days", "in 90 days"]),
        (
            issuer.issue_for_days(&["localhost"], -9, 3),
            Some("the certificate ends soon"),
            ["in 2 days", "in 3 days"],
        ),
        (
            issuer.issue_for_days(&["localhost"], -9, -3),
            Some("the certificate has ended"),
            ["3 days ago", "3 days ago"],
        ),
        (
            issuer.issue_for_days(&["localhost"], 3, 90),
            Some("the certificate is not valid yet"),
            ["in 89 days", "in 90 days"],
        ),
        (
            issuer.issue_of_issuer(&["localhost"]),
            Some("that of an issuer (CA:TRUE)"),
            ["in 29 days", "in 30 days"],
        ),
        (issuer.issue(&[]), Some("no name (subjectAltName)"), ["in 29 days", "in 30 days"]),
    ] {
        let (cert, key) = (pair.cert.to_str().unwrap(), pair.key.to_str().unwrap());
        let listen = ["--listen", "tls:127.0.0.1:0", "--server", "valkey://127.0.0.1:1"];
        let flags = [&listen[..], &["--tls-cert", cert, "--tls-key", key, "--check"]].concat();
        let checked = program(&flags).output().unwrap();
        let (said, warned) =
            (String::from_utf8_lossy(&checked.stdout), String::from_utf8_lossy(&checked.stderr));
        assert!(checked.status.success(), "{warned}");
        assert!(
            said.contains(&format!("the certificate {cert} ends "))
                && ends.iter().any(|end| said.contains(end)),
            "{said}"
        );
        match warning {
            None => assert_eq!(warned, ""),
            Some(part) => {
                assert!(warned.contains(&format!("warning: {cert}: ")) && warned.contains(part), "{warned}")
            }
        }
    }
}
