//! What a test sends: its name, its keys, and the value that belongs to each key.

use std::fmt;
use std::num::NonZeroU64;

use bytes::Bytes;

/// One of the tests that `-t` selects, under valkey-benchmark's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Test {
    /// `PING` as a RESP array (`ping` or `ping_mbulk`).
    Ping,
    /// `SET key value` (`set`).
    Set,
    /// `GET key` (`get`).
    Get,
}

impl Test {
    /// All tests, in the order in which they run.
    pub const ALL: [Test; 3] = [Test::Ping, Test::Set, Test::Get];

    /// The title in the results, as valkey-benchmark prints it.
    pub fn title(self) -> &'static str {
        match self {
            Test::Ping => "PING_MBULK",
            Test::Set => "SET",
            Test::Get => "GET",
        }
    }

    /// Finds a test by a name of `-t`, in lower case.
    pub fn from_name(name: &str) -> Option<Test> {
        match name {
            "ping" | "ping_mbulk" => Some(Test::Ping),
            "set" => Some(Test::Set),
            "get" => Some(Test::Get),
            _ => None,
        }
    }
}

impl fmt::Display for Test {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.title())
    }
}

/// A key on the stack, with the index that its value derives from.
///
/// Shape: `key:` and either 12 decimal digits or, without `-r`, valkey-benchmark's unexpanded placeholder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    text: [u8; Key::LEN],
    index: u64,
}

impl Key {
    const LEN: usize = 16;
    const SINGLE: Key = Key { text: *b"key:__rand_int__", index: 0 };

    /// Largest number of keys that 12 digits can tell apart.
    pub const MAX_KEYS: u64 = 1_000_000_000_000;

    /// The key of `index`, which must be below [`Key::MAX_KEYS`].
    pub fn numbered(index: u64) -> Key {
        debug_assert!(index < Key::MAX_KEYS);
        let mut text = *b"key:000000000000";
        let mut rest = index;
        for digit in text[4..].iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        Key { text, index }
    }

    /// The bytes that are sent.
    pub fn as_bytes(&self) -> &[u8] {
        &self.text
    }

    /// What [`Values::of`] derives the value from.
    pub fn index(&self) -> u64 {
        self.index
    }
}

impl fmt::Display for Key {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&String::from_utf8_lossy(&self.text))
    }
}

/// Which key the request with a given number uses.
///
/// A key depends on the request's number alone, so two runs with one seed use the same keys whichever task happens
/// to send them, and the keys that a test will read are known before it starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keys {
    /// One key for all requests (no `-r`).
    Single,
    /// A pseudo-random key below `len` (`-r`).
    Random {
        /// Number of keys.
        len: NonZeroU64,
        /// Where the sequence starts (`--seed`).
        seed: u64,
    },
    /// Request `n` uses key `n`: writes a whole keyspace once.
    Each,
}

impl Keys {
    /// The key of request `number`.
    pub fn of(self, number: u64) -> Key {
        match self {
            Keys::Single => Key::SINGLE,
            Keys::Random { len, seed } => {
                // The high half of a 128-bit product maps the hash to 0..len without a division.
                let wide = u128::from(mix(seed ^ mix(number))) * u128::from(len.get());
                Key::numbered((wide >> 64) as u64)
            }
            Keys::Each => Key::numbered(number),
        }
    }

    /// The keys, and how many requests over them, that write every key which `requests` requests will read.
    pub fn to_populate(self, requests: u64) -> (Keys, u64) {
        match self {
            Keys::Single => (Keys::Single, 1),
            Keys::Random { len, .. } if len.get() <= requests => (Keys::Each, len.get()),
            Keys::Random { .. } | Keys::Each => (self, requests),
        }
    }
}

/// The values of all keys: windows into one shared pseudo-random pattern.
///
/// Key `k` has the `len` bytes that start at `k` modulo the pattern's spare length. The pattern does not repeat, so a
/// reply for another key, a shifted reply and a repeated or missing piece all differ from what is expected, and
/// still no value is ever built or copied: memory is one value and at most [`Values::MAX_SPARE`] bytes.
#[derive(Debug, Clone)]
pub struct Values {
    pattern: Bytes,
    len: usize,
    spare: u64,
}

impl Values {
    /// Largest number of different values, and of bytes held beyond one value.
    pub const MAX_SPARE: u64 = 1 << 20;

    /// Values of `len` bytes for keys below `keys`.
    pub fn new(len: usize, keys: u64) -> Values {
        let spare = keys.clamp(1, Values::MAX_SPARE);
        let total = len + spare as usize;
        let mut pattern = Vec::with_capacity(total + 8);
        for word in 0.. {
            if pattern.len() >= total {
                break;
            }
            pattern.extend_from_slice(&mix(word).to_le_bytes());
        }
        pattern.truncate(total);
        Values { pattern: pattern.into(), len, spare }
    }

    /// The value of `key`, sharing the pattern's memory.
    pub fn of(&self, key: &Key) -> Bytes {
        let start = (key.index() % self.spare) as usize;
        self.pattern.slice(start..start + self.len)
    }

    /// The value of `key` for a comparison, without touching a reference count.
    pub fn expected(&self, key: &Key) -> &[u8] {
        let start = (key.index() % self.spare) as usize;
        &self.pattern[start..start + self.len]
    }

    /// Length of every value in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether values are empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// A 64-bit mixing function: every input bit changes about half of the output bits.
///
/// Source: the output function of SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators").
fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbered_keys_have_twelve_digits() {
        assert_eq!(Key::numbered(0).as_bytes(), b"key:000000000000");
        assert_eq!(Key::numbered(12).as_bytes(), b"key:000000000012");
        assert_eq!(Key::numbered(Key::MAX_KEYS - 1).as_bytes(), b"key:999999999999");
    }

    #[test]
    fn without_a_keyspace_all_requests_use_the_unexpanded_key() {
        assert_eq!(Keys::Single.of(0), Keys::Single.of(99));
        assert_eq!(Keys::Single.of(0).as_bytes(), b"key:__rand_int__");
    }

    #[test]
    fn random_keys_stay_below_the_keyspace_and_depend_on_the_seed() {
        let len = NonZeroU64::new(7).unwrap();
        let draw = |seed| (0..1000).map(|n| Keys::Random { len, seed }.of(n).index()).collect::<Vec<_>>();
        assert!(draw(1).iter().all(|&index| index < 7));
        assert!((0..7).all(|index| draw(1).contains(&index)));
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }

    #[test]
    fn populating_writes_the_smaller_of_keyspace_and_requests() {
        let keys = Keys::Random { len: NonZeroU64::new(100).unwrap(), seed: 3 };
        assert_eq!(keys.to_populate(1000), (Keys::Each, 100));
        assert_eq!(keys.to_populate(10), (keys, 10));
        assert_eq!(Keys::Single.to_populate(10), (Keys::Single, 1));
    }

    #[test]
    fn values_of_different_keys_differ_and_share_memory() {
        let values = Values::new(64, 1000);
        let (one, two) = (Key::numbered(1), Key::numbered(2));
        assert_eq!(values.of(&one).len(), 64);
        assert_ne!(values.of(&one), values.of(&two));
        assert_eq!(values.of(&one), values.expected(&one));
        assert_eq!(values.of(&one).as_ptr(), values.expected(&one).as_ptr());
    }

    #[test]
    fn a_huge_keyspace_does_not_cost_huge_memory() {
        let values = Values::new(3, Key::MAX_KEYS);
        assert!(values.pattern.len() as u64 <= 3 + Values::MAX_SPARE);
        assert_eq!(values.of(&Key::numbered(Key::MAX_KEYS - 1)).len(), 3);
    }
}
