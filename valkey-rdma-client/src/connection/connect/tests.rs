use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::JoinSet;
use valkey_rdma_resp::Protocol;
use valkey_rdma_transport::{Config as TransportConfig, Listener, Stream};

use super::*;
use crate::client::Client;
use crate::error::Error;

const PING: &str = "*1\r\n$4\r\nPING\r\n";

const SETINFO: &str = concat!(
    "*4\r\n$6\r\nCLIENT\r\n$7\r\nSETINFO\r\n$8\r\nLIB-NAME\r\n$18\r\nvalkey-rdma-client\r\n",
    "*4\r\n$6\r\nCLIENT\r\n$7\r\nSETINFO\r\n$7\r\nLIB-VER\r\n$5\r\n",
    env!("CARGO_PKG_VERSION"),
    "\r\n",
);

/// Connects over a stream whose peer expects these bytes and then answers with those.
async fn shake(url: &str, expected: &str, answer: &str) -> (Result<Client, Error>, DuplexStream) {
    let endpoint: Endpoint = url.parse().expect("a good URL");
    let (ours, mut peer) = duplex(4096);
    let script = async {
        let mut received = vec![0; expected.len()];
        peer.read_exact(&mut received).await.expect("the client writes");
        assert_eq!(String::from_utf8_lossy(&received), expected);
        peer.write_all(answer.as_bytes()).await.expect("open");
        if answer.contains("NOAUTH") || answer.is_empty() {
            peer.shutdown().await.expect("open");
        }
        peer
    };
    tokio::join!(Client::from_stream(ours, &endpoint), script)
}

fn text(result: &Result<Client, Error>) -> String {
    let text = format!("{:#}", result.as_ref().expect_err("no connection"));
    assert!(!text.contains('\n'), "{text}");
    text
}

#[tokio::test]
async fn the_handshake_is_one_exchange() {
    let hello = format!("*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n{SETINFO}");
    let map = "%1\r\n$6\r\nserver\r\n$6\r\nvalkey\r\n";
    let (client, _peer) = shake("valkey://h", &hello, &format!("{map}+OK\r\n+OK\r\n")).await;
    assert_eq!(client.expect("connected").info().protocol, Protocol::Resp3);

    let login = "*5\r\n$5\r\nHELLO\r\n$1\r\n3\r\n$4\r\nAUTH\r\n$7\r\ndefault\r\n$2\r\npw\r\n";
    let select = "*2\r\n$6\r\nSELECT\r\n$1\r\n7\r\n";
    let answer = format!("{map}+OK\r\n+OK\r\n+OK\r\n");
    let (client, _peer) = shake("valkey://:pw@h/7", &format!("{login}{select}{SETINFO}"), &answer).await;
    client.expect("connected");

    let ping = format!("{PING}{SETINFO}");
    let (client, _peer) = shake("valkey://h?protocol=resp2", &ping, "+PONG\r\n+OK\r\n+OK\r\n").await;
    assert_eq!(client.expect("connected").info().protocol, Protocol::Resp2);

    let auth = format!("*3\r\n$4\r\nAUTH\r\n$2\r\nme\r\n$2\r\npw\r\n{SETINFO}");
    let (client, _peer) = shake("valkey://me:pw@h?protocol=resp2", &auth, "+OK\r\n+OK\r\n+OK\r\n").await;
    client.expect("connected");
}

#[tokio::test]
async fn servers_that_do_not_know_setinfo_are_fine() {
    let hello = format!("*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n{SETINFO}");
    let unknown = "-ERR unknown subcommand 'SETINFO'. Try CLIENT HELP.\r\n".repeat(2);
    let (client, _peer) = shake("valkey://h", &hello, &format!("%0\r\n{unknown}")).await;
    client.expect("connected");
}

#[tokio::test]
async fn refusals_say_what_to_do_even_if_the_server_hangs_up() {
    let hello = "*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n";
    let select = "*2\r\n$6\r\nSELECT\r\n$2\r\n99\r\n";
    let wrong = "*5\r\n$5\r\nHELLO\r\n$1\r\n3\r\n$4\r\nAUTH\r\n$2\r\nme\r\n$3\r\nbad\r\n";
    let noauth = "-NOAUTH Authentication required.\r\n";
    let rest = noauth.repeat(2);
    let table = [
        (
            "valkey://h",
            hello,
            "-NOAUTH HELLO must be called with the client already authenticated\r\n",
            "user:password@",
        ),
        ("valkey://h?protocol=resp2", PING, noauth, "user:password@"),
        (
            "valkey://me:bad@h",
            wrong,
            &format!("-WRONGPASS invalid username-password pair\r\n{rest}"),
            "check user and",
        ),
        ("valkey://h", hello, &format!("-ERR unknown command 'HELLO'\r\n{rest}"), "use protocol=resp2"),
        (
            "valkey://h/99",
            &format!("{hello}{select}"),
            &format!("%0\r\n-ERR DB index is out of range\r\n{rest}"),
            "database",
        ),
        ("valkey://h", hello, &format!("-DENIED protected mode\r\n{rest}"), "protected-mode no"),
    ];
    for (url, expected, answer, hint) in table {
        let (result, _peer) = shake(url, &format!("{expected}{SETINFO}"), answer).await;
        let text = text(&result);
        assert!(text.contains("h:6379") && text.contains(hint), "{url}: {text}");
        assert!(!text.contains("bad@"), "{text}");
        assert!(result.is_err_and(|error| error.server().is_some() && !error.may_have_run()));
    }
}

/// Servers before 6.0 do not know HELLO and quote it whole.
#[tokio::test]
async fn a_password_that_the_server_quotes_is_not_shown() {
    let login = "*5\r\n$5\r\nHELLO\r\n$1\r\n3\r\n$4\r\nAUTH\r\n$2\r\nme\r\n$4\r\nhush\r\n";
    let answer = "-ERR unknown command `HELLO`, with args beginning with: `3`, `AUTH`, `me`, `hush`, \r\n+OK\r\n+OK\r\n";
    let (result, _peer) = shake("valkey://me:hush@h", &format!("{login}{SETINFO}"), answer).await;
    let text = text(&result);
    assert!(text.contains("unknown command `HELLO`\"; an old server: use protocol=resp2"), "{text}");
    assert!(!format!("{result:?}").contains("hush"), "{result:?}");
}

#[tokio::test]
async fn a_peer_that_closes_during_the_handshake_is_named() {
    let hello = format!("*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n{SETINFO}");
    let (result, _peer) = shake("valkey://h:7", &hello, "").await;
    let text = text(&result);
    assert!(text.contains("h:7") && text.contains("the peer closed it during the handshake"), "{text}");
}

#[tokio::test]
async fn a_peer_that_is_no_valkey_is_named() {
    let hello = format!("*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n{SETINFO}");
    let (result, _peer) = shake("valkey://h:7", &hello, "HTTP/1.1 400 Bad Request\r\n").await;
    let text = text(&result);
    assert!(text.contains("broke the protocol") && text.contains("is it a Valkey server"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_never_answers_meets_the_deadline() {
    let endpoint: Endpoint = "valkey://h:7?timeout=3s".parse().expect("a good URL");
    let (ours, mut peer) = duplex(4096);
    let begin = Instant::now();
    let result = Client::from_stream(ours, &endpoint).await;
    assert_eq!(begin.elapsed(), Duration::from_secs(3));
    let text = text(&result);
    assert!(text.contains("h:7") && text.contains("did not answer within 3s"), "{text}");

    // Nothing of it is left: the peer sees the end.
    let mut rest = Vec::new();
    peer.read_to_end(&mut rest).await.expect("closed");
}

#[tokio::test(start_paused = true)]
async fn a_dead_address_leaves_time_for_the_next() {
    let endpoint: Endpoint = "valkey://h?timeout=4s".parse().expect("a good URL");
    let deadline = ConnectDeadline::of(&endpoint);
    let addresses = [1, 2, 3].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    let connected = dial(&deadline, &addresses[..2], |address| async move {
        match address.port() {
            1 => std::future::pending().await,
            _ => Ok(()),
        }
    });
    assert_eq!(connected.await.expect("the second answers").1, addresses[1]);
    assert_eq!(deadline.left(), Duration::from_secs(2));

    let failed = dial(&deadline, &addresses, |_| std::future::pending::<Result<(), _>>()).await;
    assert!(matches!(failed, Err(ConnectCause::Deadline { connected: false, .. })));
    assert_eq!(deadline.left(), Duration::ZERO);
}

#[tokio::test]
async fn tcp_connects_and_says_so() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a client");
        stream.write_all(b"%0\r\n+OK\r\n+OK\r\n+PONG\r\n").await.expect("open");
        let mut received = Vec::new();
        stream.read_to_end(&mut received).await.expect("the client closes");
        received
    });
    // As a task: the future must be Send.
    let client =
        tokio::spawn(Client::connect(format!("redis://{address}").parse::<Endpoint>().expect("a good URL")));
    let client = client.await.expect("no panic").expect("connected");
    assert_eq!(client.info().peer, Some(address));
    assert_eq!(client.info().to_string(), format!("tcp to {address} (resp3)"));
    assert!(client.connections()[0].stats.is_none());
    client.close().await;
    let received = server.await.expect("no panic");
    assert!(received.ends_with(SETINFO.as_bytes()));
}

#[tokio::test]
async fn nothing_listening_and_bad_names_say_what_to_do() {
    // Bound, so that nobody else gets the port, and not listening.
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind("127.0.0.1:0".parse().expect("an address")).expect("a free port");
    let address = socket.local_addr().expect("bound");
    let refused = text(&Client::connect(format!("valkey://{address}").as_str()).await);
    assert_eq!(
        refused,
        format!(
            "cannot connect to {address} over tcp: connection refused; is a server listening on this port?"
        )
    );

    // Longer than any name can be: no resolver is asked.
    let name = "x".repeat(300);
    let unresolved = text(&Client::connect(format!("valkey://{name}").as_str()).await);
    assert!(unresolved.contains("does not resolve") && unresolved.contains("check the host"), "{unresolved}");

    let bad_url = Client::connect("http://h").await.expect_err("refused");
    assert!(matches!(bad_url, Error::Endpoint(_)));
}

#[tokio::test]
async fn the_emulated_device_connects_and_says_so() {
    let any = "127.0.0.1:0".parse().expect("an address");
    let config = TransportConfig::default().rx_size(65_536);
    let mut listener = Listener::bind(DeviceKind::Emulated, any, &config).await.expect("a free port");
    let address = listener.local_addr();
    let server = tokio::spawn(async move {
        let mut stream = listener.accept().await.expect("a client");
        stream.write_all(b"%0\r\n+OK\r\n+OK\r\n").await.expect("open");
        let mut received = Vec::new();
        while !received.ends_with(b"*1\r\n$4\r\nPING\r\n") {
            stream.read_buf(&mut received).await.expect("open");
        }
        stream.write_all(b"+PONG\r\n").await.expect("open");
        assert_eq!(stream.read(&mut [0; 1]).await.expect("closed in good order"), 0);
    });

    let endpoint: Endpoint = format!("emulated://{address}?rx_size=100001").parse().expect("a good URL");
    let settings = TransportConfig::default().rx_size(200_000).send_buffer(128 * 1024);
    let config = Config::default().transport(settings);
    let pinned = |client: &Client| client.connections()[0].stats.map(|stats| stats.pinned_bytes);
    let client = Client::connect_with(endpoint, &config).await.expect("connected");
    let both = TransportConfig::default().rx_size(100_001).send_buffer(128 * 1024);
    assert_eq!(
        pinned(&client),
        Some(both.pinned_bytes()),
        "the endpoint's windows, the configuration's buffer"
    );
    let info = client.info();
    assert_eq!((info.transport, info.peer), (Transport::Emulated, Some(address)));
    assert_eq!((info.rx_window, info.tx_window), (Some(100_001), Some(65_536)));
    assert!(info.device.is_some());
    assert_eq!(client.command(["PING"]).await.expect("a reply").as_str(), Some("PONG"));
    let before = client.connections()[0].stats.expect("a device").device;
    assert!(before.doorbells > 0);
    assert!(before.filled_in_place > 0, "the command is encoded straight into the send buffer");
    client.close().await;
    server.await.expect("no panic");
}

/// The limit is beyond what keepalive probes can count.
#[tokio::test]
async fn any_keepalive_timeout_can_be_set() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    for limit in [Duration::ZERO, Duration::from_secs(3600 * 24), Duration::MAX] {
        connect_tcp(address, None, Some(limit)).await.expect("connected");
    }
}

/// Nothing is sent, so that only silence can tell.
#[tokio::test(start_paused = true)]
async fn a_server_that_falls_silent_is_found_dead() {
    for keepalives in [true, false] {
        let any = "127.0.0.1:0".parse().expect("an address");
        let mut config = TransportConfig::default();
        if !keepalives {
            config = config.keepalive(None);
        }
        let mut listener = Listener::bind(DeviceKind::Emulated, any, &config).await.expect("a free port");
        let url = format!("emulated://{}", listener.local_addr());
        let accept = async {
            let mut stream = listener.accept().await.expect("a client");
            stream.write_all(b"%0\r\n+OK\r\n+OK\r\n").await.expect("open");
            stream
        };
        let (client, mut stream) = tokio::join!(Client::connect(url.as_str()), accept);
        let client = client.expect("connected");
        let serving = tokio::spawn(async move { tokio::io::copy(&mut stream, &mut tokio::io::sink()).await });
        let silence = Duration::from_secs(19);
        tokio::time::sleep(silence).await;
        assert!(client.is_connected());
        tokio::time::sleep(silence).await;
        assert_eq!(client.is_connected(), keepalives);
        serving.abort();
    }
}

#[tokio::test]
async fn a_device_that_refuses_says_why() {
    let nothing = text(&Client::connect("emulated://127.0.0.1:1").await);
    assert!(
        nothing.contains("127.0.0.1:1 over emulated: ") && nothing.contains("nothing listens there"),
        "{nothing}"
    );
}

/// Answers a login once it has come. `None` if the client disconnects without.
async fn log_in(mut stream: Stream) -> Option<Stream> {
    if stream.read(&mut [0; 64]).await.expect("closed in good order") == 0 {
        return None;
    }
    stream.write_all(b"%0\r\n+OK\r\n+OK\r\n").await.expect("open");
    Some(stream)
}

/// A server that is frozen takes connect requests and does not answer them.
#[tokio::test(start_paused = true)]
async fn attempts_at_a_frozen_server_leave_few_connects_behind() {
    let any = "127.0.0.1:0".parse().expect("an address");
    let config = TransportConfig::default();
    let mut listener = Listener::bind(DeviceKind::Emulated, any, &config).await.expect("a free port");
    let url = format!("emulated://{}?timeout=2s", listener.local_addr());
    let connector = Connector::new(url.parse().expect("a good URL"), Config::default());
    for _ in 0..100 {
        let error = connector.connect(Purpose::Shared).await.expect_err("frozen");
        assert!(matches!(error.cause(), ConnectCause::Deadline { .. }), "{error}");
    }
    // It goes on: the next attempt takes a connect that waits there.
    let accept = async {
        let stream = listener.accept().await.expect("a client");
        log_in(stream).await.expect("used")
    };
    let (connected, stream) = tokio::join!(connector.connect(Purpose::Shared), accept);
    let connected = connected.expect("connected");
    let mut requests = 1;
    while timeout(Duration::from_secs(1), listener.request()).await.is_ok() {
        requests += 1;
    }
    assert!(requests <= 3, "{requests} requests");
    drop((connected, stream));
}

#[tokio::test(start_paused = true)]
async fn of_several_connects_that_succeed_at_once_all_but_one_are_closed() {
    let any = "127.0.0.1:0".parse().expect("an address");
    let config = TransportConfig::default();
    let mut listener = Listener::bind(DeviceKind::Emulated, any, &config).await.expect("a free port");
    let url = format!("emulated://{}?timeout=20s", listener.local_addr());
    let connector = Connector::new(url.parse().expect("a good URL"), Config::default());
    for _ in 0..5 {
        connector.connect(Purpose::Shared).await.expect_err("frozen");
    }
    let accept = async {
        let mut logins = JoinSet::new();
        for _ in 0..3 {
            logins.spawn(log_in(listener.accept().await.expect("a client")));
        }
        logins.join_all().await
    };
    let (connected, streams) = tokio::join!(connector.connect(Purpose::Shared), accept);
    let connected = connected.expect("connected");
    let closed = streams.iter().filter(|stream| stream.is_none()).count();
    assert_eq!(closed, 2);
    drop(connected);
}

#[tokio::test(start_paused = true)]
async fn attempts_at_one_server_do_not_wait_for_each_other() {
    let any = "127.0.0.1:0".parse().expect("an address");
    let config = TransportConfig::default();
    let mut listener = Listener::bind(DeviceKind::Emulated, any, &config).await.expect("a free port");
    let url = format!("emulated://{}", listener.local_addr());
    let connector = Connector::new(url.parse().expect("a good URL"), Config::default());
    let accept = async {
        // All three have asked before one is accepted. The fourth waits for one of them.
        let mut streams = Vec::new();
        let mut requests = Vec::new();
        for _ in 0..3 {
            requests.push(listener.request().await.expect("a client"));
        }
        assert!(timeout(Duration::from_secs(1), listener.request()).await.is_err());
        for request in requests {
            streams.push(request.accept().expect("a client"));
        }
        streams.push(listener.accept().await.expect("the fourth client"));
        for stream in &mut streams {
            stream.write_all(b"%0\r\n+OK\r\n+OK\r\n").await.expect("open");
        }
        streams
    };
    let connect = || connector.connect(Purpose::Dedicated);
    let (a, b, c, d, streams) = tokio::join!(connect(), connect(), connect(), connect(), accept);
    for connected in [a, b, c, d] {
        connected.expect("connected");
    }
    assert_eq!(streams.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_comes_too_late_is_closed_unless_the_next_attempt_comes_soon() {
    let any = "127.0.0.1:0".parse().expect("an address");
    let config = TransportConfig::default();
    let mut listener = Listener::bind(DeviceKind::Emulated, any, &config).await.expect("a free port");
    let url = format!("emulated://{}?timeout=2s", listener.local_addr());
    let connector = Connector::new(url.parse().expect("a good URL"), Config::default());
    connector.connect(Purpose::Shared).await.expect_err("not accepted");
    let mut late = listener.accept().await.expect("a client");
    let begin = Instant::now();
    assert_eq!(late.read(&mut [0]).await.expect("closed in good order"), 0);
    assert_eq!(begin.elapsed().as_secs(), 10);
}

/// A server that reads, keeps its connection alive, and never offers a second window.
#[tokio::test(start_paused = true)]
async fn a_server_that_offers_no_next_window_is_given_up() {
    let any = "127.0.0.1:0".parse().expect("an address");
    let config = TransportConfig::default().rx_size(4096).rx_buffers(1);
    let mut listener = Listener::bind(DeviceKind::Emulated, any, &config).await.expect("a free port");
    let url = format!("emulated://{}", listener.local_addr());
    let accept = async {
        let mut stream = listener.accept().await.expect("a client");
        stream.write_all(b"%0\r\n+OK\r\n+OK\r\n").await.expect("open");
        stream
    };
    let config = Config::default().reconnect(None).command_timeout(None);
    let (client, stream) = tokio::join!(Client::connect_with(url.as_str(), &config), accept);
    let client = client.expect("connected");
    let begin = Instant::now();
    let value = "v".repeat(100_000);
    let set = client.command(["SET", "k", &value]);
    let error = timeout(Duration::from_secs(600), set).await.expect("given up").expect_err("given up");
    assert_eq!(begin.elapsed().as_secs(), 30);
    let text = "the peer is alive but offered no receive window for 30s; the command may have run";
    assert!(format!("{error:#}").ends_with(text), "{error:#}");
    assert!(client.is_closed());
    drop(stream);
}

#[tokio::test]
async fn a_stream_of_the_transport_keeps_its_counters_and_the_configuration_applies() {
    let any = "127.0.0.1:0".parse().expect("an address");
    let settings = TransportConfig::default();
    let mut listener = Listener::bind(DeviceKind::Emulated, any, &settings).await.expect("a free port");
    let address = listener.local_addr();
    let server = async {
        let mut stream = listener.accept().await.expect("a client");
        let mut received = Vec::new();
        while !received.ends_with(concat!(env!("CARGO_PKG_VERSION"), "\r\n").as_bytes()) {
            stream.read_buf(&mut received).await.expect("open");
        }
        let received = received.escape_ascii().to_string();
        assert!(received.contains("SETNAME\\r\\n$4\\r\\nmine\\r"), "{received}");
        stream.write_all(b"%0\r\n+OK\r\n+OK\r\n+OK\r\n").await.expect("open");
        stream
    };
    let client = async {
        let stream = Stream::connect(DeviceKind::Emulated, address, &settings).await.expect("connected");
        let endpoint = Endpoint::new(Transport::Emulated, "h", 6379);
        Client::from_stream_with(stream, &endpoint, &Config::default().name("mine")).await.expect("logged in")
    };
    let (_open, client) = tokio::join!(server, client);
    let status = &client.connections()[0];
    assert!(status.stats.is_some() && status.info.device.is_some(), "{status}");
    assert_eq!(status.info.peer, Some(address));
}
