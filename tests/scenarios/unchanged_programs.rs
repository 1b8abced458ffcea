//! Code that was written for TCP runs on a `Stream` unchanged: redis-rs's client, and tokio's copying in both directions.
//!
//! The server is our mock on the emulated device, or the one that `VALKEY_RDMA_TEST_SERVER` names
//! (`rdma://10.0.0.1:6379`).

use std::net::SocketAddr;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use valkey_rdma_client::{Client, Endpoint, Transport};
use valkey_rdma_mock::{Mock, Server};
use valkey_rdma_transport::{Config, DeviceKind, Polling, Stream};

/// A server to talk to, and our own one behind it, if it is that.
struct Peer {
    url: String,
    device: DeviceKind,
    addr: SocketAddr,
    _mock: Option<Server>,
}

async fn peer() -> Peer {
    let (url, mock) = match std::env::var("VALKEY_RDMA_TEST_SERVER") {
        Ok(url) => (url, None),
        Err(_) => {
            let any = "127.0.0.1:0".parse().expect("an address");
            let mock = Server::builder(Mock::new()).rdma(DeviceKind::Emulated, any, &Config::default());
            let mock = mock.start().await.expect("serves");
            let url = mock.listening()[0].to_string();
            (url, Some(mock))
        }
    };
    let endpoint: Endpoint = url.parse().expect("VALKEY_RDMA_TEST_SERVER is a URL");
    let device = match endpoint.transport() {
        Transport::Rdma => DeviceKind::Verbs,
        Transport::Emulated => DeviceKind::Emulated,
        other => panic!("{url}: {other} is not an RDMA device"),
    };
    let host = endpoint.host().parse().expect("VALKEY_RDMA_TEST_SERVER has an address");
    Peer { url, device, addr: SocketAddr::new(host, endpoint.port()), _mock: mock }
}

async fn connect(peer: &Peer, config: &Config) -> Stream {
    Stream::connect(peer.device, peer.addr, config).await.expect("connects")
}

async fn bounded<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(120), work).await.expect("done within the deadline")
}

/// What an application does with redis-rs, from many tasks on one connection.
async fn use_redis_rs(connection: MultiplexedConnection, prefix: &'static str) {
    let tasks: Vec<_> = (0..16)
        .map(|task| {
            let mut connection = connection.clone();
            tokio::spawn(async move {
                let key = format!("{prefix}:{task}");
                let counter = format!("{prefix}:{task}:count");
                let () = redis::cmd("DEL").arg(&counter).query_async(&mut connection).await.expect("DEL");
                for n in 1..=20 {
                    let value = vec![n as u8; n * 7_001];
                    let () = redis::cmd("SET")
                        .arg(&key)
                        .arg(&value)
                        .query_async(&mut connection)
                        .await
                        .expect("SET");
                    let (read, count): (Vec<u8>, usize) = redis::pipe()
                        .cmd("GET")
                        .arg(&key)
                        .cmd("INCR")
                        .arg(&counter)
                        .query_async(&mut connection)
                        .await
                        .expect("GET and INCR");
                    assert!(read == value && count == n, "{key} after {n} rounds");
                }
            })
        })
        .collect();
    for task in tasks {
        bounded(task).await.expect("no task fails");
    }
    // Larger than both windows together.
    let mut connection = connection;
    let key = format!("{prefix}:large");
    let large: Vec<u8> = (0..5_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let mut set = redis::cmd("SET");
    let () = bounded(set.arg(&key).arg(&large).query_async(&mut connection)).await.expect("SET");
    let read: Vec<u8> = bounded(redis::cmd("GET").arg(&key).query_async(&mut connection)).await.expect("GET");
    assert!(read == large);
    let error = redis::cmd("NO-SUCH-COMMAND").query_async::<()>(&mut connection).await.expect_err("unknown");
    assert!(error.to_string().contains("unknown command"), "{error}");
}

/// Patient, because redis-rs counts every wait as a failure after half a second.
fn patient() -> redis::AsyncConnectionConfig {
    redis::AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_secs(60)))
}

fn anybody() -> redis::RedisConnectionInfo {
    let info: redis::ConnectionInfo = "redis://127.0.0.1".parse().expect("a URL");
    info.redis_settings().clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_rs_multiplexes_over_a_stream() {
    let peer = peer().await;
    let stream = connect(&peer, &Config::default()).await;
    let monitor = stream.monitor();
    let (connection, driver) =
        MultiplexedConnection::new_with_config(&anybody(), stream, patient()).await.expect("logs in");
    let driver = tokio::spawn(driver);
    use_redis_rs(connection, "redis-rs").await;
    bounded(driver).await.expect("ends with its last handle");
    let stats = monitor.stats();
    let written = stats.protocol.bytes_sent;
    assert!(written > 16 * 20 * 70_000 + 5_000_000, "{stats:?}");
    assert_eq!(stats.device.copied_in, written, "one copy of every byte");
    assert_eq!(stats.device.copied_out, stats.protocol.bytes_received, "one copy of every byte");
}

/// A proxy from TCP to RDMA in two lines of tokio's.
async fn proxy(peer: &Peer, config: &Config) -> (SocketAddr, tokio::task::JoinHandle<(u64, u64)>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("listens");
    let addr = listener.local_addr().expect("an address");
    let mut stream = connect(peer, config).await;
    let copying = tokio::spawn(async move {
        let (mut tcp, _) = listener.accept().await.expect("accepts");
        copy_bidirectional(&mut tcp, &mut stream).await.expect("copies to both ends of file")
    });
    (addr, copying)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_rs_over_tcp_goes_through_a_proxy_of_copy_bidirectional() {
    let peer = peer().await;
    let (addr, copying) = proxy(&peer, &Config::default()).await;
    let tcp = TcpStream::connect(addr).await.expect("connects");
    let (connection, driver) =
        MultiplexedConnection::new_with_config(&anybody(), tcp, patient()).await.expect("logs in");
    let driver = tokio::spawn(driver);
    use_redis_rs(connection, "proxied").await;
    bounded(driver).await.expect("ends with its last handle");
    let (up, down) = bounded(copying).await.expect("joins");
    assert!(up > 27_000_000 && down > 27_000_000, "{up} bytes up, {down} down");
}

/// The client sends all it has and half-closes; the replies come after that. See `Stream` on shutdown.
#[tokio::test]
async fn replies_reach_a_tcp_client_that_has_half_closed() {
    let peer = peer().await;
    let config = Config::default().linger(Duration::from_secs(3600));
    let (addr, copying) = proxy(&peer, &config).await;
    let mut tcp = TcpStream::connect(addr).await.expect("connects");
    let request = b"PING\r\n".repeat(1000);
    tcp.write_all(&request).await.expect("writes");
    tcp.write_all(b"QUIT\r\n").await.expect("writes");
    tcp.shutdown().await.expect("half-closes");
    let mut replies = Vec::new();
    bounded(tcp.read_to_end(&mut replies)).await.expect("reads");
    assert!(replies == [&b"+PONG\r\n".repeat(1000)[..], b"+OK\r\n"].concat());
    assert_eq!(bounded(copying).await.expect("joins"), (6006, 7005));
}

#[tokio::test]
async fn a_url_says_how_the_client_waits() {
    let peer = peer().await;
    let url = format!("{}?poll=adaptive", peer.url);
    let text = Client::connect(&*url).await.expect("connects").info().to_string();
    assert!(text.contains(", adaptive polling is off: "), "neither device here is for spinning: {text}");
    for mode in [Polling::Event, Polling::Busy] {
        let url = format!("{}?poll={mode}", peer.url);
        let client = Client::connect(&*url).await.expect("connects");
        for _ in 0..10 {
            client.command(["PING"]).await.expect("answers");
        }
        let device = client.connections()[0].stats.expect("not TCP").device;
        assert_eq!(device.arms == 0, mode == Polling::Busy, "{mode}: {device:?}");
        assert_eq!(device.spins > 0, mode == Polling::Busy, "{mode}: {device:?}");
    }
}
