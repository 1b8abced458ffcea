//! What the application has given to be sent: bytes in the send buffer, one registered ring, and among them bytes
//! lent to the connection, which are sent from where they lie.
//!
//! The ring's size is ours, whatever the peer's window (hazard H4). Bytes may be changed only after a completion
//! at or past the write that carried them, because the device may send them again until then (hazard H20).

use alloc::collections::VecDeque;
use core::ops::Range;

use super::Fate;
use crate::work::{RegionId, Slice};

/// Everything to be sent, in order. Positions count bytes over the whole connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Staging {
    region: RegionId,
    len: u32,
    /// Bytes given by the application.
    staged: u64,
    /// Bytes handed to the device.
    posted: u64,
    /// Bytes acknowledged by the peer's device.
    acknowledged: u64,
    /// Lent bytes that are not acknowledged to their end.
    lent: VecDeque<Lent>,
    /// How many lent bytes there were before those.
    lent_before: u64,
}

/// Bytes that lie elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Lent {
    /// Position of the first one.
    start: u64,
    slice: Slice,
}

impl Lent {
    /// Position after the last one.
    fn end(&self) -> u64 {
        self.start + u64::from(self.slice.len)
    }

    /// How many of them are before `position`.
    fn before(&self, position: u64) -> u64 {
        position.clamp(self.start, self.end()) - self.start
    }
}

impl Staging {
    /// # Panics
    /// If `len` is zero.
    pub(super) fn new(region: RegionId, len: u32) -> Self {
        assert!(len > 0, "the send buffer has room");
        Self { region, len, staged: 0, posted: 0, acknowledged: 0, lent: VecDeque::new(), lent_before: 0 }
    }

    /// Length of the ring in bytes.
    pub(super) fn len(&self) -> u32 {
        self.len
    }

    /// How many bytes may be put in. Lent bytes count as if they were in the ring, so that no more of them are under
    /// way than of others; but for the last ones, which may be any number.
    pub(super) fn room(&self) -> u32 {
        u64::from(self.len).saturating_sub(self.staged - self.acknowledged) as u32
    }

    /// The free bytes of the ring that lie in one piece, as offsets into the region. Empty if there is no room.
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

    /// These bytes follow everything put in so far.
    pub(super) fn lend(&mut self, slice: Slice) {
        if slice.len > 0 {
            self.lent.push_back(Lent { start: self.staged, slice });
            self.staged += u64::from(slice.len);
        }
    }

    /// How many bytes are to be posted.
    pub(super) fn waiting(&self) -> u64 {
        self.staged - self.posted
    }

    /// The bytes to post next that lie in one piece.
    pub(super) fn unposted(&self) -> Slice {
        let next = self.lent.iter().find(|lent| lent.end() > self.posted);
        match next {
            Some(&Lent { start, slice }) if start <= self.posted => {
                let done = as_len(self.posted - start);
                Slice { offset: slice.offset + done, len: slice.len - done, ..slice }
            }
            _ => {
                let offset = self.offset(self.posted);
                let until = next.map_or(self.staged, |lent| lent.start);
                let len = as_len(until - self.posted).min(self.len - offset);
                Slice { region: self.region, offset, len }
            }
        }
    }

    /// Whether these are bytes of somebody else's.
    pub(super) fn is_lent(&self, slice: Slice) -> bool {
        slice.region != self.region
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
        while let Some(lent) = self.lent.front().filter(|lent| lent.end() <= self.acknowledged) {
            self.lent_before += u64::from(lent.slice.len);
            self.lent.pop_front();
        }
    }

    /// What became of everything put in.
    pub(super) fn fate(&self) -> Fate {
        Fate {
            delivered: self.acknowledged,
            unknown: self.posted - self.acknowledged,
            unsent: self.staged - self.posted,
        }
    }

    /// Where in the ring the byte at `position` is, which is not acknowledged: lent ones take no place.
    fn offset(&self, position: u64) -> u32 {
        let lent = self.lent.iter().map(|lent| lent.before(position)).sum::<u64>();
        ((position - self.lent_before - lent) % u64::from(self.len)) as u32
    }
}

/// Pieces are never longer than what they lie in.
fn as_len(bytes: u64) -> u32 {
    u32::try_from(bytes).expect("no longer than a region")
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
        assert_eq!(staging.waiting(), 5, "two of them at the front");
        let _ = staging.post(3);
        assert_eq!(staging.unposted(), Slice { region: RegionId(0), offset: 0, len: 2 });
        assert_eq!(staging.fate(), Fate { delivered: 7, unknown: 3, unsent: 2 });
    }

    #[test]
    fn lent_bytes_keep_their_place_in_the_stream_and_take_none_in_the_ring() {
        const USER: RegionId = RegionId(7);
        let mut staging = Staging::new(RegionId(0), 10);
        staging.commit(3);
        staging.lend(Slice { region: USER, offset: 100, len: 5 });
        staging.commit(2);
        assert_eq!(staging.unposted(), Slice { region: RegionId(0), offset: 0, len: 3 });
        let _ = staging.post(3);
        assert_eq!(staging.unposted(), Slice { region: USER, offset: 100, len: 5 });
        let position = staging.post(4);
        assert_eq!(staging.unposted(), Slice { region: USER, offset: 104, len: 1 });
        staging.acknowledge(position);
        assert_eq!(staging.fate(), Fate { delivered: 7, unknown: 0, unsent: 3 });
        let _ = staging.post(1);
        assert_eq!(staging.unposted(), Slice { region: RegionId(0), offset: 3, len: 2 });
        staging.acknowledge(10 - 2);
        assert_eq!(staging.unposted(), Slice { region: RegionId(0), offset: 3, len: 2 }, "as before");
        assert_eq!(staging.free(), 5..10);
    }

    #[test]
    fn lent_bytes_use_up_room_and_the_last_ones_may_be_more_than_there_is() {
        let mut staging = Staging::new(RegionId(0), 10);
        staging.commit(4);
        staging.lend(Slice { region: RegionId(7), offset: 0, len: 100 });
        assert_eq!((staging.room(), staging.free()), (0, 4..4));
        assert_eq!(staging.waiting(), 104);
        let _ = staging.post(4);
        let position = staging.post(97);
        staging.acknowledge(position);
        assert_eq!((staging.room(), staging.free()), (7, 4..10), "three of them are left");
    }
}
