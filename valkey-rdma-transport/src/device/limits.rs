//! What a device can do at most, and refusing what is beyond it.

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
