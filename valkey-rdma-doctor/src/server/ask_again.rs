//! After a connect that failed at TLS, or for want of it: what is at the port, without a login.

use std::sync::Arc;
use std::time::SystemTime;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use valkey_rdma_client::{ConnectCause, Dialer, Endpoint, ServerError, Transport};
use valkey_rdma_transport::tls::{ClientTls, TlsError, TlsInfo, Verify};

use super::{PATIENCE, certificate, steps};
use crate::report::{Finding, Section};

/// What the server shows to a client that does not log in, if `cause` is about TLS.
pub(super) async fn ask_again(endpoint: &Endpoint, cause: &ConnectCause) -> Option<Section> {
    let over_tcp = endpoint.transport() == Transport::Tcp;
    match (cause, endpoint.tls()) {
        (ConnectCause::Tls(fault), Some(_)) if is_of_certificate(fault) => {
            let info = unverified(endpoint).await?;
            let mut section = Section::new("certificate");
            section.findings = certificate::findings(&info.peer_certificates, SystemTime::now());
            Some(section)
        }
        (ConnectCause::Tls(_) | ConnectCause::SilentInTls { .. }, Some(_)) if over_tcp => {
            if !speaks_plain(endpoint).await {
                return None;
            }
            let mut section = Section::new("without tls instead");
            section.push(Finding::note("answers", "yes: the server at this port speaks no TLS").remedy(
                "connect to its TLS port (Valkey: tls-port); or use valkey://, if others cannot read the network between",
            ));
            Some(section)
        }
        (cause, None) if over_tcp && may_require_tls(cause) => {
            let info = unverified(endpoint).await?;
            let mut section = Section::new("with tls instead");
            section.push(
                Finding::note("answers", format!("yes, {info}: the server at this port speaks TLS only"))
                    .remedy("use valkeys://"),
            );
            Some(section)
        }
        _ => None,
    }
}

/// Whether a plain connection may have ended because the port requires TLS: stock servers end it, those of this project answer.
fn may_require_tls(cause: &ConnectCause) -> bool {
    match cause {
        ConnectCause::Lost(_) => true,
        ConnectCause::Rejected(reply) => reply.requires_tls(),
        _ => false,
    }
}

/// Whether the certificate was read, and refused.
fn is_of_certificate(fault: &TlsError) -> bool {
    use TlsError::{BadCertificate, Expired, NotValidYet, UnknownIssuer, WrongName};
    matches!(fault, Expired { .. } | NotValidYet | WrongName { .. } | UnknownIssuer | BadCertificate { .. })
}

/// Makes a TLS connection with whatever is there, sends nothing over it, and shows no certificate of this side.
async fn unverified(endpoint: &Endpoint) -> Option<Arc<TlsInfo>> {
    let mut tls = ClientTls::default().with_verify(Verify::None);
    if let Some(name) = endpoint.tls().and_then(ClientTls::server_name) {
        tls = tls.with_server_name(name);
    }
    let limit = PATIENCE.min(endpoint.timeout());
    let endpoint = endpoint.clone().with_fallback(false).with_tls(tls).with_timeout(limit);
    let stream = Dialer::new(endpoint, &steps::config()).ok()?.dial().await.ok()?;
    stream.info().tls.clone()
}

/// Whether a server without TLS is there. It is sent a PING, which is not a secret.
pub(super) async fn speaks_plain(endpoint: &Endpoint) -> bool {
    let limit = PATIENCE.min(endpoint.timeout());
    let plain = Endpoint::new(Transport::Tcp, endpoint.host(), endpoint.port()).with_timeout(limit);
    let asked = async {
        let mut stream = Dialer::new(plain, &steps::config()).ok()?.dial().await.ok()?;
        stream.write_all(b"PING\r\n").await.ok()?;
        // `+PONG`, or an error such as `-NOAUTH`. An alert of TLS has another byte, and a port of this project with TLS says so.
        let mut reply = [0; 64];
        let len = stream.read(&mut reply).await.ok()?;
        let requires_tls = |text: &[u8]| ServerError::from_reply(text).requires_tls();
        Some(matches!(reply[0], b'+' | b'-') && !reply[..len].strip_prefix(b"-").is_some_and(requires_tls))
    };
    matches!(timeout(limit, asked).await, Ok(Some(true)))
}
