//! The two receive windows: ours, of buffers of equal length that the peer fills in turn, and the peer's as this side sees it.
//!
//! A side knows one buffer of its peer at a time. When it has filled that buffer to the last byte, it cannot write until the
//! peer registers again. At that moment, and not before, another buffer can be offered without losing a byte (clause W-5).
//! With two buffers the peer fills the second while the application reads the first.

use alloc::vec::Vec;

use crate::error::ProtocolError;
use crate::wire::XferMemory;
use crate::work::{Region, Slice};

/// Our receive window.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct RxWindow {
    buffers: Vec<Buffer>,
    /// Length of every buffer.
    len: u32,
    /// The buffer that the peer writes into, or has just filled.
    filling: usize,
    /// The buffer that the application reads from.
    reading: usize,
    /// Whether the peer may write: `filling` was registered, and the peer has not broken the protocol.
    open: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Buffer {
    region: Region,
    /// Bytes announced by the peer since this buffer was last registered.
    announced: u32,
    /// Bytes that the application has taken.
    consumed: u32,
}

impl RxWindow {
    /// # Panics
    /// If there is no buffer, or the buffers are empty or differ in length.
    pub(super) fn new(regions: &[Region]) -> Self {
        let len = regions.first().expect("a receive window has at least one buffer").len;
        assert!(
            len > 0 && regions.iter().all(|region| region.len == len),
            "receive buffers are equal, not empty"
        );
        let buffers = regions.iter().map(|&region| Buffer { region, announced: 0, consumed: 0 }).collect();
        Self { buffers, len, filling: 0, reading: 0, open: false }
    }

    /// Returns the length of the window in bytes.
    pub(super) fn len(&self) -> u32 {
        self.len
    }

    /// Returns the first Register of the connection.
    pub(super) fn register_first(&mut self) -> XferMemory {
        self.open = true;
        self.advertise()
    }

    /// The peer announced `imm` bytes; the last write carried `byte_len` of them (clauses I-1 to I-3).
    ///
    /// Returns whether these are the first bytes in this registration, which proves that the peer has seen our Register.
    pub(super) fn handle_immediate(&mut self, byte_len: u32, imm: u32) -> Result<bool, ProtocolError> {
        let buffer = &mut self.buffers[self.filling];
        let room = if self.open { self.len - buffer.announced } else { 0 };
        // Compared with the room, not by adding, because the sum of two u32 can wrap (clause I-2).
        if imm > room {
            return Err(ProtocolError::ImmediateBeyondWindow { announced: imm, room });
        }
        if imm < byte_len {
            return Err(ProtocolError::ImmediateTooSmall { announced: imm, written: byte_len });
        }
        let first = buffer.announced == 0 && imm > 0;
        buffer.announced += imm;
        Ok(first)
    }

    /// Registers the next receive window, if the peer has filled the current buffer and the next is free (clauses W-5, W-6).
    /// Returns the Register to send.
    pub(super) fn next_to_offer(&mut self) -> Option<XferMemory> {
        if self.buffers[self.filling].announced < self.len {
            return None;
        }
        let next = (self.filling + 1) % self.buffers.len();
        if self.buffers[next].unread() > 0 {
            return None;
        }
        if self.reading == self.filling && self.buffers[self.reading].unread() == 0 {
            self.reading = next;
        }
        self.filling = next;
        self.buffers[next].announced = 0;
        self.buffers[next].consumed = 0;
        Some(self.advertise())
    }

    /// Accepts no more data, because the peer has broken the protocol.
    pub(super) fn close(&mut self) {
        self.open = false;
    }

    /// Returns the next contiguous announced bytes, if there are any.
    pub(super) fn readable(&self) -> Option<Slice> {
        let buffer = &self.buffers[self.reading];
        (buffer.unread() > 0).then(|| Slice {
            region: buffer.region.id,
            offset: buffer.consumed,
            len: buffer.unread(),
        })
    }

    /// Frees `len` bytes that the application has taken.
    ///
    /// # Panics
    /// If `len` exceeds what [`readable`](Self::readable) returns.
    pub(super) fn consume(&mut self, len: u32) {
        let buffer = &mut self.buffers[self.reading];
        assert!(len <= buffer.unread(), "consumed {len} of {} readable bytes", buffer.unread());
        buffer.consumed += len;
        if buffer.consumed == self.len && self.reading != self.filling {
            self.reading = (self.reading + 1) % self.buffers.len();
        }
    }

    fn advertise(&self) -> XferMemory {
        let region = &self.buffers[self.filling].region;
        XferMemory { addr: region.addr, len: region.len, key: region.rkey }
    }
}

impl Buffer {
    fn unread(&self) -> u32 {
        self.announced - self.consumed
    }
}

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
    use crate::work::RegionId;

    fn window(buffers: u32, len: u32) -> RxWindow {
        let regions: Vec<_> = (0..buffers)
            .map(|n| Region { id: RegionId(n), addr: 0x1000 * u64::from(n + 1), rkey: n, len })
            .collect();
        let mut window = RxWindow::new(&regions);
        let _ = window.register_first();
        window
    }

    #[test]
    fn immediate_beyond_the_room_is_refused_i2() {
        let mut rx = window(1, 100);
        assert_eq!(rx.handle_immediate(60, 60), Ok(true));
        let refused = Err(ProtocolError::ImmediateBeyondWindow { announced: 41, room: 40 });
        assert_eq!(rx.handle_immediate(41, 41), refused);
        let wrapping = u32::MAX - 10;
        let refused = Err(ProtocolError::ImmediateBeyondWindow { announced: wrapping, room: 40 });
        assert_eq!(rx.handle_immediate(1, wrapping), refused);
    }

    #[test]
    fn immediate_below_the_write_is_refused_i3() {
        let mut rx = window(1, 100);
        let refused = Err(ProtocolError::ImmediateTooSmall { announced: 3, written: 4 });
        assert_eq!(rx.handle_immediate(4, 3), refused);
    }

    #[test]
    fn plain_writes_before_the_immediate_are_announced_by_it_i4() {
        let mut rx = window(1, 512);
        assert_eq!(rx.handle_immediate(128, 512), Ok(true));
        assert_eq!(rx.readable().map(|slice| slice.len), Some(512));
    }

    #[test]
    fn one_buffer_is_offered_again_only_when_full_and_read_w5() {
        let mut rx = window(1, 10);
        let _ = rx.handle_immediate(9, 9);
        rx.consume(9);
        assert_eq!(rx.next_to_offer(), None, "one byte short of full");
        let _ = rx.handle_immediate(1, 1);
        assert_eq!(rx.next_to_offer(), None, "full but not read");
        rx.consume(1);
        assert_eq!(rx.next_to_offer().map(|memory| memory.addr), Some(0x1000));
        assert_eq!(rx.next_to_offer(), None, "offered once");
    }

    #[test]
    fn two_buffers_are_offered_as_soon_as_full_and_read_in_order_w6() {
        let mut rx = window(2, 10);
        let _ = rx.handle_immediate(10, 10);
        assert_eq!(rx.next_to_offer().map(|memory| memory.addr), Some(0x2000));
        assert_eq!(rx.handle_immediate(10, 10), Ok(true));
        assert_eq!(rx.next_to_offer(), None, "both hold unread bytes");
        rx.consume(10);
        assert_eq!(rx.next_to_offer().map(|memory| memory.addr), Some(0x1000));
        assert_eq!(rx.readable(), Some(Slice { region: RegionId(1), offset: 0, len: 10 }));
    }

    #[test]
    fn bytes_before_our_register_are_refused_i2() {
        let mut rx = RxWindow::new(&[Region { id: RegionId(0), addr: 0, rkey: 0, len: 10 }]);
        let refused = Err(ProtocolError::ImmediateBeyondWindow { announced: 1, room: 0 });
        assert_eq!(rx.handle_immediate(1, 1), refused);
    }

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
