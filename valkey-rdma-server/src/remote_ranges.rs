//! [`RemoteRanges`]: the memory that a client names in a command.

use bytes::Bytes;
use valkey_rdma_resp::Reply;
use valkey_rdma_transport::RemoteRange;

/// Ranges of a client's memory, in the order in which a value fills them. [`Direct`](crate::Direct) moves values between them and this
/// server.
///
/// ```
/// use bytes::Bytes;
/// use valkey_rdma_server::{RemoteRange, RemoteRanges};
///
/// let args = ["7", "4096", "100", "7", "8192", "50"].map(Bytes::from);
/// let ranges = RemoteRanges::parse(&args).unwrap();
/// assert_eq!(ranges.room(), 150);
/// assert!(RemoteRanges::parse(&args[..2]).is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteRanges(Vec<RemoteRange>);

impl RemoteRanges {
    /// Reads arguments of a command: key, address and length of each range, as decimal numbers, at least one range. The client's device
    /// checks what they name.
    ///
    /// # Errors
    /// An error reply if a number is missing, or out of range: a key and a length have at most 32 bits, an address has 64, and a range
    /// does not go beyond the last address.
    pub fn parse(args: &[Bytes]) -> Result<Self, Reply> {
        let (ranges, rest) = args.as_chunks();
        if ranges.is_empty() || !rest.is_empty() {
            return Err(Reply::error(
                "ERR syntax error: a range of memory is a key, an address and a length",
            ));
        }
        let ranges = ranges.iter().map(|[rkey, addr, len]| {
            let (rkey, addr, len) = (number(rkey)?, number(addr)?, number(len)?);
            addr.checked_add(len)?;
            Some(RemoteRange { addr, rkey: rkey.try_into().ok()?, len: len.try_into().ok()? })
        });
        let ranges: Option<_> = ranges.collect();
        ranges.map(Self).ok_or(Reply::error("ERR value is not an integer or out of range"))
    }

    /// Length of all ranges together, in bytes.
    pub fn room(&self) -> u64 {
        self.0.iter().map(|range| u64::from(range.len)).sum()
    }

    /// Where the first `total` bytes are, in order, in pieces of at most `longest` bytes. No piece is empty, and none is in two ranges.
    ///
    /// # Panics
    /// If `longest` is 0.
    pub fn pieces(&self, total: usize, longest: u32) -> impl Iterator<Item = RemoteRange> + use<'_> {
        let mut left = total;
        self.0.iter().flat_map(move |range| {
            let used = left.min(range.len as usize);
            left -= used;
            let used = used as u32;
            (0..used).step_by(longest as usize).map(move |at| RemoteRange {
                addr: range.addr.wrapping_add(at.into()),
                rkey: range.rkey,
                len: longest.min(used - at),
            })
        })
    }
}

/// Ranges that a command has named in another way.
impl From<Vec<RemoteRange>> for RemoteRanges {
    fn from(ranges: Vec<RemoteRange>) -> Self {
        Self(ranges)
    }
}

/// A number without sign and leading zeros.
fn number(text: &[u8]) -> Option<u64> {
    let is_plain =
        text == b"0" || matches!(text, [b'1'..=b'9', rest @ ..] if rest.iter().all(u8::is_ascii_digit));
    str::from_utf8(text).ok().filter(|_| is_plain)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<RemoteRanges, Reply> {
        let args: Vec<Bytes> = text.split(' ').map(|word| Bytes::copy_from_slice(word.as_bytes())).collect();
        RemoteRanges::parse(&args)
    }

    #[test]
    fn the_largest_numbers_are_read_and_larger_ones_refused() {
        let ranges = parse("4294967295 18446744069414584320 4294967295").expect("in range");
        let largest = RemoteRange { addr: u64::MAX - u64::from(u32::MAX), rkey: u32::MAX, len: u32::MAX };
        assert_eq!(ranges, vec![largest].into());
        for wrong in [
            "4294967296 0 0",
            "0 18446744073709551616 0",
            "0 18446744069414584321 4294967295",
            "0 0 4294967296",
            "-1 0 0",
            "+1 0 0",
            "01 0 0",
            "x 0 0",
            "1 0 0 1 0 ",
        ] {
            let Err(Reply::Error(error)) = parse(wrong) else { panic!("{wrong} is taken") };
            assert_eq!(error, "ERR value is not an integer or out of range", "{wrong}");
        }
        for wrong in ["1 0", "1 0 0 1"] {
            let Err(Reply::Error(error)) = parse(wrong) else { panic!("{wrong} is taken") };
            assert!(error.starts_with("ERR syntax error"), "{error}");
        }
        assert!(RemoteRanges::parse(&[]).is_err());
    }

    #[test]
    fn pieces_cover_a_value_in_order_and_stay_in_their_ranges() {
        let ranges = parse("1 100 10 2 1000 0 3 500 25 4 0 7").expect("in range");
        let pieces = |total| -> Vec<_> {
            ranges.pieces(total, 10).map(|RemoteRange { addr, rkey, len }| (rkey, addr, len)).collect()
        };
        assert_eq!(pieces(0), []);
        assert_eq!(pieces(9), [(1, 100, 9)]);
        assert_eq!(pieces(36), [(1, 100, 10), (3, 500, 10), (3, 510, 10), (3, 520, 5), (4, 0, 1)]);
    }
}
