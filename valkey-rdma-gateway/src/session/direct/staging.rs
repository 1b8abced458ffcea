//! [`Staging`]: registered memory that the values of one client pass through.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use valkey_rdma_resp::Reply;
use valkey_rdma_server::DirectError;
use valkey_rdma_transport::{Direct, DirectMemory, DirectSlice};

use crate::config::limits::Limits;

/// Two halves: a piece of a value arrives in one while the other leaves. Registered, and pinned, until its connection ends.
pub(crate) struct Staging {
    memory: DirectMemory,
}

/// Bytes that are counted until their memory is not registered any more. That is some time after the end of the session, when the device
/// is closed.
struct Counted {
    len: usize,
    /// Bytes of all clients, also of those whose connections have no transfer now: their memory is pinned as well.
    total: Arc<AtomicUsize>,
}

impl Staging {
    /// Allocates and registers as much as the limits say.
    ///
    /// # Errors
    /// The reply if there is no room, or it cannot be pinned. It refers the client to the stream (spec clause D-7).
    pub(crate) fn new(direct: &Direct, limits: &Limits, total: &Arc<AtomicUsize>) -> Result<Self, Reply> {
        let (len, most) = (limits.direct_bytes, limits.direct_bytes_total);
        let counted = Counted::new(len, most, total).ok_or_else(|| {
            Reply::error(format!(
                "NODIRECT direct transfers of other clients take up limits.direct_bytes_total = {most} bytes"
            ))
        })?;
        let memory = DirectMemory::allocate_with(len, counted)
            .map_err(|error| Reply::error(format!("NODIRECT {error}")))?;
        direct.register(&memory).map_err(|error| Reply::from(DirectError::from(error)))?;
        Ok(Self { memory })
    }

    /// Bytes of one half.
    pub(super) fn half(&self) -> usize {
        self.memory.len() / 2
    }

    /// The first `len` bytes of the half that is used in this round, which alternate. Waits until the round before the last is done with it.
    pub(super) async fn take(&self, round: usize, len: usize) -> DirectSlice {
        let start = round % 2 * self.half();
        self.memory.take_when_free(start..start + len).await.expect("a round has at most one half")
    }
}

impl Counted {
    /// `None`: the total would exceed `most`.
    fn new(len: usize, most: usize, total: &Arc<AtomicUsize>) -> Option<Self> {
        let add = |others: usize| others.checked_add(len).filter(|all| *all <= most);
        total.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).ok()?;
        Some(Self { len, total: total.clone() })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.total.fetch_sub(self.len, Ordering::Relaxed);
    }
}
