//! [`SendRegion`]: memory of the application that large values are sent from where they are.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::in_place::SendMemory;

/// Memory that the application has already, such as an arena of its own or of another language, of which large values are
/// sent without a copy. Where the values may be made anywhere, a [`BufferPool`](crate::BufferPool) is simpler.
///
/// Nothing is registered until a connection sends from it. Each connection that does registers the part that it sends from, 1 GiB
/// at most at a time, and keeps it registered until it has ended. That has the cost that `BufferPool` describes. Where it is
/// refused, the connection logs a warning and copies.
///
/// ```
/// use bytes::Bytes;
/// use valkey_rdma_transport::SendRegion;
///
/// let arena = Bytes::from(vec![7; 1 << 20]);
/// let region = SendRegion::new(arena.as_ptr().addr(), arena.len(), arena.clone());
/// let value = region.lend(arena.slice(4096..65_536)); // write it, or hand it to a command
/// assert_eq!(value.len(), 61_440);
/// ```
#[derive(Clone)]
pub struct SendRegion {
    /// Each is registered as one.
    parts: Arc<[SendMemory]>,
}

impl SendRegion {
    /// Memory of `len` bytes from address `start` on. Neither is read through this: the device reads what is
    /// [lent](Self::lend), and only that. `owner` keeps the memory where it is, and is dropped when the last connection that
    /// has registered it has ended.
    ///
    /// If two regions overlap, values in the overlap may be copied.
    pub fn new(start: usize, len: usize, owner: impl Send + Sync + 'static) -> Self {
        let owner: Arc<dyn Any + Send + Sync> = Arc::new(owner);
        let parts = (0..len).step_by(PART).map(|offset| {
            let len = (len - offset).min(PART) as u32;
            SendMemory::new(start + offset, len, owner.clone())
        });
        Self { parts: parts.collect() }
    }

    /// The same bytes, which connections send from where they are, if they lie in one part of this region. They are held until
    /// the peer's device has acknowledged them, or the connection has ended, so `value` must not change before it is dropped.
    #[must_use]
    pub fn lend(&self, value: Bytes) -> Bytes {
        match self.parts.iter().find(|part| part.contains(&value)) {
            Some(part) => part.lend(value),
            None => value,
        }
    }
}

impl fmt::Debug for SendRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let len: u64 = self.parts.iter().map(|part| u64::from(part.len())).sum();
        f.debug_struct("SendRegion").field("len", &len).finish_non_exhaustive()
    }
}

/// Registering more at once would hold up the first write for longer.
const PART: usize = 1 << 30;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::in_place::PinnedSlice;

    fn region(memory: &Bytes) -> SendRegion {
        SendRegion::new(memory.as_ptr().addr(), memory.len(), memory.clone())
    }

    #[test]
    fn only_what_is_lent_is_known_again_and_held() {
        let memory = Bytes::from((0..=255).collect::<Vec<u8>>());
        let region = region(&memory);
        assert!(PinnedSlice::of(&memory[10..20]).is_none(), "not lent");
        let value = region.lend(memory.slice(10..20));
        assert_eq!(value, memory[10..20]);
        let pinned = PinnedSlice::of(&memory[12..20]).expect("lent");
        assert_eq!((pinned.bytes(), pinned.range()), (&memory[12..20], 12..20));
        assert!(PinnedSlice::of(&memory[12..21]).is_none(), "the last byte is not");
        drop(value);
        assert!(PinnedSlice::of(&memory[15..16]).is_some(), "held by what is being sent");
        drop(pinned);
        assert!(PinnedSlice::of(&memory[15..16]).is_none());
    }

    #[test]
    fn a_value_that_others_begin_inside_of_is_found() {
        let memory = Bytes::from(vec![1; 100]);
        let region = region(&memory);
        let outer = region.lend(memory.slice(0..100));
        let _inner = [region.lend(memory.slice(10..20)), region.lend(memory.slice(20..30))];
        assert!(PinnedSlice::of(&outer[25..90]).is_some());
    }

    #[test]
    fn other_bytes_come_back_as_they_were() {
        let (memory, other) = (Bytes::from(vec![1; 100]), Bytes::from(vec![2; 100]));
        let value = region(&memory).lend(other.clone());
        assert_eq!(value.as_ptr(), other.as_ptr());
        assert!(PinnedSlice::of(&value).is_none());
    }

    #[test]
    fn memory_is_kept_while_something_holds_it() {
        let memory = Bytes::from(vec![1; 100]);
        let owner = Arc::new(());
        let region = SendRegion::new(memory.as_ptr().addr(), memory.len(), owner.clone());
        let value = region.lend(memory.clone());
        drop(region);
        assert_eq!(Arc::strong_count(&owner), 2);
        drop(value);
        assert_eq!(Arc::strong_count(&owner), 1);
    }

    /// Addresses only: such memory need not exist to be divided.
    #[test]
    fn large_regions_have_parts() {
        let region = SendRegion::new(1 << 40, 2 * PART + 5, ());
        let parts: Vec<_> = region.parts.iter().map(|part| (part.start(), part.len() as usize)).collect();
        assert_eq!(parts, [(1 << 40, PART), ((1 << 40) + PART, PART), ((1 << 40) + 2 * PART, 5)]);
        assert_eq!(SendRegion::new(1 << 41, 0, ()).parts.len(), 0);
    }
}
