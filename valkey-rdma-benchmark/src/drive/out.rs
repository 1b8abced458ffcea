//! [`Out`]: encoded commands on their way out.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::Bytes;

use crate::workload::{SHARED_FROM, Sink, Values};

/// The most pieces handed to one write.
pub(super) const MAX_SLICES: usize = 16;

/// Small parts in one buffer, large values where they are.
#[derive(Default)]
pub(super) struct Out {
    bytes: Vec<u8>,
    /// Large values, each with the place in `bytes` that it comes before.
    large: VecDeque<(usize, Bytes)>,
    /// How far `bytes` was written.
    written: usize,
    /// Bytes of values among it.
    pub(super) payload: u64,
}

impl Out {
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.large.clear();
        (self.written, self.payload) = (0, 0);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.written == self.bytes.len() && self.large.is_empty()
    }

    /// What to write next, as far as there is room for it. Returns how many slices that are.
    ///
    /// A large value leaves together with what stands around it: the fewer writes, the fewer times the server wakes up.
    pub(super) fn slices<'a>(&'a self, slices: &mut [IoSlice<'a>; MAX_SLICES]) -> usize {
        let (mut count, mut at) = (0, self.written);
        let pieces = self.large.iter().map(|(before, value)| (*before, &value[..]));
        for (end, value) in pieces.chain([(self.bytes.len(), &[][..])]) {
            for piece in [&self.bytes[at..end], value] {
                if !piece.is_empty() && count < MAX_SLICES {
                    slices[count] = IoSlice::new(piece);
                    count += 1;
                }
            }
            at = end;
            if count == MAX_SLICES {
                break;
            }
        }
        count
    }

    pub(super) fn advance(&mut self, mut len: usize) {
        while len > 0 {
            let end = self.large.front().map_or(self.bytes.len(), |(before, _)| *before);
            let small = len.min(end - self.written);
            self.written += small;
            len -= small;
            let Some((_, value)) = self.large.front_mut() else { return };
            let taken = len.min(value.len());
            let _ = value.split_to(taken);
            len -= taken;
            if value.is_empty() {
                self.large.pop_front();
            }
        }
    }
}

impl Sink for Out {
    fn bytes(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    fn value(&mut self, values: &Values, key: u64) {
        let len = values.len_of(key);
        self.payload += len as u64;
        if len < SHARED_FROM {
            self.bytes.extend_from_slice(values.of(key));
        } else {
            self.large.push_back((self.bytes.len(), values.shared(key)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes all of it, `step` bytes at a time.
    fn written(mut out: Out, step: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        while !out.is_empty() {
            let mut slices = [IoSlice::new(&[]); MAX_SLICES];
            let count = out.slices(&mut slices);
            let offered: Vec<u8> = slices[..count].iter().flat_map(|slice| slice.iter().copied()).collect();
            let taken = step.min(offered.len());
            assert!(taken > 0, "what is left is offered");
            bytes.extend_from_slice(&offered[..taken]);
            out.advance(taken);
        }
        bytes
    }

    #[test]
    fn small_and_large_pieces_leave_in_order_whatever_a_write_takes() {
        let value = |byte: u8| Bytes::from(vec![byte; 5]);
        let large = (0..20).map(|n| (if n < 10 { 2 } else { 7 }, value(n)));
        let out = || Out { bytes: b"ab12345yz".to_vec(), large: large.clone().collect(), ..Out::default() };
        let mut expected = b"ab".to_vec();
        (0..10).for_each(|n| expected.extend([n; 5]));
        expected.extend(b"12345");
        (10..20).for_each(|n| expected.extend([n; 5]));
        expected.extend(b"yz");
        for step in [1, 3, 5, 7, 100] {
            assert_eq!(written(out(), step), expected, "{step} bytes at a time");
        }
    }
}
