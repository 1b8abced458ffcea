//! [`slot_of`]: from a key to its slot. Every command passes here, so bytes are taken several at a time.

use super::slots_reply::SLOTS;

/// The slot of a key: CRC-16 of its hash tag, or of the whole key if it has none.
///
/// Source: valkey.io/topics/cluster-spec, "Key distribution model" and "Hash tags".
pub(super) fn slot_of(key: &[u8]) -> u16 {
    crc(tag(key)) & MASK
}

/// What is between the first `{` and the next `}`; the whole key if there is nothing between them.
fn tag(key: &[u8]) -> &[u8] {
    let tag = || {
        let (_, rest) = key.split_at_checked(position(key, b'{')? + 1)?;
        rest.get(..position(rest, b'}').filter(|len| *len > 0)?)
    };
    tag().unwrap_or(key)
}

/// Where a byte is for the first time.
fn position(bytes: &[u8], wanted: u8) -> Option<usize> {
    let each = u64::from(wanted) * LOWEST_BITS;
    let (words, rest) = bytes.as_chunks::<8>();
    // The byte that is searched becomes 0, and 0 is the only one from which subtracting 1 borrows without a bit of its own.
    let has_it = |word: &[u8; 8]| {
        let zero = u64::from_le_bytes(*word) ^ each;
        zero.wrapping_sub(LOWEST_BITS) & !zero & (LOWEST_BITS << 7) != 0
    };
    let is_it = |byte: &u8| *byte == wanted;
    match words.iter().position(has_it) {
        Some(at) => bytes[at * 8..].iter().position(is_it).map(|more| at * 8 + more),
        None => rest.iter().position(is_it).map(|more| words.len() * 8 + more),
    }
}

/// CRC-16 with the polynomial x^16 + x^12 + x^5 + 1, highest bit first, from 0: "XMODEM".
fn crc(bytes: &[u8]) -> u16 {
    let (words, rest) = bytes.as_chunks::<8>();
    let (halves, rest) = rest.as_chunks::<4>();
    let crc = words.iter().fold(0, step);
    let crc = halves.iter().fold(crc, step);
    rest.iter().fold(crc, |crc, byte| step(crc, &[*byte]))
}

/// The remainder after `N` more bytes. Remainders add up: each byte has its own, which depends on how many follow it.
fn step<const N: usize>(crc: u16, bytes: &[u8; N]) -> u16 {
    let [high, low] = crc.to_be_bytes();
    // What was left is added to the first two of the bytes.
    let mut sum = if N == 1 { u16::from(low) << 8 } else { 0 };
    for (at, byte) in bytes.iter().enumerate() {
        let byte = match at {
            0 => byte ^ high,
            1 => byte ^ low,
            _ => *byte,
        };
        sum ^= REMAINDERS[N - 1 - at][usize::from(byte)];
    }
    sum
}

/// By the number of bytes that follow, the remainders of each byte.
static REMAINDERS: [[u16; 256]; 8] = {
    let mut table = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut remainder = (byte as u16) << 8;
        let mut following = 0;
        while following < 8 {
            let mut bit = 0;
            while bit < 8 {
                let carry = remainder >> 15;
                remainder = (remainder << 1) ^ (carry * POLYNOMIAL);
                bit += 1;
            }
            table[following][byte] = remainder;
            following += 1;
        }
        byte += 1;
    }
    table
};

const POLYNOMIAL: u16 = 0x1021;
/// The slots are a power of two.
const MASK: u16 = SLOTS as u16 - 1;
/// The lowest bit of each byte.
const LOWEST_BITS: u64 = u64::from_le_bytes([1; 8]);

#[cfg(test)]
mod tests {
    use redis_protocol::redis_keyslot;

    use super::*;

    #[test]
    fn slots_are_those_of_another_implementation() {
        let alphabet = b"{}ab\0\xff|z";
        for seed in 0..20_000 {
            let mut random = fastrand::Rng::with_seed(seed);
            let len = random.usize(..40);
            let key: Vec<u8> = (0..len).map(|_| alphabet[random.usize(..alphabet.len())]).collect();
            assert_eq!(slot_of(&key), redis_keyslot(&key), "{key:?}");
            let key: Vec<u8> = (0..len).map(|_| random.u8(..)).collect();
            assert_eq!(slot_of(&key), redis_keyslot(&key), "{key:?}");
        }
    }

    #[test]
    fn the_tag_is_what_the_first_braces_enclose() {
        for (key, expected) in [
            ("", ""),
            ("key", "key"),
            ("{user1000}.following", "user1000"),
            ("foo{}{bar}", "foo{}{bar}"),
            ("foo{{bar}}zap", "{bar"),
            ("foo{bar}{zap}", "bar"),
            ("}foo{bar", "}foo{bar"),
            ("a long prefix before {the tag}", "the tag"),
            ("{", "{"),
        ] {
            assert_eq!(tag(key.as_bytes()), expected.as_bytes(), "{key}");
        }
        // The example of the specification.
        assert_eq!((slot_of(b"123456789"), slot_of(b"")), (0x31c3, 0));
    }
}
