//! What the emulated device adds to the contract, on each of its links: receivers that are not ready, queues that
//! overflow, delays, faults, and peers that are none.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::time::Duration;

use device_peer::{MESSAGE, Peer, RECEIVES, bounded, options};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;
use valkey_rdma_proto::work::{FailureStatus, Outcome, SendOp, WrId};
use valkey_rdma_transport::device::{self, CmEvent, EndpointOptions, PassiveEndpoint};
use valkey_rdma_transport::emulated::{Device, Link};
use valkey_rdma_transport::{DeviceKind, TransportError};

mod device_peer;

/// Only for what does not choose its own.
const LINK: Option<&str> = None;

const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

fn links() -> [Link; 3] {
    let directory = format!("{}/emulated", env!("CARGO_TARGET_TMPDIR"));
    [Link::InProcess, Link::Tcp, Link::Unix(directory.into())]
}

fn on(device: &Device) -> EndpointOptions {
    EndpointOptions { device: Some(device.name().to_owned()), ..options() }
}

/// A connected pair with a device each.
struct Pair {
    active: Peer,
    passive: Peer,
    near: Device,
    far: Device,
}

async fn accept_on(listener: &mut dyn PassiveEndpoint, options: &EndpointOptions) -> Peer {
    let request = bounded(poll_fn(|cx| listener.poll_request(cx))).await.expect("a request");
    Peer::new(request.accept(options).expect("an endpoint"))
}

async fn pair(link: &Link, prepare: impl FnOnce(&Device, &Device)) -> Pair {
    let (near, far) = (Device::new(link.clone()), Device::new(link.clone()));
    prepare(&near, &far);
    let mut listener = device::listen(DeviceKind::Emulated, ANY, &on(&far)).await.expect("listens");
    let open = device::open(DeviceKind::Emulated, listener.local_addr(), &on(&near)).await;
    let mut active = Peer::new(open.expect("opens"));
    active.endpoint.establish().expect("asks");
    let mut passive = accept_on(listener.as_mut(), &on(&far)).await;
    passive.endpoint.establish().expect("accepts");
    assert_eq!(active.cm_event().await, CmEvent::Established);
    assert_eq!(passive.cm_event().await, CmEvent::Established);
    Pair { active, passive, near, far }
}

/// Uses up the receives that the passive side has posted.
async fn use_up_receives(pair: &mut Pair) {
    for sequence in 0..RECEIVES {
        pair.active.send(sequence.into(), &[0; MESSAGE as usize]);
        assert_eq!(pair.active.outcome(WrId::send(sequence.into())).await, Outcome::Sent);
        assert!(matches!(pair.passive.completion().await.outcome, Outcome::Received { .. }));
    }
}

// --- Receivers that are not ready ----------------------------------------------------------------------------------

#[tokio::test]
async fn a_receiver_that_grants_no_retry_fails_the_send_at_once() {
    for link in links() {
        let mut pair = pair(&link, |_, far| far.rnr_retry_count(0)).await;
        use_up_receives(&mut pair).await;
        pair.active.send(99, &[1]);
        let outcome = pair.active.send_outcome(WrId::send(99)).await;
        assert_eq!(outcome, Outcome::Failed(FailureStatus::RnrRetryExceeded), "{link}");
    }
}

#[tokio::test]
async fn a_receiver_that_is_never_ready_fails_the_send_after_the_retries_it_grants() {
    for link in links() {
        let prepare = |_: &Device, far: &Device| {
            far.rnr_retry_count(3);
            far.rnr_timer(Duration::from_millis(1));
        };
        let mut pair = pair(&link, prepare).await;
        use_up_receives(&mut pair).await;
        pair.active.send(99, &[1]);
        pair.active.send(100, &[1]);
        let outcome = pair.active.send_outcome(WrId::send(99)).await;
        assert_eq!(outcome, Outcome::Failed(FailureStatus::RnrRetryExceeded), "{link}");
        let outcome = pair.active.send_outcome(WrId::send(100)).await;
        assert_eq!(outcome, Outcome::Failed(FailureStatus::Flushed), "{link}");
    }
}

#[tokio::test]
async fn a_receiver_that_becomes_ready_in_time_gets_everything_in_order() {
    for link in links() {
        let mut pair = pair(&link, |_, far| {
            far.rnr_retry_count(1);
            far.rnr_timer(Duration::from_secs(3600));
        })
        .await;
        use_up_receives(&mut pair).await;
        // More than one is under way when the first finds no receive.
        for byte in 0..8 {
            pair.active.stage(u32::from(byte), &[byte]);
            let request = pair.active.request(byte.into(), byte.into(), 1, SendOp::Send);
            pair.active.post(&[request]);
        }
        for byte in 0..8 {
            // One by one: each makes room for one, and the next has to wait again.
            pair.passive.post_receives(u32::from(byte)..u32::from(byte) + 1);
            let outcome = pair.passive.outcome(WrId::receive(byte.into())).await;
            assert_eq!(outcome, Outcome::Received { len: 1 }, "{link}");
            assert_eq!(pair.passive.read_slot(byte.into())[0], byte, "{link}");
            assert_eq!(pair.active.outcome(WrId::send(byte.into())).await, Outcome::Sent, "{link}");
        }
    }
}

#[tokio::test]
async fn a_stalled_receiver_holds_messages_back_and_writes_pass() {
    for link in links() {
        let Pair { mut active, mut passive, far, near: _near } = pair(&link, |_, _| {}).await;
        far.stall_receivers(true);
        let op = SendOp::Write { addr: passive.window.addr, rkey: passive.window.rkey };
        active.stage(0, &[7; 8]);
        active.post(&[active.request(1, 0, 8, op), active.request(2, 0, 8, SendOp::Send)]);
        assert_eq!(active.outcome(WrId::send(1)).await, Outcome::Sent, "{link}");
        assert_eq!(passive.read_window(0..8), [7; 8], "{link}");
        far.stall_receivers(false);
        assert_eq!(passive.outcome(WrId::receive(0)).await, Outcome::Received { len: 8 }, "{link}");
        assert_eq!(active.outcome(WrId::send(2)).await, Outcome::Sent, "{link}");
    }
}

// --- Queues that overflow ------------------------------------------------------------------------------------------

#[tokio::test]
async fn a_full_send_queue_takes_no_more() {
    for link in links() {
        let Pair { mut active, passive: _passive, far, near: _near } = pair(&link, |_, _| {}).await;
        far.stall_receivers(true);
        let depth = options().send_depth;
        let chain: Vec<_> = (0..depth).map(|n| active.request(n.into(), 0, 1, SendOp::Send)).collect();
        active.post(&chain);
        let error = active.endpoint.post_sends(&chain[..1]).expect_err("the queue is full");
        assert!(matches!(error, TransportError::Device { call: "ibv_post_send", .. }), "{link}: {error:?}");
        far.stall_receivers(false);
    }
}

#[tokio::test]
async fn a_full_receive_queue_takes_no_more() {
    for link in links() {
        let mut pair = pair(&link, |_, _| {}).await;
        pair.passive.post_receives(RECEIVES..options().receive_depth);
        let local = valkey_rdma_proto::work::Slice { region: pair.passive.slots.id, offset: 0, len: MESSAGE };
        let one_more = valkey_rdma_proto::work::ReceiveRequest { wr_id: WrId::receive(0), local };
        let error = pair.passive.endpoint.post_receives(&[one_more]).expect_err("the queue is full");
        assert!(matches!(error, TransportError::Device { call: "ibv_post_recv", .. }), "{link}: {error:?}");
    }
}

#[tokio::test]
async fn a_completion_queue_that_is_not_polled_overflows_and_the_queue_pair_fails() {
    for link in links() {
        let mut pair = pair(&link, |_, _| {}).await;
        let room = options().send_depth + options().receive_depth;
        pair.passive.endpoint.arm().expect("arms");
        // The receives are posted again, but what completed is never taken.
        for sequence in 0..=room {
            pair.active.send(sequence.into(), &[0]);
            if sequence < room {
                assert_eq!(pair.active.outcome(WrId::send(sequence.into())).await, Outcome::Sent);
            }
            let slot = sequence % RECEIVES;
            pair.passive.post_receives(slot..slot + 1);
        }
        let overrun = async {
            let mut found = Vec::new();
            loop {
                if let Err(error) = pair.passive.endpoint.poll(&mut found, 0) {
                    break error;
                }
                tokio::task::yield_now().await;
            }
        };
        let error = bounded(overrun).await;
        assert!(matches!(error, TransportError::Device { call: "ibv_poll_cq", .. }), "{link}: {error:?}");
        // A program that sleeps hears of it too.
        bounded(poll_fn(|cx| pair.passive.endpoint.poll_completion_event(cx))).await.expect("an event");
    }
}

// --- Delays --------------------------------------------------------------------------------------------------------

/// Sends messages with delays and returns when they arrive, counted from the start.
async fn arrivals(seed: u64) -> Vec<Duration> {
    let mut pair = pair(&Link::InProcess, |near, _| {
        near.delay(Duration::from_millis(1)..=Duration::from_millis(100), seed);
    })
    .await;
    let start = Instant::now();
    for byte in 0..RECEIVES as u8 {
        pair.active.stage(u32::from(byte), &[byte]);
        let request = pair.active.request(byte.into(), byte.into(), 1, SendOp::Send);
        pair.active.post(&[request]);
    }
    let mut arrivals = Vec::new();
    for slot in 0..RECEIVES {
        assert_eq!(pair.passive.outcome(WrId::receive(slot)).await, Outcome::Received { len: 1 });
        assert_eq!(pair.passive.read_slot(slot)[0], slot as u8, "nothing overtakes");
        arrivals.push(start.elapsed());
    }
    arrivals
}

#[tokio::test(start_paused = true)]
async fn delays_repeat_with_their_seed() {
    let (first, again, other) = (arrivals(1).await, arrivals(1).await, arrivals(2).await);
    assert_eq!(first, again);
    assert_ne!(first, other);
    assert!(first[0] >= Duration::from_millis(1), "{first:?}");
    assert!(first[RECEIVES as usize - 1] <= Duration::from_millis(102), "{first:?}");
}

#[tokio::test]
async fn delayed_messages_arrive_in_order() {
    for link in links() {
        let mut pair = pair(&link, |near, _| near.delay(Duration::ZERO..=Duration::from_millis(5), 42)).await;
        for byte in 0..RECEIVES as u8 {
            pair.active.stage(u32::from(byte), &[byte]);
            let request = pair.active.request(byte.into(), byte.into(), 1, SendOp::Send);
            pair.active.post(&[request]);
            if byte == RECEIVES as u8 / 2 {
                pair.near.delay(Duration::ZERO..=Duration::ZERO, 0);
            }
        }
        for slot in 0..RECEIVES {
            assert_eq!(
                pair.passive.outcome(WrId::receive(slot)).await,
                Outcome::Received { len: 1 },
                "{link}"
            );
            assert_eq!(pair.passive.read_slot(slot)[0], slot as u8, "{link}");
            assert_eq!(pair.active.outcome(WrId::send(slot.into())).await, Outcome::Sent, "{link}");
        }
    }
}

// --- Faults --------------------------------------------------------------------------------------------------------

#[tokio::test]
async fn the_chosen_send_fails_as_asked_and_those_before_it_arrive() {
    for link in links() {
        let mut pair = pair(&link, |_, _| {}).await;
        pair.near.fail_send(3, FailureStatus::RemoteOperation);
        let chain: Vec<_> = (1..=4).map(|n| pair.active.request(n, 0, 1, SendOp::Send)).collect();
        pair.active.post(&chain);
        for (sequence, outcome) in [
            (1, Outcome::Sent),
            (2, Outcome::Sent),
            (3, Outcome::Failed(FailureStatus::RemoteOperation)),
            (4, Outcome::Failed(FailureStatus::Flushed)),
        ] {
            assert_eq!(pair.active.send_outcome(WrId::send(sequence)).await, outcome, "{link}");
        }
        for slot in 0..2 {
            assert_eq!(
                pair.passive.outcome(WrId::receive(slot)).await,
                Outcome::Received { len: 1 },
                "{link}"
            );
        }
    }
}

#[tokio::test]
async fn a_broken_link_disconnects_both_sides() {
    for link in links() {
        let mut pair = pair(&link, |_, _| {}).await;
        pair.near.break_links();
        assert_eq!(pair.active.cm_event().await, CmEvent::Disconnected, "{link}");
        assert_eq!(pair.passive.cm_event().await, CmEvent::Disconnected, "{link}");
    }
}

#[tokio::test]
async fn a_connection_being_made_is_broken_as_well() {
    for link in links() {
        let (near, far) = (Device::new(link.clone()), Device::new(link.clone()));
        let mut listener = device::listen(DeviceKind::Emulated, ANY, &on(&far)).await.expect("listens");
        let open = device::open(DeviceKind::Emulated, listener.local_addr(), &on(&near)).await;
        let mut active = Peer::new(open.expect("opens"));
        active.endpoint.establish().expect("asks");
        let mut passive = accept_on(listener.as_mut(), &on(&far)).await;
        near.break_links();
        let event = active.cm_event().await;
        assert!(matches!(event, CmEvent::Rejected { .. }), "{link}: {event:?}");
        passive.endpoint.establish().expect("accepts");
        assert_eq!(passive.cm_event().await, CmEvent::Disconnected, "{link}");
    }
}

#[tokio::test]
async fn a_connection_being_made_over_a_cut_link_is_never_established() {
    let near = Device::new(Link::InProcess);
    let mut listener = device::listen(DeviceKind::Emulated, ANY, &on(&near)).await.expect("listens");
    let open = device::open(DeviceKind::Emulated, listener.local_addr(), &on(&near)).await;
    let mut active = Peer::new(open.expect("opens"));
    active.endpoint.establish().expect("asks");
    let mut passive = accept_on(listener.as_mut(), &on(&near)).await;
    near.cut_links();
    passive.endpoint.establish().expect("accepts");
    for side in [&mut active, &mut passive] {
        let event = poll_fn(|cx| std::task::Poll::Ready(side.endpoint.poll_cm_event(cx))).await;
        assert!(event.is_pending(), "{event:?}");
    }
}

#[tokio::test]
async fn queues_beyond_the_device_are_refused_and_inline_sends_asked_down() {
    for link in links() {
        let device = Device::new(link.clone());
        let mut listener = device::listen(DeviceKind::Emulated, ANY, &on(&device)).await.expect("listens");
        let greedy = EndpointOptions { send_depth: u32::MAX, receive_depth: 1, ..on(&device) };
        let refused = device::open(DeviceKind::Emulated, listener.local_addr(), &greedy).await.err();
        assert!(matches!(refused, Some(TransportError::QueueDepth { .. })), "{link}: {refused:?}");
        let inline = EndpointOptions { max_inline: u32::MAX, ..on(&device) };
        let open = device::open(DeviceKind::Emulated, listener.local_addr(), &inline).await;
        let mut active = Peer::new(open.expect("opens"));
        assert_eq!(active.endpoint.limits().max_inline, 1024, "{link}");
        active.endpoint.establish().expect("asks");
        let request = bounded(poll_fn(|cx| listener.poll_request(cx))).await.expect("a request");
        let refused = request.accept(&greedy).err();
        assert!(matches!(refused, Some(TransportError::QueueDepth { .. })), "{link}: {refused:?}");
        let event = active.cm_event().await;
        assert!(matches!(event, CmEvent::Rejected { .. }), "{link}: {event:?}");
    }
}

/// Time is virtual.
#[tokio::test(start_paused = true)]
async fn a_shorter_retry_timeout_holds_for_who_waits_already() {
    let mut pair = pair(&Link::InProcess, |near, _| near.retry_timeout(Duration::from_secs(3600))).await;
    pair.near.cut_links();
    pair.active.send(1, &[1]);
    tokio::task::yield_now().await;
    let begin = Instant::now();
    pair.near.retry_timeout(Duration::from_secs(1));
    let outcome = pair.active.send_outcome(WrId::send(1)).await;
    assert_eq!(outcome, Outcome::Failed(FailureStatus::RetryExceeded));
    assert!(begin.elapsed() < Duration::from_secs(2), "by the new time, not by the old");
}

#[test]
fn time_is_kept_though_the_runtime_that_kept_it_is_gone() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let first = runtime();
    let mut pair = first.block_on(async {
        let mut pair = pair(&Link::InProcess, |near, _| near.retry_timeout(Duration::from_millis(20))).await;
        pair.near.cut_links();
        pair.active.send(1, &[1]);
        tokio::task::yield_now().await;
        pair
    });
    drop(first);
    runtime().block_on(async {
        let outcome = pair.active.send_outcome(WrId::send(1)).await;
        assert_eq!(outcome, Outcome::Failed(FailureStatus::RetryExceeded));
    });
}

#[tokio::test]
async fn a_cut_link_is_silent_until_somebody_sends() {
    for link in links() {
        let mut pair = pair(&link, |_, _| {}).await;
        pair.near.cut_links();
        for device in [&pair.near, &pair.far] {
            device.retry_timeout(Duration::from_millis(20));
        }
        for side in [&mut pair.active, &mut pair.passive] {
            side.send(1, &[1]);
            let outcome = side.send_outcome(WrId::send(1)).await;
            assert_eq!(outcome, Outcome::Failed(FailureStatus::RetryExceeded), "{link}");
        }
        pair.active.endpoint.disconnect();
        pair.passive.endpoint.disconnect();
        for side in [&mut pair.active, &mut pair.passive] {
            let event = poll_fn(|cx| std::task::Poll::Ready(side.endpoint.poll_cm_event(cx))).await;
            assert!(event.is_pending(), "{link}: {event:?}");
        }
    }
}

#[tokio::test]
async fn a_dropped_completion_event_leaves_the_completion() {
    for link in links() {
        let mut pair = pair(&link, |_, _| {}).await;
        pair.far.drop_completion_event(1);
        pair.passive.endpoint.arm().expect("arms");
        pair.active.send(1, &[1]);
        assert_eq!(pair.active.outcome(WrId::send(1)).await, Outcome::Sent, "{link}");
        assert!(pair.passive.is_quiet().await, "{link}");
        assert_eq!(pair.passive.completed().len(), 1, "{link}");
        // Only that one.
        pair.passive.endpoint.arm().expect("arms");
        pair.active.send(2, &[2]);
        bounded(poll_fn(|cx| pair.passive.endpoint.poll_completion_event(cx))).await.expect("an event");
    }
}

// --- Names and addresses -------------------------------------------------------------------------------------------

#[tokio::test]
async fn without_a_name_the_link_within_the_process_is_taken_where_there_is_one() {
    let mut plain = device::listen(DeviceKind::Emulated, ANY, &options()).await.expect("listens");
    let named = |name: &str| EndpointOptions { device: Some(name.to_owned()), ..options() };
    for (name, taken) in [(None, "inprocess"), (Some("inprocess"), "inprocess"), (Some("tcp"), "tcp")] {
        let options = name.map_or_else(options, named);
        let open = device::open(DeviceKind::Emulated, plain.local_addr(), &options).await;
        let mut active = Peer::new(open.expect("opens"));
        active.endpoint.establish().expect("asks");
        let passive = device_peer::accept(plain.as_mut()).await;
        assert_eq!(
            (active.endpoint.device().name, passive.endpoint.device().name),
            (taken.into(), taken.into())
        );
    }
    // A listener on TCP alone is found over TCP.
    let tcp = device::listen(DeviceKind::Emulated, ANY, &named("tcp")).await.expect("listens");
    let open = device::open(DeviceKind::Emulated, tcp.local_addr(), &options()).await.expect("opens");
    assert_eq!(open.device().name, "tcp");
}

#[tokio::test]
async fn an_unknown_name_is_refused_with_the_known_ones() {
    let gone = Device::new(Link::Any).name().to_owned();
    for name in ["rxe0", "unix:", "", &gone] {
        let options = EndpointOptions { device: Some(name.to_owned()), ..options() };
        let Err(error) = device::listen(DeviceKind::Emulated, ANY, &options).await else {
            panic!("listens on {name:?}");
        };
        assert!(matches!(&error, TransportError::UnknownLink { name: found } if found == name), "{error:?}");
        assert!(error.to_string().contains("use `inprocess`, `tcp`, `unix:DIR`"), "{error}");
    }
}

#[tokio::test]
async fn a_listener_takes_its_tcp_port_from_everybody() {
    let listener = device::listen(DeviceKind::Emulated, ANY, &options()).await.expect("listens");
    let error = std::net::TcpListener::bind(listener.local_addr()).expect_err("taken");
    assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
    drop(listener);
    let taken = std::net::TcpListener::bind(ANY).expect("a free port");
    let addr = taken.local_addr().expect("an address");
    let error = device::listen(DeviceKind::Emulated, addr, &options()).await.err().expect("taken");
    let TransportError::Listen { source, .. } = error else { panic!("{error:?}") };
    assert_eq!(source.kind(), std::io::ErrorKind::AddrInUse);
}

#[tokio::test]
async fn a_listener_on_all_addresses_of_one_family_leaves_the_other_alone() {
    let any = SocketAddr::new(std::net::Ipv6Addr::UNSPECIFIED.into(), 0);
    let listener = device::listen(DeviceKind::Emulated, any, &options()).await.expect("listens");
    let port = listener.local_addr().port();
    std::net::TcpListener::bind((std::net::Ipv4Addr::UNSPECIFIED, port)).expect("free in the other family");
}

#[tokio::test]
async fn a_port_that_was_released_is_not_the_next_one_taken() {
    let directory = format!("unix:{}/released", env!("CARGO_TARGET_TMPDIR"));
    let options = EndpointOptions { device: Some(directory), ..options() };
    let first = device::listen(DeviceKind::Emulated, ANY, &options).await.expect("listens").local_addr();
    let second = device::listen(DeviceKind::Emulated, ANY, &options).await.expect("listens").local_addr();
    assert_ne!(first, second);
}

#[tokio::test]
async fn a_unix_socket_left_behind_is_replaced_and_a_live_one_is_not() {
    let directory = format!("{}/left-behind", env!("CARGO_TARGET_TMPDIR"));
    let options = EndpointOptions { device: Some(format!("unix:{directory}")), ..options() };
    let listener = device::listen(DeviceKind::Emulated, ANY, &options).await.expect("listens");
    let addr = listener.local_addr();
    let path = format!("{directory}/{}", addr.port());
    let second = device::listen(DeviceKind::Emulated, addr, &options).await;
    assert!(matches!(second, Err(TransportError::Listen { .. })));
    drop(listener);
    assert!(!std::fs::exists(&path).expect("a directory"), "the name goes with the listener");
    // As a killed process leaves it: the socket is closed, its name is there.
    drop(std::os::unix::net::UnixListener::bind(&path).expect("binds"));
    let again = device::listen(DeviceKind::Emulated, addr, &options).await.expect("listens");
    assert_eq!(again.local_addr(), addr);
}

// --- Peers that are none -------------------------------------------------------------------------------------------

/// A header of the given kind, whose fields are all zero.
fn header(kind: u8) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes[0] = kind;
    bytes
}

fn connect_header() -> [u8; 32] {
    let mut bytes = header(1);
    bytes[8..16].copy_from_slice(b"VRDMAEMU");
    bytes[23] = 1;
    bytes
}

#[tokio::test]
async fn bytes_that_are_no_request_are_hung_up_on_and_the_listener_goes_on() {
    let mut listener = device::listen(DeviceKind::Emulated, ANY, &options()).await.expect("listens");
    for greeting in
        [&b"PING\r\nPING\r\nPING\r\nPING\r\nPING\r\nPING\r\n"[..], &[0xff; 32], &header(4), &header(16)]
    {
        let mut socket = TcpStream::connect(listener.local_addr()).await.expect("connects");
        socket.write_all(greeting).await.expect("writes");
        let closed = async {
            let mut rest = [0; 1];
            // Either way of closing will do.
            assert!(!matches!(socket.read(&mut rest).await, Ok(1..)));
        };
        let nobody = poll_fn(|cx| listener.poll_request(cx));
        tokio::select! {
            () = bounded(closed) => {}
            _ = nobody => panic!("a request made of {greeting:?}"),
        }
    }
    let silent = TcpStream::connect(listener.local_addr()).await.expect("connects");
    device_peer::connect(listener.as_mut()).await;
    drop(silent);
}

/// A peer that speaks the frames, up to a point.
async fn accepted_with(frames: &[u8]) -> (Peer, TcpStream) {
    let mut listener = device::listen(DeviceKind::Emulated, ANY, &options()).await.expect("listens");
    let mut socket = TcpStream::connect(listener.local_addr()).await.expect("connects");
    socket.write_all(&connect_header()).await.expect("writes");
    let mut passive = device_peer::accept(listener.as_mut()).await;
    passive.endpoint.establish().expect("accepts");
    socket.read_exact(&mut [0; 32]).await.expect("the acceptance");
    socket.write_all(&header(4)).await.expect("writes");
    assert_eq!(passive.cm_event().await, CmEvent::Established);
    socket.write_all(frames).await.expect("writes");
    (passive, socket)
}

#[tokio::test]
async fn a_peer_that_breaks_the_rules_of_the_frames_is_disconnected() {
    let mut out_of_sequence = header(16);
    out_of_sequence[15] = 5;
    let mut too_long = header(16);
    too_long[4] = 0x80;
    let done = header(32);
    for (what, frames) in [
        ("no frame", header(99)),
        ("a second request to connect", connect_header()),
        ("an acceptance by the active end", header(2)),
        ("a request out of sequence", out_of_sequence),
        ("a message too long", too_long),
        ("an answer to nothing", done),
    ] {
        let (mut passive, mut socket) = accepted_with(&frames).await;
        assert_eq!(passive.cm_event().await, CmEvent::Disconnected, "{what}");
        let mut rest = Vec::new();
        // Reset or closed.
        let _ = bounded(socket.read_to_end(&mut rest)).await;
        passive.endpoint.disconnect();
    }
}

#[tokio::test]
async fn a_request_that_promises_more_than_it_brings_takes_nothing() {
    let mut promise = header(16);
    promise[4..8].copy_from_slice(&MESSAGE.to_be_bytes());
    let (mut passive, socket) = accepted_with(&promise).await;
    drop(socket);
    assert_eq!(passive.cm_event().await, CmEvent::Disconnected);
    assert_eq!(passive.completed(), []);
}

#[tokio::test]
async fn a_gigabyte_that_nobody_admitted_is_neither_kept_nor_acknowledged() {
    // A write with a key of nobody, of the greatest length there is.
    let mut write = header(17);
    write[4..8].copy_from_slice(&(1_u32 << 30).to_be_bytes());
    let (mut passive, mut socket) = accepted_with(&write).await;
    let mut answer = [0; 32];
    bounded(socket.read_exact(&mut answer)).await.expect("an answer");
    assert_eq!((answer[0], answer[31]), (34, 10), "denied: remote access error");
    let completion = passive.completion().await;
    assert_eq!(completion.outcome, Outcome::Failed(FailureStatus::Flushed));
}
