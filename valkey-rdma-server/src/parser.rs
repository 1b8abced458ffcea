//! From bytes read to commands, without looking at a byte twice.
//!
//! Limits and error texts are Valkey's (`src/networking.c`, `processMultibulkBuffer` and `processInlineBuffer`).

use std::io;
use std::pin::pin;
use std::task::{Context, Poll};

use bytes::buf::Limit;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::command::Command;
use crate::config::Config;
use crate::{inline, integer};

/// Incremental parser of one connection's input, and the buffer that input is read into.
///
/// What is known about a half-received command stays here, so a value that arrives in a thousand pieces costs
/// no more than one that arrives at once. After an error nothing more can be parsed.
#[derive(Debug)]
pub(crate) struct Parser {
    buffer: BytesMut,
    /// Bytes at the front of `buffer` in which no end of line was found.
    scanned: usize,
    /// Arguments of the command being received, and how many more it has.
    words: Vec<Bytes>,
    missing: usize,
    /// Bytes held by `words`.
    held: usize,
    /// Length of the argument being received, once its header is known.
    bulk: Option<usize>,
    /// The argument being received, if it is large: see [`Large`].
    large: Option<Large>,
    max_argument_len: usize,
}

/// A large argument is received into memory of its own, so that it can be handed on and stored without another copy
/// and without pinning its neighbours.
#[derive(Debug)]
struct Large {
    /// The argument and its line end.
    bytes: Vec<u8>,
    missing: usize,
}

/// A peer broke the command syntax.
///
/// `Display` is Valkey's text, to be sent after `-ERR `.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ProtocolError {
    #[error("Protocol error: too big inline request")]
    InlineTooLong,
    #[error("Protocol error: unbalanced quotes in request")]
    UnbalancedQuotes,
    #[error("Protocol error: too big mbulk count string")]
    CountLineTooLong,
    #[error("Protocol error: invalid multibulk length")]
    InvalidCount,
    #[error("Protocol error: unauthenticated multibulk length")]
    StrangerCount,
    #[error("Protocol error: too big bulk count string")]
    BulkLineTooLong,
    #[error("Protocol error: expected '$', got '{}'", char::from(*found))]
    ExpectedBulk { found: u8 },
    #[error("Protocol error: invalid bulk length")]
    InvalidBulkLen,
    #[error("Protocol error: unauthenticated bulk length")]
    StrangerBulkLen,
}

impl Parser {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            buffer: BytesMut::new(),
            scanned: 0,
            words: Vec::new(),
            missing: 0,
            held: 0,
            bulk: None,
            large: None,
            max_argument_len: config.max_argument_len,
        }
    }

    /// Reads once from `stream`. 0 is the end of the stream.
    pub(crate) fn poll_read(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin),
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        if let Some(large) = self.large.as_mut().filter(|large| large.missing > 0) {
            let mut spare = large.spare();
            let read = pin!(stream.read_buf(&mut spare)).poll(cx);
            if let Poll::Ready(Ok(len)) = read {
                large.missing -= len;
            }
            return read;
        }
        self.make_room();
        pin!(stream.read_buf(&mut self.buffer)).poll(cx)
    }

    /// Bytes received and not yet handed out as commands.
    pub(crate) fn pending(&self) -> usize {
        self.buffer.len() + self.held + self.large.as_ref().map_or(0, |large| large.bytes.len())
    }

    /// Forgets what was received; nothing more will be parsed.
    pub(crate) fn discard(&mut self) {
        self.buffer.clear();
        self.words.clear();
        self.held = 0;
        self.large = None;
    }

    /// The next complete command. `None`: more input is needed. A peer that is not `trusted` may not send large ones.
    pub(crate) fn next_command(&mut self, trusted: bool) -> Result<Option<Command>, ProtocolError> {
        loop {
            if self.missing > 0 {
                if !self.receive_arguments(trusted)? {
                    return Ok(None);
                }
                self.held = 0;
                return Ok(Command::from_words(std::mem::take(&mut self.words)));
            }
            match self.buffer.first() {
                None => return Ok(None),
                Some(b'*') => {
                    let Some(len) = self.find_line(b"\r\n", ProtocolError::CountLineTooLong)? else {
                        return Ok(None);
                    };
                    let count = integer::parse(&self.buffer[1..len]).ok_or(ProtocolError::InvalidCount)?;
                    // Valkey skips a command of no or fewer words.
                    let count = usize::try_from(count).unwrap_or(0);
                    if count > MAX_WORDS {
                        return Err(ProtocolError::InvalidCount);
                    }
                    if count > MAX_STRANGER_WORDS && !trusted {
                        return Err(ProtocolError::StrangerCount);
                    }
                    self.buffer.advance(len + LINE_END);
                    self.missing = count;
                    // The rest grows as it arrives: a count is only a claim.
                    self.words.reserve(count.min(16));
                }
                Some(_) => {
                    let Some(len) = self.find_line(b"\n", ProtocolError::InlineTooLong)? else {
                        return Ok(None);
                    };
                    let words = inline::split(&self.buffer[..len]).ok_or(ProtocolError::UnbalancedQuotes)?;
                    self.buffer.advance(len + 1);
                    if let Some(command) = Command::from_words(words) {
                        return Ok(Some(command));
                    }
                }
            }
        }
    }

    /// Moves complete arguments from the buffer to `words`. `false`: more input is needed.
    fn receive_arguments(&mut self, trusted: bool) -> Result<bool, ProtocolError> {
        while self.missing > 0 {
            let len = match self.bulk {
                Some(len) => len,
                None => {
                    let Some(len) = self.take_bulk_header(trusted)? else { return Ok(false) };
                    *self.bulk.insert(len)
                }
            };
            let Some(word) = self.take_bulk(len) else { return Ok(false) };
            self.held += word.len() + size_of::<Bytes>();
            self.words.push(word);
            self.bulk = None;
            self.missing -= 1;
        }
        Ok(true)
    }

    fn take_bulk_header(&mut self, trusted: bool) -> Result<Option<usize>, ProtocolError> {
        let Some(line) = self.find_line(b"\r\n", ProtocolError::BulkLineTooLong)? else { return Ok(None) };
        if self.buffer[0] != b'$' {
            return Err(ProtocolError::ExpectedBulk { found: self.buffer[0] });
        }
        let len = integer::parse(&self.buffer[1..line])
            .and_then(|len| usize::try_from(len).ok())
            .filter(|len| *len <= self.max_argument_len)
            .ok_or(ProtocolError::InvalidBulkLen)?;
        if len > MAX_STRANGER_WORD_LEN && !trusted {
            return Err(ProtocolError::StrangerBulkLen);
        }
        self.buffer.advance(line + LINE_END);
        Ok(Some(len))
    }

    /// Takes an argument of `len` bytes and its line end (two bytes that, like Valkey, we do not look at).
    fn take_bulk(&mut self, len: usize) -> Option<Bytes> {
        if len < Command::LARGE {
            if self.buffer.len() < len + LINE_END {
                return None;
            }
            let word = self.buffer.split_to(len).freeze();
            self.buffer.advance(LINE_END);
            return Some(word);
        }
        let large = self.large.get_or_insert_with(|| Large::new(&mut self.buffer, len + LINE_END));
        if large.missing > 0 {
            return None;
        }
        let mut bytes = self.large.take()?.bytes;
        bytes.truncate(len);
        Some(bytes.into())
    }

    /// Length of the line at the front of the buffer, without its `end`, once all of it is there.
    /// Only the first byte of `end` is looked at, as in Valkey.
    fn find_line(&mut self, end: &[u8], too_long: ProtocolError) -> Result<Option<usize>, ProtocolError> {
        let found = self.buffer[self.scanned..].iter().position(|byte| *byte == end[0]);
        let len = self.scanned + found.unwrap_or(self.buffer.len() - self.scanned);
        if self.buffer.len() >= len + end.len() {
            self.scanned = 0;
            return Ok(Some(len));
        }
        self.scanned = len;
        if len > MAX_LINE { Err(too_long) } else { Ok(None) }
    }

    /// Leaves a decent amount of room to read into, and gives memory back after a burst.
    fn make_room(&mut self) {
        if self.buffer.is_empty() && self.buffer.capacity() > 2 * READ_BUFFER {
            self.buffer = BytesMut::new();
        }
        if self.buffer.capacity() - self.buffer.len() < READ_BUFFER / 2 {
            self.buffer.reserve(READ_BUFFER.saturating_sub(self.buffer.len()).max(READ_BUFFER / 2));
        }
    }
}

impl Large {
    /// Starts with what `buffer` already has of the `total` bytes.
    fn new(buffer: &mut BytesMut, total: usize) -> Self {
        let arrived = buffer.len().min(total);
        let mut bytes = Vec::with_capacity(arrived.max(total.min(GROWTH)));
        bytes.extend_from_slice(&buffer[..arrived]);
        buffer.advance(arrived);
        Self { bytes, missing: total - arrived }
    }

    /// Room for what is missing, or a part of it. Beyond [`GROWTH`] memory at most doubles what really arrived, because
    /// the length is only the peer's claim; the last step is exact, so that a stored value wastes nothing.
    fn spare(&mut self) -> Limit<&mut Vec<u8>> {
        if self.bytes.len() == self.bytes.capacity() {
            self.bytes.reserve_exact(self.missing.min(self.bytes.len().max(GROWTH)));
        }
        let room = (self.bytes.capacity() - self.bytes.len()).min(self.missing);
        (&mut self.bytes).limit(room)
    }
}

/// Most words in one command: Valkey's documented limit.
const MAX_WORDS: usize = 1024 * 1024;

/// Most words in one command before the peer is trusted, and most bytes in one of them: enough to log in.
const MAX_STRANGER_WORDS: usize = 10;
const MAX_STRANGER_WORD_LEN: usize = 16 * 1024;

/// Longest header or inline command: Valkey's `PROTO_INLINE_MAX_SIZE`.
const MAX_LINE: usize = 64 * 1024;

/// `\r\n`.
const LINE_END: usize = 2;

/// What an idle connection keeps for reading. Twice [`Command::LARGE`], so that an argument just below that length fits
/// beside its neighbours.
const READ_BUFFER: usize = 2 * Command::LARGE;

/// First allocation for a large argument that has hardly begun to arrive: all of it, for any common value. Memory that is
/// not written to costs address space only.
const GROWTH: usize = 16 * 1024 * 1024;

#[cfg(test)]
mod tests;
