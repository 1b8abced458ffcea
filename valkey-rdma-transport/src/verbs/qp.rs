//! The queue pair: where work requests are posted.

use std::io;
use std::ptr::{self, NonNull};

use super::sys::{
    ibv_cq, ibv_qp, ibv_qp_attr, ibv_qp_attr_mask, ibv_qp_cap, ibv_qp_state, ibv_recv_wr, ibv_send_wr,
    ibv_sge, rdma_cm_id,
};
use valkey_rdma_proto::work::{ReceiveRequest, SendOp, SendRequest, Slice};

use super::cm::CmId;
use super::mr::MemoryRegion;
use super::mr::ProtectionDomain;
use super::sys::convert;
use super::{failed, log_teardown, sys};
use crate::device::DeviceOptions;
use crate::error::TransportError;

/// 0.64 ms, by the code of the InfiniBand specification's table of RNR NAK timers: about as long as a process takes to
/// wake up and post receives.
const MIN_RNR_TIMER: u8 = 12;

/// A reliable connected queue pair, made on an identifier.
pub(super) struct QueuePair {
    raw: NonNull<ibv_qp>,
    id: NonNull<rdma_cm_id>,
    granted: ibv_qp_cap,
    /// Room for C's view of a chain, kept between calls so that posting does not allocate.
    sends: Vec<ibv_send_wr>,
    receives: Vec<ibv_recv_wr>,
    scatter: Vec<ibv_sge>,
}

impl QueuePair {
    /// Makes the identifier's queue pair, in the state where receives can be posted.
    ///
    /// # Safety
    /// The identifier has none yet. Domain and queue belong to the identifier's device. All three outlive the
    /// queue pair, and so do the regions that are posted to it.
    pub(super) unsafe fn new(
        id: &CmId,
        domain: &ProtectionDomain,
        queue: NonNull<ibv_cq>,
        options: &DeviceOptions,
    ) -> Result<Self, TransportError> {
        // SAFETY: the same as ours.
        let create = |wanted| unsafe { sys::create_qp(id.raw(), domain.raw(), queue, wanted) };
        let mut wanted = ibv_qp_cap {
            max_send_wr: options.send_depth,
            max_recv_wr: options.receive_depth,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: options.max_inline,
        };
        // No device says beforehand how much it can: it depends on the depths too.
        let (raw, mut granted) = loop {
            match create(wanted) {
                Err(error) if wanted.max_inline_data > 0 => {
                    tracing::debug!(%error, wanted.max_inline_data, "no such queue pair; trying with half of it inline");
                    wanted.max_inline_data /= 2;
                }
                outcome => break outcome.map_err(failed("rdma_create_qp"))?,
            }
        };
        if options.max_inline == 0 {
            granted.max_inline_data = 0;
        }
        let (sends, receives, scatter) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Self { raw, id: id.raw(), granted, sends, receives, scatter })
    }

    /// Depths and inline size as granted: at least what was asked for, except for inline, which may be 0.
    pub(super) fn granted(&self) -> &ibv_qp_cap {
        &self.granted
    }

    /// Its number, by which its completions name it.
    pub(super) fn number(&self) -> u32 {
        // SAFETY: the queue pair is live; the field never changes.
        unsafe { self.raw.as_ref().qp_num }
    }

    /// Its address, by which the device's asynchronous events name it.
    pub(super) fn address(&self) -> u64 {
        self.raw.as_ptr() as u64
    }

    /// Shortens the wait that a peer's device is told when it finds no receive posted. The connection manager's own
    /// setting is the longest there is, 655 ms for each time. A device that cannot change it keeps that.
    pub(super) fn shorten_receiver_not_ready(&mut self) {
        // SAFETY: the queue pair is live; the caller has just learnt that it is connected, and if it is no more, the
        // device refuses.
        if let Err(error) = unsafe { sys::set_min_rnr_timer(self.raw, MIN_RNR_TIMER) } {
            tracing::debug!(%error, "the receiver-not-ready timer stays as it is");
        }
    }

    /// How many READs may be in flight, once connected. `None`: the driver cannot say.
    pub(super) fn read_depth(&self) -> Result<Option<u8>, TransportError> {
        let attr = self.query(ibv_qp_attr_mask::IBV_QP_MAX_QP_RD_ATOMIC)?;
        Ok(attr.map(|attr| attr.max_rd_atomic))
    }

    /// Whether the device has moved it to error state. False if the driver cannot say: then an asynchronous event is the only sign.
    pub(super) fn is_in_error(&self) -> Result<bool, TransportError> {
        let attr = self.query(ibv_qp_attr_mask::IBV_QP_STATE)?;
        Ok(attr.is_some_and(|attr| attr.qp_state == ibv_qp_state::IBV_QPS_ERR))
    }

    pub(super) fn query(&self, mask: ibv_qp_attr_mask::Type) -> Result<Option<ibv_qp_attr>, TransportError> {
        // SAFETY: the queue pair is live.
        known(unsafe { sys::query_qp(self.raw, mask) })
    }

    /// Posts a chain of sends with one doorbell.
    ///
    /// # Panics
    /// If a request names a region that is not there: a local bug.
    pub(super) fn post_sends(
        &mut self,
        regions: &[MemoryRegion],
        chain: &[SendRequest],
    ) -> Result<(), TransportError> {
        let scatter = self.describe_slices(regions, chain.iter().map(|request| request.local));
        let max_inline = self.granted.max_inline_data;
        self.sends.clear();
        self.sends.reserve(chain.len());
        let first = self.sends.as_mut_ptr();
        self.sends.extend(chain.iter().enumerate().map(|(position, request)| {
            let mut raw = sys::blank_send();
            // Inline data is read by the CPU, which knows no region's bounds, nor whose they are. What lies outside is
            // left to the device, which refuses it.
            let inline = request.local.len <= max_inline
                && !matches!(request.op, SendOp::Read { .. })
                && may_inline(regions, request.local);
            convert::describe_send(&mut raw, request, inline);
            raw.next = following(first, position, chain.len());
            (raw.sg_list, raw.num_sge) = scatter_list(scatter, position, request.local.len);
            raw
        }));
        if self.sends.is_empty() {
            return Ok(());
        }
        // SAFETY: the queue pair is live. The chain and its scatter lists stand in vectors that nothing touches
        // until the call returns, linked to their end; inline requests were checked to lie inside of their regions.
        unsafe { sys::post_send(self.raw, first) }.map_err(failed("ibv_post_send"))
    }

    /// Posts a batch of receives.
    ///
    /// # Panics
    /// If a request names a region that is not there: a local bug.
    pub(super) fn post_receives(
        &mut self,
        regions: &[MemoryRegion],
        batch: &[ReceiveRequest],
    ) -> Result<(), TransportError> {
        let scatter = self.describe_slices(regions, batch.iter().map(|request| request.local));
        self.receives.clear();
        self.receives.reserve(batch.len());
        let first = self.receives.as_mut_ptr();
        self.receives.extend(batch.iter().enumerate().map(|(position, request)| {
            let next = following(first, position, batch.len());
            let (sg_list, num_sge) = scatter_list(scatter, position, request.local.len);
            ibv_recv_wr { wr_id: request.wr_id.0, next, sg_list, num_sge }
        }));
        if self.receives.is_empty() {
            return Ok(());
        }
        // SAFETY: as in `post_sends`.
        unsafe { sys::post_recv(self.raw, first) }.map_err(failed("ibv_post_recv"))
    }

    /// Puts one entry per slice into `scatter` and returns the first. The device checks each against the region
    /// that its key names.
    fn describe_slices(
        &mut self,
        regions: &[MemoryRegion],
        slices: impl Iterator<Item = Slice>,
    ) -> *mut ibv_sge {
        self.scatter.clear();
        self.scatter.extend(slices.map(|slice| {
            let region = &regions[slice.region.0 as usize];
            let addr = region.addr().wrapping_add(u64::from(slice.offset));
            ibv_sge { addr, length: slice.len, lkey: region.lkey() }
        }));
        self.scatter.as_mut_ptr()
    }
}

/// What the device answered. `None`: the driver has no such call, as that of Azure's MANA, although its queue pairs are in order.
fn known<T>(answer: io::Result<T>) -> Result<Option<T>, TransportError> {
    match answer {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOSYS)) => Ok(None),
        answer => answer.map(Some).map_err(failed("ibv_query_qp")),
    }
}

fn may_inline(regions: &[MemoryRegion], slice: Slice) -> bool {
    let (region, start) = (&regions[slice.region.0 as usize], slice.offset as usize);
    region.is_own() && region.contains(&(start..start + slice.len as usize))
}

/// The scatter list of the request at `position`: one entry, or none where there are no bytes.
fn scatter_list(entries: *mut ibv_sge, position: usize, len: u32) -> (*mut ibv_sge, i32) {
    if len == 0 { (ptr::null_mut(), 0) } else { (entries.wrapping_add(position), 1) }
}

/// The link from the request at `position` to the next, in a chain of `count` that starts at `first`.
fn following<T>(first: *mut T, position: usize, count: usize) -> *mut T {
    if position + 1 < count { first.wrapping_add(position + 1) } else { ptr::null_mut() }
}

#[cfg(test)]
impl QueuePair {
    /// Moves it to error state.
    pub(super) fn fail(&mut self) {
        // SAFETY: the queue pair is live.
        unsafe { sys::set_error_state(self.raw) }.expect("every state can change to error");
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        // SAFETY: made in `new` on this identifier, which is still there (field order of the connection), and
        // destroyed here only.
        log_teardown("ibv_destroy_qp", unsafe { sys::destroy_qp(self.id, self.raw) });
    }
}

// SAFETY: the pointers to C objects are used by this value's owner only, who holds the identifier too; libibverbs
// ties no object to a thread. The pointers inside of the vectors are stale between calls and never followed.
unsafe impl Send for QueuePair {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_that_cannot_describe_a_queue_pair_is_not_a_failed_device() {
        let answered = |errno| known::<()>(Err(io::Error::from_raw_os_error(errno)));
        assert!(matches!(answered(libc::EOPNOTSUPP), Ok(None)));
        assert!(matches!(answered(libc::ENOSYS), Ok(None)));
        assert!(matches!(answered(libc::EIO), Err(TransportError::Device { call: "ibv_query_qp", .. })));
        assert!(matches!(known(Ok(3)), Ok(Some(3))));
    }
}
