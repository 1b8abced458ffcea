//! Connecting, listening and closing.

use std::error::Error;
use std::os::fd::OwnedFd;
use std::time::Duration;

use valkey_rdma_client::{Config, Dialer, Endpoint, Transport};
use valkey_rdma_transport::DeviceKind;
use valkey_rdma_transport::address;
use valkey_rdma_transport::blocking::Listener;
use valkey_rdma_transport::bridge;

/// What went wrong, for people.
pub(crate) type Failure = Box<dyn Error + Send + Sync>;

/// Returns the socket, and what it is connected to, for people.
pub(crate) fn connect(url: &str) -> Result<(OwnedFd, String), Failure> {
    let dialer = Dialer::new(url, &Config::default())?;
    let stream = bridge::block_on(dialer.dial())??;
    let info = stream.info();
    let mut description = info.transport.to_string();
    if let Some(peer) = info.peer {
        description += &format!(" to {peer}");
    }
    if let Some(device) = &info.device {
        description += &format!(", device {device}");
    }
    if let Some(tls) = &info.tls {
        description += &format!(", {tls}");
    }
    if let Some(reason) = &info.fallback {
        description += &format!(", instead of rdma: {reason}");
    }
    Ok((bridge::over(stream)?, description))
}

pub(crate) fn listen(url: &str) -> Result<Listener, Failure> {
    let (url, any_port) = without_port_zero(url);
    let endpoint = Endpoint::try_from(url.as_str())?;
    let kind = match endpoint.transport() {
        Transport::Rdma => DeviceKind::Verbs,
        Transport::Emulated => DeviceKind::Emulated,
        other => {
            return Err(
                format!("cannot listen on {other:?} here: sockets do that without this library").into()
            );
        }
    };
    // Without this, it would accept plain connections where the URL asks for encrypted ones.
    if endpoint.tls().is_some() {
        return Err(format!(
            "cannot listen with TLS here: listen on {}://127.0.0.1, and have valkey-rdma-gateway listen on rdmas: for others",
            endpoint.transport()
        )
        .into());
    }
    check_listener(&url, &endpoint)?;
    let port = if any_port { 0 } else { endpoint.port() };
    let addr = address::literal(endpoint.host(), port).ok_or_else(|| {
        format!("{:?} is not an IP address: name the one to listen on, or 0.0.0.0", endpoint.host())
    })??;
    Ok(Listener::bind(kind, addr, &endpoint.transport_config())?)
}

/// Refuses what a listener would ignore, because its program relies on it, such as on a password. The error does not quote the URL.
fn check_listener(url: &str, endpoint: &Endpoint) -> Result<(), Failure> {
    let (_, query) = url.split_once('?').unwrap_or_default();
    let mut names = query.split('&').filter_map(|option| option.split_once('=')).map(|(name, _)| name);
    let refused = if endpoint.is_cluster() || endpoint.sentinels().is_some() {
        "for a cluster or Sentinels: name the address to listen on"
    } else if endpoint.has_login() {
        "with a login: the listener accepts all connections, and your program checks passwords"
    } else if endpoint.database() != 0 {
        "with a database: leave it out"
    } else if names.any(|name| !OF_LISTENERS.contains(&name)) {
        "with all of these options: use rx_size, send_buffer, poll, device, gid or source"
    } else {
        return Ok(());
    };
    Err(format!("cannot listen {refused}").into())
}

/// The URL with another port where it has port 0, which is not a port that endpoints accept; and whether it had.
fn without_port_zero(url: &str) -> (String, bool) {
    let start = url.find("://").map_or(0, |at| at + 3);
    let end = url[start..].find(['/', '?']).map_or(url.len(), |at| start + at);
    match url[..end].strip_suffix(":0") {
        Some(before) => (format!("{before}{}", &url[end..]), true),
        None => (url.to_owned(), false),
    }
}

/// Delivers what was written, and closes.
pub(crate) fn close(fd: OwnedFd) -> Result<(), Failure> {
    Ok(bridge::close(fd, PATIENCE)?)
}

/// The options of a URL that a listener uses.
const OF_LISTENERS: [&str; 6] = ["rx_size", "send_buffer", "poll", "device", "gid", "source"];

/// How long closing waits.
const PATIENCE: Duration = Duration::from_secs(10);
