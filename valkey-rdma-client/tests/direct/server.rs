//! A server with GET and SET over the stream, and BLOB.GET and BLOB.SET over direct transfers, on the emulated device and on TCP.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use valkey_rdma_client::transport::{
    Config, DeviceKind, Direct, DirectMemory, FeatureSet, Listener, RemoteRange, Stream, TransportError,
};
use valkey_rdma_resp::{Command, Parser, Room};

/// What it does with direct commands.
#[derive(Clone, Copy)]
pub(crate) enum Conduct {
    Fair,
    /// Replies this, and transfers nothing.
    Says(&'static str),
    /// Transfers nothing, and does not reply.
    Silent,
    /// Sends push messages without end, and does not reply.
    Floods,
    /// Says nothing on new connections.
    Deaf,
    /// Replies this long after the command has come, or the reply before.
    Slow(Duration),
    /// Replies this, and then writes to the memory all the same, when the test lets it.
    WritesAfter(&'static str),
    /// Uses a key that the client did not name.
    WrongKey,
    /// Transfers one half, and ends the connection.
    EndsHalfWay,
}

pub(crate) struct Shared {
    pub(crate) values: Mutex<HashMap<Vec<u8>, Bytes>>,
    pub(crate) conduct: Mutex<Conduct>,
    /// Connections so far.
    pub(crate) accepted: AtomicUsize,
    /// Direct commands so far.
    pub(crate) asked: AtomicUsize,
    /// Lets the writes begin that come after a reply.
    pub(crate) may_write: Notify,
    /// Those that have ended.
    pub(crate) wrote: AtomicUsize,
}

/// Dropped, it ends at once, and so do its connections.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) shared: Arc<Shared>,
    _tasks: JoinSet<()>,
}

impl Server {
    /// Offers direct transfers.
    pub(crate) async fn start() -> Self {
        Self::at("127.0.0.1:0".parse().expect("an address"), FeatureSet::DIRECT).await
    }

    pub(crate) async fn at(address: SocketAddr, offers: FeatureSet) -> Self {
        Self::with(address, Config::default().offers(offers)).await
    }

    pub(crate) async fn with(address: SocketAddr, config: Config) -> Self {
        let mut listener = loop {
            match Listener::bind(DeviceKind::Emulated, address, &config).await {
                Ok(listener) => break listener,
                // A server that was dropped has it still: its task ends some time later.
                Err(_) => tokio::task::yield_now().await,
            }
        };
        let (address, shared) = (listener.local_addr(), Shared::new());
        let mut tasks = JoinSet::new();
        let of_all = shared.clone();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok(stream) = listener.accept().await {
                of_all.accepted.fetch_add(1, Ordering::Relaxed);
                connections.spawn(serve(of_all.clone(), stream, Stream::direct));
            }
        });
        Self { address, shared, _tasks: tasks }
    }

    /// The same over TCP.
    pub(crate) async fn over_tcp() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let (address, shared) = (listener.local_addr().expect("bound"), Shared::new());
        let mut tasks = JoinSet::new();
        let of_all = shared.clone();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(of_all.clone(), stream, |_| None));
            }
        });
        Self { address, shared, _tasks: tasks }
    }

    pub(crate) fn url(&self) -> String {
        format!("emulated://{}?protocol=resp2", self.address)
    }

    pub(crate) fn set(&self, key: &str, value: Vec<u8>) {
        self.shared.values.lock().expect("no panic").insert(key.into(), value.into());
    }

    pub(crate) fn value(&self, key: &str) -> Option<Bytes> {
        self.shared.values.lock().expect("no panic").get(key.as_bytes()).cloned()
    }

    pub(crate) fn conduct(&self, conduct: Conduct) {
        *self.shared.conduct.lock().expect("no panic") = conduct;
    }

    pub(crate) fn accepted(&self) -> usize {
        self.shared.accepted.load(Ordering::Relaxed)
    }

    pub(crate) fn asked(&self) -> usize {
        self.shared.asked.load(Ordering::Relaxed)
    }
}

impl Shared {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            values: Mutex::default(),
            conduct: Mutex::new(Conduct::Fair),
            accepted: AtomicUsize::new(0),
            asked: AtomicUsize::new(0),
            may_write: Notify::new(),
            wrote: AtomicUsize::new(0),
        })
    }
}

async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    shared: Arc<Shared>,
    mut stream: S,
    direct: impl Fn(&S) -> Option<Direct>,
) {
    let mut parser = Parser::new(1 << 30);
    if matches!(shared.conduct(), Conduct::Deaf) {
        return std::future::pending().await;
    }
    loop {
        while let Some(command) = parser.next_command(true).expect("commands") {
            let direct = direct(&stream);
            while shared.floods(&command) {
                if stream.write_all(&b">1\r\n:1\r\n".repeat(10_000)).await.is_err() {
                    return;
                }
            }
            shared.write_later(&command, direct.as_ref());
            let Some(reply) = shared.answer(&command, direct.as_ref()).await else { return };
            if stream.write_all(&reply).await.is_err() {
                return;
            }
        }
        let read = match parser.room() {
            Room::Buffer(buffer) => stream.read_buf(buffer).await,
            Room::Argument(mut room) => stream.read_buf(&mut room).await,
        };
        if !matches!(read, Ok(1..)) {
            return;
        }
    }
}

impl Shared {
    fn conduct(&self) -> Conduct {
        *self.conduct.lock().expect("no panic")
    }

    fn floods(&self, command: &Command) -> bool {
        matches!(self.conduct(), Conduct::Floods) && command.name().starts_with(b"BLOB.")
    }

    /// Writes to the memory of a command when the test lets it, whatever was replied.
    fn write_later(self: &Arc<Self>, command: &Command, direct: Option<&Direct>) {
        if let (Conduct::WritesAfter(_), Some(direct)) = (self.conduct(), direct)
            && command.name().eq_ignore_ascii_case(b"BLOB.GET")
        {
            let (shared, direct, to) = (self.clone(), direct.clone(), ranges(&command.args()[1..])[0]);
            tokio::spawn(async move {
                shared.may_write.notified().await;
                // It fails where the client has ended the connection.
                drop(direct.write(to, vec![0xbd; to.len as usize]).await);
                shared.wrote.fetch_add(1, Ordering::Relaxed);
            });
        }
    }

    /// `None`: the connection ends.
    async fn answer(&self, command: &Command, direct: Option<&Direct>) -> Option<Vec<u8>> {
        let args = command.args();
        let name = command.name().to_ascii_uppercase();
        if let (Some(direct), true) = (direct, name.starts_with(b"BLOB.")) {
            self.asked.fetch_add(1, Ordering::Relaxed);
            return self.transfer(&name, args, direct).await;
        }
        Some(match (&name[..], args) {
            (b"HELLO", _) => b"%1\r\n$5\r\nproto\r\n:3\r\n".to_vec(),
            (b"CLIENT", _) => b"+OK\r\n".to_vec(),
            (b"PING", [text]) => bulk(text),
            (b"PING", []) => b"+PONG\r\n".to_vec(),
            (b"GET", [key]) => match self.values.lock().expect("no panic").get(&key[..]) {
                Some(value) => bulk(value),
                None => b"$-1\r\n".to_vec(),
            },
            (b"SET", [key, value]) => {
                let (key, value) = (key.to_vec(), Bytes::copy_from_slice(value));
                self.values.lock().expect("no panic").insert(key, value);
                b"+OK\r\n".to_vec()
            }
            _ => b"-ERR unknown command\r\n".to_vec(),
        })
    }

    async fn transfer(&self, name: &[u8], args: &[Bytes], direct: &Direct) -> Option<Vec<u8>> {
        let conduct = self.conduct();
        match conduct {
            Conduct::Says(reply) | Conduct::WritesAfter(reply) => return Some(reply.as_bytes().to_vec()),
            Conduct::Slow(time) => tokio::time::sleep(time).await,
            Conduct::Silent => return std::future::pending().await,
            _ => {}
        }
        let (numbers, key) = (if name == b"BLOB.SET" { 2 } else { 1 }, &args[0]);
        let mut ranges = ranges(&args[numbers..]);
        if let Conduct::WrongKey = conduct {
            ranges.iter_mut().for_each(|range| range.rkey ^= 0x5a5a);
        }
        let is_half = matches!(conduct, Conduct::EndsHalfWay);
        let done = match name {
            b"BLOB.GET" => self.give(key, &ranges, is_half, direct).await,
            _ => self.take(key, number(&args[1]) as usize, &ranges, is_half, direct).await,
        };
        // The device has ended the connection.
        done.ok().filter(|_| !is_half)
    }

    async fn give(
        &self,
        key: &[u8],
        ranges: &[RemoteRange],
        is_half: bool,
        direct: &Direct,
    ) -> Result<Vec<u8>, TransportError> {
        let Some(value) = self.values.lock().expect("no panic").get(key).cloned() else {
            return Ok(b"$-1\r\n".to_vec());
        };
        if value.len() > ranges.iter().map(|range| range.len as usize).sum() {
            return Ok(b"-ERR the value does not fit\r\n".to_vec());
        }
        let mut rest = value.slice(..if is_half { value.len() / 2 } else { value.len() });
        for range in ranges {
            let piece = rest.split_to(rest.len().min(range.len as usize));
            direct.write(*range, piece).await?;
        }
        Ok(format!("*2\r\n:{}\r\n:7\r\n", value.len()).into_bytes())
    }

    async fn take(
        &self,
        key: &[u8],
        total: usize,
        ranges: &[RemoteRange],
        is_half: bool,
        direct: &Direct,
    ) -> Result<Vec<u8>, TransportError> {
        let memory = DirectMemory::allocate(total).expect("a length");
        let mut value = Vec::with_capacity(total);
        for range in &ranges[..if is_half { ranges.len() / 2 } else { ranges.len() }] {
            let into = memory.take(value.len()..value.len() + range.len as usize).expect("free");
            value.extend_from_slice(&direct.read(*range, into).await?);
        }
        if !is_half {
            self.values.lock().expect("no panic").insert(key.to_vec(), value.into());
        }
        Ok(b"+OK\r\n".to_vec())
    }
}

fn ranges(args: &[Bytes]) -> Vec<RemoteRange> {
    let range = |args: &[Bytes]| RemoteRange {
        rkey: number(&args[0]) as u32,
        addr: number(&args[1]),
        len: number(&args[2]) as u32,
    };
    args.chunks(3).map(range).collect()
}

fn number(text: &[u8]) -> u64 {
    std::str::from_utf8(text).expect("digits").parse().expect("a number")
}

fn bulk(text: &[u8]) -> Vec<u8> {
    [format!("${}\r\n", text.len()).as_bytes(), text, b"\r\n"].concat()
}
