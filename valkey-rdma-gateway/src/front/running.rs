//! [`Running`]: a listener that accepts clients.

use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::config::limits::Limits;
use crate::config::route::Route;
use crate::front::activation::Activation;
use crate::front::listen::{Bound, Listen};
use crate::front::socket_file::SocketFile;

/// A listener that accepts clients.
pub(crate) struct Running {
    /// As configured, and with its real port.
    pub(crate) configured: Listen,
    pub(crate) address: Listen,
    /// That of a Unix socket which this process has bound.
    pub(crate) file: Option<SocketFile>,
    /// The limit of this name when it began to listen. It holds for all of its clients.
    pub(crate) client_buffer_bytes: usize,
    /// What the route said of direct transfers then.
    pub(crate) direct_prefix: Option<Arc<str>>,
    pub(crate) route: watch::Sender<Arc<Route>>,
    pub(crate) close: CancellationToken,
}

impl Running {
    /// Whether its clients are offered direct transfers, and so commands that must be read.
    pub(crate) fn offers_direct(&self) -> bool {
        self.address.may_offer_direct() && self.direct_prefix.is_some()
    }

    /// What of these settings needs a restart to hold here.
    pub(crate) fn unapplied(&self, limits: &Limits, direct_prefix: Option<&str>) -> Vec<String> {
        let (before, now) = (self.client_buffer_bytes, limits.client_buffer_bytes);
        let has_buffers = self.address.unencrypted().may_offer_direct();
        let buffers = (has_buffers && before != now)
            .then(|| format!("limits.client_buffer_bytes {before} -> {now} needs a restart"));
        let is_other = self.address.may_offer_direct() && self.direct_prefix.as_deref() != direct_prefix;
        let named = |prefix: Option<&str>| prefix.map_or("off".to_owned(), |prefix| format!("by {prefix}"));
        let direct = is_other.then(|| {
            let (before, now) = (named(self.direct_prefix.as_deref()), named(direct_prefix));
            format!("direct transfers {before} -> {now} needs a restart")
        });
        buffers.into_iter().chain(direct).collect()
    }

    /// Listens again if another process has removed the file of the socket, or put another one there.
    pub(crate) async fn bind_again(&self, activation: &Activation, limits: &Limits) -> Option<Bound> {
        if self.file.as_ref().is_none_or(SocketFile::is_in_place) {
            return None;
        }
        let bound = Bound::bind(&self.configured, activation, limits, None).await;
        // The rest of the configuration is worth taking over.
        bound.inspect_err(|error| warn!(%error, "the file of this socket was removed or replaced, and cannot be bound again: clients do not come here")).ok()
    }
}
