//! [`DirectMemory`]: who may use which bytes of it, the application or a device.

use std::any::Any;
use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::sync::{Arc, Weak};

#[cfg(feature = "emulated")]
use bytes::BufMut;
use bytes::{Bytes, BytesMut};
use tokio::sync::Notify;

use super::piece::{ForeignBytes, Piece};
use super::ranges::{Cut, Ranges};
use crate::send_memory::SendMemory;
use crate::sync::{Mutex, lock};

/// Memory that peers write values into, or read values out of, without a copy on this machine. Clones are the same memory.
///
/// [Take](Self::take) ranges of it. A [`DirectSlice`] is the only access to its bytes, so nothing else uses them. A client
/// [exposes](crate::Stream::expose) one to its server for a command; a server [reads](crate::Direct::read) into one.
///
/// # What it costs
/// Nothing is registered until a connection uses it. Then **each connection** registers all of it: once for each kind of access. That
/// pins the memory, which takes some tenths of a second for a GiB, and counts against the `memlock` limit (`ulimit -l`) each time. So
/// allocate few of them, as large as needed, and use them again.
///
/// It stays registered until the connection ends, or exposes or reads something else after every handle and slice of it was dropped.
///
/// # What a server is trusted with
/// An adapter checks keys and bounds of whole registrations. A server that was given a range with
/// [`RemoteWrite`](crate::raw::Access::RemoteWrite) can therefore write to *all* of this memory, at any time until that
/// connection has ended. The same holds for reads. It reaches nothing else of this process, and no other server can use its
/// key. Use one memory for each server that you trust differently.
///
/// ```
/// use valkey_rdma_transport::DirectMemory;
///
/// # fn main() -> Result<(), valkey_rdma_transport::DirectMemoryError> {
/// let memory = DirectMemory::allocate(1 << 20)?;
/// let mut slice = memory.take(4096..8192)?;
/// slice[..5].copy_from_slice(b"hello");
/// assert!(memory.take(0..4097).is_err()); // one byte of it is taken
/// drop(slice);
/// assert_eq!(memory.take(0..1 << 20)?[4096..4101], *b"hello");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct DirectMemory(Arc<Inner>);

/// A [`DirectMemory`], known again while anything holds it.
#[derive(Clone, Debug)]
pub(crate) struct WeakDirectMemory(Weak<Inner>);

struct Inner {
    /// Knows frozen slices by their address, and keeps the memory.
    sent: SendMemory,
    ranges: Mutex<Ranges>,
    /// Notified when a range comes back.
    came_back: Notify,
}

/// A range of a [`DirectMemory`], owned: no one else reads or writes it. Dropped, it can be taken again.
pub struct DirectSlice {
    bytes: Piece,
    offset: u32,
    memory: DirectMemory,
}

/// A range that devices may use. Dropped, it can be taken again.
pub(crate) struct LentSlice {
    range: Range<u32>,
    memory: DirectMemory,
}

/// Bytes that connections send from where they are.
struct Lending {
    value: Bytes,
    _memory: DirectMemory,
}

impl AsRef<[u8]> for Lending {
    fn as_ref(&self) -> &[u8] {
        &self.value
    }
}

/// No such memory, or no such range of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DirectMemoryError {
    /// There would be nothing in it, or more than one registration can have.
    #[error("direct memory of {len} bytes: use 1 byte to 4 GiB less 1 byte, and several for more")]
    Length {
        /// The length asked for.
        len: usize,
    },
    /// The range is not inside of the memory.
    #[error("bytes {range:?} of a direct memory of {len} bytes: stay inside")]
    Outside {
        /// The range asked for.
        range: Range<usize>,
        /// The length of the memory.
        len: u32,
    },
    /// A byte of the range is in use.
    #[error(
        "bytes {range:?} of a direct memory are in use: drop what was taken of them, or wait with `take_when_free`"
    )]
    Taken {
        /// The range asked for.
        range: Range<usize>,
    },
}

impl DirectMemory {
    /// Allocates `len` zeroed bytes, from the start of a page. They are the system's until they are used or registered; where
    /// there is none, the program ends, as with any vector.
    ///
    /// # Errors
    /// [`DirectMemoryError::Length`] unless `len` is 1 byte to 4 GiB less 1 byte.
    pub fn allocate(len: usize) -> Result<Self, DirectMemoryError> {
        Self::allocate_with(len, ())
    }

    /// Same as [`allocate`](Self::allocate). `guard` is dropped when nothing holds the memory any more, and no connection has it
    /// registered: no part of it is pinned then.
    ///
    /// # Errors
    /// Same errors as [`allocate`](Self::allocate).
    pub fn allocate_with(len: usize, guard: impl Send + Sync + 'static) -> Result<Self, DirectMemoryError> {
        let registered = u32::try_from(len).ok().filter(|len| *len > 0);
        let registered = registered.ok_or(DirectMemoryError::Length { len })?;
        let mut head = BytesMut::zeroed(len.saturating_add(PAGE));
        let mut bytes = head.split_off(head.as_ptr().align_offset(PAGE));
        drop(bytes.split_off(len));
        // The device reaches it by its address. No reference of ours covers what the device uses.
        let start = bytes.as_mut_ptr().expose_provenance();
        // Any part of it holds all of it.
        Ok(Self::new(start, registered, Piece::Allocated(bytes), Arc::new((head, guard))))
    }

    /// Takes memory that something else owns, such as an arena of another language. It need not begin at a page. Bytes that are free are
    /// neither read nor written, so their owner may use them.
    ///
    /// # Errors
    /// [`DirectMemoryError::Length`] unless it has 1 byte to 4 GiB less 1 byte: make several of a larger one.
    pub fn from_foreign(bytes: Box<dyn ForeignBytes>) -> Result<Self, DirectMemoryError> {
        let len = bytes.size();
        let registered = u32::try_from(len).ok().filter(|len| *len > 0);
        let registered = registered.ok_or(DirectMemoryError::Length { len })?;
        let (start, owner) = (bytes.start().expose_provenance(), bytes.owner());
        Ok(Self::new(start, registered, Piece::Foreign(bytes), owner))
    }

    fn new(start: usize, len: u32, bytes: Piece, owner: Arc<dyn Any + Send + Sync>) -> Self {
        let sent = SendMemory::new(start, len, owner);
        Self(Arc::new(Inner { sent, ranges: Mutex::new(Ranges::of(bytes)), came_back: Notify::new() }))
    }

    /// Length in bytes.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.0.sent.len() as usize
    }

    /// Takes a range, in bytes from the start. It holds what its last user left in it. An empty range is never in use.
    ///
    /// # Errors
    /// [`DirectMemoryError::Outside`]; [`DirectMemoryError::Taken`] if a byte is in use, for which
    /// [`take_when_free`](Self::take_when_free) waits.
    pub fn take(&self, range: Range<usize>) -> Result<DirectSlice, DirectMemoryError> {
        if range.start > range.end || range.end > self.len() {
            return Err(DirectMemoryError::Outside { range, len: self.0.sent.len() });
        }
        let offset = range.start as u32;
        let bytes = match range.len() {
            0 => Piece::default(),
            len => lock(&self.0.ranges).take(offset, len).ok_or(DirectMemoryError::Taken { range })?,
        };
        Ok(DirectSlice { bytes, offset, memory: self.clone() })
    }

    /// Takes a range as soon as no byte of it is in use. That can take until a connection has ended.
    ///
    /// # Errors
    /// [`DirectMemoryError::Outside`].
    ///
    /// Cancel safety: dropping the future takes nothing.
    pub async fn take_when_free(&self, range: Range<usize>) -> Result<DirectSlice, DirectMemoryError> {
        loop {
            let came_back = self.0.came_back.notified();
            match self.take(range.clone()) {
                Err(DirectMemoryError::Taken { .. }) => came_back.await,
                taken => return taken,
            }
        }
    }

    /// Ends each connection whose peer may use a byte of the range, at once. That is how a caller gets back what it has lent to a call that
    /// has no reply in time: [`take_when_free`](Self::take_when_free) waits until the devices of these connections are closed. What else was
    /// in flight on them is lost.
    pub fn recall(&self, range: Range<usize>) {
        let cuts = lock(&self.0.ranges).cuts(range);
        // That takes the lock of the connection, which lends under it.
        cuts.iter().for_each(|cut| cut());
    }

    /// The same bytes, which connections send from where they are, if they lie in this memory: as
    /// [`SendRegion::lend`](crate::SendRegion::lend), for bytes that the caller keeps from changing without taking them.
    #[must_use]
    pub fn lend(&self, value: Bytes) -> Bytes {
        if !self.0.sent.contains(&value) {
            return value;
        }
        // While they are sent, this memory is in use: it must stay registered where they are sent from.
        self.0.sent.lend(Bytes::from_owner(Lending { value, _memory: self.clone() }))
    }

    fn put_back(&self, offset: u32, bytes: Piece) {
        if !bytes.is_empty() {
            lock(&self.0.ranges).put_back(offset, bytes);
            self.0.came_back.notify_waiters();
        }
    }

    pub(crate) fn downgrade(&self) -> WeakDirectMemory {
        WeakDirectMemory(Arc::downgrade(&self.0))
    }

    /// What keeps the memory, and where it lies.
    pub(crate) fn sent(&self) -> &SendMemory {
        &self.0.sent
    }
}

/// What a device in software does.
#[cfg(feature = "emulated")]
impl DirectMemory {
    /// Copies bytes to where a device may write. `false`: it may not, and a part may have been copied.
    pub(crate) fn copy_in(&self, offset: usize, mut bytes: &[u8]) -> bool {
        lock(&self.0.ranges).visit_lent(offset..offset + bytes.len(), &mut |piece, range| {
            let (now, later) = bytes.split_at(range.len());
            piece[range].copy_from_slice(now);
            bytes = later;
        })
    }

    /// Appends bytes that a device may read to `out`: lent ones, and frozen ones. `false`: it may not read them.
    ///
    /// # Panics
    /// If `out` has no room for them.
    pub(crate) fn copy_to(&self, range: Range<usize>, out: &mut dyn BufMut) -> bool {
        self.0.sent.copy_to(range.clone(), out)
            || (self.is_lent(range.clone())
                && lock(&self.0.ranges).visit_lent(range, &mut |piece, range| out.put_slice(&piece[range])))
    }

    /// Whether a device may use all of this range.
    pub(crate) fn is_lent(&self, range: Range<usize>) -> bool {
        lock(&self.0.ranges).visit_lent(range, &mut |_, _| ())
    }
}

impl WeakDirectMemory {
    /// True if what is frozen of it lies in `sent`.
    pub(crate) fn contains(&self, sent: &SendMemory) -> bool {
        self.0.upgrade().is_some_and(|memory| sent.is(&memory.sent.downgrade()))
    }

    /// True if this is `memory`.
    pub(crate) fn is(&self, memory: &DirectMemory) -> bool {
        std::ptr::eq(self.0.as_ptr(), Arc::as_ptr(&memory.0))
    }

    /// True once no handle and no slice is left, and no transfer uses it.
    pub(crate) fn is_unused(&self) -> bool {
        self.0.strong_count() == 0
    }

    #[cfg(feature = "emulated")]
    pub(crate) fn upgrade(&self) -> Option<DirectMemory> {
        self.0.upgrade().map(DirectMemory)
    }
}

impl DirectSlice {
    /// Where it is in its memory, in bytes from the start.
    #[must_use]
    pub fn range(&self) -> Range<usize> {
        let offset = self.offset as usize;
        offset..offset + self.bytes.len()
    }

    /// Makes it into bytes that do not change, which connections send from where they lie, as those of a
    /// [`BufferPool`](crate::BufferPool). The range can be taken again when the last of them is dropped, and no connection is
    /// sending them any more.
    #[must_use]
    pub fn freeze(self) -> Bytes {
        let memory = self.memory.clone();
        memory.sent().lend(Bytes::from_owner(self))
    }

    /// Splits it at byte `at`: the rest is returned.
    ///
    /// # Panics
    /// If it is shorter than that.
    #[must_use = "the rest goes back to its memory"]
    pub fn split_off(&mut self, at: usize) -> Self {
        let offset = self.offset + at as u32;
        Self { bytes: self.bytes.split_off(at), offset, memory: self.memory.clone() }
    }

    /// Appends the slice that lies behind this one in the same memory, without a copy.
    ///
    /// # Panics
    /// If it lies elsewhere.
    pub fn unsplit(&mut self, next: Self) {
        let follows = self.range().end == next.offset as usize && Arc::ptr_eq(&self.memory.0, &next.memory.0);
        assert!(follows, "{next:?} does not follow {self:?}");
        self.bytes.unsplit(next.into_bytes());
    }

    fn into_bytes(mut self) -> Piece {
        std::mem::take(&mut self.bytes)
    }

    /// The memory that it is a range of.
    #[must_use]
    pub fn memory(&self) -> &DirectMemory {
        &self.memory
    }

    /// Lets devices use it. `cut` ends the connection whose peer may use it too.
    pub(crate) fn lend(mut self, cut: Option<Cut>) -> LentSlice {
        let bytes = std::mem::take(&mut self.bytes);
        let range = self.offset..self.offset + bytes.len() as u32;
        if !bytes.is_empty() {
            lock(&self.memory.0.ranges).lend(self.offset, bytes, cut);
        }
        LentSlice { range, memory: self.memory.clone() }
    }
}

impl LentSlice {
    /// Where it is in its memory.
    pub(crate) fn range(&self) -> Range<u32> {
        self.range.clone()
    }

    /// Takes it back from devices, which must not use it any more.
    pub(crate) fn take_back(self) -> DirectSlice {
        let bytes = self.remove();
        DirectSlice { bytes, offset: self.range.start, memory: self.memory.clone() }
    }

    fn remove(&self) -> Piece {
        if self.range.is_empty() {
            return Piece::default();
        }
        lock(&self.memory.0.ranges).take_back(self.range.start)
    }
}

impl Drop for LentSlice {
    fn drop(&mut self) {
        let bytes = self.remove();
        self.memory.put_back(self.range.start, bytes);
    }
}

impl Drop for DirectSlice {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        self.memory.put_back(self.offset, bytes);
    }
}

impl Deref for DirectSlice {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl DerefMut for DirectSlice {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl AsRef<[u8]> for DirectSlice {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for DirectMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirectMemory").field("len", &self.len()).finish_non_exhaustive()
    }
}

impl fmt::Debug for DirectSlice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirectSlice").field("range", &self.range()).finish_non_exhaustive()
    }
}

/// The page size of most machines. Where pages are larger, the first and the last one are pinned with whatever else they hold.
const PAGE: usize = 4096;

// They play the part of a device.
#[cfg(all(test, feature = "emulated"))]
mod tests;
