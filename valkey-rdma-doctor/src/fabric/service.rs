//! The end that is connected to: answers checks until it is dropped.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use nix::errno::Errno;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{self, error::SendError};
use tokio::time::{Instant, sleep_until, timeout};
use valkey_rdma_transport::raw::{self, DeviceOptions};

use super::compare;
use super::control::Control;
use super::drive::drive;
use super::error::FabricError;
use super::lane::Lane;
use super::message::{Message, VERSION};
use super::options::Options;
use super::respond::respond;
use super::run::Operation;
use super::session::Session;

/// How long the leading end may think between two steps.
const BETWEEN_STEPS: Duration = Duration::from_secs(60);
/// Sessions at once.
const SESSIONS: usize = 64;
/// Queue pairs of one session.
const QUEUE_PAIRS: u32 = 1024;

/// Answers [`check`](super::check)s.
pub struct Service {
    listener: TcpListener,
    addr: SocketAddr,
    options: Options,
    corrupt: bool,
    /// Where nodes of a mesh that join go.
    joins: Option<mpsc::UnboundedSender<(usize, usize, Control)>>,
}

/// A session that has ended.
#[derive(Debug)]
pub struct Ended {
    /// The peer that led it.
    pub peer: SocketAddr,
    /// The steps it took, or the error that ended it.
    pub outcome: Result<u64, FabricError>,
}

type Serving<'a> = Pin<Box<dyn Future<Output = Ended> + 'a>>;

impl Service {
    /// Listens on an address. Of the options, the device counts; everything else is up to the end that leads.
    ///
    /// # Errors
    /// [`FabricError::Listen`] if the address is taken or not this machine's, [`FabricError::Device`] if the device cannot be
    /// used there.
    pub async fn bind(addr: SocketAddr, options: &Options) -> Result<Self, FabricError> {
        let listen = |source| FabricError::Listen { addr, source };
        let listener = TcpListener::bind(addr).await.map_err(listen)?;
        let addr = listener.local_addr().map_err(listen)?;
        let service = Self { listener, addr, options: options.clone(), corrupt: false, joins: None };
        // An address without a device is found now, and not when the first peer comes.
        service.listen_on_device(addr).await?;
        Ok(service)
    }

    /// Turns a bit of everything that is written here, to see that the peer finds it.
    #[must_use]
    pub fn corrupt(mut self, corrupt: bool) -> Self {
        self.corrupt = corrupt;
        self
    }

    /// Passes nodes of a mesh that join to the receiver.
    pub(super) fn with_joins(mut self, joins: mpsc::UnboundedSender<(usize, usize, Control)>) -> Self {
        self.joins = Some(joins);
        self
    }

    /// The address it listens on, with the real port.
    pub fn local_addr(&self) -> SocketAddr {
        self.addr
    }

    /// Answers checks, and reports each that has ended. Returns only if no connection can be accepted any more.
    ///
    /// # Errors
    /// [`FabricError::Listen`].
    ///
    /// Cancel safety: dropping the future ends all sessions.
    pub async fn run(&self, report: &dyn Fn(&Ended)) -> Result<(), FabricError> {
        let mut sessions: FuturesUnordered<Serving<'_>> = FuturesUnordered::new();
        let mut from = Instant::now();
        loop {
            let accept = async move {
                sleep_until(from).await;
                self.listener.accept().await
            };
            tokio::select! {
                Some(ended) = sessions.next() => report(&ended),
                accepted = accept => match accepted {
                    Ok((stream, peer)) => {
                        let full = sessions.len() >= SESSIONS;
                        sessions.push(Box::pin(async move {
                            Ended { peer, outcome: self.serve(stream, peer, full).await }
                        }));
                    }
                    Err(source) => match rest_after(&source) {
                        Some(rest) => from = Instant::now() + rest,
                        None => return Err(FabricError::Listen { addr: self.addr, source }),
                    },
                },
            }
        }
    }

    /// Serves one connection to its end.
    async fn serve(&self, stream: TcpStream, peer: SocketAddr, full: bool) -> Result<u64, FabricError> {
        let mut control = Control::new(stream, peer, self.options.patience).map_err(FabricError::Tcp)?;
        match control.answer().await? {
            Message::Hello { doctor, device, queue_pairs, longest, patience_ms } => {
                let refusal = self.refusal(doctor, &device, queue_pairs, full);
                if let Some(reason) = refusal {
                    control.send(&Message::Refuse { reason: reason.clone() }).await?;
                    return Err(FabricError::Refused { peer, reason: format!("not served: {reason}") });
                }
                control.patience = Duration::from_millis(patience_ms.clamp(100, 600_000));
                self.lead(control, queue_pairs, longest.max(1)).await
            }
            Message::Join { node, nodes } => {
                let (control, reason) = match &self.joins {
                    None => (control, NOT_FIRST),
                    Some(joins) => match joins.send((node, nodes, control)) {
                        Ok(()) => return Ok(0),
                        Err(SendError((.., control))) => (control, LATE),
                    },
                };
                control.dismiss(reason).await;
                Err(FabricError::Refused { peer, reason: format!("not served: {reason}") })
            }
            other => Err(control.unexpected(&other)),
        }
    }

    /// Why a check is not served.
    fn refusal(&self, doctor: u32, device: &str, queue_pairs: u32, full: bool) -> Option<String> {
        let own = self.options.kind.to_string();
        if doctor != VERSION {
            Some(format!(
                "it speaks version {VERSION} and you speak {doctor}: use the same valkey-rdma-doctor on both"
            ))
        } else if device != own {
            Some(format!("it checks over `{own}` and you over `{device}`: give both the same --device"))
        } else if !(1..=QUEUE_PAIRS).contains(&queue_pairs) {
            Some(format!("{queue_pairs} queue pairs; from 1 to {QUEUE_PAIRS} are served"))
        } else if full {
            Some(format!("{SESSIONS} checks are in progress"))
        } else {
            None
        }
    }

    async fn listen_on_device(&self, addr: SocketAddr) -> Result<raw::Listener, FabricError> {
        // Of this side's own choice is only the device.
        let options = DeviceOptions { gid: None, ..self.options.device_options() };
        raw::Listener::bind(self.options.kind, any_port(addr), &options)
            .await
            .map_err(|source| FabricError::Device { during: format!("listening on {}", addr.ip()), source })
    }

    /// Sets a session up and follows its leader. Reports failures to the peer.
    async fn lead(&self, control: Control, queue_pairs: u32, longest: u32) -> Result<u64, FabricError> {
        let peer = control.peer();
        let mut session = Session { control, lanes: Vec::new(), tcp: Vec::new() };
        let outcome = async {
            self.set_up(&mut session, queue_pairs, longest).await?;
            self.follow(&mut session).await
        };
        let outcome = outcome.await;
        if let Err(error) = &outcome
            && !matches!(error, FabricError::Vanished { .. } | FabricError::Peer { .. })
        {
            // It may be gone as well.
            let _ = session.control.send(&Message::Failed { reason: error.to_string() }).await;
        }
        match outcome {
            // The peer closes the connection between two steps when it is done.
            Err(FabricError::Vanished { during, .. }) if during == IDLE => Ok(0),
            Err(FabricError::Vanished { during, .. }) => Err(FabricError::Vanished { peer, during }),
            other => other,
        }
    }

    async fn set_up(&self, session: &mut Session, queue_pairs: u32, longest: u32) -> Result<(), FabricError> {
        let local = session.control.local_addr().map_err(FabricError::Tcp)?;
        let mut listener = self.listen_on_device(local).await?;
        let tcp = TcpListener::bind(any_port(local)).await.map_err(FabricError::Tcp)?;
        let tcp_addr = tcp.local_addr().map_err(FabricError::Tcp)?;
        session.control.send(&Message::Welcome { rdma: listener.local_addr(), tcp: tcp_addr }).await?;

        for _ in 0..queue_pairs {
            let accept = async { Lane::establish(listener.incoming().await?, longest).await };
            session.add_lane(accept).await?;
        }
        session.control.now("exchanging keys");
        session.send_memory().await?;
        let (_, count) = session.take_memory().await?;
        for _ in 0..count.min(session.lanes.len()) {
            // They are made already, and wait to be accepted.
            let accepted = timeout(session.control.patience, tcp.accept()).await;
            let (stream, _) = accepted
                .map_err(|_| session.control.silent(session.control.patience))?
                .map_err(FabricError::Tcp)?;
            stream.set_nodelay(true).map_err(FabricError::Tcp)?;
            session.tcp.push(stream);
        }
        Ok(())
    }

    /// Does what the end that leads says.
    async fn follow(&self, session: &mut Session) -> Result<u64, FabricError> {
        let mut steps = 0;
        loop {
            session.control.now(IDLE);
            let message = match session.control.answer_within(BETWEEN_STEPS).await {
                Ok(message) => message,
                Err(FabricError::Vanished { .. }) => return Ok(steps),
                Err(error) => return Err(error),
            };
            match message {
                Message::Run { run, reverse } if run.size <= session.longest() && run.size > 0 => {
                    if run.operation == Operation::Tcp && session.tcp.is_empty() {
                        return Err(session.control.unexpected(&Message::Run { run, reverse }));
                    }
                    if reverse {
                        let figures = drive(session, run).await?;
                        session.control.send(&Message::Measured { figures }).await?;
                    } else {
                        respond(session, run).await?;
                    }
                }
                Message::Compare { lane, size, seed, reverse }
                    if lane < session.lanes.len() && size <= session.longest() && size > 0 =>
                {
                    if reverse {
                        let differences = compare::send(session, lane, size, seed).await?;
                        session.control.send(&Message::Compared { differences }).await?;
                    } else {
                        compare::receive(session, lane, size, seed, self.corrupt).await?;
                    }
                }
                other => return Err(session.control.unexpected(&other)),
            }
            steps += 1;
        }
    }
}

/// The same address with a port that the system chooses. A link-local one keeps its interface.
fn any_port(mut addr: SocketAddr) -> SocketAddr {
    addr.set_port(0);
    addr
}

/// Why a node has no part in a mesh that is being checked.
pub(super) const LATE: &str = "the mesh has begun without this node: --wait says how long it waits";
/// Why a node of a mesh cannot join here.
const NOT_FIRST: &str =
    "this is not the first node of a mesh: give all nodes the same list, in the same order";

/// What is in progress when nothing is.
const IDLE: &str = "nothing";

/// How long a listener rests that is short of descriptors or memory: the next accept would fail too.
const REST: Duration = Duration::from_millis(100);

/// How long to rest before the next accept, after one that failed; `None` if the listener is of no use any more.
fn rest_after(error: &io::Error) -> Option<Duration> {
    match Errno::from_raw(error.raw_os_error()?) {
        // Of one connection, which is gone.
        Errno::ECONNABORTED | Errno::ECONNRESET => Some(Duration::ZERO),
        Errno::EBADF | Errno::EINVAL | Errno::ENOTSOCK => None,
        // A shortage, or what the network or a firewall did to a connection: accept(2) has a list.
        _ => Some(REST),
    }
}

#[cfg(test)]
mod tests {
    use valkey_rdma_transport::DeviceKind;

    use super::*;
    use crate::fabric::leader::dial;

    #[tokio::test]
    async fn a_node_that_joins_when_the_mesh_has_begun_gets_the_reason() {
        let options = Options { kind: DeviceKind::Emulated, ..Options::default() };
        let (joins, of_the_mesh) = mpsc::unbounded_channel();
        drop(of_the_mesh);
        let service =
            Service::bind("127.0.0.1:0".parse().unwrap(), &options).await.unwrap().with_joins(joins);
        let joined = async {
            let mut control = dial(service.local_addr(), options.patience).await.unwrap();
            control.send(&Message::Join { node: 1, nodes: 2 }).await.unwrap();
            control.next().await.map(drop).unwrap_err().to_string()
        };
        tokio::select! {
            error = joined => assert!(error.contains(LATE), "{error}"),
            ended = service.run(&|_| {}) => panic!("{ended:?}"),
        }
    }

    #[test]
    fn a_failed_accept_ends_only_a_listener_that_is_of_no_use() {
        for (errno, rest) in [
            (Errno::EMFILE, Some(REST)),
            (Errno::ENFILE, Some(REST)),
            (Errno::ECONNABORTED, Some(Duration::ZERO)),
            (Errno::EHOSTUNREACH, Some(REST)),
            (Errno::EPERM, Some(REST)),
            (Errno::EBADF, None),
        ] {
            assert_eq!(rest_after(&errno.into()), rest, "{errno}");
        }
    }

    #[test]
    fn another_port_of_a_link_local_address_is_on_the_same_interface() {
        assert_eq!(any_port("[fe80::1%7]:7000".parse().unwrap()).to_string(), "[fe80::1%7]:0");
    }
}
