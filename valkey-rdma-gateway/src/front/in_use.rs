//! Why a TCP address is in use, if this process uses it itself.

use std::io;
use std::net::SocketAddr;

use crate::error::GatewayError;

/// Adds the reason to an error of `wanted`. `passed`: addresses of sockets that systemd has bound. `own`: where the gateway listens.
pub(crate) fn explain(
    error: GatewayError,
    wanted: SocketAddr,
    passed: &[SocketAddr],
    own: &[SocketAddr],
) -> GatewayError {
    let GatewayError::Bind { address, source } = error else { return error };
    let overlaps = |one: &&SocketAddr| {
        let any = one.ip().is_unspecified() || wanted.ip().is_unspecified();
        one.port() == wanted.port() && (any || one.ip() == wanted.ip())
    };
    let reason = match (source.kind(), passed.iter().find(overlaps), own.iter().find(overlaps)) {
        (io::ErrorKind::AddrInUse, Some(passed), _) => {
            format!("systemd holds {passed}: name the same address in `listen` and in the socket unit")
        }
        (io::ErrorKind::AddrInUse, None, Some(own)) => {
            format!("this gateway uses {own} itself, and such a change needs a restart")
        }
        _ => return GatewayError::Bind { address, source },
    };
    GatewayError::Bind { address, source: io::Error::other(format!("{source}: {reason}")) }
}
