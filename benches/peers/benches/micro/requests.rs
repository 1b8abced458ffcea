//! From the encoding of a command to a round trip through client, emulated device and mock.

use std::hint::black_box;

use criterion::{Criterion, Throughput};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use valkey_rdma_client::{Client, Command};
use valkey_rdma_mock::{DeviceKind, Mock, Server, TransportConfig};
use valkey_rdma_transport::{Listener, Polling, Stream};

pub(crate) fn encode(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("command");
    group.throughput(Throughput::Elements(1));
    group.bench_function("SET of 3 bytes", |bencher| {
        bencher.iter(|| Command::new("SET").arg(black_box("key:000000000001")).arg(black_box("abc")));
    });
    group.finish();
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// 64 bytes there and back over a stream, without other load.
pub(crate) fn round_trip(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("stream");
    group.throughput(Throughput::Elements(1));
    let runtime = runtime();
    let (mut stream, _echo) = runtime.block_on(async {
        let config = TransportConfig::default();
        let mut listener =
            Listener::bind(DeviceKind::Emulated, "127.0.0.1:0".parse().expect("an address"), &config)
                .await
                .expect("bound");
        let addr = listener.local_addr();
        let echo = tokio::spawn(async move {
            let mut stream = listener.accept().await.expect("accepted");
            let mut bytes = [0; 64];
            while stream.read_exact(&mut bytes).await.is_ok() {
                stream.write_all(&bytes).await.expect("written");
            }
        });
        (Stream::connect(DeviceKind::Emulated, addr, &config).await.expect("connected"), echo)
    });
    group.bench_function("64 bytes there and back, emulated", |bencher| {
        bencher.iter(|| {
            runtime.block_on(async {
                let mut bytes = [7; 64];
                stream.write_all(&bytes).await.expect("written");
                stream.read_exact(&mut bytes).await.expect("read");
                black_box(bytes)
            })
        });
    });
    group.finish();
}

/// GETs from a mock in the same process: on the same thread, then on one of its own.
pub(crate) fn client(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("client");
    let places = [
        ("the same thread", 1, Polling::Event),
        ("another thread", 2, Polling::Event),
        ("another thread, both busy", 2, Polling::Busy),
    ];
    for (place, threads, polling) in places {
        let ours = runtime();
        let other = (threads == 2).then(|| {
            tokio::runtime::Builder::new_multi_thread()
                .worker_threads(1)
                .enable_all()
                .build()
                .expect("a runtime")
        });
        let server = other.as_ref().unwrap_or(&ours).block_on(mock(polling));
        let url = format!("{}?poll={polling}", server.urls().next().expect("one listener"));
        let client = ours.block_on(async {
            let client = Client::connect(url.as_str()).await.expect("connected");
            client.command(["SET", "key", "abc"]).await.expect("set");
            client
        });
        for tasks in [1, 50] {
            group.throughput(Throughput::Elements(tasks * ROUND));
            group.bench_function(
                format!("{tasks} tasks GET 3 bytes from the mock on {place}, emulated"),
                |bencher| {
                    bencher.iter(|| ours.block_on(ask(&client, tasks)));
                },
            );
        }
    }
    group.finish();
}

/// Requests of one task; many, so that starting it costs little beside them.
const ROUND: u64 = 200;

async fn mock(polling: Polling) -> Server {
    let addr = "127.0.0.1:0".parse().expect("an address");
    let config = TransportConfig::default().polling(polling);
    Server::builder(Mock::new()).rdma(DeviceKind::Emulated, addr, &config).start().await.expect("started")
}

async fn ask(client: &Client, tasks: u64) {
    let mut running = JoinSet::new();
    for _ in 0..tasks {
        let client = client.clone();
        running.spawn(async move {
            for _ in 0..ROUND {
                let reply = client.command(["GET", "key"]).await.expect("a reply");
                assert_eq!(reply.as_str(), Some("abc"));
            }
        });
    }
    while let Some(ended) = running.join_next().await {
        ended.expect("no panic");
    }
}
