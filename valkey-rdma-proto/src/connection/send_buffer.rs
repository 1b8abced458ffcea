//! The bytes that the application has committed: a registered ring, and slices lent by the application, which are sent
//! from their place.
//!
//! The length of the ring does not depend on the peer's window (clause W-2). Bytes may be changed only after the
//! completion of the write that carried them or of a later one, because the device may send them again until then.

use alloc::collections::VecDeque;
use core::ops::Range;

use super::DeliveryReport;
use crate::work::{RegionId, Slice};

/// The committed bytes, in order. Positions count bytes over the whole connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct SendBuffer {
    region: RegionId,
    len: u32,
    /// Largest number of bytes in flight: the length, or 0 while the buffer is sealed.
    limit: u32,
    /// Bytes that the application has committed or lent.
    committed: u64,
    /// Bytes handed to the device.
    posted: u64,
    /// Bytes acknowledged by the peer's device.
    acknowledged: u64,
    /// Bytes committed into the ring.
    ring_committed: u64,
    /// Bytes of the ring that were handed to the device.
    ring_posted: u64,
    /// Lent slices that were not completely handed to the device, each with the position of its first byte.
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
            limit: len,
            committed: 0,
            posted: 0,
            acknowledged: 0,
            ring_committed: 0,
            ring_posted: 0,
            lent: VecDeque::new(),
        }
    }

    /// Takes no bytes until it is unsealed.
    pub(super) fn seal(&mut self) {
        self.limit = 0;
    }

    /// Takes bytes.
    pub(super) fn unseal(&mut self) {
        self.limit = self.len;
    }

    /// Returns the length of the ring in bytes.
    pub(super) fn len(&self) -> u32 {
        self.len
    }

    /// Continues in another ring. Bytes of the former one that were not handed to the device are sent from there, as if
    /// they were lent: nothing is copied, and the former ring must stay registered until they are acknowledged.
    ///
    /// # Panics
    /// If the new ring is shorter than the bytes that are outstanding.
    pub(super) fn replace(&mut self, region: RegionId, len: u32) {
        assert!(
            u64::from(len) >= self.committed - self.acknowledged,
            "the ring has room for what is outstanding"
        );
        let mut pieces = VecDeque::new();
        let mut sent = self.clone();
        while sent.waiting() > 0 {
            let piece = sent.unposted();
            pieces.push_back((sent.posted, piece));
            sent.post(piece.len);
        }
        (self.lent, self.region, self.len, self.limit) = (pieces, region, len, len);
        (self.ring_committed, self.ring_posted) = (0, 0);
    }

    /// Returns how many bytes may be committed or lent. Lent bytes count as if they were in the ring, so that no more
    /// bytes are in flight than the ring holds.
    pub(super) fn room(&self) -> u32 {
        self.limit - as_len(self.committed - self.acknowledged)
    }

    /// Returns the next contiguous free bytes of the ring, as offsets into the region. Empty if the ring is full.
    pub(super) fn free(&self) -> Range<u32> {
        let start = self.offset(self.ring_committed);
        start..start + self.room().min(self.len - start)
    }

    /// Commits the first `len` free bytes.
    ///
    /// # Panics
    /// If `len` exceeds what [`free`](Self::free) returns.
    pub(super) fn commit(&mut self, len: u32) {
        assert!(len <= self.free().len() as u32, "committed more than was reserved");
        self.committed += u64::from(len);
        self.ring_committed += u64::from(len);
    }

    /// Appends a lent slice.
    ///
    /// # Panics
    /// If the slice is longer than [`room`](Self::room).
    pub(super) fn lend(&mut self, slice: Slice) {
        assert!(slice.len <= self.room(), "lent more than there is room for");
        if slice.len > 0 {
            self.lent.push_back((self.committed, slice));
            self.committed += u64::from(slice.len);
        }
    }

    /// Returns how many bytes were not handed to the device yet.
    pub(super) fn waiting(&self) -> u32 {
        as_len(self.committed - self.posted)
    }

    /// Returns how many bytes before `position` were not handed to the device yet.
    pub(super) fn waiting_before(&self, position: u64) -> u32 {
        as_len(position.saturating_sub(self.posted))
    }

    /// Returns the position after everything committed.
    pub(super) fn committed(&self) -> u64 {
        self.committed
    }

    /// Returns the next contiguous bytes to post.
    pub(super) fn unposted(&self) -> Slice {
        match self.lent.front() {
            Some(&(start, slice)) if start <= self.posted => {
                let done = as_len(self.posted - start);
                Slice { offset: slice.offset + done, len: slice.len - done, ..slice }
            }
            next => {
                let offset = self.offset(self.ring_posted);
                let until = next.map_or(self.committed, |(start, _)| *start);
                let len = as_len(until - self.posted).min(self.len - offset);
                Slice { region: self.region, offset, len }
            }
        }
    }

    /// Marks the first `len` unposted bytes as handed to the device. Returns whether they end with the last byte of a
    /// lent slice.
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

    /// Returns the position up to which bytes were handed to the device.
    pub(super) fn posted(&self) -> u64 {
        self.posted
    }

    /// Marks all bytes before `position` as acknowledged.
    pub(super) fn acknowledge(&mut self, position: u64) {
        debug_assert!(position <= self.posted);
        self.acknowledged = self.acknowledged.max(position);
    }

    /// Returns what happened to the committed bytes.
    pub(super) fn delivery_report(&self) -> DeliveryReport {
        DeliveryReport {
            delivered: self.acknowledged,
            unknown: self.posted - self.acknowledged,
            unsent: self.committed - self.posted,
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
    fn the_ring_wraps_and_is_reused_only_after_acknowledgement_l4() {
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
    fn a_ring_that_is_replaced_sends_what_waits_in_its_former_place_first_and_in_order() {
        let (former, ring) = (RegionId(0), RegionId(1));
        let mut send_buffer = SendBuffer::new(former, 10);
        send_buffer.commit(8);
        let _ = send_buffer.post(8);
        send_buffer.acknowledge(6);
        send_buffer.commit(2);
        send_buffer.commit(1);
        send_buffer.lend(Slice { region: USER, offset: 100, len: 3 });
        send_buffer.commit(2);
        send_buffer.replace(ring, 20);
        assert_eq!((send_buffer.len(), send_buffer.room(), send_buffer.free()), (20, 10, 0..10));
        send_buffer.commit(4);
        let expected = [(former, 8, 2), (former, 0, 1), (USER, 100, 3), (former, 1, 2), (ring, 0, 4)];
        for (region, offset, len) in expected {
            assert_eq!(send_buffer.unposted(), Slice { region, offset, len });
            let _ = send_buffer.post(len);
        }
        send_buffer.acknowledge(send_buffer.posted());
        assert_eq!((send_buffer.waiting(), send_buffer.room(), send_buffer.free()), (0, 20, 4..20));
        send_buffer.replace(former, 10);
        assert_eq!(
            (send_buffer.len(), send_buffer.room(), send_buffer.free()),
            (10, 10, 0..10),
            "back again"
        );
    }

    #[test]
    #[should_panic(expected = "room")]
    fn lending_more_than_there_is_room_for_is_a_bug() {
        let mut send_buffer = SendBuffer::new(RegionId(0), 10);
        send_buffer.commit(4);
        send_buffer.lend(Slice { region: USER, offset: 0, len: 7 });
    }
}
