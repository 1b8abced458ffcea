//! [`Piece`]: bytes that one holder has. [`ForeignBytes`]: such bytes in memory that something else owns.

use std::any::Any;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use bytes::BytesMut;

/// A range of memory that another library or language owns, for [`DirectMemory::from_foreign`](super::DirectMemory::from_foreign).
///
/// References to the bytes exist only while an application has taken them. So the owner may use what is free.
///
/// # Safety
/// A value has `size` bytes of memory from `start` on, as a `Box<[u8]>` has its bytes: `as_ref` and `as_mut` return exactly those, and no
/// other value has any of them. Nothing else reads or writes what an application has taken. Devices may write to all of the memory until
/// [`owner`](Self::owner) is dropped, and it stays where it is until then.
#[expect(unsafe_code, reason = "devices go by the address, so implementors must promise what is there")]
pub unsafe trait ForeignBytes: AsRef<[u8]> + AsMut<[u8]> + Any + Send + Sync {
    /// The address of the first byte.
    fn start(&self) -> *mut u8;

    /// Length in bytes.
    fn size(&self) -> usize;

    /// What keeps the memory. It is dropped when nothing holds the [`DirectMemory`](super::DirectMemory) any more, and the last connection
    /// that has registered it has ended.
    fn owner(&self) -> Arc<dyn Any + Send + Sync>;

    /// Splits it at byte `at`, which is inside: the rest is returned.
    fn split_off(&mut self, at: usize) -> Box<dyn ForeignBytes>;

    /// Appends the bytes that lie behind it, which were split off the same memory. A `Box<dyn Any>` of `next` finds its type again.
    fn unsplit(&mut self, next: Box<dyn ForeignBytes>);
}

/// A range of a [`DirectMemory`](super::DirectMemory), wherever its bytes come from.
pub(super) enum Piece {
    Allocated(BytesMut),
    Foreign(Box<dyn ForeignBytes>),
}

impl Piece {
    /// Length in bytes.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Allocated(bytes) => bytes.len(),
            Self::Foreign(bytes) => bytes.size(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Splits it at byte `at`: the rest is returned.
    ///
    /// # Panics
    /// If it is shorter than that.
    pub(super) fn split_off(&mut self, at: usize) -> Self {
        match self {
            _ if at == self.len() => Self::default(),
            _ if at == 0 => std::mem::take(self),
            Self::Allocated(bytes) => Self::Allocated(bytes.split_off(at)),
            Self::Foreign(bytes) => {
                assert!(at < bytes.size(), "split off at {at} of {} bytes", bytes.size());
                Self::Foreign(bytes.split_off(at))
            }
        }
    }

    /// Appends the piece that lies behind this one.
    pub(super) fn unsplit(&mut self, next: Self) {
        match (&mut *self, next) {
            (_, next) if next.is_empty() => {}
            (first, next) if first.is_empty() => *first = next,
            (Self::Allocated(bytes), Self::Allocated(next)) => bytes.unsplit(next),
            (Self::Foreign(bytes), Self::Foreign(next)) => bytes.unsplit(next),
            _ => unreachable!("all pieces of a memory are of one kind"),
        }
    }
}

/// No bytes.
impl Default for Piece {
    fn default() -> Self {
        Self::Allocated(BytesMut::new())
    }
}

impl Deref for Piece {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Allocated(bytes) => bytes,
            Self::Foreign(bytes) => (**bytes).as_ref(),
        }
    }
}

impl DerefMut for Piece {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Allocated(bytes) => bytes,
            Self::Foreign(bytes) => (**bytes).as_mut(),
        }
    }
}
