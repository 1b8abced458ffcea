//! From received bytes to [`Command`]s. Each byte is looked at once.
//!
//! Error texts and, except where noted, limits are Valkey's (`src/networking.c`, `processMultibulkBuffer` and
//! `processInlineBuffer`).

use bytes::buf::Limit;
use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::command::Command;
use crate::error::CommandError;
use crate::line::{HeaderEnd, LineScanner};
use crate::{inline, integer};

/// Incremental parser of one client's input, and the buffer that input is read into.
///
/// Read from the stream into [`room`](Self::room), then take commands out with [`next_command`](Self::next_command) until
/// it returns `None`. The parser keeps its state between calls, so a value that arrives in 1000 pieces costs no more than
/// one that arrives at once.
#[derive(Debug)]
pub struct Parser {
    buffer: BytesMut,
    scanner: LineScanner,
    /// Words of the command being received, and how many are missing.
    words: Vec<Bytes>,
    missing: usize,
    /// Bytes that `words` hold.
    held: usize,
    /// Length of the argument being received, once its header is known.
    bulk: Option<usize>,
    /// The argument being received, if it is large: see [`Large`].
    large: Option<Large>,
    max_argument_len: usize,
}

/// A large argument is received into its own allocation, so that a handler can store it without another copy and without
/// keeping other memory alive.
#[derive(Debug)]
struct Large {
    /// The argument and its line end, as far as received.
    bytes: Vec<u8>,
    /// Length of the argument and its line end.
    total: usize,
}

/// Where the next bytes of the stream belong. Append them, as many as there is room for.
#[derive(Debug)]
pub enum Room<'a> {
    /// The shared read buffer.
    Buffer(&'a mut BytesMut),
    /// The allocation of one large argument, limited to the bytes it still needs.
    Argument(Limit<&'a mut Vec<u8>>),
}

impl Parser {
    /// Creates a parser that refuses arguments of more than `max_argument_len` bytes.
    #[must_use]
    pub fn new(max_argument_len: usize) -> Self {
        Self {
            buffer: BytesMut::new(),
            scanner: LineScanner::default(),
            words: Vec::new(),
            missing: 0,
            held: 0,
            bulk: None,
            large: None,
            max_argument_len,
        }
    }

    /// Returns the place to append the next bytes of the stream to.
    #[inline]
    pub fn room(&mut self) -> Room<'_> {
        if let Some(large) = self.large.as_mut().filter(|large| large.bytes.len() < large.total) {
            return Room::Argument(large.spare());
        }
        make_room(&mut self.buffer);
        Room::Buffer(&mut self.buffer)
    }

    /// Whether it has memory to read into.
    #[inline]
    #[must_use]
    pub fn has_buffer(&self) -> bool {
        self.buffer.capacity() > 0
    }

    /// Takes the memory that input is read into, if nothing received is in it, so that idle connections share one buffer. The
    /// next [`room`](Self::room) allocates, unless [`set_buffer`](Self::set_buffer) comes first. `None`, too, if a command that
    /// was returned still holds a part of it: then the memory goes with that command.
    #[inline]
    pub fn take_buffer(&mut self) -> Option<BytesMut> {
        // The arguments of a command that has arrived in part stay together, however slowly the others come.
        if !self.buffer.is_empty() || self.missing > 0 {
            return None;
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.try_reclaim(READ_BUFFER).then_some(buffer)
    }

    /// Gives memory to read into. It must be empty, and replaces memory without received input only.
    #[inline]
    pub fn set_buffer(&mut self, buffer: BytesMut) {
        if self.buffer.is_empty() && buffer.is_empty() {
            self.buffer = buffer;
        }
    }

    /// Bytes received and not yet returned as commands.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.buffer.len() + self.held + self.large.as_ref().map_or(0, |large| large.bytes.len())
    }

    /// Drops everything received, and keeps the memory to read into. Call it when no more commands will be parsed, but input must
    /// still be read. What comes next is parsed as if it were the first: it has a meaning only if nothing was received in part.
    pub fn discard(&mut self) {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        // All the rest is about bytes that are gone.
        *self = Self { buffer, ..Self::new(self.max_argument_len) };
    }

    /// Returns the next complete command, or `None` if more input is needed. A client that is not `trusted` may send 10
    /// words of 16 KiB in one command, enough to log in.
    ///
    /// # Errors
    /// The first error is final: the bytes after it have no meaning.
    #[inline]
    pub fn next_command(&mut self, trusted: bool) -> Result<Option<Command>, CommandError> {
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
                    let Some((line, count)) = count_header(&mut self.scanner, &self.buffer)? else {
                        return Ok(None);
                    };
                    if count > MAX_UNTRUSTED_WORDS && !trusted {
                        return Err(CommandError::UntrustedCount);
                    }
                    self.buffer.advance(line);
                    self.missing = count;
                    // Only a few: the count is not to be trusted before the words arrive.
                    self.words.reserve(count.min(16));
                }
                Some(_) => {
                    let found = self.scanner.inline(&self.buffer, MAX_LINE);
                    let Some(line) = found.map_err(|_| CommandError::InlineTooLong)? else { return Ok(None) };
                    let words =
                        inline::split(&self.buffer[..line - 1]).ok_or(CommandError::UnbalancedQuotes)?;
                    self.buffer.advance(line);
                    if let Some(command) = Command::from_words(words) {
                        return Ok(Some(command));
                    }
                }
            }
        }
    }

    /// Moves complete arguments from the buffer to `words`. `false`: more input is needed.
    fn receive_arguments(&mut self, trusted: bool) -> Result<bool, CommandError> {
        while self.missing > 0 {
            let len = match self.bulk {
                Some(len) => len,
                None => {
                    let Some(len) = self.take_bulk_header(trusted)? else { return Ok(false) };
                    *self.bulk.insert(len)
                }
            };
            let Some(word) = self.take_bulk(len)? else { return Ok(false) };
            self.held += word.len() + size_of::<Bytes>();
            self.words.push(word);
            self.bulk = None;
            self.missing -= 1;
        }
        Ok(true)
    }

    fn take_bulk_header(&mut self, trusted: bool) -> Result<Option<usize>, CommandError> {
        let Some((line, len)) = bulk_header(&mut self.scanner, &self.buffer)? else { return Ok(None) };
        let len = usize::try_from(len).ok().filter(|len| *len <= self.max_argument_len);
        let len = len.ok_or(CommandError::InvalidBulkLen)?;
        if len > MAX_UNTRUSTED_WORD_LEN && !trusted {
            return Err(CommandError::UntrustedBulkLen);
        }
        self.buffer.advance(line);
        Ok(Some(len))
    }

    /// Takes an argument of `len` bytes and its line end.
    fn take_bulk(&mut self, len: usize) -> Result<Option<Bytes>, CommandError> {
        if len < Command::LARGE {
            if self.buffer.len() < len + LINE_END {
                return Ok(None);
            }
            if !self.buffer[len..].starts_with(b"\r\n") {
                return Err(CommandError::InvalidCrlf);
            }
            let word = self.buffer.split_to(len).freeze();
            self.buffer.advance(LINE_END);
            return Ok(Some(word));
        }
        let large = self.large.get_or_insert_with(|| Large::new(&mut self.buffer, len + LINE_END));
        if large.bytes.len() < large.total {
            return Ok(None);
        }
        if !large.bytes.ends_with(b"\r\n") {
            return Err(CommandError::InvalidCrlf);
        }
        let Some(Large { mut bytes, .. }) = self.large.take() else { return Ok(None) };
        bytes.truncate(len);
        Ok(Some(bytes.into()))
    }
}

/// Reads the first line of a command, such as `*2`: its length, and how many words follow. `None` if it is not complete.
///
/// Like Valkey, a negative number is 0: a command without words.
pub(crate) fn count_header(
    scanner: &mut LineScanner,
    buffer: &[u8],
) -> Result<Option<(usize, usize)>, CommandError> {
    let line = match scanner.header(buffer, MAX_LINE).map_err(|_| CommandError::CountLineTooLong)? {
        HeaderEnd::Missing => return Ok(None),
        HeaderEnd::Wrong => return Err(CommandError::InvalidCrlf),
        HeaderEnd::At(line) => line,
    };
    let count = integer::parse(&buffer[1..line - LINE_END]).filter(|count| *count <= MAX_WORDS);
    let count = count.ok_or(CommandError::InvalidCount)?;
    Ok(Some((line, usize::try_from(count).unwrap_or(0))))
}

/// Reads the first line of a word, such as `$3`: its length, and how many bytes follow. `None` if it is not complete.
pub(crate) fn bulk_header(
    scanner: &mut LineScanner,
    buffer: &[u8],
) -> Result<Option<(usize, u64)>, CommandError> {
    let end = scanner.header(buffer, MAX_LINE).map_err(|_| CommandError::BulkLineTooLong)?;
    let line = match (end, buffer.first()) {
        (HeaderEnd::Missing, _) | (_, None) => return Ok(None),
        (_, Some(&found)) if found != b'$' => return Err(CommandError::ExpectedBulk { found }),
        (HeaderEnd::Wrong, _) => return Err(CommandError::InvalidCrlf),
        (HeaderEnd::At(line), _) => line,
    };
    let len = integer::parse(&buffer[1..line - LINE_END]).and_then(|len| u64::try_from(len).ok());
    Ok(Some((line, len.ok_or(CommandError::InvalidBulkLen)?)))
}

/// Makes room to read into, and returns the memory of a burst.
fn make_room(buffer: &mut BytesMut) {
    if buffer.is_empty() && buffer.capacity() > 2 * READ_BUFFER {
        *buffer = BytesMut::new();
    }
    if buffer.capacity() - buffer.len() < READ_BUFFER / 2 {
        buffer.reserve(READ_BUFFER.saturating_sub(buffer.len()).max(READ_BUFFER / 2));
    }
}

impl Large {
    /// Starts with those of the `total` bytes that `buffer` already holds.
    fn new(buffer: &mut BytesMut, total: usize) -> Self {
        let arrived = buffer.len().min(total);
        let mut bytes = Vec::with_capacity(arrived.max(total.min(GROWTH)));
        bytes.extend_from_slice(&buffer[..arrived]);
        buffer.advance(arrived);
        Self { bytes, total }
    }

    /// Room for the missing bytes or a part of them. Beyond [`GROWTH`], memory is at most twice what has arrived, because the
    /// announced length may be a lie. The last step is exact, so that a stored value wastes nothing.
    fn spare(&mut self) -> Limit<&mut Vec<u8>> {
        let missing = self.total - self.bytes.len();
        if self.bytes.len() == self.bytes.capacity() {
            self.bytes.reserve_exact(missing.min(self.bytes.len().max(GROWTH)));
        }
        let room = (self.bytes.capacity() - self.bytes.len()).min(missing);
        (&mut self.bytes).limit(room)
    }
}

/// Most words in one command: Valkey's `INT_MAX`. Memory is set aside for those that have arrived only, so what bounds a command is
/// the limit of input that the caller has.
const MAX_WORDS: i64 = i32::MAX as i64;

/// Most words in a command of a client that is not trusted, and most bytes in one of them: Valkey's limits before the login.
const MAX_UNTRUSTED_WORDS: usize = 10;
const MAX_UNTRUSTED_WORD_LEN: usize = 16 * 1024;

/// Longest header or inline command, in bytes: Valkey's `PROTO_INLINE_MAX_SIZE`.
pub(crate) const MAX_LINE: usize = 64 * 1024;

/// `\r\n`.
pub(crate) const LINE_END: usize = 2;

/// Bytes that an idle connection keeps for reading. Twice [`Command::LARGE`], so that an argument just below that length
/// fits together with its neighbours.
const READ_BUFFER: usize = 2 * Command::LARGE;

/// First allocation for a large argument of which little has arrived: enough for all of it in most cases. Memory that is
/// never written costs address space only.
const GROWTH: usize = 16 * 1024 * 1024;

#[cfg(test)]
mod tests;
