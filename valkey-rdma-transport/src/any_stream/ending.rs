//! How our other crates end a connection.

use std::io;
use std::net::Shutdown;
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncWriteExt, copy, sink};
use tokio::time::timeout;

use super::AnyStream;

impl AnyStream {
    /// Writes a last reply, ends this side, and waits for the peer to end its side, 1 s at most. A TCP socket that is closed with unread
    /// input resets the connection, and the reset discards replies that the peer's system has not received yet. Unix sockets and
    /// devices deliver what was written before the end.
    #[doc(hidden)]
    pub async fn end_with(&mut self, reply: &[u8]) {
        let ended = async {
            self.write_all(reply).await?;
            self.shutdown().await?;
            if matches!(self.carrier(), Self::Tcp(_) | Self::Other(_)) {
                copy(self, &mut sink()).await?;
            }
            io::Result::Ok(())
        };
        // An error or a peer that does not end its side: in both cases this side has waited for long enough.
        let _ = timeout(PATIENCE, ended).await;
    }

    /// Ends the connection as dropping it does, and at once also where a forked child has a copy of the socket: closing ends a socket only
    /// with its last copy.
    #[doc(hidden)]
    pub fn end(self) {
        // It fails if the connection has ended already.
        let _ = match self.carrier() {
            Self::Tcp(stream) => SockRef::from(stream).shutdown(Shutdown::Both),
            #[cfg(unix)]
            Self::Unix(stream) => stream.socket().and_then(|socket| socket.shutdown(Shutdown::Both)),
            _ => Ok(()),
        };
    }

    /// Ends the connection so that the peer sees a cut: TLS does not announce it, TCP resets. Without TLS, a device and a Unix socket show
    /// an end: they have nothing else.
    #[doc(hidden)]
    pub fn cut(self) {
        if let Self::Tcp(stream) = self.carrier() {
            // It fails if the connection has ended already.
            let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
        }
    }
}

/// How long a peer may take to read the last reply and to end its side.
const PATIENCE: Duration = Duration::from_secs(1);
