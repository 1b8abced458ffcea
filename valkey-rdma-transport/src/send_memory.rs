//! Memory that large values are sent from where they are, known again by its address: writers hand over slices, which say
//! nothing else of where they come from.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use bytes::{BufMut, Bytes};

use crate::sync::{Mutex, RwLock, RwLockWriteGuard, lock, read, write};

/// Memory that a device reads values from: that of a [`BufferPool`](crate::BufferPool), or a part of a
/// [`SendRegion`]. Less than 4 GiB. Clones are the same memory.
#[derive(Clone)]
pub struct SendMemory(Arc<Lendable>);

/// What stands behind a [`SendMemory`].
pub(crate) struct Lendable {
    start: usize,
    len: u32,
    /// By the address of its first byte, and a number: what may be sent in place.
    lent: Mutex<BTreeMap<(usize, u64), Entry>>,
    /// Length of the longest value that was ever lent.
    longest: AtomicUsize,
    _owner: Arc<dyn Any + Send + Sync>,
}

/// A value that may be sent in place.
struct Entry {
    len: usize,
    value: Weak<Lent>,
}

/// A value on loan. It does not change until it is dropped.
struct Lent {
    bytes: Bytes,
    memory: SendMemory,
    key: (usize, u64),
}

/// What [`Bytes`] hold of it.
struct LentBytes(Arc<Lent>);

/// Bytes of such memory, held for as long as they are being sent.
pub(crate) struct PinnedSlice {
    memory: SendMemory,
    range: Range<u32>,
    bytes: Bytes,
}

impl SendMemory {
    /// Memory of `len` bytes from address `start` on, known to writers until it is dropped. `owner` keeps it where it is.
    pub(crate) fn new(start: usize, len: u32, owner: Arc<dyn Any + Send + Sync>) -> Self {
        let memory = Arc::new(Lendable {
            start,
            len,
            lent: Mutex::default(),
            longest: AtomicUsize::new(0),
            _owner: owner,
        });
        let mut known = write(&KNOWN);
        known.retain(|_, memory| memory.strong_count() > 0);
        known.insert(start, Arc::downgrade(&memory));
        Self(memory)
    }

    /// The address of the first byte, for the device.
    pub(crate) fn start(&self) -> usize {
        self.0.start
    }

    /// Length in bytes.
    pub(crate) fn len(&self) -> u32 {
        self.0.len
    }

    pub(crate) fn downgrade(&self) -> Weak<Lendable> {
        Arc::downgrade(&self.0)
    }

    /// True if `known` is this memory.
    pub(crate) fn is(&self, known: &Weak<Lendable>) -> bool {
        std::ptr::eq(known.as_ptr(), Arc::as_ptr(&self.0))
    }

    /// True if all of these bytes lie in this memory.
    pub(crate) fn contains(&self, bytes: &[u8]) -> bool {
        let at = bytes.as_ptr().addr().checked_sub(self.start());
        at.and_then(|at| at.checked_add(bytes.len())).is_some_and(|end| end <= self.len() as usize)
    }

    /// The same bytes, which lie in this memory and may be sent from there. They do not change before they are dropped.
    pub(crate) fn lend(&self, value: Bytes) -> Bytes {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let key = (value.as_ptr().addr(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let len = value.len();
        self.0.longest.fetch_max(len, Ordering::Relaxed);
        let lent = Arc::new(Lent { bytes: value, memory: self.clone(), key });
        lock(&self.0.lent).insert(key, Entry { len, value: Arc::downgrade(&lent) });
        Bytes::from_owner(LentBytes(lent))
    }

    /// The bytes at this place, if they were lent: they do not change for as long as the result is held.
    fn hold(&self, range: Range<usize>) -> Option<Bytes> {
        let (start, end) = (self.0.start + range.start, self.0.start + range.end);
        let holder = {
            let lent = lock(&self.0.lent);
            let before = lent.range(..=(start, u64::MAX)).rev();
            // Values seldom overlap: the first one is nearly always the last that is looked at.
            let longest = self.0.longest.load(Ordering::Relaxed);
            before
                .take_while(|((first, _), _)| end - first <= longest)
                .filter(|((first, _), entry)| end <= first + entry.len)
                .find_map(|(_, entry)| entry.value.upgrade())
        }?;
        let offset = start - holder.key.0;
        Some(Bytes::from_owner(LentBytes(holder)).slice(offset..offset + range.len()))
    }

    /// Appends a copy of these bytes to `out`. `false`: they may change.
    ///
    /// # Panics
    /// If `out` has no room for them.
    pub(crate) fn copy_to(&self, range: Range<usize>, out: &mut dyn BufMut) -> bool {
        let bytes = self.hold(range);
        if let Some(bytes) = &bytes {
            out.put_slice(bytes);
        }
        bytes.is_some()
    }
}

impl PinnedSlice {
    /// Holds these bytes, if they lie in such memory and do not change.
    pub(crate) fn of(bytes: &[u8]) -> Option<Self> {
        let at = bytes.as_ptr().addr();
        let memory = {
            let known = read(&KNOWN);
            SendMemory(known.range(..=at).next_back()?.1.upgrade()?)
        };
        let offset = at - memory.start();
        // Lossless: they lie in memory shorter than 4 GiB.
        let range = u32::try_from(offset).ok()?..u32::try_from(offset + bytes.len()).ok()?;
        let bytes = memory.hold(offset..offset + bytes.len())?;
        Some(Self { memory, range, bytes })
    }

    pub(crate) fn memory(&self) -> &SendMemory {
        &self.memory
    }

    /// Where they are in their memory.
    pub(crate) fn range(&self) -> Range<u32> {
        self.range.clone()
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        lock(&self.memory.0.lent).remove(&self.key);
    }
}

impl AsRef<[u8]> for LentBytes {
    fn as_ref(&self) -> &[u8] {
        &self.0.bytes
    }
}

impl fmt::Debug for SendMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendMemory").field("len", &self.len()).finish_non_exhaustive()
    }
}

/// Keeps all threads away from what this process knows of such memory, as long as it is held: from before a fork until after it, so that
/// the child does not inherit a lock that is held by a thread that it does not have. For our other crates.
pub struct KnownAtFork(RwLockWriteGuard<'static, BTreeMap<usize, Weak<Lendable>>>);

impl KnownAtFork {
    /// Waits for threads that use it.
    pub fn hold() -> Self {
        Self(write(&KNOWN))
    }

    /// In the child: forgets the parent's memory, whose own locks may be held.
    pub fn forget(mut self) {
        self.0.clear();
    }
}

/// All such memory of this process, by the address of its first byte.
static KNOWN: RwLock<BTreeMap<usize, Weak<Lendable>>> = RwLock::new(BTreeMap::new());

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
    use super::{PinnedSlice, *};

    fn region(memory: &Bytes) -> SendRegion {
        SendRegion::new(memory.as_ptr().addr(), memory.len(), memory.clone())
    }

    #[test]
    fn no_other_thread_has_the_lock_that_a_fork_holds() {
        let held = KnownAtFork::hold();
        assert!(KNOWN.try_read().is_err() && KNOWN.try_write().is_err());
        drop(held);
        drop(read(&KNOWN));
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
