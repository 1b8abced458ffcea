//! The server as a whole: listeners, limits, messages and counts.

mod support;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use support::{Store, Wire, localhost, start, store, until, wires, within};
use tokio::net::TcpListener;
use tokio::time::timeout;
use valkey_rdma_server::{
    Command, DeviceKind, Handler, Limits, Peer, Protocol, Pusher, Refused, Reply, Server, Transport,
    TransportConfig, TransportError, handler_fn,
};
use valkey_rdma_transport::device::{ConnectRequest, DeviceListener};
use valkey_rdma_transport::{Listener, Stream};

#[tokio::test]
async fn listeners_share_one_handler() {
    let server = store().await;
    let mut wires = wires(&server).await;
    wires[0].dialogue(&[("SET k v", "+OK\r\n")]).await;
    wires[1].dialogue(&[("GET k", "$1\r\nv\r\n")]).await;
}

#[tokio::test]
async fn a_connection_that_ends_makes_room_for_another() {
    let server = start(Store::default(), &Limits::default().max_connections(1)).await;
    for listening in server.listening() {
        for _ in 0..20 {
            // A moment after the previous client has seen the end.
            until("there is room again", async || {
                let mut wire = Wire::connect(&listening).await;
                wire.send("QUIT\r\n").await;
                let reply = wire.rest().await;
                assert!(reply == b"+OK\r\n" || reply == b"-ERR max number of clients reached\r\n");
                reply == b"+OK\r\n"
            })
            .await;
        }
    }
}

/// Panics when the second connection begins.
#[derive(Default)]
struct Full(AtomicUsize);

impl Handler for Full {
    type Session = ();

    fn session(&self, _peer: &Peer) {
        assert_ne!(self.0.fetch_add(1, Ordering::Relaxed), 1, "as asked");
    }

    async fn call(&self, _peer: &mut Peer, _session: &mut (), _command: Command) -> Result<Reply, Reply> {
        Ok(Reply::OK)
    }
}

#[tokio::test]
async fn a_panic_at_the_start_of_a_session_ends_only_its_own_connection() {
    for listener in 0..2 {
        let server = start(Full::default(), &Limits::default()).await;
        let listening = server.listening()[listener];
        let mut first = Wire::connect(&listening).await;
        first.dialogue(&[("PING", "+PONG\r\n")]).await;
        let mut unlucky = Wire::connect(&listening).await;
        unlucky.rest_or_reset().await;
        first.dialogue(&[("GO", "+OK\r\n")]).await;
        Wire::connect(&listening).await.dialogue(&[("GO", "+OK\r\n")]).await;
    }
}

/// A device that is removed as soon as it is used.
struct Removed;

impl DeviceListener for Removed {
    fn poll_request(
        &mut self,
        _cx: &mut Context<'_>,
    ) -> Poll<Result<Box<dyn ConnectRequest>, TransportError>> {
        Poll::Ready(Err(TransportError::DeviceRemoved))
    }

    fn local_addr(&self) -> SocketAddr {
        localhost()
    }

    fn device(&self) -> DeviceKind {
        DeviceKind::Verbs
    }
}

#[tokio::test]
async fn a_server_whose_last_listener_has_ended_reports_it() {
    let removed = Listener::over(Box::new(Removed), &TransportConfig::default());
    let mut server =
        Server::builder(Store::default()).tcp(localhost()).listener(removed).start().await.unwrap();
    let [tcp, rdma] = server.listening()[..] else { panic!("two listeners") };
    assert_eq!(rdma.transport, Transport::Rdma(DeviceKind::Verbs));
    until("its end is noticed", async || server.listening() == [tcp]).await;
    assert!(!server.close_listener(rdma));
    let mut wire = Wire::connect(&tcp).await;
    wire.dialogue(&[("PING", "+PONG\r\n")]).await;
    assert!(timeout(Duration::ZERO, server.wait()).await.is_err(), "one is left");
    assert!(server.close_listener(tcp));
    within("the server reports it", server.wait()).await;
    wire.dialogue(&[("PING", "+PONG\r\n")]).await;
}

/// Keepalives go on meanwhile.
#[tokio::test(start_paused = true)]
async fn an_idle_rdma_connection_is_closed() {
    let server = Server::builder(Store::default())
        .rdma(DeviceKind::Emulated, localhost(), &TransportConfig::default())
        .limits(Limits::default().idle_timeout(Duration::from_secs(20)))
        .start()
        .await
        .unwrap();
    let mut wire = Wire::connect(&server.listening()[0]).await;
    wire.dialogue(&[("PING", "+PONG\r\n")]).await;
    wire.expect_end().await;
}

/// `LISTEN` hands the connection's pusher to the test, `RESP3` changes the protocol.
#[derive(Default)]
struct News {
    listeners: Mutex<Vec<Pusher>>,
}

impl Handler for News {
    type Session = ();

    fn session(&self, _peer: &Peer) {}

    async fn call(&self, peer: &mut Peer, _session: &mut (), command: Command) -> Result<Reply, Reply> {
        if command.is("LISTEN") {
            let pusher = peer.pusher();
            pusher.push(Reply::Push(vec![Reply::bulk("during")]));
            self.listeners.lock().expect("no test panics with it").push(pusher);
        }
        if command.is("RESP3") {
            peer.set_protocol(Protocol::Resp3);
        }
        Ok(Reply::OK)
    }
}

impl News {
    fn pusher(&self, index: usize) -> Pusher {
        self.listeners.lock().expect("no test panics with it")[index].clone()
    }
}

#[tokio::test]
async fn messages_come_from_outside_in_order_with_replies() {
    let news = Arc::new(News::default());
    let server = start(news.clone(), &Limits::default()).await;
    for (index, wire) in wires(&server).await.iter_mut().enumerate() {
        wire.dialogue(&[("LISTEN", "+OK\r\n*1\r\n$6\r\nduring\r\n")]).await;
        assert!(news.pusher(index).push(Reply::Push(vec![Reply::bulk("later")])));
        wire.expect("*1\r\n$5\r\nlater\r\n").await;
        wire.dialogue(&[("RESP3", "+OK\r\n")]).await;
        for number in 0..1000 {
            assert!(news.pusher(index).push(Reply::Push(vec![Reply::Integer(number)])));
        }
        for number in 0..1000 {
            wire.expect(format!(">1\r\n:{number}\r\n")).await;
        }
        wire.dialogue(&[("PING", "+PONG\r\n")]).await;
    }
}

#[tokio::test]
async fn a_peer_that_does_not_read_its_messages_is_closed_and_counted() {
    let news = Arc::new(News::default());
    let limits = Limits::default().push_limit(1_000_000).output_high_water(1000);
    let server = start(news.clone(), &limits).await;
    for (index, wire) in wires(&server).await.iter_mut().enumerate() {
        wire.dialogue(&[("LISTEN", "+OK\r\n*1\r\n$6\r\nduring\r\n")]).await;
        let message = Reply::Push(vec![Reply::bulk(vec![b'x'; 100_000])]);
        // The stream takes some; the rest piles up.
        until("the limit", async || !news.pusher(index).push(message.clone())).await;
        wire.rest_or_reset().await;
    }
    until("both are counted", async || server.refused().too_many_messages == 2).await;
}

#[tokio::test]
async fn a_connection_is_closed_from_outside() {
    let news = Arc::new(News::default());
    let server = start(news.clone(), &Limits::default()).await;
    for (index, wire) in wires(&server).await.iter_mut().enumerate() {
        wire.dialogue(&[("LISTEN", "+OK\r\n*1\r\n$6\r\nduring\r\n")]).await;
        news.pusher(index).close();
        wire.expect_end().await;
        assert!(!news.pusher(index).push(Reply::OK));
    }
}

#[tokio::test]
async fn a_port_is_changed_without_disturbing_connections() {
    let mut server = store().await;
    let mut old = wires(&server).await;
    let before = server.listening();
    let config = TransportConfig::default();
    server.listen_tcp(localhost()).await.unwrap();
    server.listen_rdma(DeviceKind::Emulated, localhost(), &config).await.unwrap();
    for listening in before {
        assert!(server.close_listener(listening));
        assert!(!server.close_listener(listening));
        if listening.transport == Transport::Tcp {
            until("the address is free", async || TcpListener::bind(listening.addr).await.is_ok()).await;
        }
    }
    let mut new = wires(&server).await;
    assert_eq!(new.len(), 2);
    old[0].dialogue(&[("SET k v", "+OK\r\n")]).await;
    for wire in old.iter_mut().chain(&mut new) {
        wire.dialogue(&[("GET k", "$1\r\nv\r\n")]).await;
    }
    let shutdown = tokio::spawn(server.shutdown());
    for wire in old.iter_mut().chain(&mut new) {
        wire.expect_end().await;
    }
    drop((old, new));
    within("the server stops", shutdown).await.unwrap();
}

#[tokio::test]
async fn refused_connections_get_a_reply_and_are_counted_by_cause() {
    let server = start(Store::default(), &Limits::default().max_connections(2)).await;
    let mut admitted = wires(&server).await;
    for wire in &mut admitted {
        wire.dialogue(&[("PING", "+PONG\r\n")]).await;
    }
    for wire in &mut wires(&server).await {
        wire.expect("-ERR max number of clients reached\r\n").await;
        wire.expect_end().await;
    }
    for wire in &mut admitted {
        wire.dialogue(&[("PING", "+PONG\r\n")]).await;
        wire.send("*1\r\n:1\r\n").await;
        wire.expect("-ERR Protocol error: expected '$', got ':'\r\n").await;
        wire.expect_end().await;
    }
    drop(admitted);
    until("both are counted", async || server.refused().broken_commands == 2).await;
    let refused = server.refused();
    assert_eq!((refused.too_many_connections, refused.broken_commands, refused.too_much_input), (2, 2, 0));
}

#[tokio::test]
async fn what_connections_do_is_counted_also_after_the_server_has_ended() {
    let server = store().await;
    let monitor = server.monitor();
    let mut wires = wires(&server).await;
    let lines = [("PING", "+PONG\r\n"), ("SET k", "-ERR wrong number of arguments for 'set' command\r\n")];
    for wire in &mut wires {
        wire.dialogue(&lines).await;
    }
    let count = wires.len() as u64;
    let received = count * "PING\r\nSET k\r\n".len() as u64;
    let sent = count * lines.map(|(_, reply)| reply.len() as u64).iter().sum::<u64>();
    until("all is counted", async || {
        let counters = monitor.counters();
        (counters.bytes_received, counters.bytes_sent) == (received, sent)
    })
    .await;
    let counters = monitor.counters();
    assert_eq!((counters.connections, counters.accepted, counters.commands), (count, count, 2 * count));
    drop(wires);
    until("none is connected", async || monitor.counters().connections == 0).await;
    server.shutdown().await;
    assert_eq!((monitor.counters().accepted, monitor.counters().commands), (count, 2 * count));
    assert_eq!(monitor.refused(), Refused::default());
}

#[tokio::test]
async fn memory_pinned_by_all_connections_is_limited() {
    let each = TransportConfig::default().pinned_bytes();
    let config = TransportConfig::default().max_pinned_bytes(Some(2 * each - 1));
    let server = Server::builder(Store::default())
        .rdma(DeviceKind::Emulated, localhost(), &config)
        .start()
        .await
        .unwrap();
    let listening = server.listening()[0];
    let mut first = Wire::connect(&listening).await;
    first.dialogue(&[("PING", "+PONG\r\n")]).await;
    let second = Stream::connect(DeviceKind::Emulated, listening.addr, &TransportConfig::default()).await;
    assert!(second.is_err(), "no memory is left for it");
    first.dialogue(&[("QUIT", "+OK\r\n")]).await;
    first.expect_end().await;
    drop(first);
    // Its memory is free again a moment later.
    until("there is memory again", async || {
        Stream::connect(DeviceKind::Emulated, listening.addr, &TransportConfig::default()).await.is_ok()
    })
    .await;
}

/// A function with `?`, on the addresses of URLs, until the test stops it.
#[tokio::test]
async fn a_function_serves_the_urls_that_clients_connect_to() {
    let handler = handler_fn(|command| async move {
        if command.is("DOUBLE") {
            return Ok(Reply::from(command.int(0)?.saturating_mul(2)));
        }
        Err(command.unknown())
    });
    let server = Server::builder(handler)
        .listen("emulated://127.0.0.1:0?rx_size=100001")
        .listen("valkey://localhost:0");
    let mut server = server.start().await.expect("free ports");
    server.listen("redis://127.0.0.1:0").await.expect("a free port");
    let schemes: Vec<_> = server.urls().filter_map(|url| Some(url.split_once("://")?.0.to_owned())).collect();
    assert_eq!(schemes, ["emulated", "valkey", "valkey"]);
    for wire in &mut wires(&server).await {
        wire.dialogue(&[
            ("DOUBLE 21", ":42\r\n"),
            ("DOUBLE x", "-ERR value is not an integer or out of range\r\n"),
            ("DOUBLE", "-ERR wrong number of arguments for 'double' command\r\n"),
            ("TRIPLE 'a b'", "-ERR unknown command 'TRIPLE', with args beginning with: 'a b' \r\n"),
            ("PING", "+PONG\r\n"),
        ])
        .await;
    }
    let (stop, stopped) = tokio::sync::oneshot::channel();
    let serving = tokio::spawn(server.run_until(stopped));
    stop.send(7).expect("it serves");
    assert_eq!(serving.await.expect("no panic"), Some(Ok(7)));
}

#[tokio::test]
async fn a_server_without_listeners_does_not_run_on() {
    let mut server = start(Full::default(), &Limits::default()).await;
    for listening in server.listening() {
        assert!(server.close_listener(listening));
    }
    assert_eq!(server.run_until(std::future::pending::<()>()).await, None);
}

#[tokio::test]
async fn wrong_urls_are_reported_at_the_start() {
    for (url, expected) in [
        ("http://127.0.0.1", "cannot listen on \"http://127.0.0.1\": unknown scheme"),
        (
            "valkey://no.such.name.invalid:1",
            "cannot listen on no.such.name.invalid: the name does not resolve",
        ),
    ] {
        let error = Server::builder(Full::default()).listen(url).start().await.expect_err(url).to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}
