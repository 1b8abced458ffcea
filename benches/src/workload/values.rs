//! The bytes of every key's value.

use bytes::Bytes;

use super::{Sizes, mix};

/// The values of all keys: windows into one shared pseudo-random pattern.
///
/// Key `k` has the bytes that start at `k` modulo the pattern's spare length. The pattern does not repeat, so a
/// reply for another key, a shifted reply and a repeated or missing piece all differ from what is expected, and
/// still no value is ever built or copied: memory is one value and at most [`Values::MAX_SPARE`] bytes.
#[derive(Debug, Clone)]
pub struct Values {
    pattern: Bytes,
    sizes: Sizes,
    spare: u64,
}

impl Values {
    /// Largest number of different values, and of bytes held beyond one value.
    pub const MAX_SPARE: u64 = 1 << 20;

    /// Values of `sizes` for keys below `keys`.
    pub fn new(sizes: Sizes, keys: u64) -> Values {
        let spare = keys.clamp(1, Values::MAX_SPARE);
        let total = sizes.longest() + spare as usize;
        let mut pattern = Vec::with_capacity(total + 8);
        for word in 0.. {
            if pattern.len() >= total {
                break;
            }
            pattern.extend_from_slice(&mix(word).to_le_bytes());
        }
        pattern.truncate(total);
        Values { pattern: pattern.into(), sizes, spare }
    }

    /// The value of `key`, sharing the pattern's memory.
    pub fn shared(&self, key: u64) -> Bytes {
        let start = (key % self.spare) as usize;
        self.pattern.slice(start..start + self.sizes.of(key))
    }

    /// The value of `key`, without touching a reference count.
    pub fn of(&self, key: u64) -> &[u8] {
        let start = (key % self.spare) as usize;
        &self.pattern[start..start + self.sizes.of(key)]
    }

    /// Length of the value of `key`.
    pub fn len_of(&self, key: u64) -> usize {
        self.sizes.of(key)
    }

    /// How long values are.
    pub fn sizes(&self) -> &Sizes {
        &self.sizes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Keys;

    #[test]
    fn values_of_different_keys_differ_and_share_memory() {
        let values = Values::new(Sizes::fixed(64), 1000);
        assert_eq!(values.of(1).len(), 64);
        assert_ne!(values.of(1), values.of(2));
        assert_eq!(values.of(1), values.shared(1));
        assert_eq!(values.of(1).as_ptr(), values.shared(1).as_ptr());
    }

    #[test]
    fn a_huge_keyspace_does_not_cost_huge_memory() {
        let values = Values::new(Sizes::fixed(3), Keys::MAX);
        assert!(values.pattern.len() as u64 <= 3 + Values::MAX_SPARE);
        assert_eq!(values.of(Keys::MAX - 1).len(), 3);
    }
}
