//! From received bytes to [`Value`]s, incrementally.
//!
//! Open aggregates are kept on an explicit stack. Each byte is looked at once, an array of large strings is never in memory
//! contiguously, depth is bounded, and maps and sets keep the server's order and repeated keys.

use bytes::{Buf, Bytes, BytesMut};

use crate::error::RespError;
use crate::error::ServerError;
use crate::frame_scanner::{Skipped, replacement};
use crate::integer::{self, parse_length};
use crate::line::LineScanner;
use crate::protocol::{MAX_DEPTH, MAX_LINE, MAX_MEMBERS, MAX_STRING, Protocol, TOO_DEEP};
use crate::value::Value;

/// Room offered to a read when nothing is known about the next bytes.
const READ_ROOM: usize = 16 * 1024;
/// Least room offered to a read, so that it is worth its system call.
const MIN_ROOM: usize = 4 * 1024;
/// Most memory allocated for a string that is announced but has not begun to arrive.
const MAX_AHEAD: usize = 16 * 1024 * 1024;
/// Most members allocated for an aggregate that is announced but has not begun to arrive.
const MAX_MEMBERS_AHEAD: usize = 256;
/// The length of a null string and a null array of RESP2.
const NULL: &[u8] = b"-1";
/// Replaces a line of text with more than [`MAX_LINE`] bytes.
const TOO_LONG: &str = "ERR the reply has a line of more than 1 MiB";
/// Replaces a big number that is none: the server sends whatever a script gives.
const NO_NUMBER: &str = "ERR the reply has a big number with other characters than digits";
/// Memory of the read buffer that is kept between replies, in bytes.
const MAX_KEPT: usize = 64 * 1024;

/// The start of a reply, for callers that read a large string themselves.
#[derive(Debug)]
pub enum Header {
    /// The header of a string of this many bytes. The bytes follow, then CRLF.
    String(usize),
    /// Any other reply, complete.
    Other(Value),
}

/// The position of a scalar in the buffer.
#[derive(Clone, Copy, Debug)]
struct Scalar {
    /// Its length, first line and CRLF included.
    len: usize,
    /// Length of its first line, CRLF included.
    line: usize,
    /// Whether it is a plain string, which needs no decoding.
    string: bool,
}

/// Incremental decoder of a server's replies, and the buffer that they are read into.
///
/// Append received bytes to [`room`](Self::room), then take replies out with [`next`](Self::next) until it returns `None`.
/// Strings are slices of the buffer, not copies.
#[derive(Debug)]
pub struct Decoder {
    protocol: Protocol,
    buffer: BytesMut,
    scanner: LineScanner,
    /// The scalar at the start of `buffer`, once its first line is known.
    scalar: Option<Scalar>,
    /// Incomplete aggregates, outermost first.
    open: Vec<Aggregate>,
    /// The part of a reply that is beyond a limit, while it arrives.
    skipped: Option<Skipped>,
}

impl Decoder {
    /// Creates a decoder of replies in `protocol`. Types of another version are errors.
    #[must_use]
    pub fn new(protocol: Protocol) -> Self {
        Self {
            protocol,
            buffer: BytesMut::new(),
            scanner: LineScanner::default(),
            scalar: None,
            open: Vec::new(),
            skipped: None,
        }
    }

    /// Whether everything received has been returned as values.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty() && self.open.is_empty() && self.skipped.is_none()
    }

    /// Whether it has received a part of a reply, and not only of push messages. Take what is complete before.
    #[must_use]
    pub fn holds_reply(&self) -> bool {
        match (self.open.first(), &self.skipped) {
            (Some(outermost), _) => outermost.kind != b'>',
            (None, Some(_)) => true,
            (None, None) => self.buffer.first().is_some_and(|kind| *kind != b'>'),
        }
    }

    /// How many received bytes it keeps of what is not complete yet.
    #[must_use]
    pub fn buffered(&self) -> usize {
        self.buffer.len()
    }

    /// Returns the buffer to append received bytes to, with room to read into: all that a large string still needs, or, if
    /// little of it has arrived, a part that doubles.
    #[inline]
    pub fn room(&mut self) -> &mut BytesMut {
        let missing = self.scalar.map_or(0, |scalar| scalar.len.saturating_sub(self.buffer.len()));
        let spare = self.buffer.capacity() - self.buffer.len();
        let enough = if missing == 0 { MIN_ROOM } else { missing.min(MIN_ROOM) };
        if spare < enough {
            // The announced length may be a lie: allocate at most as much as has arrived.
            let ahead = missing.min(MAX_AHEAD.max(self.buffer.len()));
            self.buffer.reserve(ahead.max(READ_ROOM));
        }
        &mut self.buffer
    }

    /// Returns the next complete reply or push message, or `None` if more bytes are needed.
    ///
    /// The nulls of RESP2, `$-1` and `*-1`, are [`Value::Nil`] in RESP3 too: a module that forwards the reply of a command sends them.
    ///
    /// A [`Value::Error`] stands in the place of an aggregate below [`MAX_DEPTH`] others, of a status, error or big number of more than
    /// [`MAX_LINE`] bytes, and of a big number that is none. A script can return them, and other replies follow.
    ///
    /// # Errors
    /// The first error is final: the bytes after it have no meaning.
    #[expect(clippy::should_implement_trait, reason = "an iterator would go on after an error")]
    #[inline]
    pub fn next(&mut self) -> Result<Option<Value>, RespError> {
        loop {
            let Some(mut value) = self.next_part()? else { return Ok(None) };
            // A complete value may complete the aggregates around it.
            loop {
                let Some(aggregate) = self.open.last_mut() else { return Ok(Some(value)) };
                aggregate.items.push(value);
                if aggregate.items.len() < aggregate.expected {
                    break;
                }
                match self.close() {
                    Some(complete) => value = complete,
                    None => break,
                }
            }
        }
    }

    /// Returns the start of the next reply, or `None` if more bytes are needed. After [`Header::String`], take the received
    /// bytes of the string with [`take_into`](Self::take_into) or [`take_some`](Self::take_some) and read the rest from the
    /// stream.
    ///
    /// # Errors
    /// Same errors as [`next`](Self::next).
    pub fn header(&mut self) -> Result<Option<Header>, RespError> {
        if self.buffer.first() != Some(&b'$') || !self.open.is_empty() || self.skipped.is_some() {
            return Ok(self.next()?.map(Header::Other));
        }
        let Some(line) = self.line()? else { return Ok(None) };
        let header = self.take(line);
        let text = &header[1..line - 2];
        if text == NULL {
            return Ok(Some(Header::Other(Value::Nil)));
        }
        parse_length(text, MAX_STRING).map(|len| Some(Header::String(len)))
    }

    /// Takes up to `most` received bytes, without decoding them.
    pub fn take_some(&mut self, most: usize) -> Bytes {
        self.take(self.buffer.len().min(most))
    }

    /// Moves received bytes into `target`, without decoding them. Returns how many.
    pub fn take_into(&mut self, target: &mut [u8]) -> usize {
        let taken = self.take_some(target.len());
        target[..taken.len()].copy_from_slice(&taken);
        taken.len()
    }

    /// Returns the next scalar or empty aggregate, and opens the aggregates before it.
    fn next_part(&mut self) -> Result<Option<Value>, RespError> {
        loop {
            if let Some(skipped) = self.skipped.take() {
                return self.skip(skipped);
            }
            let Some(&kind) = self.buffer.first() else { return Ok(None) };
            let resp3 = matches!(self.protocol, Protocol::Resp3);
            match kind {
                b'*' => {}
                b'%' | b'~' | b'>' | b'|' if resp3 => {}
                b'+' | b'-' | b':' | b'$' => return self.scalar(kind),
                b'_' | b',' | b'#' | b'(' | b'!' | b'=' if resp3 => return self.scalar(kind),
                byte => return Err(RespError::UnknownType { byte, protocol: self.protocol }),
            }
            if self.open.len() == MAX_DEPTH {
                return self.skip(Skipped::new(TOO_DEEP));
            }
            let Some(header) = self.line()? else { return Ok(None) };
            let header = self.take(header);
            let count = &header[1..header.len() - 2];
            if kind == b'*' && count == NULL {
                return Ok(Some(Value::Nil));
            }
            let count = parse_length(count, MAX_MEMBERS)?;
            self.open.push(Aggregate::new(kind, count));
            if count == 0
                && let Some(value) = self.close()
            {
                return Ok(Some(value));
            }
        }
    }

    /// Returns the scalar at the start of the buffer, once all of it has arrived.
    fn scalar(&mut self, kind: u8) -> Result<Option<Value>, RespError> {
        let Scalar { len, line, string } = match self.scalar {
            Some(scalar) => scalar,
            None => {
                let line = match self.line() {
                    Ok(Some(line)) => line,
                    Ok(None) => return Ok(None),
                    Err(_) if matches!(kind, b'+' | b'-' | b'(') => {
                        return self.skip(Skipped::new(TOO_LONG));
                    }
                    Err(error) => return Err(error),
                };
                let text = &self.buffer[1..line - 2];
                let null = kind == b'$' && text == NULL;
                let scalar = match kind {
                    b'$' if !null => {
                        Scalar { len: line + parse_length(text, MAX_STRING)? + 2, line, string: true }
                    }
                    b'!' | b'=' => {
                        Scalar { len: line + parse_length(text, MAX_STRING)? + 2, line, string: false }
                    }
                    _ => Scalar { len: line, line, string: false },
                };
                *self.scalar.insert(scalar)
            }
        };
        if self.buffer.len() < len {
            return Ok(None);
        }
        let mut scalar = self.take(len);
        if len > MAX_KEPT {
            self.shrink();
        }
        if !scalar.ends_with(b"\r\n") {
            // Lines end with it: it is a string.
            return Err(RespError::Unterminated { len: len - line - 2 });
        }
        if !string {
            let value = decode_scalar(kind, line, &scalar);
            return value.map(Some).ok_or(RespError::BadScalar { kind: char::from(kind) });
        }
        scalar.truncate(len - 2);
        scalar.advance(line);
        Ok(Some(Value::Bulk(scalar)))
    }

    /// Passes over a part of a reply that is beyond a limit. Returns what stands in its place once all of it has arrived.
    #[cold]
    fn skip(&mut self, mut skipped: Skipped) -> Result<Option<Value>, RespError> {
        self.scanner = LineScanner::default();
        let replaced = skipped.pass(&mut self.buffer)?;
        if replaced.is_some() {
            self.shrink();
        } else {
            self.skipped = Some(skipped);
        }
        Ok(replaced)
    }

    /// Gives memory back. Otherwise the connection would keep that of its largest reply.
    fn shrink(&mut self) {
        if self.buffer.len() <= MAX_KEPT {
            self.buffer = BytesMut::from(&self.buffer[..]);
        }
    }

    /// Returns the length of the first line of the buffer, CRLF included, once it is complete.
    fn line(&mut self) -> Result<Option<usize>, RespError> {
        self.scanner.crlf(&self.buffer, MAX_LINE).map_err(|_| RespError::LineTooLong { limit: MAX_LINE })
    }

    fn take(&mut self, len: usize) -> Bytes {
        // Both are about the front of the buffer. A line is taken in part where the bytes are wanted undecoded.
        self.scalar = None;
        self.scanner = LineScanner::default();
        self.buffer.split_to(len).freeze()
    }

    /// Ends the innermost aggregate. `None` for an attribute: nothing uses them yet.
    fn close(&mut self) -> Option<Value> {
        let Aggregate { kind, items, .. } = self.open.pop()?;
        match kind {
            b'*' => Some(Value::Array(items)),
            b'~' => Some(Value::Set(items)),
            b'>' => Some(Value::Push(items)),
            b'%' => Some(Value::Map(pairs(items))),
            _ => None,
        }
    }
}

/// An array, map, set, push message or attribute that is being received.
#[derive(Debug)]
struct Aggregate {
    kind: u8,
    /// Number of values that complete it. For maps, keys and values both count.
    expected: usize,
    items: Vec<Value>,
}

impl Aggregate {
    fn new(kind: u8, count: usize) -> Self {
        let expected = if matches!(kind, b'%' | b'|') { count.saturating_mul(2) } else { count };
        Self { kind, expected, items: Vec::with_capacity(expected.min(MAX_MEMBERS_AHEAD)) }
    }
}

fn pairs(items: Vec<Value>) -> Vec<(Value, Value)> {
    let mut pairs = Vec::with_capacity(items.len() / 2);
    let mut items = items.into_iter();
    while let (Some(key), Some(value)) = (items.next(), items.next()) {
        pairs.push((key, value));
    }
    pairs
}

/// Decodes exactly one complete scalar other than a plain string, CRLF included.
fn decode_scalar(kind: u8, line: usize, bytes: &Bytes) -> Option<Value> {
    let text = bytes.slice(1..line - 2);
    Some(match kind {
        b'+' => Value::Simple(text),
        b'-' => Value::Error(ServerError::from_reply(&text)),
        b':' => Value::Int(integer::parse_reply(&text)?),
        // Its length is that of a null.
        b'$' => Value::Nil,
        b'_' if text.is_empty() => Value::Nil,
        b',' => Value::Double(std::str::from_utf8(&text).ok()?.parse().ok()?),
        b'#' if &text[..] == b"t" => Value::Bool(true),
        b'#' if &text[..] == b"f" => Value::Bool(false),
        b'(' => {
            let digits = text.strip_prefix(b"-").or(text.strip_prefix(b"+")).unwrap_or(&text);
            if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
                return Some(replacement(NO_NUMBER));
            }
            Value::BigNumber(text)
        }
        b'!' => Value::Error(ServerError::from_reply(&bytes[line..bytes.len() - 2])),
        b'=' => {
            let text = bytes.slice(line..bytes.len() - 2);
            // Three characters name the format; then the text.
            let (format, rest) = text.split_first_chunk()?;
            if rest.first() != Some(&b':') {
                return None;
            }
            Value::Verbatim { format: *format, text: text.slice(4..) }
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
