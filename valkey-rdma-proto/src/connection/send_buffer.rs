//! What the application has given to be sent: bytes in the send buffer, one registered ring, and among them bytes
//! lent to the connection, which are sent from where they lie.
//!
//! The ring's size is ours, whatever the peer's window (hazard H4). Bytes may be changed only after a completion
//! at or past the write that carried them, because the device may send them again until then (hazard H20).

use alloc::collections::VecDeque;
use core::ops::Range;

use super::DeliveryReport;
use crate::work::{RegionId, Slice};

/// Everything to be sent, in order. Positions count bytes over the whole connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct SendBuffer {
    region: RegionId,
    len: u32,
    /// Bytes given by the application.
    staged: u64,
    /// Bytes handed to the device.
    posted: u64,
    /// Bytes acknowledged by the peer's device.
    acknowledged: u64,
    /// Bytes put into the ring: all that were given but those lent.
    ring_staged: u64,
    /// Bytes handed to the device out of the ring.
    ring_posted: u64,
    /// Lent bytes that were not handed to the device to their end: the position of the first one, and where they lie.
    lent: VecDeque<(u64, Slice)>,
}

impl SendBuffer {
    /// # Panics
    /// If `len` is zero.
    pub(super) fn new(region: RegionId, len: u32) -> Self {
        assert!(len > 0, "the send buffer has room");
        Self {
            region,
            len,
            staged: 0,
            posted: 0,
            acknowledged: 0,
            ring_staged: 0,
            ring_posted: 0,
            lent: VecDeque::new(),
        }
    }

    /// Length of the ring in bytes.
    pub(super) fn len(&self) -> u32 {
        self.len
    }

    /// How many bytes may be given. Lent bytes count as if they were in the ring, so that no more is under way than it
    /// holds.
    pub(super) fn room(&self) -> u32 {
        self.len - as_len(self.staged - self.acknowledged)
    }

    /// The free bytes of the ring that lie in one piece, as offsets into the region. Empty if there is no room.
    pub(super) fn free(&self) -> Range<u32> {
        let start = self.offset(self.ring_staged);
        start..start + self.room().min(self.len - start)
    }

    /// The first `len` free bytes have been filled.
    ///
    /// # Panics
    /// If they are more than [`free`](Self::free) offers.
    pub(super) fn commit(&mut self, len: u32) {
        assert!(len <= self.free().len() as u32, "committed more than was reserved");
        self.staged += u64::from(len);
        self.ring_staged += u64::from(len);
    }

    /// These bytes follow everything given so far.
    ///
    /// # Panics
    /// If they are more than there is room for.
    pub(super) fn lend(&mut self, slice: Slice) {
        assert!(slice.len <= self.room(), "lent more than there is room for");
        if slice.len > 0 {
            self.lent.push_back((self.staged, slice));
            self.staged += u64::from(slice.len);
        }
    }

    /// How many bytes are to be posted.
    pub(super) fn waiting(&self) -> u32 {
        as_len(self.staged - self.posted)
    }

    /// The bytes to post next that lie in one piece.
    pub(super) fn unposted(&self) -> Slice {
        match self.lent.front() {
            Some(&(start, slice)) if start <= self.posted => {
                let done = as_len(self.posted - start);
                Slice { offset: slice.offset + done, len: slice.len - done, ..slice }
            }
            next => {
                let offset = self.offset(self.ring_posted);
                let until = next.map_or(self.staged, |(start, _)| *start);
                let len = as_len(until - self.posted).min(self.len - offset);
                Slice { region: self.region, offset, len }
            }
        }
    }

    /// The first `len` unposted bytes went to the device. Returns whether they end with the last one of some that
    /// were lent.
    pub(super) fn post(&mut self, len: u32) -> bool {
        debug_assert!(len <= self.unposted().len);
        let lent = self.lent.front().filter(|(start, _)| *start <= self.posted);
        let end = lent.map(|(start, slice)| start + u64::from(slice.len));
        self.posted += u64::from(len);
        if end.is_none() {
            self.ring_posted += u64::from(len);
        }
        let ends = end == Some(self.posted);
        if ends {
            self.lent.pop_front();
        }
        ends
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

    /// What became of everything given.
    pub(super) fn delivery_report(&self) -> DeliveryReport {
        DeliveryReport {
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
        let mut send_buffer = SendBuffer::new(RegionId(0), 10);
        assert_eq!(send_buffer.free(), 0..10);
        send_buffer.commit(7);
        assert!(!send_buffer.post(7));
        assert_eq!(send_buffer.free(), 7..10);
        assert_eq!(send_buffer.room(), 3);
        send_buffer.commit(3);
        assert_eq!(send_buffer.free(), 0..0, "posted is not acknowledged");
        send_buffer.acknowledge(7);
        assert_eq!(send_buffer.free(), 0..7);
        assert_eq!(send_buffer.room(), 7);
        send_buffer.commit(2);
        assert_eq!(send_buffer.unposted(), Slice { region: RegionId(0), offset: 7, len: 3 });
        assert_eq!(send_buffer.waiting(), 5, "two of them at the front");
        let _ = send_buffer.post(3);
        assert_eq!(send_buffer.unposted(), Slice { region: RegionId(0), offset: 0, len: 2 });
        assert_eq!(send_buffer.delivery_report(), DeliveryReport { delivered: 7, unknown: 3, unsent: 2 });
    }

    const USER: RegionId = RegionId(7);

    #[test]
    fn lent_bytes_keep_their_place_in_the_stream_and_take_none_in_the_ring() {
        let mut send_buffer = SendBuffer::new(RegionId(0), 10);
        send_buffer.commit(3);
        send_buffer.lend(Slice { region: USER, offset: 100, len: 5 });
        send_buffer.commit(2);
        assert_eq!((send_buffer.room(), send_buffer.free()), (0, 5..5), "they count");
        assert_eq!(send_buffer.unposted(), Slice { region: RegionId(0), offset: 0, len: 3 });
        assert!(!send_buffer.post(3));
        assert_eq!(send_buffer.unposted(), Slice { region: USER, offset: 100, len: 5 });
        assert!(!send_buffer.post(4));
        assert_eq!(send_buffer.unposted(), Slice { region: USER, offset: 104, len: 1 });
        send_buffer.acknowledge(7);
        assert_eq!(send_buffer.delivery_report(), DeliveryReport { delivered: 7, unknown: 0, unsent: 3 });
        assert!(send_buffer.post(1), "the last of them");
        assert_eq!(send_buffer.unposted(), Slice { region: RegionId(0), offset: 3, len: 2 });
        assert_eq!((send_buffer.room(), send_buffer.free()), (7, 5..10));
    }

    #[test]
    #[should_panic(expected = "room")]
    fn lending_more_than_there_is_room_for_is_a_bug() {
        let mut send_buffer = SendBuffer::new(RegionId(0), 10);
        send_buffer.commit(4);
        send_buffer.lend(Slice { region: USER, offset: 0, len: 7 });
    }
}
