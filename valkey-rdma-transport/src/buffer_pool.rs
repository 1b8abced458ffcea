//! [`BufferPool`]: memory for large values that is sent from where it lies.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use tokio::sync::Semaphore;

use crate::send_memory::SendMemory;
use crate::sync::{Mutex, lock};

/// Buffers of one length, of which large values are sent without a copy.
///
/// What is written to a [`Stream`](crate::Stream) is copied into its send buffer, which the device can reach. The
/// buffers of a pool it reaches where they lie: a stream registers the pool when it first sends from it, and sends
/// [frozen](PoolBuffer::freeze) bytes from their place wherever 8 KiB or more of them are written at once and the send
/// buffer has room for 8 KiB. They count against the send buffer as if they were copied, so it limits the bytes in
/// flight.
/// They are known by their address, so they may come as slices and in vectored writes. Elsewhere, as over TCP, they are
/// bytes like any others.
///
/// # What it costs
/// A pool is made once, with as many buffers as are to be filled or sent at the same time. **Each connection** that
/// sends from it registers all of it: that pins its memory, some tenths of a second for a GiB, during which the first
/// such write holds its thread up, and counts against the `memlock` limit (`ulimit -l`) each time. Where that is
/// refused, the connection logs a warning and copies. The pool stays registered, and its memory there, until that
/// connection has ended and what it had received was read, or it was dropped.
///
/// # When a buffer comes back
/// When the last holder has dropped its bytes and the peer's device has acknowledged them; or when the connection has
/// ended **and** what it had received was read, or it was dropped. So the only task that reads, or the owner of a
/// [driven](crate::Stream::driven) stream, must not wait for a buffer that this stream is sending.
///
/// ```
/// use valkey_rdma_transport::BufferPool;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), valkey_rdma_transport::UnusablePool> {
/// let pool = BufferPool::new(4, 2 << 20)?;
/// let mut buffer = pool.take().await; // waits while all four are in use
/// buffer[..5].copy_from_slice(b"hello");
/// let value = buffer.freeze().slice(..5); // write it, hand it to a command, clone it
/// assert_eq!(&value[..], b"hello");
/// drop(value); // the buffer is the pool's again
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct BufferPool(Arc<PoolInner>);

/// One buffer of a [`BufferPool`], for writing. Dropped, it is the pool's again.
pub struct PoolBuffer {
    bytes: BytesMut,
    inner: Arc<PoolInner>,
}

/// A pool cannot be so small or so large.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid pool: {buffers} buffers of {len} bytes; the total must be 1 byte to 4 GiB (buffers are rounded up to 64 bytes)"
)]
pub struct UnusablePool {
    /// Buffers asked for.
    pub buffers: usize,
    /// The length of each.
    pub len: usize,
}

/// A pool's memory, and its free buffers.
struct PoolInner {
    memory: SendMemory,
    buffers: usize,
    free: Mutex<Vec<BytesMut>>,
    /// One permit for each free buffer.
    available: Semaphore,
}

impl BufferPool {
    /// Makes a pool of `buffers` zeroed buffers of `len` bytes each. The memory is the system's until it is used or
    /// registered; where there is none, the program ends, as with any vector.
    ///
    /// # Errors
    /// [`UnusablePool`] if there would be nothing in it, or 4 GiB or more in all: places in it are named by 32 bits.
    pub fn new(buffers: usize, len: usize) -> Result<Self, UnusablePool> {
        let unusable = UnusablePool { buffers, len };
        let stride = len.checked_next_multiple_of(ALIGNMENT).ok_or(unusable)?;
        let total = stride.checked_mul(buffers).filter(|total| *total > 0).ok_or(unusable)?;
        let registered = u32::try_from(total).map_err(|_| unusable)?;
        // From the start of a page, because whole pages are pinned. No reference of ours covers what the device reads.
        let mut memory = BytesMut::zeroed(total.checked_add(2 * PAGE).ok_or(unusable)?);
        memory.advance(memory.as_ptr().align_offset(PAGE));
        let start = memory.as_ptr().expose_provenance();
        let mut free: Vec<_> = (0..buffers)
            .map(|_| {
                let mut bytes = memory.split_to(stride);
                bytes.truncate(len);
                bytes
            })
            .collect();
        free.reverse();
        // What is registered is one piece of memory, and the last part of it holds it.
        assert_eq!(memory.as_ptr().addr(), start + total, "buffers are split off one after the other");
        Ok(Self(Arc::new(PoolInner {
            memory: SendMemory::new(start, registered, Arc::new(memory)),
            buffers,
            free: Mutex::new(free),
            available: Semaphore::new(buffers),
        })))
    }

    /// Takes a buffer, as soon as there is one. It holds what its last user left in it.
    ///
    /// # Cancel safety
    /// Dropping the future takes nothing. The task that has waited longest is first.
    pub async fn take(&self) -> PoolBuffer {
        let permit = self.0.available.acquire().await.expect("never closed");
        permit.forget();
        self.0.take()
    }

    /// Takes a buffer, if one is free and no task waits for it.
    #[must_use]
    pub fn try_take(&self) -> Option<PoolBuffer> {
        self.0.available.try_acquire().ok()?.forget();
        Some(self.0.take())
    }

    /// Number of free buffers.
    #[must_use]
    pub fn available(&self) -> usize {
        self.0.available.available_permits()
    }

    /// Its memory, for a device.
    #[must_use]
    #[doc(hidden)]
    pub fn memory(&self) -> SendMemory {
        self.0.memory.clone()
    }
}

impl PoolBuffer {
    /// Makes the whole buffer into bytes that do not change: slice off what is not to be sent. The buffer is the pool's
    /// again when the last of them is dropped, and no connection is sending them any more.
    #[must_use]
    pub fn freeze(self) -> Bytes {
        let memory = self.inner.memory.clone();
        memory.lend(Bytes::from_owner(self))
    }
}

impl PoolInner {
    /// Takes a free buffer, for a permit.
    fn take(self: &Arc<Self>) -> PoolBuffer {
        let bytes = lock(&self.free).pop().expect("as many as there are permits");
        PoolBuffer { bytes, inner: self.clone() }
    }
}

impl Deref for PoolBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl DerefMut for PoolBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Drop for PoolBuffer {
    fn drop(&mut self) {
        lock(&self.inner.free).push(std::mem::take(&mut self.bytes));
        self.inner.available.add_permits(1);
    }
}

impl AsRef<[u8]> for PoolBuffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for BufferPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (buffers, available) = (self.0.buffers, self.available());
        f.debug_struct("BufferPool").field("buffers", &buffers).field("available", &available).finish()
    }
}

impl fmt::Debug for PoolBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolBuffer").field("len", &self.len()).finish_non_exhaustive()
    }
}

/// Buffers begin on cache lines of their own.
const ALIGNMENT: usize = 64;

/// The page size of most machines. Where pages are larger, the first and the last one are pinned with whatever else
/// they hold.
const PAGE: usize = 4096;

#[cfg(test)]
mod tests;
