//! The passive end's socket: listening, and reading who asks.

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpSocket, UnixListener};
use tokio::task::JoinSet;

use super::frame::{Frame, HEADER};
use super::link::SocketLink;
use super::{Socket, socket_path};
use crate::emulated::side::Side;

/// A listening socket, and the sockets accepted from it that have not said what they want.
#[derive(Debug)]
pub(in crate::emulated) struct SocketListener {
    listening: Listening,
    /// Of a Unix socket: its name, for as long as it listens.
    _file: Option<SocketFile>,
    addr: SocketAddr,
    greetings: JoinSet<Option<Greeting>>,
}

#[derive(Debug)]
enum Listening {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// A peer that asks to connect. Dropping it rejects the request.
#[derive(Debug)]
pub(in crate::emulated) struct SocketRequest {
    /// `None` once an endpoint has taken over.
    link: Option<SocketLink>,
    pub(in crate::emulated) from: SocketAddr,
    pub(in crate::emulated) to: SocketAddr,
}

impl SocketRequest {
    /// Takes the link over, with `side` for the passive end: now the endpoint answers for the request.
    pub(in crate::emulated) fn take(mut self, side: Side) -> SocketLink {
        let link = self.link.take().expect("taken only here, by value");
        link.replace_side(side);
        link
    }
}

impl Drop for SocketRequest {
    fn drop(&mut self) {
        if let Some(link) = &self.link {
            link.ring(|session| session.disconnect());
        }
    }
}

impl SocketListener {
    /// Listens on a TCP port; 0 takes a free one.
    pub(in crate::emulated) fn tcp(addr: SocketAddr) -> io::Result<Self> {
        let socket = if addr.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        // A port may be taken again while connections of its last listener linger.
        socket.set_reuseaddr(true)?;
        socket.bind(addr)?;
        let listener = socket.listen(BACKLOG)?;
        let addr = listener.local_addr()?;
        Ok(Self { listening: Listening::Tcp(listener), _file: None, addr, greetings: JoinSet::new() })
    }

    /// Listens on the Unix socket in `directory` that stands for the address's port. The directory is made if it is
    /// not there.
    pub(in crate::emulated) fn unix(directory: &Path, addr: SocketAddr) -> io::Result<Self> {
        std::fs::create_dir_all(directory)?;
        let ports = if addr.port() == 0 { 49_152..=u16::MAX } else { addr.port()..=addr.port() };
        for port in ports {
            let path = socket_path(directory, port);
            match claim(&path) {
                Ok(listener) => {
                    let (listening, file) = (Listening::Unix(listener), Some(SocketFile::new(path)?));
                    let addr = SocketAddr::new(addr.ip(), port);
                    return Ok(Self { listening, _file: file, addr, greetings: JoinSet::new() });
                }
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::AddrInUse.into())
    }

    pub(in crate::emulated) fn local_addr(&self) -> SocketAddr {
        self.addr
    }

    /// Waits for the next connect request. A socket that says something else, or nothing, is closed. `side` stands in
    /// for the passive end until it is made.
    pub(in crate::emulated) fn poll_request(
        &mut self,
        cx: &mut Context<'_>,
        side: impl FnOnce() -> Side,
    ) -> Poll<io::Result<SocketRequest>> {
        loop {
            while self.greetings.len() < GREETINGS {
                match self.poll_accept(cx) {
                    Poll::Ready(Ok(stranger)) => drop(self.greetings.spawn(stranger.greet())),
                    // One that was gone before it was seen.
                    Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Pending => break,
                }
            }
            match self.greetings.poll_join_next(cx) {
                Poll::Ready(Some(Ok(Some(greeting)))) => return Poll::Ready(Ok(greeting.request(side()))),
                // One that asked for nothing: there is room for another.
                Poll::Ready(Some(_)) => {}
                Poll::Ready(None) | Poll::Pending => return Poll::Pending,
            }
        }
    }

    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Stranger>> {
        let addr = self.addr;
        let accepted = match &mut self.listening {
            Listening::Tcp(listener) => listener.poll_accept(cx)?.map(|(socket, from)| {
                socket.set_nodelay(true)?;
                let to = if addr.ip().is_unspecified() { socket.local_addr()? } else { addr };
                Ok(Stranger { socket: Box::new(socket), from: Some(from), to })
            }),
            Listening::Unix(listener) => listener
                .poll_accept(cx)?
                .map(|(socket, _)| Ok(Stranger { socket: Box::new(socket), from: None, to: addr })),
        };
        // A socket that was reset already is one that is gone.
        accepted.map_err(|error: io::Error| match error.kind() {
            io::ErrorKind::InvalidInput | io::ErrorKind::NotConnected => {
                io::ErrorKind::ConnectionAborted.into()
            }
            _ => error,
        })
    }
}

/// A socket that has not said what it wants.
#[derive(Debug)]
struct Stranger {
    socket: Box<dyn Socket>,
    /// Over TCP.
    from: Option<SocketAddr>,
    to: SocketAddr,
}

impl Stranger {
    /// Reads what it wants. `None`: nothing that concerns us.
    async fn greet(mut self) -> Option<Greeting> {
        let mut header = [0; HEADER];
        tokio::time::timeout(GREETING, self.socket.read_exact(&mut header)).await.ok()?.ok()?;
        let Stranger { socket, from, to } = self;
        match Frame::decode(&header) {
            Ok(Frame::Connect { port, rnr_retry_count }) => {
                let from = from.unwrap_or(SocketAddr::new(to.ip(), port));
                Some(Greeting { socket, from, to, rnr_retry_count })
            }
            _ => {
                tracing::warn!(?from, %to, "a connection that is none of an emulated device was closed");
                None
            }
        }
    }
}

/// A socket on which a connect request came.
#[derive(Debug)]
struct Greeting {
    socket: Box<dyn Socket>,
    from: SocketAddr,
    to: SocketAddr,
    rnr_retry_count: u8,
}

impl Greeting {
    fn request(self, mut side: Side) -> SocketRequest {
        side.sends.rnr_retry_count = self.rnr_retry_count;
        let link = Some(SocketLink::passive(side, self.socket));
        SocketRequest { link, from: self.from, to: self.to }
    }
}

/// Listens on a Unix socket, in place of one that a process left behind.
///
/// The socket listens before it gets its name, so that a name that refuses connections is one left behind.
fn claim(path: &Path) -> io::Result<UnixListener> {
    static CLAIMS: AtomicU32 = AtomicU32::new(0);
    let nonce = format!(".{}-{}", std::process::id(), CLAIMS.fetch_add(1, Ordering::Relaxed));
    let nameless = path.with_file_name(nonce);
    let listener = UnixListener::bind(&nameless)?;
    let named = match std::fs::hard_link(&nameless, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            discard_dead(path).and_then(|()| std::fs::hard_link(&nameless, path))
        }
        outcome => outcome,
    };
    std::fs::remove_file(&nameless)?;
    match named {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(io::ErrorKind::AddrInUse.into()),
        outcome => outcome.map(|()| listener),
    }
}

/// Takes a name away on which nobody listens any more.
fn discard_dead(path: &Path) -> io::Result<()> {
    let found = identity(path)?;
    match std::os::unix::net::UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
        _ => return Err(io::ErrorKind::AddrInUse.into()),
    }
    // Somebody else may have found it dead too, and be faster: then it is theirs that would go.
    if identity(path)? == found { std::fs::remove_file(path) } else { Err(io::ErrorKind::AddrInUse.into()) }
}

/// A socket's name in the file system, which is taken away with it.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    /// Device and inode, by which another listener's socket of the same name is told from ours.
    identity: (u64, u64),
}

impl SocketFile {
    fn new(path: PathBuf) -> io::Result<Self> {
        let identity = identity(&path)?;
        Ok(Self { path, identity })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|identity| identity == self.identity)
            && let Err(error) = std::fs::remove_file(&self.path)
        {
            tracing::warn!(path = %self.path.display(), %error, "a socket is left behind");
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()))
}

/// Connections the kernel keeps until they are accepted.
const BACKLOG: u32 = 1024;

/// Sockets that are accepted and may still say what they want.
const GREETINGS: usize = 1024;

/// How long they may take. Between opening and asking, the active end registers its memory.
const GREETING: Duration = Duration::from_secs(30);
