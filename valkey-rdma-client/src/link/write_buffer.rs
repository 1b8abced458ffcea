//! [`WriteBuffer`]: encoded commands on their way to the stream.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tokio::io::AsyncWrite;
use valkey_rdma_resp::put_header;

use crate::command::Command;
use crate::command::Commands;
use crate::command::EncodeBuffer;

/// The most slices of one vectored write.
const MAX_SLICES: usize = 16;
/// Buffers larger than this are freed when empty.
pub(crate) const MAX_KEPT: usize = 64 * 1024;

/// Bytes to write, in order.
pub(crate) struct WriteBuffer {
    pieces: EncodeBuffer,
    /// How much of the tail was written.
    begin: usize,
    /// Total bytes pushed, and total bytes accepted by the stream.
    pushed: u64,
    written: u64,
    /// True while the last argument of a command is written directly to the stream.
    open: bool,
    /// Where the commands end that were pushed one by one since everything was written.
    ends: Vec<u64>,
}

impl WriteBuffer {
    pub(crate) fn new() -> Self {
        Self {
            pieces: EncodeBuffer::default(),
            begin: 0,
            pushed: 0,
            written: 0,
            open: false,
            ends: Vec::new(),
        }
    }

    /// Appends a command.
    pub(crate) fn push(&mut self, command: &Command) {
        self.forget_written();
        self.pushed += self.pieces.push(command) as u64;
        self.ends.push(self.pushed);
    }

    /// Appends all commands of a request.
    pub(crate) fn push_all(&mut self, commands: &Commands) {
        self.forget_written();
        self.pushed += match commands {
            Commands::One(command) => self.pieces.push(command),
            Commands::Many(pipeline) => self.pieces.append(&pipeline.encoded),
        } as u64;
    }

    /// Appends a command without its last argument of `len` bytes. The caller writes those to the stream, then calls
    /// [`end_streamed_argument`](Self::end_streamed_argument).
    pub(crate) fn begin_streamed_argument(&mut self, command: &Command, len: usize) {
        let (arguments, parts, tail) = command.encoded();
        let mut begin = Vec::new();
        put_header(&mut begin, b'*', arguments + 1);
        for part in parts {
            begin.extend_from_slice(part);
        }
        begin.extend_from_slice(tail);
        put_header(&mut begin, b'$', len);
        self.push_bytes(&begin.into());
        self.open = true;
    }

    /// Appends what ends a command begun with [`begin_streamed_argument`](Self::begin_streamed_argument).
    pub(crate) fn end_streamed_argument(&mut self) {
        self.push_bytes(&Bytes::from_static(b"\r\n"));
        self.ends.push(self.pushed);
        self.open = false;
    }

    fn push_bytes(&mut self, bytes: &Bytes) {
        self.forget_written();
        self.pushed += bytes.len() as u64;
        self.pieces.push_bytes(bytes);
    }

    /// Removes the written part of the tail, because pushing may replace the tail, and what belongs to earlier commands.
    fn forget_written(&mut self) {
        if self.is_written() {
            self.ends.clear();
        }
        if self.begin > 0 {
            self.pieces.tail.drain(..std::mem::take(&mut self.begin));
        }
    }

    /// Position in the stream after everything pushed so far.
    pub(crate) fn pushed(&self) -> u64 {
        self.pushed
    }

    /// Position in the stream up to which it has accepted bytes.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// True if everything was accepted, to the end of a command.
    pub(crate) fn is_written(&self) -> bool {
        self.written == self.pushed && !self.open
    }

    /// How many of the latest commands, those pushed since everything was written, were not accepted completely.
    pub(crate) fn unwritten_commands(&self) -> usize {
        self.ends.iter().filter(|&&end| end > self.written).count()
    }

    /// True if one of the latest commands was accepted completely: the server may run it before it has the others.
    pub(crate) fn has_written_command(&self) -> bool {
        self.ends.first().is_some_and(|&end| end <= self.written)
    }

    /// Counts bytes that were written past this buffer, which is empty.
    pub(crate) fn written_directly(&mut self, len: usize) {
        debug_assert!(self.is_written(), "these bytes come before those in the buffer");
        self.pushed += len as u64;
        self.written += len as u64;
    }

    /// Drops what was not written, and counts it as written: how much of it was is not known.
    pub(crate) fn assume_written(&mut self) {
        *self = Self { pushed: self.pushed, written: self.pushed, ..Self::new() };
    }

    /// Drops what was not written.
    pub(crate) fn discard(&mut self) {
        *self = Self { pushed: self.written, written: self.written, ..Self::new() };
    }

    /// Writes until nothing is left.
    pub(crate) fn poll_write_all<S: AsyncWrite + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut S,
    ) -> Poll<io::Result<()>> {
        while self.written < self.pushed {
            let written = match self.pieces.parts.front() {
                None => ready!(Pin::new(&mut *stream).poll_write(cx, &self.pieces.tail[self.begin..]))?,
                Some(_) if stream.is_write_vectored() => {
                    let mut slices = [IoSlice::new(&[]); MAX_SLICES];
                    let pieces = self
                        .pieces
                        .parts
                        .iter()
                        .map(|part| &part[..])
                        .chain([&self.pieces.tail[self.begin..]]);
                    let mut count = 0;
                    for (slice, piece) in slices.iter_mut().zip(pieces) {
                        *slice = IoSlice::new(piece);
                        count += 1;
                    }
                    ready!(Pin::new(&mut *stream).poll_write_vectored(cx, &slices[..count]))?
                }
                Some(part) => ready!(Pin::new(&mut *stream).poll_write(cx, part))?,
            };
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.advance(written);
        }
        self.pieces.tail.clear();
        self.begin = 0;
        if self.pieces.tail.capacity() > MAX_KEPT {
            self.pieces.tail = Vec::new();
        }
        self.pieces.parts.shrink_to(MAX_SLICES);
        Poll::Ready(Ok(()))
    }

    fn advance(&mut self, mut count: usize) {
        self.written += count as u64;
        while count > 0 {
            let Some(part) = self.pieces.parts.front_mut() else { return self.begin += count };
            if part.len() > count {
                return part.advance(count);
            }
            count -= part.len();
            self.pieces.parts.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, duplex};

    use super::*;

    /// What arrives of two commands, of which the second is pushed when so many bytes of the first were written.
    async fn arrives(first: &Command, written: usize, second: &Command) -> Vec<u8> {
        let (mut ours, mut peer) = duplex(written.max(1));
        let mut write_buffer = WriteBuffer::new();
        write_buffer.push(first);
        if written > 0 {
            let mut cx = Context::from_waker(std::task::Waker::noop());
            let _ = write_buffer.poll_write_all(&mut cx, &mut ours);
            assert_eq!(write_buffer.written(), written.min(write_buffer.pushed() as usize) as u64);
        }
        write_buffer.push(second);
        let reads = tokio::spawn(async move {
            let mut bytes = Vec::new();
            peer.read_to_end(&mut bytes).await.map(|_| bytes)
        });
        std::future::poll_fn(|cx| write_buffer.poll_write_all(cx, &mut ours)).await.expect("open");
        assert!(write_buffer.is_written());
        drop(ours);
        reads.await.expect("no panic").expect("open")
    }

    #[tokio::test]
    async fn what_is_pushed_behind_something_half_written_follows_it() {
        let small = Command::from_args(["SUBSCRIBE", "a"]);
        let large = Command::from_args([&b"SUBSCRIBE"[..], &[b'x'; 100_000]]);
        let whole = arrives(&small, 0, &large).await;
        assert_eq!(whole.len(), 26 + 100_030);
        for written in 1..=26 {
            assert_eq!(arrives(&small, written, &large).await, whole, "after {written} bytes");
        }
        assert_eq!(arrives(&large, 50_000, &small).await.len(), whole.len());
    }
}
