//! One side of a connection for the tests of the device contract: an endpoint with a window, message slots, and
//! ways to wait. In a module `tcp` or `unix`, the device is the emulated one over such sockets. Otherwise it is
//! the one that `VALKEY_RDMA_TEST_DEVICE` names (`emulated` by default), at the address in `VALKEY_RDMA_TEST_ADDR`
//! (`127.0.0.1` by default).
#![allow(dead_code, reason = "each test binary uses its part")]

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::net::{IpAddr, SocketAddr};
use std::task::Poll;
use std::time::Duration;

use valkey_rdma_proto::work::{
    Completion, Outcome, ReceiveRequest, Region, SendOp, SendRequest, Slice, WrId, WrKind,
};
use valkey_rdma_transport::DeviceKind;
use valkey_rdma_transport::device::{
    self, Access, CmEvent, DeviceConnection, DeviceListener, DeviceOptions, SharedCq,
};

/// Length of the messages, and of the slots that receive them.
pub(crate) const MESSAGE: u32 = 32;

/// Bytes that the peer may write.
pub(crate) const WINDOW: u32 = 1 << 16;

/// Slots posted as receives by [`Peer::new`].
pub(crate) const RECEIVES: u32 = 16;

/// The emulated device's link, in a module `tcp` or `unix`.
fn link() -> Option<&'static str> {
    ["tcp", "unix"].into_iter().find(|link| module_path!().contains(&format!("::{link}::")))
}

pub(crate) fn device() -> DeviceKind {
    if link().is_some() {
        return DeviceKind::Emulated;
    }
    let name = std::env::var("VALKEY_RDMA_TEST_DEVICE").unwrap_or_else(|_| "emulated".to_owned());
    name.parse().expect("VALKEY_RDMA_TEST_DEVICE names a device")
}

/// The name of the emulated device under test.
pub(crate) fn device_name() -> Option<String> {
    match link()? {
        "unix" => Some(format!("unix:{}/sockets", env!("CARGO_TARGET_TMPDIR"))),
        link => Some(link.to_owned()),
    }
}

pub(crate) fn any_port() -> SocketAddr {
    if link().is_some() {
        return SocketAddr::from(([127, 0, 0, 1], 0));
    }
    let host = std::env::var("VALKEY_RDMA_TEST_ADDR").unwrap_or_else(|_| "127.0.0.1".to_owned());
    SocketAddr::new(host.parse::<IpAddr>().expect("VALKEY_RDMA_TEST_ADDR is an IP address"), 0)
}

pub(crate) fn options() -> DeviceOptions {
    DeviceOptions {
        send_depth: 64,
        receive_depth: 64,
        max_inline: 64,
        device: device_name(),
        shared_cq: shared_cq(),
        ..DeviceOptions::default()
    }
}

/// That of this thread, if connections are to share their completion queues: with `VALKEY_RDMA_TEST_SHARE` set.
fn shared_cq() -> Option<SharedCq> {
    thread_local! {
        static GROUP: SharedCq = SharedCq::new();
    }
    std::env::var_os("VALKEY_RDMA_TEST_SHARE").map(|_| GROUP.with(SharedCq::clone))
}

pub(crate) async fn listen() -> Box<dyn DeviceListener> {
    device::listen(device(), any_port(), &options()).await.expect("listens")
}

pub(crate) async fn open(peer: SocketAddr) -> Peer {
    Peer::new(device::open(device(), peer, &options()).await.expect("a path"))
}

pub(crate) async fn accept(listener: &mut dyn DeviceListener) -> Peer {
    let request = bounded(poll_fn(|cx| listener.poll_request(cx))).await.expect("a request");
    Peer::new(request.accept(&options()).expect("an endpoint"))
}

/// A connected pair: the active side, the passive side.
pub(crate) async fn pair() -> (Peer, Peer) {
    let mut listener = listen().await;
    connect(listener.as_mut()).await
}

/// The same with options of their own, for the active side and the passive side.
pub(crate) async fn pair_with(active: &DeviceOptions, passive: &DeviceOptions) -> (Peer, Peer) {
    let mut listener = listen().await;
    let opened = device::open(device(), listener.local_addr(), active).await;
    let mut active = Peer::new(opened.expect("a path"));
    active.endpoint.establish().expect("asks");
    let request = bounded(poll_fn(|cx| listener.poll_request(cx))).await.expect("a request");
    let mut passive = Peer::new(request.accept(passive).expect("an endpoint"));
    passive.endpoint.establish().expect("accepts");
    assert_eq!(active.cm_event().await, CmEvent::Established);
    assert_eq!(passive.cm_event().await, CmEvent::Established);
    (active, passive)
}

/// Connects to a listener of ours.
pub(crate) async fn connect(listener: &mut dyn DeviceListener) -> (Peer, Peer) {
    let mut active = open(listener.local_addr()).await;
    active.endpoint.establish().expect("asks");
    let mut passive = accept(listener).await;
    passive.endpoint.establish().expect("accepts");
    assert_eq!(active.cm_event().await, CmEvent::Established);
    assert_eq!(passive.cm_event().await, CmEvent::Established);
    (active, passive)
}

/// Fails the test where it would hang otherwise.
pub(crate) async fn bounded<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), work).await.expect("done within the deadline")
}

pub(crate) struct Peer {
    pub(crate) endpoint: Box<dyn DeviceConnection>,
    /// The other side may write here.
    pub(crate) window: Region,
    /// Receives land here, one slot of [`MESSAGE`] bytes each.
    pub(crate) slots: Region,
    /// Sends are taken from here.
    pub(crate) staging: Region,
    completions: VecDeque<Completion>,
}

impl Peer {
    /// Registers memory and posts receives 0 to [`RECEIVES`], slot by slot.
    pub(crate) fn new(mut endpoint: Box<dyn DeviceConnection>) -> Self {
        let window = endpoint.register(WINDOW, Access::RemoteWrite).expect("memory");
        let slots = endpoint.register(64 * MESSAGE, Access::Local).expect("memory");
        let staging = endpoint.register(WINDOW, Access::Local).expect("memory");
        let mut peer = Self { endpoint, window, slots, staging, completions: VecDeque::new() };
        peer.post_receives(0..RECEIVES);
        peer
    }

    pub(crate) fn post_receives(&mut self, slots: std::ops::Range<u32>) {
        let region = self.slots.id;
        let batch = slots.map(|slot| ReceiveRequest {
            wr_id: WrId::receive(slot),
            local: Slice { region, offset: slot * MESSAGE, len: MESSAGE },
        });
        self.endpoint.post_receives(&batch.collect::<Vec<_>>()).expect("posts receives");
    }

    /// Puts bytes into staging.
    pub(crate) fn stage(&mut self, offset: u32, bytes: &[u8]) {
        let start = offset as usize;
        self.endpoint.write_local(self.staging.id, start..start + bytes.len(), &mut |room| {
            room.copy_from_slice(bytes)
        });
    }

    /// A request for staged bytes.
    pub(crate) fn request(&self, sequence: u64, offset: u32, len: u32, op: SendOp) -> SendRequest {
        let local = Slice { region: self.staging.id, offset, len };
        SendRequest { wr_id: WrId::send(sequence), local, op, signalled: true }
    }

    pub(crate) fn post(&mut self, chain: &[SendRequest]) {
        self.endpoint.post_sends(chain).expect("posts sends");
    }

    /// Stages and sends a message.
    pub(crate) fn send(&mut self, sequence: u64, message: &[u8]) {
        self.stage(0, message);
        self.post(&[self.request(sequence, 0, message.len() as u32, SendOp::Send)]);
    }

    /// Bytes of the own window, as they are now.
    pub(crate) fn read_window(&self, range: std::ops::Range<usize>) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(range.len());
        self.endpoint.read_local(self.window.id, range, &mut bytes);
        bytes
    }

    /// The bytes of a receive slot, as they are now.
    pub(crate) fn read_slot(&self, slot: u32) -> Vec<u8> {
        let start = (slot * MESSAGE) as usize;
        let mut bytes = Vec::with_capacity(MESSAGE as usize);
        self.endpoint.read_local(self.slots.id, start..start + MESSAGE as usize, &mut bytes);
        bytes
    }

    /// Takes what has completed, without waiting.
    pub(crate) fn completed(&mut self) -> Vec<Completion> {
        let mut completions = self.completions.drain(..).collect();
        self.endpoint.poll(&mut completions, usize::MAX).expect("polls");
        completions
    }

    /// Waits for the next completion: arm, look, only then sleep.
    pub(crate) async fn completion(&mut self) -> Completion {
        loop {
            if let Some(completion) = self.completions.pop_front() {
                return completion;
            }
            self.endpoint.arm().expect("arms");
            let mut found = self.completed();
            if found.is_empty() {
                bounded(poll_fn(|cx| self.endpoint.poll_completion_event(cx))).await.expect("an event");
                found = self.completed();
            }
            self.completions.extend(found);
        }
    }

    /// Waits for the next completion, which is to be of this request.
    pub(crate) async fn outcome(&mut self, wr_id: WrId) -> Outcome {
        let completion = self.completion().await;
        assert_eq!(completion.wr_id, wr_id, "another request completed: {completion:?}");
        completion.outcome
    }

    /// Waits for the next completion of a send, passing over receives, which an error flushes at any time.
    pub(crate) async fn send_outcome(&mut self, wr_id: WrId) -> Outcome {
        loop {
            let completion = self.completion().await;
            if let WrKind::Send(_) = completion.wr_id.kind() {
                assert_eq!(completion.wr_id, wr_id, "another request completed: {completion:?}");
                return completion.outcome;
            }
        }
    }

    /// Whether no completion event comes, having given it every chance to.
    pub(crate) async fn is_quiet(&mut self) -> bool {
        for _ in 0..1000 {
            if poll_fn(|cx| Poll::Ready(self.endpoint.poll_completion_event(cx).is_ready())).await {
                return false;
            }
            tokio::task::yield_now().await;
        }
        true
    }

    pub(crate) async fn cm_event(&mut self) -> CmEvent {
        bounded(poll_fn(|cx| self.endpoint.poll_cm_event(cx))).await.expect("an event")
    }
}
