//! Memory that large values are sent from where they are, known again by its address: writers hand over slices, which say
//! nothing else of where they come from.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock, Weak};

use bytes::{BufMut, Bytes};

use crate::sync::{Mutex, lock};

/// Memory that a device reads values from: that of a [`BufferPool`](crate::BufferPool), or a part of a
/// [`SendRegion`](crate::SendRegion). Less than 4 GiB. Clones are the same memory.
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
        let mut known = KNOWN.write().unwrap_or_else(PoisonError::into_inner);
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
            let known = KNOWN.read().unwrap_or_else(PoisonError::into_inner);
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

/// All such memory of this process, by the address of its first byte.
static KNOWN: RwLock<BTreeMap<usize, Weak<Lendable>>> = RwLock::new(BTreeMap::new());
