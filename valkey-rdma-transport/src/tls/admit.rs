//! [`TlsAcceptor::admit`]: what a server does between an accept and the first byte of a program.

use std::io;
use std::time::Duration;

use tokio::time::timeout;

use super::{TlsAcceptor, TlsError};
use crate::{AnyStream, FeatureSet};

/// Why an accepted connection is not encrypted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotEncrypted {
    /// The peer has sent nothing, as the probe of a load balancer does.
    #[error("the peer left before the TLS handshake")]
    Left,
    /// The peer began without TLS.
    #[error("the peer does not use TLS, and was refused with an error that says so")]
    Plain,
    /// The peer began too late, or was too slow.
    #[error("the TLS handshake did not end within {limit:?}")]
    Slow {
        /// The time that it had.
        limit: Duration,
    },
    /// The handshake failed.
    #[error(transparent)]
    Failed(#[from] TlsError),
}

impl TlsAcceptor {
    /// Makes a TLS connection over a stream that nothing was read from, within `limit`. A peer that does not use TLS gets `refusal`, and
    /// is closed; it may take 1 s more to read that.
    ///
    /// Over RDMA, both sides agree on TLS first (spec clauses F-5 to F-7). Over TCP, where nothing is agreed on, the first byte decides:
    /// text never begins with that of a handshake.
    ///
    /// # Errors
    /// [`NotEncrypted`].
    ///
    /// # Cancel safety
    /// Dropping the future closes the stream.
    pub async fn admit(
        &self,
        mut stream: AnyStream,
        limit: Duration,
        refusal: &[u8],
    ) -> Result<AnyStream, NotEncrypted> {
        let begun = async {
            match uses_tls(&mut stream).await? {
                true => Ok(Ok(self.accept(stream).await?)),
                false => Ok(Err(stream)),
            }
        };
        match timeout(limit, begun).await.unwrap_or(Err(NotEncrypted::Slow { limit }))? {
            Ok(encrypted) => Ok(encrypted),
            Err(mut plain) => {
                plain.end_with(refusal).await;
                Err(NotEncrypted::Plain)
            }
        }
    }
}

/// Whether the peer begins with TLS. Nothing is read.
async fn uses_tls(stream: &mut AnyStream) -> Result<bool, NotEncrypted> {
    let mut first = [0];
    let begun = match stream {
        AnyStream::Device(stream) => stream.agreed().await.map(|agreed| agreed.contains(FeatureSet::TLS)),
        AnyStream::Tcp(stream) => match stream.peek(&mut first).await {
            Ok(0) => return Err(NotEncrypted::Left),
            peeked => peeked.map(|_| first == [HANDSHAKE_RECORD]),
        },
        // A plain peer fails in the handshake.
        _ => Ok(true),
    };
    begun.map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => NotEncrypted::Left,
        _ => TlsError::Io(error.into()).into(),
    })
}

/// The type of the record that a TLS connection begins with.
const HANDSHAKE_RECORD: u8 = 22;
