//! [`deliver`]: ends a client's connection so that the client receives what was written to it.

use tokio::io::{AsyncWriteExt, copy, sink};
use tokio::time::{Duration, timeout};
use valkey_rdma_transport::AnyStream;

/// Ends the gateway's side of a connection, and waits for the client to end its side. A TCP socket that is closed with unread input
/// resets the connection, and the reset discards replies that the client's system has not received yet. The other transports deliver
/// what was written before the end.
pub(crate) async fn deliver(stream: &mut AnyStream) {
    let delivered = async {
        stream.shutdown().await?;
        if let AnyStream::Tcp(_) = stream {
            copy(stream, &mut sink()).await?;
        }
        std::io::Result::Ok(())
    };
    // An error or a client that does not end its side: in both cases the gateway has waited for long enough.
    let _ = timeout(LINGER, delivered).await;
}

/// How long a client may take to end its side.
const LINGER: Duration = Duration::from_secs(1);
