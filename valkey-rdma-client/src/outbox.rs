//! [`Outbox`]: encoded commands on their way to the stream.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tokio::io::AsyncWrite;

use crate::command::{Command, put_header};
use crate::pieces::Pieces;
use crate::request::Commands;

/// The most pieces handed to one vectored write.
const MAX_SLICES: usize = 16;
/// A buffer that has grown beyond this is given back when it is empty.
pub(crate) const MAX_KEPT: usize = 64 * 1024;

/// Bytes to write, in order.
pub(crate) struct Outbox {
    pieces: Pieces,
    /// How much of the tail of `pieces` was written.
    begin: usize,
    /// Bytes ever pushed, and bytes ever accepted by the stream.
    pushed: u64,
    written: u64,
    /// Whether the last argument of a command is being written past this.
    open: bool,
}

impl Outbox {
    pub(crate) fn new() -> Self {
        Self { pieces: Pieces::default(), begin: 0, pushed: 0, written: 0, open: false }
    }

    /// Appends a command.
    pub(crate) fn push(&mut self, command: &Command) {
        self.pushed += self.pieces.push(command) as u64;
    }

    /// Appends all commands of a request.
    pub(crate) fn push_all(&mut self, commands: &Commands) {
        self.pushed += match commands {
            Commands::One(command) => self.pieces.push(command),
            Commands::Many(joined) => self.pieces.append(&joined.pieces),
        } as u64;
    }

    /// Appends a command without its last argument, of so many bytes, which are to be written to the stream; then
    /// [`push_end`](Self::push_end).
    pub(crate) fn push_open(&mut self, command: &Command, len: usize) {
        let (arguments, parts, tail) = command.wire();
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

    /// Appends what ends a command begun with [`push_open`](Self::push_open).
    pub(crate) fn push_end(&mut self) {
        self.push_bytes(&Bytes::from_static(b"\r\n"));
        self.open = false;
    }

    fn push_bytes(&mut self, bytes: &Bytes) {
        self.pushed += bytes.len() as u64;
        self.pieces.push_bytes(bytes);
    }

    /// Position in the stream after everything pushed so far.
    pub(crate) fn pushed(&self) -> u64 {
        self.pushed
    }

    /// Position in the stream up to which it has accepted bytes.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// Whether all was accepted, to the end of a command.
    pub(crate) fn is_written(&self) -> bool {
        self.written == self.pushed && !self.open
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
