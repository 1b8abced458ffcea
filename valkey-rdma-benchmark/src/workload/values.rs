//! The bytes of every key's value.

use bytes::{BufMut, Bytes};
use valkey_rdma_client::BufferPool;

use super::{Sizes, mix};

/// Values of this length or more are sent, or handed to the client library, without being copied first.
pub(crate) const SHARED_FROM: usize = 8 * 1024;

/// The values of all keys: windows into one shared pseudo-random pattern.
///
/// Key `k` has the bytes that start at `k` modulo the pattern's spare length. The pattern does not repeat, so a
/// reply for another key, a shifted reply and a repeated or missing piece all differ from what is expected, and
/// still no value is ever built or copied: memory is one value and at most [`Values::MAX_SPARE`] bytes.
#[derive(Debug, Clone)]
pub(crate) struct Values {
    pattern: Bytes,
    sizes: Sizes,
    spare: u64,
    pooled: bool,
}

impl Values {
    /// Largest number of different values, and of bytes held beyond one value.
    pub(crate) const MAX_SPARE: u64 = 1 << 20;

    /// Values of `sizes` for keys below `keys`; if they are `pooled`, in memory that a device can send them from.
    pub(crate) fn new(sizes: Sizes, keys: u64, pooled: bool) -> Values {
        let spare = keys.clamp(1, Values::MAX_SPARE);
        let total = sizes.longest() + spare as usize;
        let pattern = if pooled {
            let pool = BufferPool::new(1, total).expect("values are far shorter than 4 GiB");
            let mut buffer = pool.try_take().expect("it is the only buffer in use");
            fill(&mut buffer);
            buffer.freeze()
        } else {
            let mut pattern = vec![0; total];
            fill(&mut pattern);
            pattern.into()
        };
        Values { pattern, sizes, spare, pooled }
    }

    /// Whether they lie in a pool.
    pub(crate) fn are_pooled(&self) -> bool {
        self.pooled
    }

    /// The value of `key`, sharing the pattern's memory.
    pub(crate) fn shared(&self, key: u64) -> Bytes {
        let start = (key % self.spare) as usize;
        self.pattern.slice(start..start + self.sizes.of(key))
    }

    /// The value of `key`, without touching a reference count.
    pub(crate) fn of(&self, key: u64) -> &[u8] {
        let start = (key % self.spare) as usize;
        &self.pattern[start..start + self.sizes.of(key)]
    }

    /// Length of the value of `key`.
    pub(crate) fn len_of(&self, key: u64) -> usize {
        self.sizes.of(key)
    }

    /// How long values are.
    pub(crate) fn sizes(&self) -> &Sizes {
        &self.sizes
    }
}

/// Fills `pattern` so that no part of it is like another.
fn fill(mut pattern: &mut [u8]) {
    for word in 0.. {
        if pattern.is_empty() {
            return;
        }
        let bytes = mix(word).to_le_bytes();
        let len = pattern.len().min(bytes.len());
        pattern.put_slice(&bytes[..len]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Keys;

    #[test]
    fn values_of_different_keys_differ_and_share_memory() {
        let values = Values::new(Sizes::fixed(64), 1000, false);
        assert_eq!(values.of(1).len(), 64);
        assert_ne!(values.of(1), values.of(2));
        assert_eq!(values.of(1), values.shared(1));
        assert_eq!(values.of(1).as_ptr(), values.shared(1).as_ptr());
    }

    #[test]
    fn values_are_the_same_wherever_they_lie() {
        let words: Vec<u8> = (0..200).flat_map(|word| mix(word).to_le_bytes()).collect();
        for values in [false, true].map(|pooled| Values::new(Sizes::fixed(100), 1000, pooled)) {
            assert!((0..1000).all(|key| values.of(key) == &words[key as usize..][..100]));
        }
    }

    #[test]
    fn a_huge_keyspace_does_not_cost_huge_memory() {
        let values = Values::new(Sizes::fixed(3), Keys::MAX, false);
        assert!(values.pattern.len() as u64 <= 3 + Values::MAX_SPARE);
        assert_eq!(values.of(Keys::MAX - 1).len(), 3);
    }
}
