//! What a case has to work with: the server under test, a bystander, and the transcript.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use redis_protocol::resp2::types::OwnedFrame;
use valkey_rdma_client::{Endpoint, Transport};
use valkey_rdma_program::{Login, shown};
use valkey_rdma_transport::{DeviceKind, address};

use crate::Case;
use crate::peer::{Finding, Peer, PeerOptions, Session, Transcript, expect_reply, request};

/// How a server is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The kind of device.
    pub kind: DeviceKind,
    /// The server's address.
    pub addr: SocketAddr,
    /// The device to use. `None`: the one the route leads to.
    pub device: Option<String>,
    /// Index into the device's table of GIDs, which chooses the address to connect from. `None`: the route decides.
    pub gid: Option<u32>,
    /// How to log in. `None`: the server asks for nothing.
    pub login: Option<Login>,
    /// The server requires TLS over RDMA. The suite speaks none: it tests how the two sides agree on it.
    pub tls: bool,
}

/// The URL options that apply to a raw peer. All others are about a client or a byte stream, which the suite has not.
const OPTIONS: [&str; 2] = ["device", "gid"];

impl Target {
    /// A server at `addr` without a password, with the device and the source address that the route leads to.
    pub fn new(kind: DeviceKind, addr: SocketAddr) -> Self {
        Self { kind, addr, device: None, gid: None, login: None, tls: false }
    }

    /// The cases that apply to the server.
    pub fn cases(&self) -> impl Iterator<Item = &'static Case<Context>> + use<> {
        let tls = self.tls;
        super::cases().filter(move |case| case.with_tls == tls)
    }

    /// Parses a URL `rdma://[[user]:password@]host:port` or `emulated://...`, with the options `device` and `gid`, and
    /// resolves the host. `login` is used if the URL has none. `rdmas://` and `emulateds://` are servers that require TLS.
    ///
    /// # Errors
    /// A text for people without the password, if the URL is malformed, has other options or a database, or if the host is
    /// unknown.
    pub async fn parse(url: &str, login: Option<Login>) -> Result<Self, String> {
        let parsed = url.parse::<Endpoint>();
        let endpoint = parsed.map_err(|error| format!("{}: {error}", shown(url)))?;
        let options = url.split_once('?').map_or("", |(_, options)| options).split('&');
        let url = &endpoint;
        let kind = match endpoint.transport() {
            Transport::Rdma => DeviceKind::Verbs,
            Transport::Emulated => DeviceKind::Emulated,
            other => return Err(format!("{url}: {other} is not RDMA: use rdma:// or emulated://")),
        };
        if endpoint.database() != 0 {
            return Err(format!("{url}: the suite works in database 0"));
        }
        let login = match endpoint.password() {
            Some(password) => Some(Login {
                user: endpoint.user().unwrap_or_default().to_owned(),
                password: password.to_owned(),
            }),
            None => login,
        };
        let mut names = options.filter_map(|option| option.split('=').next());
        if let Some(name) = names.find(|name| !name.is_empty() && !OPTIONS.contains(name)) {
            return Err(format!(
                "{url}: the suite cannot apply the option `{name}`: use `device` and `gid` only"
            ));
        }
        let addrs = address::resolve(endpoint.host(), endpoint.port()).await;
        let addrs = addrs.map_err(|error| format!("{url}: {error}"))?;
        let addr = *addrs.first().ok_or_else(|| format!("{url}: the host has no address"))?;
        Ok(Self {
            device: endpoint.device().map(str::to_owned),
            gid: endpoint.gid(),
            login,
            tls: endpoint.tls().is_some(),
            ..Self::new(kind, addr)
        })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let secure = if self.tls { "s" } else { "" };
        write!(f, "{}{secure}://{}", self.kind.scheme(), address::authority(self.addr))
    }
}

/// The command AUTH as bytes.
fn auth(Login { user, password }: &Login) -> Vec<u8> {
    match user.as_str() {
        "" => request(&[b"AUTH", password.as_bytes()]),
        user => request(&[b"AUTH", user.as_bytes(), password.as_bytes()]),
    }
}

/// A server under test, and the record of the case that runs.
pub struct Context {
    pub(super) target: Target,
    pub(super) patience: Duration,
    pub(super) transcript: Transcript,
    /// Another client, connected before the case. Nothing in the case may harm it.
    pub(super) bystander: Option<Session>,
}

/// Length of the windows that cases offer unless they say otherwise: libvalkey's.
const WINDOW: u32 = 1 << 20;

impl Context {
    /// A context for the server at `target`. `patience` limits each wait for something that must come.
    pub fn new(target: Target, patience: Duration) -> Self {
        Self { target, patience, transcript: Transcript::default(), bystander: None }
    }

    pub(super) fn peer_options(&self) -> PeerOptions {
        PeerOptions {
            patience: self.patience,
            device: self.target.device.clone(),
            gid: self.target.gid,
            ..PeerOptions::default()
        }
    }

    /// A connected raw peer that has sent nothing.
    pub(super) async fn peer(&mut self) -> Result<Peer, Finding> {
        Peer::connect(self.target.kind, self.target.addr, &self.peer_options(), &self.transcript).await
    }

    /// A connected session that has sent nothing.
    pub(super) async fn silent_session(&mut self) -> Result<Session, Finding> {
        Session::new(self.peer().await?, WINDOW)
    }

    /// A session that has exchanged windows, and logged in if the server asks for that.
    pub(super) async fn session(&mut self) -> Result<Session, Finding> {
        self.session_with_window(WINDOW).await
    }

    /// A session on the connection of this raw peer, as [`session`](Self::session) makes it.
    pub(super) async fn session_of(&mut self, peer: Peer) -> Result<Session, Finding> {
        self.ready(Session::new(peer, WINDOW)?).await
    }

    /// As [`session`](Self::session), with a window of this length.
    pub(super) async fn session_with_window(&mut self, len: u32) -> Result<Session, Finding> {
        let session = Session::new(self.peer().await?, len)?;
        self.ready(session).await
    }

    /// Exchanges windows, and logs in if the server asks for that.
    async fn ready(&mut self, mut session: Session) -> Result<Session, Finding> {
        session.handshake().await?;
        if !self.target.tls {
            self.log_in(&mut session).await?;
        }
        Ok(session)
    }

    /// Logs in, if the server asks for that.
    pub(super) async fn log_in(&mut self, session: &mut Session) -> Result<(), Finding> {
        self.send_login(session).await?;
        self.login_accepted(session).await
    }

    /// Sends the login without waiting for its reply.
    pub(super) async fn send_login(&mut self, session: &mut Session) -> Result<(), Finding> {
        match &self.target.login {
            Some(login) => session.write_secret(&auth(login)).await,
            None => Ok(()),
        }
    }

    /// Takes the reply to the login.
    pub(super) async fn login_accepted(&mut self, session: &mut Session) -> Result<(), Finding> {
        match self.target.login {
            Some(_) => expect_reply(&session.reply().await?, &OwnedFrame::SimpleString(b"OK".to_vec())),
            None => Ok(()),
        }
    }

    /// The bytes of the reply to a login: nothing if there is none.
    pub(super) fn login_reply(&self) -> &'static [u8] {
        if self.target.login.is_some() { b"+OK\r\n" } else { b"" }
    }

    /// Expects the server to end this connection. If it does not, the finding states whether more data makes it.
    pub(super) async fn ended_by_server(&mut self, mut session: Session) -> Result<(), Finding> {
        let Err(still_open) = session.peer.end().await else { return Ok(()) };
        let answer = session.write(&request(&[b"PING"])).await;
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

    /// Checks that the server still serves the bystander, and a new client.
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
        // Without TLS of its own, the suite has no command that a server with TLS runs.
        let served = if self.target.tls { newcomer.ask(0).await.map(drop) } else { newcomer.ping().await };
        served.map_err(|finding| {
            Finding::failed(format!("the server does not serve a new connection afterwards: {finding}"))
        })?;
        newcomer.peer.disconnect();
        Ok(())
    }
}
