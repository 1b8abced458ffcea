//! [`InFlight`]: how many bytes of commands a client has in flight.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::config::limits::Limits;

/// Commands of one client that were submitted together, and have not all been answered: their number and their bytes.
#[derive(Debug)]
pub(crate) struct InFlight {
    batches: VecDeque<(u32, usize)>,
    commands: u32,
    bytes: usize,
    /// Bytes of commands that have not been submitted.
    held: usize,
    /// Bytes of the commands of all clients, also of those that have gone.
    total: Arc<AtomicUsize>,
}

impl InFlight {
    pub(crate) fn new(total: Arc<AtomicUsize>) -> Self {
        Self { batches: VecDeque::new(), commands: 0, bytes: 0, held: 0, total }
    }

    /// Bytes after which no more commands are taken from the client, until some are answered. A client without a command in flight
    /// may always send one: nothing would tell it later that there is room.
    pub(crate) fn room(&self, limits: &Limits) -> usize {
        let own = limits.queued_bytes.saturating_sub(self.bytes);
        let of_all = limits.queued_bytes_total.saturating_sub(self.total.load(Ordering::Relaxed));
        own.min(of_all).max(usize::from(self.bytes == 0))
    }

    /// Whether the total exceeds twice its limit. A client without a command in flight may not send one either then.
    pub(crate) fn is_overloaded(&self, limits: &Limits) -> bool {
        self.bytes == 0 && self.total.load(Ordering::Relaxed) >= limits.queued_bytes_total.saturating_mul(2)
    }

    /// Counts this number of bytes of commands that have not been submitted, instead of those counted before.
    pub(crate) fn hold(&mut self, bytes: usize) {
        if bytes != self.held {
            self.total.fetch_add(bytes, Ordering::Relaxed);
            self.total.fetch_sub(self.held, Ordering::Relaxed);
            self.held = bytes;
        }
    }

    pub(crate) fn sent(&mut self, commands: u32, bytes: usize) {
        self.batches.push_back((commands, bytes));
        self.commands += commands;
        self.bytes += bytes;
    }

    /// Forgets the batches of which all is answered, if `outstanding` commands are not.
    pub(crate) fn answered(&mut self, outstanding: u32) {
        while let Some(&(commands, bytes)) = self.batches.front()
            && self.commands - commands >= outstanding
        {
            self.batches.pop_front();
            self.commands -= commands;
            self.bytes -= bytes;
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.hold(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_make_room() {
        let limits = Limits { queued_bytes: 100, queued_bytes_total: 150, ..Limits::default() };
        let total = Arc::new(AtomicUsize::new(120));
        let (mut one, mut other) = (InFlight::new(Arc::clone(&total)), InFlight::new(Arc::clone(&total)));
        one.sent(2, 60);
        one.sent(1, 60);
        assert_eq!((one.room(&limits), other.room(&limits)), (0, 30));
        other.sent(1, 40);
        total.store(160, Ordering::Relaxed);
        assert_eq!((other.room(&limits), InFlight::new(total.clone()).room(&limits)), (0, 1));
        one.answered(2);
        assert_eq!(one.room(&limits), 0, "the first batch is not answered as a whole");
        one.answered(1);
        total.store(100, Ordering::Relaxed);
        assert_eq!((one.room(&limits), other.room(&limits)), (40, 50));
        total.store(300, Ordering::Relaxed);
        let mut new = InFlight::new(total.clone());
        assert!(new.is_overloaded(&limits) && !one.is_overloaded(&limits), "an answer will make room for it");
        new.hold(50);
        new.hold(20);
        assert_eq!(total.load(Ordering::Relaxed), 320);
        drop(new);
        assert_eq!(total.load(Ordering::Relaxed), 300);
    }
}
