//! What an application sees of each fault, through `Stream`: a typed error within its deadline on the connection
//! concerned, and nothing on the others.

#![cfg(feature = "emulated")]

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use valkey_rdma_proto::work::{FailureStatus, ReceiveRequest};
use valkey_rdma_transport::device::{self, DeviceConnection, DeviceLayer, DeviceOptions};
use valkey_rdma_transport::emulated::{Device, Link};
use valkey_rdma_transport::{CloseReason, Config, DeviceKind, Listener, Stream, TransportError};

const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

fn links() -> [Link; 3] {
    let directory = format!("{}/faults", env!("CARGO_TARGET_TMPDIR"));
    [Link::InProcess, Link::Tcp, Link::Unix(directory.into())]
}

fn on(device: &Device) -> Config {
    Config::default().device(device.name())
}

/// A client on a device of its own, and another one at the same listener.
struct World {
    victim: Stream,
    victim_server: Stream,
    device: Device,
    /// The listener's.
    far: Device,
    bystander: Stream,
    bystander_server: Stream,
}

impl World {
    /// `prepare` sees the device of the listener.
    async fn new(link: &Link, prepare: impl FnOnce(&Device)) -> Self {
        let far = Device::new(link.clone());
        prepare(&far);
        let mut listener = Listener::bind(DeviceKind::Emulated, ANY, &on(&far)).await.expect("listens");
        let device = Device::new(link.clone());
        let (victim, victim_server) = connect(&mut listener, &on(&device)).await;
        let (bystander, bystander_server) = connect(&mut listener, &on(&Device::new(link.clone()))).await;
        Self { victim, victim_server, device, far, bystander, bystander_server }
    }

    /// The other connection works as before.
    async fn check_bystander(&mut self) {
        self.bystander.write_all(b"unharmed").await.expect("writes");
        let mut received = [0; 8];
        self.bystander_server.read_exact(&mut received).await.expect("reads");
        assert_eq!(&received, b"unharmed");
    }
}

async fn connect(listener: &mut Listener, config: &Config) -> (Stream, Stream) {
    let addr = listener.local_addr();
    let connecting = Stream::connect(DeviceKind::Emulated, addr, config);
    let (client, server) = tokio::join!(connecting, listener.accept());
    (client.expect("connects"), server.expect("accepts"))
}

/// The connection's end, as a reader sees it.
async fn end(stream: &mut Stream) -> io::Error {
    stream.read(&mut [0]).await.expect_err("no end of file, but an error")
}

fn lost(error: &io::Error) -> CloseReason {
    match error.get_ref().and_then(|cause| cause.downcast_ref()) {
        Some(TransportError::Lost(reason)) => *reason,
        other => panic!("not lost: {other:?}"),
    }
}

/// A device whose completion queue can no longer be armed once it is `broken`.
struct Unarmable {
    below: Box<dyn DeviceConnection>,
    broken: Arc<AtomicBool>,
}

impl DeviceLayer for Unarmable {
    fn below(&self) -> &dyn DeviceConnection {
        &*self.below
    }

    fn below_mut(&mut self) -> &mut dyn DeviceConnection {
        &mut *self.below
    }

    fn arm(&mut self) -> Result<(), TransportError> {
        if self.broken.load(Ordering::SeqCst) {
            let source = io::Error::from_raw_os_error(5).into();
            return Err(TransportError::Device { call: "ibv_req_notify_cq", source });
        }
        self.below.arm()
    }
}

#[tokio::test]
async fn the_application_gets_the_error_of_the_device_with_its_source() {
    let mut listener = Listener::bind(DeviceKind::Emulated, ANY, &Config::default()).await.expect("listens");
    let options = DeviceOptions::default();
    let below = device::open(DeviceKind::Emulated, listener.local_addr(), &options).await.expect("opens");
    let broken = Arc::new(AtomicBool::new(false));
    let layer = Unarmable { below, broken: Arc::clone(&broken) };
    let config = Config::default();
    let connecting = Stream::connect_over(Box::new(layer), &config);
    let (client, server) = tokio::join!(connecting, listener.accept());
    let (mut client, mut server) = (client.expect("connects"), server.expect("accepts"));
    assert!(client.close_error().is_none());
    broken.store(true, Ordering::SeqCst);
    server.write_all(b"x").await.expect("writes");
    assert_eq!(client.read_u8().await.expect("what has arrived"), b'x');

    let read = end(&mut client).await;
    let written = client.write_all(b"y").await.expect_err("it has ended");
    for error in [read, written] {
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        let typed = error.get_ref().and_then(|error| error.downcast_ref());
        let Some(TransportError::Device { call: "ibv_req_notify_cq", source }) = typed else {
            panic!("{error:?}")
        };
        assert_eq!(source.raw_os_error(), Some(5));
    }
    let error = client.close_error();
    assert!(matches!(error, Some(TransportError::Device { call: "ibv_req_notify_cq", .. })), "{error:?}");
}

/// A device that takes no receives.
struct Unreceiving {
    below: Box<dyn DeviceConnection>,
    establishes: Arc<AtomicBool>,
}

impl DeviceLayer for Unreceiving {
    fn below(&self) -> &dyn DeviceConnection {
        &*self.below
    }

    fn below_mut(&mut self) -> &mut dyn DeviceConnection {
        &mut *self.below
    }

    fn post_receives(&mut self, _: &[ReceiveRequest]) -> Result<(), TransportError> {
        let source = io::Error::from_raw_os_error(12).into();
        Err(TransportError::Device { call: "ibv_post_recv", source })
    }

    fn establish(&mut self) -> Result<(), TransportError> {
        self.establishes.store(true, Ordering::SeqCst);
        self.below.establish()
    }
}

#[tokio::test]
async fn without_its_receives_a_connection_is_not_asked_for_and_the_error_is_that_of_the_device() {
    let listener = Listener::bind(DeviceKind::Emulated, ANY, &Config::default()).await.expect("listens");
    let options = DeviceOptions::default();
    let below = device::open(DeviceKind::Emulated, listener.local_addr(), &options).await.expect("opens");
    let establishes = Arc::new(AtomicBool::new(false));
    let layer = Unreceiving { below, establishes: Arc::clone(&establishes) };
    let error = Stream::connect_over(Box::new(layer), &Config::default()).await.expect_err("no receives");
    assert!(matches!(error, TransportError::Device { call: "ibv_post_recv", .. }), "{error:?}");
    assert!(!establishes.load(Ordering::SeqCst), "it was asked for");
}

#[tokio::test]
async fn a_broken_link_is_the_peers_disconnect_on_both_sides() {
    for link in links() {
        let mut world = World::new(&link, |_| {}).await;
        world.device.break_links();
        for stream in [&mut world.victim, &mut world.victim_server] {
            assert_eq!(stream.read(&mut [0]).await.expect("end of file"), 0, "{link}");
            let error = stream.write_all(b"x").await.expect_err("nobody is there");
            assert_eq!(
                (error.kind(), lost(&error)),
                (io::ErrorKind::BrokenPipe, CloseReason::Peer),
                "{link}"
            );
        }
        world.check_bystander().await;
    }
}

#[tokio::test]
async fn a_failed_work_request_is_told_with_its_status() {
    for link in links() {
        for status in [FailureStatus::RemoteAccess, FailureStatus::RemoteOperation, FailureStatus::Other(21)]
        {
            let mut world = World::new(&link, |_| {}).await;
            world.device.fail_send(1, status);
            world.victim.write_all(b"never arrives").await.expect("goes into the send buffer");
            let error = end(&mut world.victim).await;
            assert_eq!(
                (error.kind(), lost(&error)),
                (io::ErrorKind::ConnectionReset, CloseReason::Failed(status)),
                "{link}"
            );
            // To the peer it is a disconnect.
            assert_eq!(world.victim_server.read(&mut [0]).await.expect("end of file"), 0, "{link}");
            world.check_bystander().await;
        }
    }
}

#[tokio::test]
async fn what_a_stalled_receiver_is_sent_waits() {
    for link in links() {
        let mut world = World::new(&link, |_| {}).await;
        world.device.stall_receivers(true);
        world.victim_server.write_all(b"late").await.expect("writes");
        world.device.stall_receivers(false);
        let mut received = [0; 4];
        world.victim.read_exact(&mut received).await.expect("reads");
        assert_eq!(&received, b"late", "{link}");
        world.check_bystander().await;
    }
}

#[tokio::test]
async fn a_stalled_receiver_that_grants_no_retry_ends_the_connection() {
    for link in links() {
        // As Valkey's server grants its clients.
        let far = Device::new(link.clone());
        far.rnr_retry_count(0);
        let mut listener = Listener::bind(DeviceKind::Emulated, ANY, &on(&far)).await.expect("listens");
        let (mut client, mut server) = connect(&mut listener, &on(&Device::new(link.clone()))).await;
        far.stall_receivers(true);
        client.write_all(b"x").await.expect("goes into the send buffer");
        let error = end(&mut client).await;
        assert_eq!(lost(&error), CloseReason::Failed(FailureStatus::RnrRetryExceeded), "{link}");
        assert_eq!(server.read(&mut [0]).await.expect("end of file"), 0, "{link}");
        // The listener goes on.
        far.stall_receivers(false);
        let (mut client, mut server) = connect(&mut listener, &on(&Device::new(link.clone()))).await;
        client.write_all(b"y").await.expect("writes");
        assert_eq!(server.read_u8().await.expect("reads"), b'y', "{link}");
    }
}

#[tokio::test]
async fn a_cut_link_is_a_timeout_to_whoever_sends() {
    for link in links() {
        let mut world = World::new(&link, |_| {}).await;
        world.device.cut_links();
        for device in [&world.device, &world.far] {
            device.retry_timeout(Duration::from_millis(50));
        }
        for stream in [&mut world.victim, &mut world.victim_server] {
            stream.write_all(b"x").await.expect("goes into the send buffer");
            let error = end(stream).await;
            assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{link}: {error}");
            assert_eq!(lost(&error), CloseReason::Failed(FailureStatus::RetryExceeded), "{link}");
        }
        world.far.retry_timeout(Duration::from_secs(60));
        world.check_bystander().await;
    }
}

#[tokio::test]
async fn delays_change_nothing_but_the_time() {
    for link in links() {
        let mut world =
            World::new(&link, |far| far.delay(Duration::ZERO..=Duration::from_millis(2), 1)).await;
        world.device.delay(Duration::ZERO..=Duration::from_millis(2), 2);
        let sent: Vec<u8> = (0..100_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let mut echoed = vec![0; sent.len()];
        let (mut reader, mut writer) = tokio::io::split(&mut world.victim);
        let (mut from, mut to) = tokio::io::split(&mut world.victim_server);
        let echo = async {
            let mut taken = (&mut from).take(sent.len() as u64);
            tokio::io::copy(&mut taken, &mut to).await.expect("echoes");
        };
        let (written, read, ()) = tokio::join!(writer.write_all(&sent), reader.read_exact(&mut echoed), echo);
        written.expect("writes");
        read.expect("reads");
        assert!(echoed == sent, "{link}: bytes differ");
        world.check_bystander().await;
    }
}

/// Time is virtual: what happens within a second happens at once.
#[tokio::test(start_paused = true)]
async fn a_lost_completion_event_is_made_good_by_the_next_keepalive() {
    let far = Device::new(Link::InProcess);
    let mut listener = Listener::bind(DeviceKind::Emulated, ANY, &on(&far)).await.expect("listens");
    let (mut client, mut server) = connect(&mut listener, &on(&Device::new(Link::InProcess))).await;
    let echo = tokio::spawn(async move {
        let mut byte = [0];
        while server.read(&mut byte).await.expect("reads") > 0 {
            server.write_all(&byte).await.expect("writes");
        }
    });
    client.write_all(b"1").await.expect("writes");
    assert_eq!(client.read_u8().await.expect("reads"), b'1');
    far.drop_completion_event(1);
    for byte in b"234" {
        client.write_all(&[*byte]).await.expect("writes");
        let answer = tokio::time::timeout(Duration::from_secs(4), client.read_u8()).await;
        assert_eq!(answer.expect("within a keepalive period of 3 s").expect("reads"), *byte);
    }
    // From then on events are asked for again: nobody waits for a deadline.
    for byte in b"56" {
        client.write_all(&[*byte]).await.expect("writes");
        let answer = tokio::time::timeout(Duration::from_millis(1), client.read_u8()).await;
        assert_eq!(answer.expect("without a deadline").expect("reads"), *byte);
    }
    client.shutdown().await.expect("everything is acknowledged");
    echo.await.expect("the server is content");
}

#[tokio::test(start_paused = true)]
async fn a_lost_completion_event_is_made_good_by_any_deadline() {
    let mut listener = Listener::bind(DeviceKind::Emulated, ANY, &Config::default()).await.expect("listens");
    let near = Device::new(Link::InProcess);
    let config = on(&near).idle_timeout(Some(Duration::from_secs(2)));
    let (mut client, mut server) = connect(&mut listener, &config).await;
    server.write_all(b"x").await.expect("writes");
    assert_eq!(client.read_u8().await.expect("reads"), b'x');
    let begin = tokio::time::Instant::now();
    near.drop_completion_event(1);
    let waiting = tokio::spawn(async move { client.read_u8().await });
    tokio::task::yield_now().await;
    server.write_all(b"y").await.expect("writes");
    assert_eq!(waiting.await.expect("joins").expect("reads"), b'y');
    assert!(begin.elapsed() >= Duration::from_secs(1), "the event was lost, a deadline came");
}
