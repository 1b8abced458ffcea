//! What a device is, and what it granted.

use super::DeviceKind;

/// What a device granted when the connection was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Depth of the send queue, in work requests; at least what was asked.
    pub send_depth: u32,
    /// Depth of the receive queue, in work requests; at least what was asked.
    pub receive_depth: u32,
    /// Bytes that a send may carry inside the request.
    pub max_inline: u32,
    /// Largest message of one work request, in bytes.
    pub max_message: u32,
}

/// The device under a connection, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Which device contract implementation this is.
    pub kind: DeviceKind,
    /// The device's name, such as `rxe0` or `mlx5_0`.
    pub name: String,
    /// The active path MTU in bytes, where there is one.
    pub mtu: Option<u32>,
    /// Whether its work is done by the machine's own CPUs: the emulated device, soft-RoCE, soft-iWARP. Then spinning
    /// for a completion takes the CPU away from what would bring it.
    pub software: bool,
}
