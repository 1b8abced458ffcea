//! The send buffer: one registered ring, in which bytes wait for window and credits and then for their
//! acknowledgement.
//!
//! Its size is ours, whatever the peer's window (hazard H4). Bytes may be overwritten only after a completion
//! at or past the write that carried them, because the device may send them again until then (hazard H20).

use core::ops::Range;

use super::Fate;
use crate::work::{RegionId, Slice};

/// The ring. Positions count bytes over the whole connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Staging {
    region: RegionId,
    len: u32,
    /// Bytes put in by the application.
    staged: u64,
    /// Bytes handed to the device.
    posted: u64,
    /// Bytes acknowledged by the peer's device.
    acknowledged: u64,
}

impl Staging {
    /// # Panics
    /// If `len` is zero.
    pub(super) fn new(region: RegionId, len: u32) -> Self {
        assert!(len > 0, "the send buffer has room");
        Self { region, len, staged: 0, posted: 0, acknowledged: 0 }
    }

    /// Length of the ring in bytes.
    pub(super) fn len(&self) -> u32 {
        self.len
    }

    /// How many bytes are free.
    pub(super) fn room(&self) -> u32 {
        self.len - as_len(self.staged - self.acknowledged)
    }

    /// The free bytes that lie in one piece, as offsets into the region. Empty if it is full.
    pub(super) fn free(&self) -> Range<u32> {
        let start = self.offset(self.staged);
        start..start + self.room().min(self.len - start)
    }

    /// The first `len` free bytes have been filled.
    ///
    /// # Panics
    /// If they are more than [`free`](Self::free) offers.
    pub(super) fn commit(&mut self, len: u32) {
        assert!(len <= self.free().len() as u32, "committed more than was reserved");
        self.staged += u64::from(len);
    }

    /// How many bytes are to be posted.
    pub(super) fn waiting(&self) -> u32 {
        as_len(self.staged - self.posted)
    }

    /// The bytes to post next that lie in one piece.
    pub(super) fn unposted(&self) -> Slice {
        let offset = self.offset(self.posted);
        let len = self.waiting().min(self.len - offset);
        Slice { region: self.region, offset, len }
    }

    /// The first `len` unposted bytes went to the device. Returns the position after them.
    pub(super) fn post(&mut self, len: u32) -> u64 {
        debug_assert!(len <= self.unposted().len);
        self.posted += u64::from(len);
        self.posted
    }

    /// The position up to which bytes went to the device.
    pub(super) fn posted(&self) -> u64 {
        self.posted
    }

    /// Everything before `position` is with the peer.
    pub(super) fn acknowledge(&mut self, position: u64) {
        debug_assert!(position <= self.posted);
        self.acknowledged = self.acknowledged.max(position);
    }

    /// Whether bytes to post lie at the front of the ring, after the next `len` ones at its end.
    pub(super) fn wraps_after(&self, len: u32) -> bool {
        self.staged - self.posted > u64::from(len) && self.offset(self.posted) + len == self.len
    }

    /// What became of everything put in.
    pub(super) fn fate(&self) -> Fate {
        Fate {
            delivered: self.acknowledged,
            unknown: self.posted - self.acknowledged,
            unsent: self.staged - self.posted,
        }
    }

    fn offset(&self, position: u64) -> u32 {
        (position % u64::from(self.len)) as u32
    }
}

/// Differences of positions never exceed the ring's length.
fn as_len(bytes: u64) -> u32 {
    u32::try_from(bytes).expect("never more than the ring holds")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ring_wraps_and_is_reused_only_after_acknowledgement() {
        let mut staging = Staging::new(RegionId(0), 10);
        assert_eq!(staging.free(), 0..10);
        staging.commit(7);
        let position = staging.post(7);
        assert_eq!(staging.free(), 7..10);
        assert_eq!(staging.room(), 3);
        staging.commit(3);
        assert_eq!(staging.free(), 0..0, "posted is not acknowledged");
        staging.acknowledge(position);
        assert_eq!(staging.free(), 0..7);
        assert_eq!(staging.room(), 7);
        staging.commit(2);
        assert_eq!(staging.unposted(), Slice { region: RegionId(0), offset: 7, len: 3 });
        assert!(staging.wraps_after(3) && !staging.wraps_after(2));
        let _ = staging.post(3);
        assert_eq!(staging.unposted(), Slice { region: RegionId(0), offset: 0, len: 2 });
        assert_eq!(staging.fate(), Fate { delivered: 7, unknown: 3, unsent: 2 });
    }
}
