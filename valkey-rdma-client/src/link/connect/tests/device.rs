//! Connecting to the emulated device, whose server may be frozen, silent or late.

use tokio::task::JoinSet;
use valkey_rdma_transport::{Config as TransportConfig, Listener, Stream, raw};

use super::*;

/// A listener of the emulated device.
async fn listen(config: &TransportConfig) -> Listener {
    let any = "127.0.0.1:0".parse().expect("an address");
    Listener::bind(DeviceKind::Emulated, any, config).await.expect("a free port")
}

/// Connects to it, with these options in the URL.
fn connector(listener: &Listener, options: &str) -> Connector {
    let url = format!("emulated://{}{options}", listener.local_addr());
    Connector::new(url.parse().expect("a good URL"), Config::default())
}

/// Answers a login once it has come. `None` if the client disconnects without.
async fn log_in(mut stream: Stream) -> Option<Stream> {
    if stream.read(&mut [0; 64]).await.expect("closed in good order") == 0 {
        return None;
    }
    stream.write_all(b"%1\r\n$5\r\nproto\r\n:3\r\n+OK\r\n+OK\r\n+PONG\r\n").await.expect("open");
    Some(stream)
}

#[tokio::test]
async fn the_emulated_device_connects_and_says_so() {
    let config = TransportConfig::default().rx_size(65_536);
    let mut listener = listen(&config).await;
    let address = listener.local_addr();
    let server = tokio::spawn(async move {
        let mut stream = listener.accept().await.expect("a client");
        stream.write_all(b"%1\r\n$5\r\nproto\r\n:3\r\n+OK\r\n+OK\r\n+PONG\r\n").await.expect("open");
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

/// Nothing is sent, so that only silence can tell.
#[tokio::test(start_paused = true)]
async fn a_server_that_falls_silent_is_found_dead() {
    for keepalives in [true, false] {
        let mut config = TransportConfig::default();
        if !keepalives {
            config = config.keepalive(None);
        }
        let mut listener = listen(&config).await;
        let url = format!("emulated://{}", listener.local_addr());
        let accept = async { log_in(listener.accept().await.expect("a client")).await.expect("used") };
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

/// A server that is frozen takes connect requests and does not answer them.
#[tokio::test(start_paused = true)]
async fn attempts_at_a_frozen_server_leave_few_connects_behind() {
    let mut listener = listen(&TransportConfig::default()).await;
    let connector = connector(&listener, "?timeout=2s");
    for _ in 0..100 {
        let error = connector.connect(Purpose::Shared).await.expect_err("frozen");
        assert!(matches!(error.cause(), ConnectCause::Deadline { .. }), "{error}");
    }
    // It goes on: the next attempt takes a connect that waits there.
    let accept = async { log_in(listener.accept().await.expect("a client")).await.expect("used") };
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
    let mut listener = listen(&TransportConfig::default()).await;
    let connector = connector(&listener, "?timeout=20s");
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
    let mut listener = listen(&TransportConfig::default()).await;
    let connector = connector(&listener, "");
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
            stream.write_all(b"%1\r\n$5\r\nproto\r\n:3\r\n+OK\r\n+OK\r\n+PONG\r\n").await.expect("open");
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
    let mut listener = listen(&TransportConfig::default()).await;
    let connector = connector(&listener, "?timeout=2s");
    connector.connect(Purpose::Shared).await.expect_err("not accepted");
    let mut late = listener.accept().await.expect("a client");
    let begin = Instant::now();
    assert_eq!(late.read(&mut [0]).await.expect("closed in good order"), 0);
    assert_eq!(begin.elapsed().as_secs(), 10);
}

/// A server that reads, keeps its connection alive, and never offers a second window.
#[tokio::test(start_paused = true)]
async fn a_server_that_offers_no_next_window_is_given_up() {
    let config = TransportConfig::default().rx_size(4096).rx_buffers(1);
    let mut listener = listen(&config).await;
    let url = format!("emulated://{}", listener.local_addr());
    let accept = async { log_in(listener.accept().await.expect("a client")).await.expect("used") };
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
    let settings = TransportConfig::default();
    let mut listener = listen(&settings).await;
    let address = listener.local_addr();
    let server = async {
        let mut stream = listener.accept().await.expect("a client");
        let mut received = Vec::new();
        while !received.ends_with(SETINFO.as_bytes()) {
            stream.read_buf(&mut received).await.expect("open");
        }
        let received = received.escape_ascii().to_string();
        assert!(received.contains("SETNAME\\r\\n$4\\r\\nmine\\r"), "{received}");
        stream.write_all(b"%1\r\n$5\r\nproto\r\n:3\r\n+OK\r\n+OK\r\n+OK\r\n+PONG\r\n").await.expect("open");
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

/// Clause H-4. It listens, so host and port are right.
#[tokio::test]
async fn a_server_that_accepts_and_never_registers_is_said_to_have_accepted() {
    let any = "127.0.0.1:0".parse().expect("an address");
    let options = TransportConfig::default().device_options();
    let mut listener = raw::Listener::bind(DeviceKind::Emulated, any, &options).await.expect("a free port");
    let url = format!("emulated://{}?timeout=300s", listener.local_addr());
    let connector =
        Connector::new(url.parse().expect("a good URL"), Config::default().keepalive_timeout(None));
    let accepting = async {
        let mut accepted = listener.incoming().await.expect("a request");
        accepted.establish().await.expect("accepts");
        // In steps, so that the client learns of it long before its limits.
        tokio::time::pause();
        for _ in 0..300 {
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        accepted
    };
    let (connected, _silent) = tokio::join!(connector.connect(Purpose::Shared), accepting);
    let cause = connected.expect_err("nothing is registered").cause;
    assert!(matches!(cause, ConnectCause::Deadline { connected: true, .. }), "{cause:?}");
}
