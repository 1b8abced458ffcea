//! The peer's receive window as this side sees it: where the next byte goes, and how many bytes still fit.

use crate::error::ProtocolError;
use crate::wire::XferMemory;

/// The peer's window. Empty until its first Register.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct TxWindow {
    memory: Option<XferMemory>,
    /// Bytes written since the peer's last Register.
    written: u32,
}

impl TxWindow {
    /// Takes the peer's Register (clauses W-2 to W-5). Returns whether it was the first.
    pub(super) fn handle_register(&mut self, memory: XferMemory, limit: u32) -> Result<bool, ProtocolError> {
        if memory.len == 0 {
            return Err(ProtocolError::EmptyWindow);
        }
        if memory.len > limit || memory.addr.checked_add(u64::from(memory.len)).is_none() {
            return Err(ProtocolError::WindowTooLarge { addr: memory.addr, len: memory.len, limit });
        }
        // Nothing can be lost if nothing was written, or if the window was filled and announced.
        if self.written > 0 && self.room() > 0 {
            return Err(ProtocolError::WindowReplaced { written: self.written, len: self.len() });
        }
        self.written = 0;
        Ok(self.memory.replace(memory).is_none())
    }

    /// Returns the length of the peer's window in bytes; 0 before its first Register.
    pub(super) fn len(&self) -> u32 {
        self.memory.map_or(0, |memory| memory.len)
    }

    /// Returns how many bytes still fit.
    pub(super) fn room(&self) -> u32 {
        self.len() - self.written
    }

    /// Returns whether the peer has registered.
    pub(super) fn is_registered(&self) -> bool {
        self.memory.is_some()
    }

    /// Uses up `len` bytes of the window. Returns the remote address and key to write them to.
    ///
    /// # Panics
    /// If they do not fit, which is a bug of this crate and not a fault of the peer.
    pub(super) fn take(&mut self, len: u32) -> (u64, u32) {
        let memory = self.memory.expect("room is only taken once the peer has registered");
        assert!(len <= self.room(), "{len} bytes into {} bytes of room", self.room());
        let addr = memory.addr + u64::from(self.written);
        self.written += len;
        (addr, memory.key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u32 = 1 << 20;

    fn memory(len: u32) -> XferMemory {
        XferMemory { addr: 0x1000, len, key: 7 }
    }

    #[test]
    fn empty_and_oversized_windows_are_refused_w2() {
        let mut tx = TxWindow::default();
        assert_eq!(tx.handle_register(memory(0), LIMIT), Err(ProtocolError::EmptyWindow));
        let too_large = tx.handle_register(memory(LIMIT + 1), LIMIT);
        assert!(matches!(too_large, Err(ProtocolError::WindowTooLarge { .. })));
        let beyond_the_end = tx.handle_register(XferMemory { addr: u64::MAX - 1, len: 4, key: 0 }, LIMIT);
        assert!(matches!(beyond_the_end, Err(ProtocolError::WindowTooLarge { .. })));
    }

    #[test]
    fn a_window_partly_written_is_not_replaced_w5() {
        let mut tx = TxWindow::default();
        assert_eq!(tx.handle_register(memory(10), LIMIT), Ok(true));
        assert_eq!(tx.handle_register(memory(10), LIMIT), Ok(false), "nothing written yet");
        let _ = tx.take(9);
        let refused = Err(ProtocolError::WindowReplaced { written: 9, len: 10 });
        assert_eq!(tx.handle_register(memory(10), LIMIT), refused);
        assert_eq!(tx.take(1), (0x1009, 7));
        assert_eq!(tx.handle_register(memory(20), LIMIT), Ok(false), "full; another length is legal (H3)");
        assert_eq!(tx.room(), 20);
    }
}
