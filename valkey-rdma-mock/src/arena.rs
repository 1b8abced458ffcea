//! [`Arena`]: registered memory for large strings, so that a server's device reads and writes them where they lie.

use std::iter;
use std::sync::Mutex;

use bytes::Bytes;
use valkey_rdma_server::{DirectMemory, DirectSlice};
use valkey_rdma_transport::sync::lock;

/// Memory for strings of [`LARGE`] bytes and more. It grows, and never shrinks: each connection that uses a part registers it until the
/// connection has ended.
#[derive(Default)]
pub(crate) struct Arena(Mutex<Vec<Part>>);

/// Memory in slots of one length. A slot is free when nothing holds its slice, nor bytes of it.
struct Part {
    memory: DirectMemory,
    slot: usize,
    /// The slot that was taken last, and the one before.
    last: usize,
    before: usize,
    /// The address of the first byte.
    start: usize,
}

impl Arena {
    /// Takes a place for `len` bytes. `None` below [`LARGE`], and beyond what one registration can have.
    pub(crate) fn take(&self, len: usize) -> Option<DirectSlice> {
        if len < LARGE {
            return None;
        }
        let slot = len.checked_next_power_of_two()?.max(SMALLEST_SLOT);
        let mut parts = lock(&self.0);
        let mut of_slot = parts.iter_mut().filter(|part| part.slot == slot);
        if let Some(free) = of_slot.find_map(|part| part.take(len)) {
            return Some(free);
        }
        let mut part = Part::new(slot)?;
        let first = part.take(len);
        parts.push(part);
        first
    }

    /// The same string in this memory. It is copied, unless it lies there already.
    pub(crate) fn place(&self, value: &Bytes) -> Bytes {
        let start = value.as_ptr().addr();
        if lock(&self.0).iter().any(|part| (part.start..part.start + part.memory.len()).contains(&start)) {
            return value.clone();
        }
        let Some(mut place) = self.take(value.len()) else { return value.clone() };
        place.copy_from_slice(value);
        place.freeze()
    }
}

impl Part {
    fn new(slot: usize) -> Option<Self> {
        let memory = DirectMemory::allocate(slot.max(PART)).ok()?;
        let start = memory.take(0..1).ok()?.as_ptr().addr();
        Some(Self { memory, slot, last: 0, before: 0, start })
    }

    /// Looks for a free slot. A value that is replaced again and again alternates between two, whose bytes stay in the processor's caches.
    fn take(&mut self, len: usize) -> Option<DirectSlice> {
        let slots = self.memory.len() / self.slot;
        let onwards = (self.last..self.last + slots).map(|at| at % slots);
        let free = |at: usize| {
            let start = at * self.slot;
            Some((at, self.memory.take(start..start + len).ok()?))
        };
        let (at, slice) = iter::once(self.before).chain(onwards).find_map(free)?;
        (self.before, self.last) = (self.last, at);
        Some(slice)
    }
}

/// Shorter strings are copied on their way to a device anyway.
const LARGE: usize = 8 << 10;

const SMALLEST_SLOT: usize = 64 << 10;

/// Few large registrations cost less than many small ones.
pub(crate) const PART: usize = 64 << 20;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn replaced_values_give_their_place_back() {
        let arena = Arena::default();
        let mut value = Bytes::new();
        let mut starts = BTreeSet::new();
        for round in 0..5000_u32 {
            let mut place = arena.take(70_000).expect("a place");
            place.fill(round as u8);
            starts.insert(place.as_ptr().addr());
            value = place.freeze();
        }
        assert!(value == vec![4999_u32 as u8; 70_000]);
        assert_eq!((lock(&arena.0).len(), starts.len()), (1, 2));
        assert_eq!(arena.place(&value).as_ptr(), value.as_ptr(), "it lies there already");
    }

    #[test]
    fn values_never_overlap_and_small_ones_are_not_moved() {
        let arena = Arena::default();
        let values: Vec<Bytes> = (0..100).map(|byte| arena.place(&vec![byte; 1 << 20].into())).collect();
        assert!(values.iter().zip(0..).all(|(value, byte)| *value == vec![byte; 1 << 20]));
        assert_eq!(lock(&arena.0).len(), 2, "64 MiB each");
        let small = Bytes::from(vec![1; LARGE - 1]);
        assert_eq!(arena.place(&small).as_ptr(), small.as_ptr());
    }
}
