//! [`Output`]: encoded bytes that wait to be sent.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, Bytes};

use crate::command::Command;

/// A queue of encoded bytes. Small pieces are copied together; large ones are kept by reference, so that 1000 pipelined
/// `GET`s of one large value hold that value once.
///
/// Read it as a [`Buf`]: `chunks_vectored` gives all pieces for one `writev`.
// Invariant: no segment is empty, so the first chunk is never empty while bytes remain.
#[derive(Debug, Default)]
pub struct Output {
    /// Pieces that go out before `tail`.
    segments: VecDeque<Bytes>,
    /// Small pieces are appended here. The first `sent` bytes are sent already.
    tail: Vec<u8>,
    sent: usize,
    remaining: usize,
}

impl Output {
    /// Whether it has memory to append to.
    #[inline]
    pub fn has_buffer(&self) -> bool {
        self.tail.capacity() > 0
    }

    /// Takes the memory that pieces are copied into, if nothing waits in it, so that idle connections share one buffer. The
    /// next piece allocates, unless [`set_buffer`](Self::set_buffer) comes first.
    #[inline]
    pub fn take_buffer(&mut self) -> Option<Vec<u8>> {
        (self.has_buffer() && self.tail.is_empty()).then(|| std::mem::take(&mut self.tail))
    }

    /// Gives memory to append to. It must be empty, and replaces memory without waiting pieces only.
    #[inline]
    pub fn set_buffer(&mut self, buffer: Vec<u8>) {
        if self.tail.is_empty() && buffer.is_empty() {
            self.tail = buffer;
        }
    }

    /// Appends a copy of `bytes`.
    #[inline]
    pub fn put(&mut self, bytes: &[u8]) {
        self.tail.extend_from_slice(bytes);
        self.remaining += bytes.len();
    }

    /// Appends `bytes`: by reference from [`Command::LARGE`] bytes on, as a copy below.
    #[inline]
    pub fn put_shared(&mut self, bytes: &Bytes) {
        if bytes.len() < Command::LARGE {
            return self.put(bytes);
        }
        if self.sent < self.tail.len() {
            let tail = Bytes::from(std::mem::take(&mut self.tail));
            self.segments.push_back(tail.slice(std::mem::take(&mut self.sent)..));
        }
        self.remaining += bytes.len();
        self.segments.push_back(bytes.clone());
    }

    /// Appends `number` in decimal.
    #[inline]
    pub fn put_decimal(&mut self, number: i64) {
        self.put(itoa::Buffer::new().format(number).as_bytes());
    }
}

impl Buf for Output {
    fn remaining(&self) -> usize {
        self.remaining
    }

    fn chunk(&self) -> &[u8] {
        self.segments.front().map_or(&self.tail[self.sent..], |segment| segment)
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let tail = Some(&self.tail[self.sent..]).filter(|tail| !tail.is_empty());
        let chunks = self.segments.iter().map(|segment| &segment[..]).chain(tail);
        slices.iter_mut().zip(chunks).map(|(slice, chunk)| *slice = IoSlice::new(chunk)).count()
    }

    fn advance(&mut self, len: usize) {
        assert!(len <= self.remaining, "cannot send more than there is");
        self.remaining -= len;
        let mut left = len;
        while let Some(segment) = self.segments.front_mut() {
            if left < segment.len() {
                return segment.advance(left);
            }
            left -= segment.len();
            self.segments.pop_front();
        }
        self.sent += left;
        if self.sent == self.tail.len() {
            self.sent = 0;
            self.tail.clear();
            self.tail.shrink_to(KEPT);
        } else if self.sent >= KEPT && self.sent >= self.tail.len() / 2 {
            // Moves no more bytes than were sent.
            self.tail.drain(..std::mem::take(&mut self.sent));
        }
    }
}

/// Bytes of memory that an empty queue keeps.
const KEPT: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use bytes::{Buf, Bytes};
    use std::io::IoSlice;

    use super::{KEPT, Output};
    use crate::command::Command;

    #[test]
    fn bytes_leave_in_order_whatever_the_pieces() {
        let large = Bytes::from(vec![b'x'; Command::LARGE]);
        let mut expected = Vec::new();
        let mut output = Output::default();
        for round in 0..3 {
            output.put(b"$");
            output.put_decimal(round);
            output.put_shared(&large);
            output.put(b"\r\n");
            expected.extend_from_slice(format!("${round}").as_bytes());
            expected.extend_from_slice(&large);
            expected.extend_from_slice(b"\r\n");
        }
        for step in [1, 7, 4096, 50_000] {
            let mut output = Output {
                segments: output.segments.clone(),
                tail: output.tail.clone(),
                sent: output.sent,
                remaining: output.remaining,
            };
            let mut sent = Vec::new();
            while output.has_remaining() {
                let len = step.min(output.chunk().len());
                sent.extend_from_slice(&output.chunk()[..len]);
                output.advance(len);
                // Appending between two sends must not disturb the order.
                if sent.len() == 2 {
                    output.put(b"!");
                }
            }
            sent.retain(|byte| *byte != b'!');
            assert!(sent == expected, "step {step}");
        }
    }

    #[test]
    fn memory_is_given_away_when_everything_is_sent() {
        let mut output = Output::default();
        output.set_buffer(Vec::with_capacity(100));
        output.put(b"hello");
        assert_eq!(output.take_buffer(), None);
        output.set_buffer(Vec::with_capacity(1));
        output.advance(4);
        assert_eq!((output.take_buffer(), output.chunk()), (None, &b"o"[..]));
        output.advance(1);
        assert_eq!(output.take_buffer().map(|buffer| buffer.capacity()), Some(100));
        assert!(!output.has_buffer());
        assert_eq!(output.take_buffer(), None);
    }

    /// A peer that reads as fast as it asks, and always leaves something unread.
    #[test]
    fn memory_follows_what_waits_and_not_what_was_sent() {
        let mut output = Output::default();
        output.put(&[b'x'; 1000]);
        for round in 0..100_000 {
            output.put(&[b'x'; 1000]);
            output.advance(if round % 2 == 0 { 999 } else { 1001 });
        }
        assert_eq!((output.remaining(), output.chunk()), (1000, &[b'x'; 1000][..]));
        assert!(output.tail.capacity() < 4 * KEPT, "{} bytes", output.tail.capacity());
    }

    #[test]
    fn a_large_piece_is_not_copied() {
        let large = Bytes::from(vec![b'x'; Command::LARGE]);
        let mut output = Output::default();
        output.put(b"head");
        output.put_shared(&large);
        output.put(b"tail");
        let mut slices = [IoSlice::new(&[]); 8];
        assert_eq!(output.chunks_vectored(&mut slices), 3);
        assert_eq!(slices[1].as_ptr(), large.as_ptr());
    }

    #[test]
    fn decimals_cover_the_whole_range() {
        for number in [0, 7, -7, 10, i64::MAX, i64::MIN] {
            let mut output = Output::default();
            output.put_decimal(number);
            assert_eq!(output.chunk(), number.to_string().as_bytes());
        }
    }
}
