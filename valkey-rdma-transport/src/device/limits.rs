//! What a device can do at most, and refusing what is beyond it.

use valkey_rdma_proto::work::{SendOp, SendRequest};

use super::DeviceOptions;
use crate::error::TransportError;

/// What a device can do at most.
pub(crate) struct DeviceLimits {
    /// Entries of a send or receive queue.
    pub(crate) queue_depth: u32,
    /// Entries of a completion queue.
    pub(crate) completion_depth: u32,
    /// Completion vectors.
    pub(crate) completion_vectors: u32,
    /// READs in flight in either direction.
    pub(crate) read_depth: u32,
}

/// Refuses depths that the device does not support. The device itself would only report an invalid argument.
pub(crate) fn check_limits(
    name: &str,
    options: &DeviceOptions,
    most: &DeviceLimits,
) -> Result<(), TransportError> {
    let both = options.send_depth.saturating_add(options.receive_depth);
    for (queue, asked, limit) in [
        ("send queue", options.send_depth, most.queue_depth),
        ("receive queue", options.receive_depth, most.queue_depth),
        ("completion queue", both, most.completion_depth),
        ("queue of reads", options.read_depth.into(), most.read_depth),
    ] {
        if asked > limit {
            return Err(TransportError::QueueDepth { device: name.to_owned(), queue, asked, limit });
        }
    }
    let (asked, count) = (options.completion_vector, most.completion_vectors);
    if asked >= count {
        return Err(TransportError::CompletionVector { device: name.to_owned(), asked, count });
    }
    Ok(())
}

/// Refuses reads where none can be in flight: a device would let them wait for ever, or refuse them in a way of its own.
pub(crate) fn check_reads(chain: &[SendRequest], depth: impl FnOnce() -> u8) -> Result<(), TransportError> {
    let reads = chain.iter().any(|request| matches!(request.op, SendOp::Read { .. }));
    if reads && depth() == 0 { Err(TransportError::ReadsOff) } else { Ok(()) }
}
