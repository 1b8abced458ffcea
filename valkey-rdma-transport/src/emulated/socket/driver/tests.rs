//! A driver over a pipe, against a peer whose frames the test writes by hand.

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use valkey_rdma_proto::work::{FailureStatus, Outcome, Region, RegionId, SendOp, SendRequest, Slice, WrId};

use super::*;
use crate::device::{Access, CmEvent, DeviceOptions};
use crate::emulated::device::Link;
use crate::emulated::device::{Device, named};
use crate::emulated::queue_pair::Memory;
use crate::emulated::queue_pair::{QueuePair, Terms};
use crate::emulated::socket::session::Session;

const TIMEOUT: Duration = Duration::from_secs(1);

/// Longer than a message that a pipe and the output buffer hold.
const LONG: u32 = 1 << 18;

/// An end with a region of [`LONG`] bytes, its running driver, and the peer's end of the pipe.
struct End {
    link: SocketLink,
    driver: JoinHandle<()>,
}

impl End {
    fn start(device: &Device, phase: Phase, socket: DuplexStream) -> Self {
        let plan = named(Some(device.name())).expect("a device");
        let mut side = QueuePair::new(&DeviceOptions::default(), plan);
        let region = Region { id: RegionId(0), addr: 1 << 32, rkey: 1, len: LONG };
        side.memories.push(Memory::new(region, Access::RemoteWrite));
        let link = SocketLink::idle(side, phase);
        let driver = tokio::spawn(Driver::new(link.clone(), Box::new(socket)));
        Self { link, driver }
    }

    /// Connected as the active end, to a peer that is the other end of a pipe with room for `room` bytes.
    async fn connected(device: &Device, room: usize) -> (Self, DuplexStream) {
        let (near, mut far) = duplex(room);
        let end = Self::start(device, Phase::Fresh { port: 1 }, near);
        end.link.ring(Session::establish);
        far.read_exact(&mut [0; HEADER]).await.expect("the connect request");
        far.write_all(&Frame::Accept { terms: Terms { rnr_retry_count: 7, read_depth: 0 } }.encode())
            .await
            .expect("writes");
        assert_eq!(read_frame(&mut far).await, Frame::Ready);
        (end, far)
    }

    fn send(&self, len: u32) {
        let local = Slice { region: RegionId(0), offset: 0, len };
        let request = SendRequest { wr_id: WrId::send(0), local, op: SendOp::Send, signalled: true };
        self.link.ring(|session| session.post_sends(&[request])).expect("posts");
    }

    /// Waits for the next completion.
    async fn outcome(&self) -> Outcome {
        let completed = std::future::poll_fn(|cx| {
            self.link.side(|side| {
                side.arm();
                let mut found = Vec::new();
                assert!(side.poll(&mut found, 1));
                match found.pop() {
                    Some(completion) => Poll::Ready(completion.outcome),
                    None => side.poll_completion_event(cx).map(|()| panic!("an event, and no completion")),
                }
            })
        });
        timeout(TIMEOUT * 100, completed).await.expect("an outcome")
    }

    async fn leave(self) {
        self.link.ring(Session::disconnect);
        self.gone().await;
    }

    async fn gone(self) {
        timeout(GOODBYE_LIMIT * 2, self.driver).await.expect("the task ends").expect("without a panic");
    }
}

async fn read_frame(far: &mut DuplexStream) -> Frame {
    let mut header = [0; HEADER];
    far.read_exact(&mut header).await.expect("a frame");
    Frame::decode(&header).expect("a frame")
}

fn impatient() -> Device {
    let device = Device::new(Link::Tcp);
    device.retry_timeout(TIMEOUT);
    device
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_falls_silent_is_given_up_whatever_the_socket_takes() {
    let device = impatient();
    let (end, _far) = End::connected(&device, 1 << 16).await;
    let begin = Instant::now();
    end.send(8);
    assert_eq!(end.outcome().await, Outcome::Failed(FailureStatus::RetryExceeded));
    assert_eq!(begin.elapsed().as_secs(), TIMEOUT.as_secs());
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_stops_reading_within_a_request_is_given_up() {
    let device = impatient();
    let (end, _far) = End::connected(&device, 64).await;
    end.send(LONG);
    assert_eq!(end.outcome().await, Outcome::Failed(FailureStatus::RetryExceeded));
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_takes_a_request_slowly_is_waited_for() {
    let device = impatient();
    let (end, mut far) = End::connected(&device, 4096).await;
    let begin = Instant::now();
    end.send(LONG);
    assert!(matches!(read_frame(&mut far).await, Frame::Request { sequence: 0, len: LONG, .. }));
    for _ in 0..LONG / 4096 {
        tokio::time::advance(TIMEOUT / 4).await;
        far.read_exact(&mut [0; 4096]).await.expect("bytes");
    }
    assert!(begin.elapsed() > TIMEOUT * 10);
    far.write_all(&Frame::Done { sequence: 0 }.encode()).await.expect("writes");
    assert_eq!(end.outcome().await, Outcome::Sent);
}

#[tokio::test(start_paused = true)]
async fn an_end_leaves_though_its_peer_does_not_read() {
    let device = Device::new(Link::Tcp);
    let (end, _far) = End::connected(&device, 64).await;
    end.send(LONG);
    // Until the pipe is full.
    tokio::task::yield_now().await;
    end.leave().await;
}

#[tokio::test(start_paused = true)]
async fn two_ends_that_were_cut_leave_both() {
    let device = Device::new(Link::Tcp);
    let (near, far) = duplex(64);
    let near = End::start(&device, Phase::Asked, near);
    let far = End::start(&device, Phase::Requested, far);
    far.link.ring(Session::establish);
    for end in [&near, &far] {
        let event = std::future::poll_fn(|cx| end.link.side(|side| side.poll_cm_event(cx))).await;
        assert_eq!(event, CmEvent::Established);
    }
    device.cut_links();
    near.link.ring(Session::disconnect);
    far.link.ring(Session::disconnect);
    let links = [near.link.clone(), far.link.clone()];
    near.gone().await;
    far.gone().await;
    for link in links {
        let event = std::future::poll_fn(|cx| Poll::Ready(link.side(|side| side.poll_cm_event(cx)))).await;
        assert!(event.is_pending(), "neither end is notified: {event:?}");
    }
}
