//! The passive end's socket: listening, and reading who asks.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpSocket, UnixListener};
use tokio::task::JoinSet;

use super::frame::{Frame, HEADER};
use super::session::{Phase, SocketLink};
use super::{Socket, SocketFile, claim, driver, failed, socket_path};
use crate::emulated::directory::{DYNAMIC_PORTS, next_port};
use crate::emulated::queue_pair::{QueuePair, Terms};
use crate::error::{TransportError, descriptor_limit};

/// A listening socket, and the sockets accepted from it that have not said what they want.
#[derive(Debug)]
pub(in crate::emulated) struct SocketListener {
    listening: Listening,
    /// Of a Unix socket: its name, for as long as it listens.
    _file: Option<SocketFile>,
    addr: SocketAddr,
    greetings: JoinSet<Option<Greeting>>,
    /// How many there may be at once.
    most_greetings: usize,
}

#[derive(Debug)]
enum Listening {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// A peer that asks to connect. Dropping it rejects the request.
#[derive(Debug)]
pub(in crate::emulated) struct SocketRequest {
    /// `None` once a connection has taken over.
    link: Option<SocketLink>,
    pub(in crate::emulated) from: SocketAddr,
    pub(in crate::emulated) to: SocketAddr,
}

impl SocketRequest {
    /// Takes the link over, with `side` for the passive end: now the connection answers for the request.
    pub(in crate::emulated) fn take(mut self, side: QueuePair) -> SocketLink {
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
        if addr.is_ipv6() {
            // Whatever the machine's default: the connection manager's listeners take one family too.
            SockRef::from(&socket).set_only_v6(true)?;
        }
        // A port may be taken again while connections of its last listener linger.
        socket.set_reuseaddr(true)?;
        socket.bind(addr)?;
        let listener = socket.listen(BACKLOG)?;
        let addr = listener.local_addr()?;
        Ok(Self::new(Listening::Tcp(listener), None, addr))
    }

    /// Listens on the Unix socket in `directory` that stands for the address's port. The directory is made if it is
    /// not there.
    pub(in crate::emulated) fn unix(directory: &Path, addr: SocketAddr) -> io::Result<Self> {
        std::fs::create_dir_all(directory)?;
        // A free port is one that was not used lately: a client of its last owner finds no listener.
        let (tries, any) = if addr.port() == 0 { (DYNAMIC_PORTS, true) } else { (1, false) };
        for _ in 0..tries {
            let port = if any { next_port() } else { addr.port() };
            match claim(socket_path(directory, port)) {
                Ok((listener, file)) => {
                    let addr = SocketAddr::new(addr.ip(), port);
                    return Ok(Self::new(Listening::Unix(listener), Some(file), addr));
                }
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::AddrInUse.into())
    }

    fn new(listening: Listening, file: Option<SocketFile>, addr: SocketAddr) -> Self {
        // A part of what the process may open, so that strangers who say nothing leave room for those who do.
        let descriptors = descriptor_limit();
        let most_greetings = descriptors
            .and_then(|limit| usize::try_from(limit / 4).ok())
            .map_or(GREETINGS, |part| part.clamp(1, GREETINGS));
        Self { listening, _file: file, addr, greetings: JoinSet::new(), most_greetings }
    }

    pub(in crate::emulated) fn local_addr(&self) -> SocketAddr {
        self.addr
    }

    /// Waits for the next connect request. A socket that says something else, or nothing, is closed. `side` stands in
    /// for the passive end until it is made.
    ///
    /// # Errors
    /// [`TransportError::Descriptors`] and the like if a socket cannot be accepted now; those accepted are not lost.
    pub(in crate::emulated) fn poll_request(
        &mut self,
        cx: &mut Context<'_>,
        side: impl FnOnce() -> QueuePair,
    ) -> Poll<Result<SocketRequest, TransportError>> {
        loop {
            // These first: they hold descriptors, for want of which the next socket may have to wait.
            while let Poll::Ready(Some(greeting)) = self.greetings.poll_join_next(cx) {
                if let Ok(Some(greeting)) = greeting {
                    return Poll::Ready(Ok(greeting.request(side())));
                }
            }
            if self.greetings.len() >= self.most_greetings {
                return Poll::Pending;
            }
            match self.poll_accept(cx) {
                Poll::Ready(Ok(stranger)) => drop(self.greetings.spawn(stranger.greet())),
                // One that was gone before it was seen.
                Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(failed("accept", error))),
                Poll::Pending => return Poll::Pending,
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
            Ok(Frame::Connect { port, terms }) => {
                let from = from.unwrap_or(SocketAddr::new(to.ip(), port));
                Some(Greeting { socket, from, to, terms })
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
    terms: Terms,
}

impl Greeting {
    fn request(self, mut side: QueuePair) -> SocketRequest {
        side.agree(self.terms);
        let link = Some(driver::start(side, Phase::Requested, self.socket));
        SocketRequest { link, from: self.from, to: self.to }
    }
}

/// Connections the kernel keeps until they are accepted.
const BACKLOG: u32 = 1024;

/// Most sockets that are accepted and may still say what they want.
const GREETINGS: usize = 1024;

/// How long they may take. Between opening and asking, the active end registers its memory.
const GREETING: Duration = Duration::from_secs(30);
