//! [`Window`]: how many bytes of commands a client has in flight.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::limits::Limits;

/// Commands of one client that were submitted together, and have not all been answered: their number and their bytes.
#[derive(Debug)]
pub(crate) struct Window {
    batches: VecDeque<(u32, usize)>,
    commands: u32,
    bytes: usize,
    /// Bytes in all windows.
    total: Arc<AtomicUsize>,
}

impl Window {
    pub(crate) fn new(total: Arc<AtomicUsize>) -> Self {
        Self { batches: VecDeque::new(), commands: 0, bytes: 0, total }
    }

    /// Bytes after which no more commands are taken from the client, until some are answered. A client without a command in flight
    /// may always send one: nothing would tell it later that there is room.
    pub(crate) fn room(&self, limits: &Limits) -> usize {
        let own = limits.queued_bytes.saturating_sub(self.bytes);
        let of_all = limits.queued_bytes_total.saturating_sub(self.total.load(Ordering::Relaxed));
        own.min(of_all).max(usize::from(self.bytes == 0))
    }

    pub(crate) fn sent(&mut self, commands: u32, bytes: usize) {
        self.batches.push_back((commands, bytes));
        self.commands += commands;
        self.bytes += bytes;
        self.total.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Forgets the batches of which all is answered, if `outstanding` commands are not.
    pub(crate) fn answered(&mut self, outstanding: u32) {
        while let Some(&(commands, bytes)) = self.batches.front()
            && self.commands - commands >= outstanding
        {
            self.batches.pop_front();
            self.commands -= commands;
            self.bytes -= bytes;
            self.total.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        self.answered(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_make_room() {
        let limits = Limits { queued_bytes: 100, queued_bytes_total: 150, ..Limits::default() };
        let total = Arc::default();
        let (mut one, mut other) = (Window::new(Arc::clone(&total)), Window::new(Arc::clone(&total)));
        one.sent(2, 60);
        one.sent(1, 60);
        assert_eq!((one.room(&limits), other.room(&limits)), (0, 30));
        other.sent(1, 40);
        assert_eq!((other.room(&limits), Window::new(total.clone()).room(&limits)), (0, 1));
        one.answered(2);
        assert_eq!(one.room(&limits), 0, "the first batch is not answered as a whole");
        one.answered(1);
        assert_eq!((one.room(&limits), other.room(&limits)), (40, 50));
        drop(one);
        assert_eq!(total.load(Ordering::Relaxed), 40);
    }
}
