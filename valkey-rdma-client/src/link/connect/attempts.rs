//! Which attempt follows one that failed: with another password, over TCP instead of RDMA, or with a login that proxies know.

use std::sync::Arc;

use futures_util::FutureExt;
use tokio::sync::watch;
use tracing::{debug, warn};
use valkey_rdma_resp::Protocol;
use valkey_rdma_transport::tls::TlsError;

use super::{ConnectDeadline, Connector, Login, Source};
use crate::endpoint::Transport;
use crate::error::{ConnectCause, ConnectError, LostCause};
use crate::link::raw::RawConnection;
use crate::spans;
use crate::stats::Purpose;

impl Connector {
    /// Connects to the endpoint's own address, with the password of now. Without a purpose, the login is left to the caller.
    pub(in crate::link) async fn connect_here(
        &self,
        purpose: Option<Purpose>,
    ) -> Result<RawConnection, ConnectError> {
        let deadline = ConnectDeadline::of(&self.endpoint);
        // Before the attempt: what the name means changes from here on.
        let renamed = self.renamed.as_ref().map(watch::Sender::subscribe);
        let mut raw = self.connect_by(&deadline, purpose).await.map_err(|cause| self.failure(cause))?;
        raw.renamed = renamed;
        Ok(raw)
    }

    /// As [`connect_here`](Self::connect_here), for a caller whose time has begun before.
    pub(super) async fn connect_by(
        &self,
        deadline: &ConnectDeadline,
        purpose: Option<Purpose>,
    ) -> Result<RawConnection, ConnectCause> {
        let attempt = async {
            let raw = match purpose {
                Some(purpose) => self.connect_logged_in(purpose, deadline).await?,
                None => self.connect_or_fall_back(None, deadline).await?,
            };
            spans::used(|| raw.info.clone());
            Ok(raw)
        };
        // Boxed, because the compiler limits how deep futures may nest.
        spans::connect(&self.endpoint, purpose, attempt.boxed()).await
    }

    /// Reads the password and connects. It may change while the server is being reached: if the server refuses it, another one is tried.
    async fn connect_logged_in(
        &self,
        purpose: Purpose,
        deadline: &ConnectDeadline,
    ) -> Result<RawConnection, ConnectCause> {
        let log_in = |credentials| {
            self.connect_or_fall_back(Some(Login { purpose, credentials, is_plain: false }), deadline)
        };
        let credentials = self.credentials(deadline).await?;
        let refusal = match log_in(credentials.as_ref()).await {
            Err(cause) if cause.refuses_login() => cause,
            other => return other,
        };
        match self.other_credentials(credentials.as_ref(), deadline).await {
            Some(other) => log_in(Some(&other)).await,
            None => Err(refusal),
        }
    }

    async fn connect_or_fall_back(
        &self,
        login: Option<Login<'_>>,
        deadline: &ConnectDeadline,
    ) -> Result<RawConnection, ConnectCause> {
        let transport = self.endpoint.transport();
        match self.establish_past_proxies(transport, login, deadline).await {
            Err(cause) if self.may_fall_back() && worth_a_fallback(&cause) => {
                warn!(peer = %self.endpoint.authority(), %cause, "no connection over {transport}, falling back to tcp");
                match self.establish_past_proxies(Transport::Tcp, login, deadline).await {
                    Ok(mut raw) => {
                        Arc::make_mut(&mut raw.info).fallback = Some(cause.to_string());
                        Ok(raw)
                    }
                    Err(tcp) => Err(ConnectCause::Fallback { rdma: Box::new(cause), tcp: Box::new(tcp) }),
                }
            }
            other => other,
        }
    }

    /// As [`establish`](Self::establish). Some proxies close a connection at a command that they do not know, such as CLIENT SETINFO: a
    /// second attempt leaves out what a login does not need. Such proxies speak RESP2, over TCP and Unix sockets.
    async fn establish_past_proxies(
        &self,
        transport: Transport,
        login: Option<Login<'_>>,
        deadline: &ConnectDeadline,
    ) -> Result<RawConnection, ConnectCause> {
        let first = self.establish(transport, login, deadline).await;
        let Some(login) = login else { return first };
        let may_be_proxy = matches!(transport, Transport::Tcp | Transport::Unix)
            && self.endpoint.protocol() == Protocol::Resp2;
        let is_closed = |cause: &LostCause| matches!(cause, LostCause::PeerClosed | LostCause::Io(_));
        match &first {
            Err(ConnectCause::Lost(cause)) if may_be_proxy && is_closed(cause) => {}
            _ => return first,
        }
        match self.establish(transport, Some(Login { is_plain: true, ..login }), deadline).await {
            Ok(raw) => {
                debug!(peer = %self.peer(), "logged in without CLIENT SETINFO, at which it closes connections");
                Ok(raw)
            }
            // It says more than a closed connection.
            Err(cause @ (ConnectCause::Rejected(_) | ConnectCause::AnotherCluster { .. })) => Err(cause),
            Err(_) => first,
        }
    }

    /// True if the endpoint allows TCP, and says how to connect.
    pub(super) fn may_fall_back(&self) -> bool {
        self.endpoint.fallback() && matches!(self.source, Source::Endpoint)
    }
}

/// True if falling back to TCP makes sense: not after a resolve error or a server refusal.
fn worth_a_fallback(cause: &ConnectCause) -> bool {
    match cause {
        ConnectCause::Device(_)
        | ConnectCause::Deadline { .. }
        | ConnectCause::SilentInTls { .. }
        | ConnectCause::NoTlsOverRdma
        | ConnectCause::Lost(_) => true,
        // A refused certificate is not a failure of RDMA.
        ConnectCause::Tls(error) => matches!(**error, TlsError::Closed | TlsError::Io(_)),
        _ => false,
    }
}
