//! Hash slots.

/// A hash slot, 0 to 16383.
pub(crate) type Slot = u16;

/// The number of hash slots.
pub(crate) const SLOTS: Slot = 16384;

/// The slot of a key or of a shard channel: CRC16 of its hash tag, or of all of it.
pub(crate) fn slot_of(key: &[u8]) -> Slot {
    redis_protocol::redis_keyslot(key)
}
