//! [`Transfer`]: what `BLOB.GET` and `BLOB.SET` do with memory of their client, while no lock is held.

use bytes::Bytes;
use valkey_rdma_server::RemoteRanges;

/// A direct transfer that a command asks for.
pub(crate) enum Transfer {
    /// Writes a value to the client. The reply is its length and its checksum.
    Write { to: RemoteRanges, value: Bytes },
    /// Reads a value of `len` bytes from the client, and stores it.
    Read { from: RemoteRanges, len: usize, key: Bytes, database: usize },
}

/// The CRC-32C (Castagnoli) of a value.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| (crc >> 8) ^ TABLE[((crc ^ u32::from(*byte)) & 0xff) as usize])
}

/// What each byte changes.
static TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut crc, mut bit) = (byte as u32, 0);
        while bit < 8 {
            crc = (crc >> 1) ^ if crc & 1 == 1 { POLYNOMIAL } else { 0 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

/// Its lowest power is the highest bit.
const POLYNOMIAL: u32 = 0x82f6_3b78;

#[cfg(test)]
mod tests {
    use super::crc32c;

    /// Source: RFC 3720, appendix B.4.
    #[test]
    fn checksums_are_those_of_the_standard() {
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(crc32c(&(0..32).collect::<Vec<u8>>()), 0x46dd_794e);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(b""), 0);
    }
}
