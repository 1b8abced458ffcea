//! Dialers, in front of listeners that answer as the test says.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener};
use tokio::time::Instant;
use valkey_rdma_transport::emulated::{Device, Link};
use valkey_rdma_transport::{Config as TransportConfig, DeviceKind, Listener, RejectReason};

use super::*;
use crate::endpoint::Transport;
use crate::error::ConnectCause;
use crate::link::{ConnectStep, StepFound};

/// Only the caller's bytes pass, in both directions.
async fn carries_only_these_bytes(mut server: impl AsyncRead + AsyncWrite + Unpin, mut stream: ByteStream) {
    let mut received = [0; 5];
    stream.write_all(b"hello").await.expect("open");
    server.read_exact(&mut received).await.expect("open");
    assert_eq!(&received, b"hello");
    server.write_all(b"world").await.expect("open");
    stream.read_exact(&mut received).await.expect("open");
    assert_eq!(&received, b"world");
}

#[tokio::test]
async fn a_dialed_stream_does_not_log_in() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("valkey://user:password@{}/3", listener.local_addr().expect("bound"));
    let dialer = Dialer::new(url.as_str(), &Config::default()).expect("a good URL");
    let (accepted, dialed) = tokio::join!(listener.accept(), dialer.dial());
    let stream = dialed.expect("connects");
    assert_eq!(stream.info().transport, Transport::Tcp);
    carries_only_these_bytes(accepted.expect("a client").0, stream).await;
}

#[tokio::test]
async fn a_device_is_dialed_until_its_windows_are_known() {
    let any = "127.0.0.1:0".parse().expect("an address");
    let mut listener =
        Listener::bind(DeviceKind::Emulated, any, &TransportConfig::default()).await.expect("a port");
    let url = format!("emulated://user:password@{}", listener.local_addr());
    let dialer = Dialer::new(url.as_str(), &Config::default()).expect("a good URL");
    let (accepted, dialed) = tokio::join!(listener.accept(), dialer.dial());
    let stream = dialed.expect("connects");
    assert!(stream.info().tx_window.is_some() && stream.monitor().is_some());
    carries_only_these_bytes(accepted.expect("a client"), stream.driven()).await;
}

/// A host that remembers an earlier connection: the third request is accepted. So it is where an observer sees each step.
#[tokio::test]
async fn a_device_is_dialed_past_transient_rejects() {
    let any = "127.0.0.1:0".parse().expect("an address");
    let mut listener =
        Listener::bind(DeviceKind::Emulated, any, &TransportConfig::default()).await.expect("a port");
    let device = Device::new(Link::Any);
    let url = format!("emulated://{}?device={}", listener.local_addr(), device.name());
    for observed in [false, true] {
        let mut dialer = Dialer::new(url.as_str(), &Config::default()).expect("a good URL");
        if observed {
            dialer = dialer.observed(|step| assert!(step.outcome.is_ok()));
        }
        device.reject_requests(2, RejectReason(10));
        let (accepted, dialed) = tokio::join!(listener.accept(), dialer.dial());
        carries_only_these_bytes(accepted.expect("a client"), dialed.expect("connects")).await;
        device.reject_requests(3, RejectReason(10));
        let plain = Dialer::new(url.as_str(), &Config::default()).expect("a good URL");
        let error = plain.dial().await.expect_err("rejected").to_string();
        assert!(error.contains("status 10, stale connection"), "{error}");
    }
}

/// Reads a login to its last command: PING with an argument. Returns how many commands it has.
async fn read_login(server: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> usize {
    let mut received = Vec::new();
    while !received.ends_with(b"$4\r\nPING\r\n$11\r\nvalkey-rdma\r\n") {
        assert_ne!(server.read_buf(&mut received).await.expect("open"), 0);
    }
    received.iter().filter(|&&byte| byte == b'*').count()
}

/// Accepts a login in RESP2.
async fn accept_login(server: &mut (impl AsyncRead + AsyncWrite + Unpin)) {
    let commands = read_login(server).await;
    let replies = ["+OK\r\n".repeat(commands - 1), "+PONG\r\n".to_owned()].concat();
    server.write_all(replies.as_bytes()).await.expect("open");
}

#[tokio::test]
async fn a_logged_in_stream_begins_behind_the_login() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("valkey://:pw@{}/3?protocol=resp2", listener.local_addr().expect("bound"));
    let dialer = Dialer::new(url.as_str(), &Config::default().name("me")).expect("a good URL");
    let serve = async {
        let mut server = listener.accept().await.expect("a client").0;
        accept_login(&mut server).await;
        server
    };
    let (server, dialed) = tokio::join!(serve, dialer.dial_logged_in());
    let stream = dialed.expect("logs in");
    carries_only_these_bytes(server, stream).await;
}

/// A push message is not for the caller yet, and its second half must not be taken for the caller's bytes.
#[tokio::test]
async fn a_push_message_at_the_end_of_the_login_is_read_whole() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("valkey://{}", listener.local_addr().expect("bound"));
    let dialer = Dialer::new(url.as_str(), &Config::default()).expect("a good URL");
    let serve = async {
        let mut server = listener.accept().await.expect("a client").0;
        let map = "%1\r\n$5\r\nproto\r\n:3\r\n+OK\r\n+OK\r\n$11\r\nvalkey-rdma\r\n";
        server.write_all([map, ">2\r\n$10\r\ninval"].concat().as_bytes()).await.expect("open");
        read_login(&mut server).await;
        server.write_all(b"idate\r\n_\r\n").await.expect("open");
        server
    };
    let (server, dialed) = tokio::join!(serve, dialer.dial_logged_in());
    let stream = dialed.expect("logs in");
    carries_only_these_bytes(server, stream).await;
}

fn socket_path(of: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("valkey-rdma-{of}-{}.sock", std::process::id()));
    let _ = std::fs::remove_file(&path);
    path
}

#[tokio::test]
async fn a_unix_socket_is_dialed_and_named() {
    let path = socket_path("dialer");
    let endpoint: Endpoint = "valkey://localhost?protocol=resp2".parse().expect("a good URL");
    dials_and_names(&path, || {
        Dialer::at_socket(&path, endpoint.clone(), &Config::default()).expect("good settings")
    })
    .await;
    let url = format!("unix://{}?protocol=resp2", path.display());
    dials_and_names(&path, || Dialer::new(url.as_str(), &Config::default()).expect("a good URL")).await;
}

async fn dials_and_names(path: &Path, dialer: impl Fn() -> Dialer) {
    let error = dialer().dial().await.expect_err("nothing is there");
    let begin = format!("cannot connect to {} over unix: No such file or directory", path.display());
    let (text, advice) =
        (format!("{error:#}"), "; there is no such file: does the server run, and is this its `unixsocket`?");
    assert!(text.starts_with(&begin) && text.ends_with(advice), "{text}");

    let listener = UnixListener::bind(path).expect("a new path");
    let serve = async {
        let mut server = listener.accept().await.expect("a client").0;
        accept_login(&mut server).await;
        server
    };
    let logged_in = async { dialer().dial_logged_in().await };
    let (server, dialed) = tokio::join!(serve, logged_in);
    let stream = dialed.expect("logs in").into_stream();
    assert!(matches!(stream, AnyStream::Unix(_)), "{stream:?}");
    drop(server);

    let serve = async {
        let mut server = listener.accept().await.expect("a client").0;
        accept_login(&mut server).await;
        server.read_exact(&mut [0; 14]).await.expect("PING");
        server.write_all(b"+PONG\r\n").await.expect("open");
        server
    };
    let ask = async {
        let client = dialer().into_client().await.expect("connects");
        client.query::<String>(["PING"]).await.expect("a reply")
    };
    let (_server, reply) = tokio::join!(serve, ask);
    assert_eq!(reply, "PONG");

    // A server that is killed leaves the file.
    drop(listener);
    let error = dialer().dial().await.expect_err("nothing listens");
    let end = "no server listens there: has the one that made this socket ended?";
    assert!(error.to_string().ends_with(end), "{error}");
    std::fs::remove_file(path).expect("the file is there");
}

/// What an observer has seen: the step, whether it worked, and how long it took.
type Seen = Arc<Mutex<Vec<(ConnectStep, bool, Duration)>>>;

fn observed(url: &str) -> (Dialer, Seen) {
    let seen = Seen::default();
    let notes = seen.clone();
    let dialer = Dialer::new(url, &Config::default()).expect("a good URL").observed(move |report| {
        match &report.outcome {
            Ok(StepFound::Addresses(addresses)) => assert_eq!(addresses.len(), 1),
            Ok(StepFound::Device(device, from)) => assert!(!device.name.is_empty() && from.port() != 1),
            Ok(StepFound::Windows(info)) => assert!(info.peer_window > 0),
            Ok(_) => {}
            Err(cause) => assert!(!cause.to_string().is_empty()),
        }
        lock(&notes).push((report.step, report.outcome.is_ok(), report.took));
    });
    (dialer, seen)
}

fn steps(seen: &Seen) -> Vec<(ConnectStep, bool)> {
    lock(seen).iter().map(|(step, worked, _)| (*step, *worked)).collect()
}

async fn device_listener() -> Listener {
    let any = "127.0.0.1:0".parse().expect("an address");
    Listener::bind(DeviceKind::Emulated, any, &TransportConfig::default()).await.expect("a port")
}

#[tokio::test]
async fn an_observer_sees_each_step_over_a_device() {
    use ConnectStep::{Connect, LogIn, Register, Resolve, Route};
    let mut listener = device_listener().await;
    let (dialer, seen) = observed(&format!("emulated://{}?protocol=resp2", listener.local_addr()));
    let serve = async {
        let mut server = listener.accept().await.expect("a client");
        accept_login(&mut server).await;
        server
    };
    let (_server, dialed) = tokio::join!(serve, dialer.dial_logged_in());
    dialed.expect("logs in");
    assert_eq!(steps(&seen), [Resolve, Route, Connect, Register, LogIn].map(|step| (step, true)));
}

#[tokio::test]
async fn an_observer_sees_the_step_that_fails() {
    use ConnectStep::{Connect, LogIn, Resolve};
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let (dialer, seen) = observed(&format!("valkey://{}", listener.local_addr().expect("bound")));
    let refuse = async {
        let mut server = listener.accept().await.expect("a client").0;
        server.write_all(b"-NOAUTH Authentication required.\r\n").await.expect("open");
        server
    };
    let (_server, dialed) = tokio::join!(refuse, dialer.dial_logged_in());
    dialed.expect_err("refused");
    assert_eq!(steps(&seen), [(Resolve, true), (Connect, true), (LogIn, false)]);
}

/// The connect stays with the transport, and the observer learns how far it has come.
#[tokio::test(start_paused = true)]
async fn an_observer_does_not_move_the_deadline() {
    use ConnectStep::{Connect, Resolve, Route};
    let listener = device_listener().await;
    let url = format!("emulated://{}?timeout=3s", listener.local_addr());
    let (watched, seen) = observed(&url);
    for dialer in [watched, Dialer::new(url.as_str(), &Config::default()).expect("a good URL")] {
        let begin = Instant::now();
        let error = dialer.dial_logged_in().await.expect_err("it does not accept");
        assert_eq!(begin.elapsed(), Duration::from_secs(3));
        let Error::Connect(error) = error else { panic!("{error}") };
        assert!(matches!(error.cause(), ConnectCause::Deadline { connected: false, .. }), "{error}");
    }
    assert_eq!(steps(&seen), [(Resolve, true), (Route, true), (Connect, false)]);
    assert_eq!(lock(&seen)[2].2, Duration::from_secs(3));
}

/// A dropped attempt reports nothing more: not even the step that it was in.
#[tokio::test(start_paused = true)]
async fn a_dropped_attempt_reports_nothing_more() {
    let mut listener = device_listener().await;
    let (dialer, seen) = observed(&format!("emulated://{}", listener.local_addr()));
    let given_up = tokio::time::timeout(Duration::from_secs(1), dialer.dial()).await;
    assert!(given_up.is_err());
    // Its connect is completed in the background.
    let _accepted = listener.accept().await.expect("a client");
    assert_eq!(steps(&seen), [(ConnectStep::Resolve, true)]);
}

/// [`Client::connect_with`] connects to all of its nodes.
#[tokio::test]
async fn a_cluster_gets_no_client_of_one_node() {
    let endpoint: Endpoint = "valkey+cluster://127.0.0.1:1,127.0.0.1:2".parse().expect("a good URL");
    let dialer = Dialer::following(endpoint, &Config::default()).expect("good settings");
    let error = dialer.into_client().await.expect_err("several servers");
    assert!(matches!(error, Error::Endpoint(_)), "{error}");
}
