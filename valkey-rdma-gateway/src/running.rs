//! [`Running`]: a listener that accepts clients.

use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::activation::Activation;
use crate::listen::{Bound, Listen};
use crate::route::Route;
use crate::socket_file::SocketFile;

/// A listener that accepts clients.
pub(crate) struct Running {
    /// As configured, and with its real port.
    pub(crate) configured: Listen,
    pub(crate) address: Listen,
    /// That of a Unix socket which this process has bound.
    pub(crate) file: Option<SocketFile>,
    pub(crate) route: watch::Sender<Arc<Route>>,
    pub(crate) close: CancellationToken,
}

impl Running {
    /// Listens again if another process has removed the file of the socket, or put another one there.
    pub(crate) async fn bind_again(&self, activation: &Activation) -> Option<Bound> {
        if self.file.as_ref().is_none_or(SocketFile::is_in_place) {
            return None;
        }
        let bound = Bound::bind(&self.configured, activation).await;
        // The rest of the configuration is worth taking over.
        bound.inspect_err(|error| warn!(%error, "the file of this socket was removed or replaced, and cannot be bound again: clients do not come here")).ok()
    }
}
