//! [`Registry`]: the listeners of a server.

use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::error;
use valkey_rdma_transport::tls::{TlsAcceptor, TlsError};

use crate::listener::Listening;

/// The listeners that accept connections.
#[derive(Default)]
pub(crate) struct Registry {
    entries: Arc<watch::Sender<Vec<Entry>>>,
    /// How many listeners there ever were: no id is used twice.
    last_id: u64,
}

pub(crate) struct Entry {
    id: u64,
    listening: Listening,
    pub(crate) close: CancellationToken,
    tls: Option<TlsAcceptor>,
}

impl Registry {
    /// Where connections are accepted, in the order added.
    pub(crate) fn listening(&self) -> Vec<Listening> {
        self.entries.borrow().iter().map(|entry| entry.listening).collect()
    }

    /// Waits until there are no listeners.
    pub(crate) async fn empty(&self) {
        let mut entries = self.entries.subscribe();
        // The sender lives as long as `self`.
        let _ = entries.wait_for(Vec::is_empty).await;
    }

    /// Reads the certificates of all listeners again. The first error is returned when all were tried.
    pub(crate) fn reload_tls(&self) -> Result<(), TlsError> {
        let acceptors: Vec<_> = self.entries.borrow().iter().filter_map(|entry| entry.tls.clone()).collect();
        acceptors.iter().map(TlsAcceptor::reload).fold(Ok(()), Result::and)
    }

    pub(crate) fn add(
        &mut self,
        listening: Listening,
        close: CancellationToken,
        tls: Option<TlsAcceptor>,
    ) -> Registration {
        self.last_id += 1;
        let id = self.last_id;
        self.entries.send_modify(|entries| entries.push(Entry { id, listening, close: close.clone(), tls }));
        Registration { entries: self.entries.clone(), id, close }
    }

    /// Removes the entry of a listener, if there is one.
    pub(crate) fn take(&self, listening: Listening) -> Option<Entry> {
        take(&self.entries, |entry| entry.listening == listening)
    }
}

/// The server is dropped, and its listeners with it. A last listener that ends then is not an error.
impl Drop for Registry {
    fn drop(&mut self) {
        self.entries.send_replace(Vec::new());
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
pub(crate) struct Registration {
    entries: Arc<watch::Sender<Vec<Entry>>>,
    id: u64,
    close: CancellationToken,
}

impl Registration {
    /// Completes when the listener is closed or the server stops.
    pub(crate) async fn closed(&self) {
        self.close.cancelled().await;
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let was_registered = take(&self.entries, |entry| entry.id == self.id).is_some();
        // If the server stops or the listener was closed, its end is expected.
        let is_expected = !was_registered || self.close.is_cancelled();
        if !is_expected && self.entries.borrow().is_empty() {
            error!("the last listener has ended: no client can connect any more");
        }
    }
}
