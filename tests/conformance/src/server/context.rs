//! What a case about a server has at hand.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use valkey_rdma_client::{Endpoint, Transport};
use valkey_rdma_transport::DeviceKind;

use crate::peer::{Finding, Peer, PeerOptions, Session, Transcript};

/// Where a server is: which device leads to it, and its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The device.
    pub device: DeviceKind,
    /// Its address.
    pub addr: SocketAddr,
}

impl Target {
    /// Reads a URL `rdma://host:port` or `emulated://host:port`, and looks the host up.
    ///
    /// # Errors
    /// A text for people, if it is no such URL or the host is unknown.
    pub async fn parse(url: &str) -> Result<Self, String> {
        let endpoint: Endpoint = url.parse().map_err(|error| format!("{url}: {error}"))?;
        let device = match endpoint.transport() {
            Transport::Rdma => DeviceKind::Verbs,
            Transport::Emulated => DeviceKind::Emulated,
            other => return Err(format!("{url}: {other} is not RDMA: use rdma:// or emulated://")),
        };
        if endpoint.password().is_some() || endpoint.database() != 0 {
            return Err(format!("{url}: the suite does not log in: test a server without password"));
        }
        let mut addrs = tokio::net::lookup_host((endpoint.host(), endpoint.port()))
            .await
            .map_err(|error| format!("{url}: {error}"))?;
        let addr = addrs.next().ok_or_else(|| format!("{url}: the host has no address"))?;
        Ok(Self { device, addr })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.device.scheme(), self.addr)
    }
}

/// A server under test, and the record of the case that runs.
pub struct Context {
    pub(super) target: Target,
    pub(super) patience: Duration,
    pub(super) transcript: Transcript,
    /// Another client, connected before the case: nothing that happens may harm it.
    pub(super) bystander: Option<Session>,
}

/// Length of the windows that cases offer unless they say otherwise: libvalkey's.
const WINDOW: u32 = 1 << 20;

impl Context {
    /// For a server at `target` that is waited for this long whenever something must come.
    pub fn new(target: Target, patience: Duration) -> Self {
        Self { target, patience, transcript: Transcript::default(), bystander: None }
    }

    pub(super) fn peer_options(&self) -> PeerOptions {
        PeerOptions { patience: self.patience, ..PeerOptions::default() }
    }

    /// A connected raw peer that has said nothing.
    pub(super) async fn peer(&mut self) -> Result<Peer, Finding> {
        Peer::connect(self.target.device, self.target.addr, &self.peer_options(), &self.transcript).await
    }

    /// A connected session that has said nothing.
    pub(super) async fn silent_session(&mut self) -> Result<Session, Finding> {
        Session::new(self.peer().await?, WINDOW)
    }

    /// A session that has exchanged windows.
    pub(super) async fn session(&mut self) -> Result<Session, Finding> {
        self.session_with_window(WINDOW).await
    }

    /// A session that offers a window of this length.
    pub(super) async fn session_with_window(&mut self, len: u32) -> Result<Session, Finding> {
        let mut session = Session::new(self.peer().await?, len)?;
        session.handshake().await?;
        Ok(session)
    }

    /// The server must end this connection. If it does not, the finding says whether it does when more data comes.
    pub(super) async fn ended_by_server(&mut self, mut session: Session) -> Result<(), Finding> {
        let Err(still_open) = session.peer.end().await else { return Ok(()) };
        let answer = session.write(&crate::peer::request(&[b"PING"])).await;
        let afterwards = match answer {
            Ok(()) => session.peer.end().await.map(drop),
            Err(_) => Ok(()),
        };
        let afterwards = match afterwards {
            Ok(()) => "it ended when more data came",
            Err(_) => "more data did not end it either",
        };
        Err(Finding::failed(format!("{still_open}; {afterwards}")))
    }

    /// Whether the server still serves: the bystander, and a client that comes now.
    pub(super) async fn unharmed(&mut self) -> Result<(), Finding> {
        if let Some(bystander) = &mut self.bystander
            && let Err(finding) = bystander.ping().await
        {
            self.bystander = None;
            return Err(Finding::failed(format!("another connection was harmed: {finding}")));
        }
        let mut newcomer = self.session().await.map_err(|finding| {
            Finding::failed(format!("the server takes no new connection afterwards: {finding}"))
        })?;
        newcomer.ping().await.map_err(|finding| {
            Finding::failed(format!("the server does not serve a new connection afterwards: {finding}"))
        })?;
        newcomer.peer.disconnect();
        Ok(())
    }
}
