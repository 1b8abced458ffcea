//! The resources of a connection, and the types of its outputs.

use super::send_queue::SEND_SLOTS;
use crate::error::CloseReason;
use crate::features::FeatureSet;
use crate::wire::MESSAGE_LEN;
use crate::work::{ReceiveRequest, Region, RegionId, SendRequest};

/// The memory and the queue depths that a connection uses. The transport registers the regions.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Resources<'a> {
    /// Region for control messages, of [`control_region_len`] bytes.
    pub control: RegionId,
    /// Region for data to send.
    pub send_buffer: RegionId,
    /// Length of that region in bytes.
    pub send_buffer_len: u32,
    /// Regions that the peer may write, one or more of equal length.
    pub rx: &'a [Region],
    /// Number of receives to keep posted.
    pub receives: u32,
    /// Depth of the send queue, in work requests. Four are reserved for control messages; use at least 8.
    pub send_depth: u32,
    /// Largest message of one work request, in bytes.
    pub max_message: u32,
}

/// Length in bytes of the control region for a number of posted receives.
pub fn control_region_len(receives: u32) -> u32 {
    (receives + SEND_SLOTS) * MESSAGE_LEN as u32
}

/// Work for the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Work {
    /// Post this receive.
    Receive(ReceiveRequest),
    /// Copy these bytes to the request's local slice, then post the request.
    Message(SendRequest, [u8; MESSAGE_LEN]),
    /// Post this send. Its bytes are in place.
    Data(SendRequest),
    /// Disconnect. No work follows.
    Disconnect,
}

/// An event for the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Event {
    /// Both sides know each other's memory, and a client knows which features are used: data can flow. On a server that
    /// offers features it cannot before [`Agreed`](Self::Agreed).
    Connected,
    /// Both sides know which features are used on this connection, before a byte could be written or read. On a client
    /// it comes before [`Connected`](Self::Connected). It does not come if this side wants or offers none.
    Agreed {
        /// The features, perhaps none.
        features: FeatureSet,
    },
    /// The connection has ended. Bytes announced before remain readable.
    Closed {
        /// The reason.
        reason: CloseReason,
    },
}

/// What happened to the bytes that the application committed. Every byte is in one of the three counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DeliveryReport {
    /// Announced and acknowledged by the peer's device, so they are in the peer's memory. The peer may not have read
    /// them yet.
    pub delivered: u64,
    /// Handed to the device and not acknowledged: they may or may not have arrived.
    pub unknown: u64,
    /// Not handed to the device: they did not leave this side.
    pub unsent: u64,
}
