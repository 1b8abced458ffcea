//! What a connection works with and what it answers.

use super::outbox::SEND_SLOTS;
use crate::error::CloseReason;
use crate::wire::MESSAGE_LEN;
use crate::work::{ReceiveRequest, Region, RegionId, SendRequest};

/// The memory and the queue depths that a connection works with. The transport registers the regions.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Resources<'a> {
    /// Region for control messages, of [`control_region_len`] bytes.
    pub control: RegionId,
    /// Region for data to send.
    pub send_buffer: RegionId,
    /// Length of the send_buffer region in bytes.
    pub send_buffer_len: u32,
    /// Regions that the peer may write, one or more of equal length.
    pub rx: &'a [Region],
    /// How many receives to keep posted.
    pub receives: u32,
    /// Depth of the send queue, in work requests. Some are kept free of data: at least 8 make sense.
    pub send_depth: u32,
    /// Largest message of one work request, in bytes.
    pub max_message: u32,
}

/// Length in bytes of the command region for a number of posted receives.
pub fn control_region_len(receives: u32) -> u32 {
    (receives + SEND_SLOTS) * MESSAGE_LEN as u32
}

/// What the connection wants done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Work {
    /// Post this receive.
    Receive(ReceiveRequest),
    /// Put these bytes at the request's local slice, then post it.
    Message(SendRequest, [u8; MESSAGE_LEN]),
    /// Post this send; its bytes are in place.
    Data(SendRequest),
    /// Disconnect: nothing follows.
    Disconnect,
}

/// What the application should know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Event {
    /// Both sides know each other's memory; data can flow.
    Connected,
    /// The connection is over. Bytes announced before remain readable.
    Closed {
        /// Why.
        reason: CloseReason,
    },
}

/// What became of the bytes that the application committed. The three make up all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DeliveryReport {
    /// Announced, and in the peer's memory: its device has acknowledged that. Whether the peer has read them, it
    /// does not say.
    pub delivered: u64,
    /// Handed to the device and not acknowledged: they may have arrived or not.
    pub unknown: u64,
    /// Never left this side.
    pub unsent: u64,
}
