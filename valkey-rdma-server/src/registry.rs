//! [`Registry`]: the listeners of a server that accept connections, and who waits for the last one to end.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::error;
use valkey_rdma_transport::address;

use crate::peer::Transport;

/// An address that a server listens on. `Display` is a client's URL: `valkey://127.0.0.1:6379`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listening {
    /// The transport of its connections.
    pub transport: Transport,
    /// The address, with the real port if port 0 was asked for.
    pub addr: SocketAddr,
}

impl fmt::Display for Listening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.transport.scheme(), address::authority(self.addr))
    }
}

/// The listeners that accept connections.
#[derive(Debug, Default)]
pub(crate) struct Registry(Arc<watch::Sender<Vec<Entry>>>);

#[derive(Debug)]
pub(crate) struct Entry {
    id: u64,
    listening: Listening,
    pub(crate) close: CancellationToken,
}

impl Registry {
    /// Where connections are accepted, in the order added.
    pub(crate) fn listening(&self) -> Vec<Listening> {
        self.0.borrow().iter().map(|entry| entry.listening).collect()
    }

    /// Waits until there are no listeners.
    pub(crate) async fn empty(&self) {
        let mut entries = self.0.subscribe();
        // The sender lives as long as `self`.
        let _ = entries.wait_for(Vec::is_empty).await;
    }

    /// Ids are never used twice: `id` counts all listeners that there ever were.
    pub(crate) fn add(&self, id: u64, listening: Listening, close: CancellationToken) -> Registration {
        self.0.send_modify(|entries| entries.push(Entry { id, listening, close }));
        Registration { entries: self.0.clone(), id }
    }

    /// Removes the entry of a listener, if there is one.
    pub(crate) fn take(&self, listening: Listening) -> Option<Entry> {
        take(&self.0, |entry| entry.listening == listening)
    }
}

/// The server is dropped, and its listeners with it. A last listener that ends then is not an error.
impl Drop for Registry {
    fn drop(&mut self) {
        self.0.send_replace(Vec::new());
    }
}

fn take(entries: &watch::Sender<Vec<Entry>>, found: impl Fn(&Entry) -> bool) -> Option<Entry> {
    let mut taken = None;
    entries.send_if_modified(|entries| {
        taken = entries.iter().position(found).map(|index| entries.remove(index));
        taken.is_some()
    });
    taken
}

/// A listener's entry in the registry. Dropping it, for whatever reason the listener ends, removes the entry.
#[derive(Debug)]
pub(crate) struct Registration {
    entries: Arc<watch::Sender<Vec<Entry>>>,
    id: u64,
}

impl Drop for Registration {
    fn drop(&mut self) {
        let ended = take(&self.entries, |entry| entry.id == self.id);
        // If the server stops or the listener was closed, its end is expected.
        let unexpected = ended.is_some_and(|entry| !entry.close.is_cancelled());
        if unexpected && self.entries.borrow().is_empty() {
            error!("the last listener has ended: no client can connect any more");
        }
    }
}
