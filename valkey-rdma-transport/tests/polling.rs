//! The ways to wait for a device. On the emulated device, where a completion can be made to come at any moment.

#![cfg(feature = "emulated")]

use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use stream_pair::{bounded, pair, polling_modes};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use valkey_rdma_proto::wire::{ControlMessage, MESSAGE_LEN, XferMemory};
use valkey_rdma_proto::work::{Completion, ReceiveRequest, Region, SendOp, SendRequest, Slice, WrId};
use valkey_rdma_transport::device::{
    self, Access, CmEvent, DeviceConnection, DeviceLayer, DeviceOptions, Role,
};
use valkey_rdma_transport::{Config, DeviceCounters, DeviceKind, Polling, Stream, TransportError};

mod stream_pair;

/// The far end of a connection, in the test's own hands.
struct Writer {
    endpoint: Box<dyn DeviceConnection>,
    memory: Region,
    window: XferMemory,
    written: u64,
}

impl Writer {
    /// Announces one more byte. It arrives before this returns.
    fn write_byte(&mut self) {
        self.written += 1;
        let local = Slice { region: self.memory.id, offset: 0, len: 1 };
        let op =
            SendOp::WriteWithImm { addr: self.window.addr + self.written - 1, rkey: self.window.key, imm: 1 };
        let request = SendRequest { wr_id: WrId::send(self.written), local, op, signalled: false };
        self.endpoint.post_sends(&[request]).expect("there is room in the send queue");
    }
}

/// Calls of the driver into its device so far, and before which of them a byte is to arrive.
#[derive(Default)]
struct Schedule {
    calls: u64,
    byte_before: Option<Moment>,
    writer: Option<Writer>,
}

/// A moment between two calls.
#[derive(Clone, Copy, Debug)]
enum Moment {
    /// Before the call with this number.
    Call(u64),
    /// Before the next time the queue is armed, or so many calls after that.
    Arming(u64),
}

/// An endpoint that counts the calls that read it, and lets a byte arrive just before one of them.
struct Timed {
    endpoint: Box<dyn DeviceConnection>,
    schedule: Arc<Mutex<Schedule>>,
}

impl Timed {
    fn call(&self, arming: bool) {
        let mut schedule = self.schedule.lock().expect("no panic");
        let now = schedule.calls;
        schedule.calls += 1;
        if let (Some(Moment::Arming(later)), true) = (schedule.byte_before, arming) {
            schedule.byte_before = Some(Moment::Call(now + later));
        }
        if schedule
            .byte_before
            .take_if(|moment| matches!(moment, Moment::Call(call) if *call == now))
            .is_some()
        {
            schedule.writer.as_mut().expect("a writer").write_byte();
        }
    }
}

impl DeviceLayer for Timed {
    fn below(&self) -> &dyn DeviceConnection {
        &*self.endpoint
    }

    fn below_mut(&mut self) -> &mut dyn DeviceConnection {
        &mut *self.endpoint
    }

    fn poll(&mut self, out: &mut Vec<Completion>, limit: usize) -> Result<(), TransportError> {
        self.call(false);
        self.endpoint.poll(out, limit)
    }

    fn arm(&mut self) -> Result<(), TransportError> {
        self.call(true);
        self.endpoint.arm()
    }

    fn poll_completion_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), TransportError>> {
        self.call(false);
        self.endpoint.poll_completion_event(cx)
    }

    fn poll_cm_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<CmEvent, TransportError>> {
        self.call(false);
        self.endpoint.poll_cm_event(cx)
    }
}

/// A stream over a timed endpoint, with the other end of its connection in the schedule.
async fn timed(config: &Config) -> (Stream, Arc<Mutex<Schedule>>) {
    let options = DeviceOptions { send_depth: 4096, receive_depth: 4096, ..DeviceOptions::default() };
    let any = "127.0.0.1:0".parse().expect("an address");
    let mut listener = device::listen(DeviceKind::Emulated, any, &options).await.expect("listens");
    let mut active =
        device::open(DeviceKind::Emulated, listener.local_addr(), &options).await.expect("opens");
    let memory = active.register(64, Access::Local).expect("memory");
    let slots = active.register(16 * MESSAGE_LEN as u32, Access::Local).expect("memory");
    let receives: Vec<_> = (0..16)
        .map(|slot| ReceiveRequest {
            wr_id: WrId::receive(slot),
            local: Slice { region: slots.id, offset: slot * MESSAGE_LEN as u32, len: MESSAGE_LEN as u32 },
        })
        .collect();
    active.post_receives(&receives).expect("posts");
    active.establish().expect("asks");

    let request = poll_fn(|cx| listener.poll_request(cx)).await.expect("a request");
    let schedule = Arc::<Mutex<Schedule>>::default();
    let endpoint = request.accept(&options).expect("an endpoint");
    let endpoint = Timed { endpoint, schedule: schedule.clone() };
    let stream = Stream::over(Box::new(endpoint), Role::Server, config).expect("a stream");

    // Its Register tells where to write; ours stops its handshake deadline.
    let mut completions = Vec::new();
    while completions.is_empty() {
        active.poll(&mut completions, 1).expect("polls");
        tokio::task::yield_now().await;
    }
    let mut message = Vec::with_capacity(MESSAGE_LEN);
    active.read_local(slots.id, 0..MESSAGE_LEN, &mut message);
    let Ok(ControlMessage::RegisterXferMemory(window)) = ControlMessage::decode(&message) else {
        panic!("a Register is the first message: {message:?}")
    };
    let ours = XferMemory { addr: slots.addr, len: slots.len, key: slots.rkey };
    let ours = ControlMessage::RegisterXferMemory(ours).encode();
    active.write_local(memory.id, 0..MESSAGE_LEN, &mut |room| room.copy_from_slice(&ours));
    let local = Slice { region: memory.id, offset: 0, len: MESSAGE_LEN as u32 };
    let request = SendRequest { wr_id: WrId::send(0), local, op: SendOp::Send, signalled: false };
    active.post_sends(&[request]).expect("posts");
    let writer = Writer { endpoint: active, memory, window, written: 0 };
    schedule.lock().expect("no panic").writer = Some(writer);
    (stream, schedule)
}

/// Lets everything else run until the driver has gone to sleep.
async fn settle(schedule: &Mutex<Schedule>) {
    loop {
        let before = schedule.lock().expect("no panic").calls;
        for _ in 0..8 {
            tokio::task::yield_now().await;
        }
        if schedule.lock().expect("no panic").calls == before {
            return;
        }
    }
}

/// A byte wakes the driver, and another one arrives before the n-th call that driver and reader then make, or the n-th
/// from the next arming on: between look and arm, between arm and look, between event and look, wherever. Nothing else
/// would wake them: no keepalive, no timer. The clock is virtual, so if the second byte's wake-up is lost, the deadline is
/// there at once.
async fn noticed_whenever_it_comes<S>(driven_by: impl Fn(Stream) -> S)
where
    S: AsyncRead + Unpin + Send + 'static,
{
    /// Event, look, connection manager; arm; event and look again; then the reader's own look.
    const CALLS: u64 = 7;
    /// Arm; event, look.
    const ARMING: u64 = 3;
    // Busy comes last: it keeps the virtual clock from going on.
    for (mode, config) in polling_modes() {
        let (stream, schedule) = timed(&config.keepalive(None)).await;
        let monitor = stream.monitor();
        let mut stream = driven_by(stream);
        let (read, mut reads) = tokio::sync::watch::channel(0);
        let reader = tokio::spawn(async move {
            while stream.read_u8().await.is_ok() {
                read.send_modify(|count| *count += 1);
            }
        });
        // Adaptive polling looks on for longer and longer, until it is 50 ms after each byte.
        let rounds = if mode == Polling::Adaptive { 3 } else { 50 };
        for round in 0..rounds {
            let calls = (0..CALLS).map(Moment::Call);
            let arming = (0..if mode == Polling::Busy { 0 } else { ARMING }).map(Moment::Arming);
            for moment in calls.chain(arming) {
                if mode != Polling::Busy {
                    settle(&schedule).await;
                }
                let expected = {
                    let mut schedule = schedule.lock().expect("no panic");
                    schedule.byte_before = Some(match moment {
                        Moment::Call(later) => Moment::Call(schedule.calls + later),
                        Moment::Arming(later) => Moment::Arming(later),
                    });
                    let writer = schedule.writer.as_mut().expect("a writer");
                    writer.write_byte();
                    writer.written + 1
                };
                let both = reads.wait_for(|count| *count == expected);
                let noticed = tokio::time::timeout(Duration::from_secs(60), both).await;
                let place = || format!("{mode} polling, round {round}, before {moment:?}");
                noticed.unwrap_or_else(|_| panic!("{}", place())).expect("the reader lives");
            }
        }
        let device = monitor.stats().device;
        let moments = if mode == Polling::Busy { CALLS } else { CALLS + ARMING };
        assert_eq!(device.copied_out, 2 * rounds * moments, "{mode}: {device:?}");
        assert_eq!(device.spins > 0, mode != Polling::Event, "{mode}: {device:?}");
        reader.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn a_completion_is_noticed_whenever_it_comes() {
    noticed_whenever_it_comes(|stream| stream).await;
}

#[tokio::test(start_paused = true)]
async fn so_it_is_by_a_task_that_drives_its_stream() {
    noticed_whenever_it_comes(Stream::driven).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_wake_up_is_lost_in_many_round_trips() {
    const ROUND_TRIPS: u64 = 200;
    for (mode, config) in polling_modes() {
        let (mut client, mut server) = pair(&config, &config).await;
        let answering = tokio::spawn(async move {
            for _ in 0..ROUND_TRIPS {
                let byte = server.read_u8().await.expect("reads");
                server.write_u8(byte.wrapping_add(1)).await.expect("writes");
            }
            server
        });
        for n in 0..ROUND_TRIPS {
            client.write_u8(n as u8).await.expect("writes");
            assert_eq!(bounded(client.read_u8()).await.expect("reads"), (n as u8).wrapping_add(1), "{mode}");
        }
        let server = answering.await.expect("answers");
        for monitor in [client.monitor(), server.monitor()] {
            // On a busy machine, each poll until now may have found something. An idle connection finds nothing.
            let found_nothing = |device: DeviceCounters| match mode {
                Polling::Busy => device.spins > 0,
                _ => device.sleeps > 0,
            };
            bounded(async {
                while !found_nothing(monitor.stats().device) {
                    tokio::task::yield_now().await;
                }
            })
            .await;
            let stats = monitor.stats();
            assert_eq!(stats.protocol.bytes_sent, ROUND_TRIPS);
            assert_eq!(stats.protocol.bytes_received, ROUND_TRIPS);
            let device = stats.device;
            if mode == Polling::Busy {
                assert_eq!((device.arms, device.events, device.sleeps), (0, 0, 0), "{device:?}");
            } else {
                assert!(device.events <= device.arms, "{mode}: {device:?}");
            }
            if mode == Polling::Event {
                assert_eq!(device.spins, 0, "{device:?}");
            }
        }
    }
}

/// On one thread, so that whatever the connections leave over is all there is.
#[tokio::test]
async fn busy_connections_let_other_tasks_and_timers_run() {
    let [.., (_, busy)] = polling_modes();
    let (client, server) = pair(&busy, &busy).await;
    let counting = tokio::spawn(async {
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
    });
    let timer = tokio::spawn(tokio::time::sleep(Duration::from_millis(20)));
    let (mut a, mut b) = tokio::net::UnixStream::pair().expect("sockets");
    let socket = tokio::spawn(async move {
        a.write_all(b"x").await.expect("writes");
        a
    });
    assert_eq!(bounded(b.read_u8()).await.expect("reads"), b'x');
    bounded(counting).await.expect("counts");
    bounded(timer).await.expect("sleeps");
    bounded(socket).await.expect("writes");
    let spins = client.stats().device.spins;
    bounded(async {
        while client.stats().device.spins == spins {
            tokio::task::yield_now().await;
        }
    })
    .await;
    drop(server);
}

#[tokio::test]
async fn a_connection_tells_how_it_waits() {
    let config = Config::default();
    let (plain, _server) = pair(&config, &config).await;
    assert_eq!((plain.info().polling, plain.info().adaptive_off), (Polling::Event, None));
    let config = config.polling(Polling::Adaptive);
    let (adaptive, _server) = pair(&config, &Config::default()).await;
    let info = adaptive.info();
    assert_eq!(info.polling, Polling::Event);
    assert_eq!(info.adaptive_off, Some("adaptive polling is off: the device is software"));
    let (forced, _server) = pair(&config.danger_spin_anyway(true), &Config::default()).await;
    assert_eq!((forced.info().polling, forced.info().adaptive_off), (Polling::Adaptive, None));
}
