//! [`Unread`]: messages that a subscriber has not read.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use tokio::time::{Sleep, sleep};

use crate::config::limits::Limits;
use crate::session::clients::Client;

/// Bytes that one subscriber has not read, counted with those of all clients.
pub(super) struct Unread {
    client: Arc<Client>,
    total: Arc<AtomicUsize>,
    /// The end of the time for which there may be too many.
    limit: Option<Pin<Box<Sleep>>>,
}

impl Unread {
    pub(super) fn new(client: Arc<Client>, total: Arc<AtomicUsize>) -> Self {
        Self { client, total, limit: None }
    }

    /// Counts this number of bytes, instead of those counted before. Ready if the client must be closed.
    pub(super) fn poll_too_slow(&mut self, cx: &mut Context<'_>, bytes: usize, limits: &Limits) -> Poll<()> {
        self.count(bytes);
        if limits.exceeds_total(bytes, self.total.load(Ordering::Relaxed)) {
            return Poll::Ready(());
        }
        if bytes <= limits.unread_bytes {
            self.limit = None;
            return Poll::Pending;
        }
        self.limit.get_or_insert_with(|| Box::pin(sleep(limits.slow_reader()))).as_mut().poll(cx)
    }

    fn count(&mut self, bytes: usize) {
        self.total.fetch_add(bytes, Ordering::Relaxed);
        let before = self.client.unread_messages.swap(bytes, Ordering::Relaxed);
        self.total.fetch_sub(before, Ordering::Relaxed);
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        self.count(0);
    }
}
