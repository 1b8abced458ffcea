//! How a server begins to listen.

mod support;

use std::time::Duration;

use support::{Store, localhost, store, until, wires};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
use valkey_rdma_server::{BindError, Server};
use valkey_rdma_testkit::ReservedPort;

#[tokio::test]
async fn urls_have_the_real_ports() {
    let server = store().await;
    let urls: Vec<String> = server.urls().collect();
    for (listening, scheme) in server.listening().iter().zip(["valkey", "emulated"]) {
        let scheme = if listening.tls { format!("{scheme}s") } else { scheme.to_owned() };
        assert_eq!(listening.to_string(), format!("{scheme}://{}", listening.addr));
    }
    assert_eq!(urls, server.listening().iter().map(ToString::to_string).collect::<Vec<_>>());
    assert!(server.listening().iter().all(|listening| listening.addr.port() != 0));
}

#[tokio::test]
async fn an_address_in_use_is_an_error_and_nothing_is_left_running() {
    let taken = TcpListener::bind(localhost()).await.unwrap();
    let addr = taken.local_addr().unwrap();
    let error = Server::builder(Store::default()).tcp(addr).start().await.unwrap_err();
    let advice = "; stop the program that listens there, or choose another port";
    assert_eq!(error.to_string(), format!("cannot listen on {addr} (TCP){advice}"));

    let reserved = ReservedPort::new();
    let first = reserved.addr();
    let both = Server::builder(Store::default()).tcp(first).tcp(addr).start().await;
    assert!(matches!(both, Err(BindError::Tcp { addr: at, .. }) if at == addr));
    // The address of the listener that did start is free again once its task has been dropped.
    until("the address is free", async || TcpListener::bind(first).await.is_ok()).await;
}

/// A client that is answered at one address may use the others: `valkey-cli --rdma` crashes where nothing listens.
#[test]
fn no_address_is_served_before_all_are_bound() {
    // One thread resolves names, and it is busy.
    let runtime = Builder::new_current_thread().enable_all().max_blocking_threads(1).build().unwrap();
    runtime.block_on(async {
        let (release, held) = std::sync::mpsc::channel::<()>();
        tokio::task::spawn_blocking(move || held.recv());
        let reserved = ReservedPort::new();
        let first = reserved.addr();
        let builder = Server::builder(Store::default()).tcp(first).listen("valkey://localhost:0");
        let start = tokio::spawn(builder.start());
        let mut client = loop {
            match TcpStream::connect(first).await {
                Ok(client) => break client,
                Err(_) => tokio::task::yield_now().await,
            }
        };
        client.write_all(b"*1\r\n$4\r\nPING\r\n").await.unwrap();
        for _ in 0..2000 {
            tokio::task::yield_now().await;
        }
        let mut reply = [0; 7];
        assert!(client.try_read(&mut reply).is_err(), "the other address is not bound yet");
        drop(release);
        let _server = start.await.unwrap().unwrap();
        client.read_exact(&mut reply).await.unwrap();
        assert_eq!(&reply, b"+PONG\r\n");
    });
}

/// Clients that all come back at once, before the server has accepted any.
#[tokio::test]
async fn as_many_connections_wait_as_in_valkey() {
    let server = Server::builder(Store::default()).tcp(localhost()).start().await.unwrap();
    let addr = server.listening()[0].addr;
    // The test's only thread: nothing is accepted meanwhile.
    let connect = |_| std::net::TcpStream::connect_timeout(&addr, LOST_SYN).ok();
    let waiting: Vec<_> = (0..511).map_while(connect).collect();
    assert_eq!(waiting.len(), 511);
}

/// Shorter than the kernel's first retry of a connection that found no place.
const LOST_SYN: Duration = Duration::from_millis(900);

/// It is what `main` prints, and may end in a log.
#[tokio::test]
async fn an_error_says_what_to_do_and_no_password() {
    for (url, text) in [
        ("valkey://app:s3cret@127.0.0.1:1", "\"127.0.0.1:1\": a server has no login in its URL"),
        ("valkey://:s3/cr@et@h", "\"h\": a server has no login in its URL"),
        ("app:s3cret@h:1", "\"h:1\": expected rdma://host:port"),
    ] {
        let builder = Server::builder(Store::default()).listen(url).password("s3cret");
        assert!(!format!("{builder:?}").contains("s3"));
        let error = builder.start().await.unwrap_err();
        for shown in [error.to_string(), format!("{error:?}")] {
            assert!(shown.contains(text) && !shown.contains("s3"), "{shown}");
        }
    }
    let taken = TcpListener::bind(localhost()).await.unwrap();
    let addr = taken.local_addr().unwrap();
    let error = Server::builder(Store::default()).tcp(addr).start().await.unwrap_err();
    let shown = format!("{:?}", Box::<dyn std::error::Error>::from(error));
    let advice = "; stop the program that listens there, or choose another port";
    assert_eq!(shown, format!("cannot listen on {addr} (TCP){advice}: Address already in use (os error 98)"));
}

#[tokio::test]
async fn a_tcp_listener_may_be_brought() {
    let listener = TcpListener::bind(localhost()).await.unwrap();
    let addr = listener.local_addr().unwrap();
    let server = Server::builder(Store::default()).tcp_listener(listener).start().await.unwrap();
    assert_eq!(server.listening()[0].addr, addr);
    let mut wires = wires(&server).await;
    wires[0].dialogue(&[("PING", "+PONG\r\n")]).await;
}

#[tokio::test]
async fn a_server_without_listeners_is_an_error() {
    assert!(matches!(Server::builder(Store::default()).start().await, Err(BindError::NoListener)));
}
