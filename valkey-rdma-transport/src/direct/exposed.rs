//! [`Exposed`]: a range that the peer may use, and what becomes of it when the connection ends.

use std::fmt;
use std::sync::Arc;

use super::memory::{DirectSlice, LentSlice};
use crate::sync::{Mutex, lock};

/// A range of the peer's memory, as the peer has named it: for [`Direct::write`](crate::Direct::write) and
/// [`Direct::read`](crate::Direct::read). The peer's device checks it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RemoteRange {
    /// The address of the first byte. It has a meaning for the peer's device only.
    pub addr: u64,
    /// The peer's key for it.
    pub rkey: u32,
    /// Length in bytes.
    pub len: u32,
}

/// A range of this side's memory that the peer may use, from [`Stream::expose`](crate::Stream::expose).
///
/// Send [`remote`](Self::remote) to the peer in a command. When the reply to that command has been read, the peer is done with it:
/// [withdraw](Self::withdraw) it. Otherwise drop it: the peer may still use the range, so it cannot be
/// [taken](crate::DirectMemory::take_when_free) again until the connection has ended and its device's objects are gone.
pub struct Exposed {
    remote: RemoteRange,
    /// Present until it is dropped.
    slice: Option<LentSlice>,
    abandoned: Abandoned,
}

impl Exposed {
    pub(crate) fn new(remote: RemoteRange, slice: LentSlice, abandoned: Abandoned) -> Self {
        Self { remote, slice: Some(slice), abandoned }
    }

    /// What the peer needs to use the range.
    #[must_use]
    pub fn remote(&self) -> RemoteRange {
        self.remote
    }

    /// Takes the range back. Do so only after the reply to the command that named it: the bytes that the peer has written are
    /// there then. Before, the peer could write to bytes that this side is using.
    #[must_use]
    pub fn withdraw(mut self) -> DirectSlice {
        self.slice.take().expect("there until it is dropped").take_back()
    }
}

impl Drop for Exposed {
    fn drop(&mut self) {
        if let Some(slice) = self.slice.take() {
            self.abandoned.leave(slice);
        }
    }
}

impl fmt::Debug for Exposed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Exposed").field(&self.remote).finish()
    }
}

/// Ranges that a peer may use and nothing else holds any more. `None` once the connection's device is gone.
#[derive(Clone)]
pub(crate) struct Abandoned(Arc<Mutex<Option<Vec<LentSlice>>>>);

/// The connection's end of it. Drop it after the device.
pub(crate) struct LeftBehind(Abandoned);

impl Abandoned {
    /// Keeps the range until the device is gone.
    fn leave(&self, slice: LentSlice) {
        // If the device is gone, the range is free when this returns.
        if let Some(slices) = &mut *lock(&self.0) {
            slices.push(slice);
        }
    }
}

impl LeftBehind {
    pub(crate) fn share(&self) -> Abandoned {
        self.0.clone()
    }
}

impl Default for LeftBehind {
    fn default() -> Self {
        Self(Abandoned(Arc::new(Mutex::new(Some(Vec::new())))))
    }
}

impl Drop for LeftBehind {
    fn drop(&mut self) {
        let slices = lock(&self.0.0).take();
        drop(slices);
    }
}
