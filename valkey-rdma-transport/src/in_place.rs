//! Memory that large values are sent from where they are, known again by its address: writers hand over slices, which say
//! nothing else of where they come from.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, PoisonError, RwLock, Weak};

use bytes::{BufMut, Bytes};

/// Memory that a device reads values from: that of a [`BufferPool`](crate::BufferPool), or a part of a
/// [`SendRegion`](crate::SendRegion). Less than 4 GiB.
#[derive(Clone)]
pub struct SendMemory(Arc<dyn Source>);

/// What stands behind a [`SendMemory`].
pub(crate) trait Source: Send + Sync {
    /// The address of its first byte.
    fn start(&self) -> usize;

    /// Its length in bytes.
    fn len(&self) -> u32;

    /// The bytes at this place, if they do not change for as long as the result is held.
    fn hold(&self, range: Range<usize>) -> Option<Bytes>;
}

/// Bytes of such memory, held for as long as they are being sent.
pub(crate) struct PinnedSlice {
    memory: SendMemory,
    range: Range<u32>,
    bytes: Bytes,
}

impl SendMemory {
    /// Makes memory known to writers, until its source is dropped.
    pub(crate) fn announce(source: &Arc<impl Source + 'static>) {
        let source: Arc<dyn Source> = source.clone();
        let mut sources = SOURCES.write().unwrap_or_else(PoisonError::into_inner);
        sources.retain(|_, source| source.strong_count() > 0);
        sources.insert(source.start(), Arc::downgrade(&source));
    }

    pub(crate) fn of(source: Arc<dyn Source>) -> Self {
        Self(source)
    }

    /// The address of the first byte, for the device.
    #[cfg(feature = "verbs")]
    pub(crate) fn start(&self) -> usize {
        self.0.start()
    }

    /// Length in bytes.
    pub(crate) fn len(&self) -> u32 {
        self.0.len()
    }

    pub(crate) fn downgrade(&self) -> Weak<dyn Source> {
        Arc::downgrade(&self.0)
    }

    /// True if `known` is this memory.
    pub(crate) fn is(&self, known: &Weak<dyn Source>) -> bool {
        known.as_ptr().addr() == Arc::as_ptr(&self.0).addr()
    }

    /// Appends a copy of these bytes to `out`. `false`: they may change.
    ///
    /// # Panics
    /// If `out` has no room for them.
    pub(crate) fn copy_to(&self, range: Range<usize>, out: &mut dyn BufMut) -> bool {
        let bytes = self.0.hold(range);
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
        let source = {
            let sources = SOURCES.read().unwrap_or_else(PoisonError::into_inner);
            sources.range(..=at).next_back()?.1.upgrade()?
        };
        let offset = at - source.start();
        // Lossless: they lie in memory shorter than 4 GiB.
        let range = u32::try_from(offset).ok()?..u32::try_from(offset + bytes.len()).ok()?;
        let bytes = source.hold(offset..offset + bytes.len())?;
        Some(Self { memory: SendMemory(source), range, bytes })
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

impl fmt::Debug for SendMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendMemory").field("len", &self.len()).finish_non_exhaustive()
    }
}

/// All such memory of this process, by the address of its first byte.
static SOURCES: RwLock<BTreeMap<usize, Weak<dyn Source>>> = RwLock::new(BTreeMap::new());
