//! The counters that the `metrics` facade is given.
#![cfg(feature = "metrics")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use valkey_rdma_client::{Client, Endpoint, Transport};

/// Keeps counters by name.
#[derive(Clone, Default)]
struct Book(Arc<Mutex<BTreeMap<String, Arc<AtomicU64>>>>);

impl Book {
    fn read(&self, name: &str) -> u64 {
        self.0.lock().expect("no panic").get(name).map_or(0, |counter| counter.load(Ordering::Relaxed))
    }
}

impl Recorder for Book {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let mut counters = self.0.lock().expect("no panic");
        Counter::from_arc(counters.entry(key.name().to_owned()).or_default().clone())
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

#[tokio::test]
async fn what_a_client_does_is_counted_through_the_facade() {
    let book = Book::default();
    metrics::set_global_recorder(book.clone()).expect("the only one in this program");
    let (ours, mut peer) = duplex(4096);
    let server = async {
        let mut received = [0; 512];
        let _login = peer.read(&mut received).await.expect("the login");
        peer.write_all(b"%0\r\n+OK\r\n+OK\r\n").await.expect("open");
        let _commands = peer.read(&mut received).await.expect("the commands");
        peer.write_all(b"+PONG\r\n-ERR no\r\n").await.expect("open");
    };
    let endpoint = Endpoint::new(Transport::Tcp, "test", 1);
    let client = async {
        let client = Client::over(ours, &endpoint).await.expect("connected");
        client.pipeline().command(["PING"]).command(["NOSUCHCOMMAND"]).send().await.expect("replies")
    };
    let (replies, ()) = tokio::join!(client, server);
    assert_eq!(replies.len(), 2);
    assert_eq!(book.read("valkey_client_commands_total"), 2);
    assert_eq!(book.read("valkey_client_batches_total"), 1);
    assert_eq!(book.read("valkey_client_replies_total"), 2);
    assert_eq!(book.read("valkey_client_reconnects_total"), 0);
}
