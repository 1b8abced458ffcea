//! From received bytes to [`Value`]s, a piece at a time.
//!
//! redis-protocol decodes each scalar but plain strings, which are cut out where their length says; aggregates are put
//! together here, on a stack of our own. Its own decoder for whole frames starts over whenever bytes are missing, recurses as deep as the peer wishes, and keeps maps and sets
//! in hash tables, which loses order and repeated keys and refuses keys that are arrays. Here a byte is looked at
//! once, an array of large strings never needs to be in memory contiguously, and depth is bounded.

use bytes::{Buf, Bytes, BytesMut};
use redis_protocol::resp2::decode::decode_bytes as decode_resp2;
use redis_protocol::resp2::types::BytesFrame as Resp2;
use redis_protocol::resp3::decode::complete::decode_bytes as decode_resp3;
use redis_protocol::resp3::types::BytesFrame as Resp3;

use crate::endpoint::Protocol;
use crate::outbox::MAX_KEPT;
use crate::server_error::ServerError;
use crate::value::Value;

/// What a peer sent instead of RESP.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// A reply starts with a byte that is no type of this protocol version.
    #[error("{byte:#04x} starts no {protocol} reply")]
    UnknownType {
        /// The byte.
        byte: u8,
        /// The protocol version in use.
        protocol: Protocol,
    },
    /// A length or count that is negative, no number, or above the limit.
    #[error("bad length \"{text}\", expected 0 to {limit}")]
    BadLength {
        /// The length as sent, cut to 32 bytes.
        text: String,
        /// The largest we accept.
        limit: u64,
    },
    /// A line without an end.
    #[error("a line of more than {limit} bytes")]
    LineTooLong {
        /// The longest we accept.
        limit: usize,
    },
    /// A string is not followed by CRLF where its length says it ends.
    #[error("a string of {len} bytes, header included, does not end with CRLF")]
    Unterminated {
        /// Length as announced, plus header and CRLF.
        len: usize,
    },
    /// Aggregates within aggregates beyond the limit.
    #[error("a reply nested deeper than {limit} levels")]
    TooDeep {
        /// The deepest we accept.
        limit: usize,
    },
    /// A scalar whose text does not fit its type.
    #[error("a malformed value of type '{kind}'")]
    BadScalar {
        /// The type byte.
        kind: char,
    },
    /// A reply although no command waits for one.
    #[error("a reply that nobody asked for")]
    Unasked,
}

/// The deepest nesting accepted; the server's own replies stay below 10. Values drop recursively, so it must fit a
/// small stack.
pub(crate) const MAX_DEPTH: usize = 128;
/// The longest line accepted: a status, an error, a number, a length. Valkey's own lines stay below 64 KiB.
pub(crate) const MAX_LINE: usize = 1024 * 1024;
/// The largest string accepted. Valkey's limit, `proto-max-bulk-len`, is 512 MiB unless raised.
pub(crate) const MAX_STRING: u64 = 16 * 1024 * 1024 * 1024;
/// The most members of one aggregate accepted, as in Valkey's own parser.
pub(crate) const MAX_MEMBERS: u64 = i32::MAX as u64;

/// Room offered to a read when nothing is known of what comes.
const READ_ROOM: usize = 16 * 1024;
/// Below this much room, a read is not worth its system call.
const MIN_ROOM: usize = 4 * 1024;
/// The most memory a mere announcement of a string can make us set aside.
const MAX_AHEAD: usize = 16 * 1024 * 1024;
/// The most members a mere announcement of an aggregate can make us set aside.
const MAX_MEMBERS_AHEAD: usize = 256;

/// How a reply begins, for those who read a string themselves.
pub(crate) enum Header {
    /// A string of so many bytes, which come next, and CRLF after them.
    String(usize),
    /// Anything else, whole.
    Other(Value),
}

/// How a scalar lies in the buffer.
#[derive(Clone, Copy)]
struct Scalar {
    len: usize,
    /// Where the bytes of a plain string begin.
    string: Option<usize>,
}

/// Holds received bytes until they are values.
pub(crate) struct Decoder {
    protocol: Protocol,
    buffer: BytesMut,
    /// How far `buffer` was searched for the end of its first line.
    searched: usize,
    /// The scalar at the start of `buffer`, once its first line is known.
    scalar: Option<Scalar>,
    /// Aggregates begun and not complete, outermost first.
    open: Vec<Aggregate>,
}

impl Decoder {
    pub(crate) fn new(protocol: Protocol) -> Self {
        Self { protocol, buffer: BytesMut::new(), searched: 0, scalar: None, open: Vec::new() }
    }

    /// Whether nothing was received that has not become a value.
    pub(crate) fn is_empty(&self) -> bool {
        self.buffer.is_empty() && self.open.is_empty()
    }

    /// The buffer to append received bytes to, with room to read into: all that a large string still needs, or a
    /// share of it that doubles.
    pub(crate) fn room(&mut self) -> &mut BytesMut {
        let missing = self.scalar.map_or(0, |scalar| scalar.len.saturating_sub(self.buffer.len()));
        let spare = self.buffer.capacity() - self.buffer.len();
        let enough = if missing == 0 { MIN_ROOM } else { missing.min(MIN_ROOM) };
        if spare < enough {
            // An announcement alone sets aside a bounded amount; what has arrived is taken as a sign of more.
            let ahead = missing.min(MAX_AHEAD.max(self.buffer.len()));
            self.buffer.reserve(ahead.max(READ_ROOM));
        }
        &mut self.buffer
    }

    /// The next complete reply or push message, if the bytes for it are here.
    ///
    /// # Errors
    /// The first error is final: what follows it in the stream has no meaning.
    pub(crate) fn next(&mut self) -> Result<Option<Value>, ProtocolError> {
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

    /// How the next reply begins, if enough of it is here. After [`Header::String`], its bytes are
    /// [taken](Self::take_into) out of here and then read from the stream.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub(crate) fn header(&mut self) -> Result<Option<Header>, ProtocolError> {
        if self.buffer.first() != Some(&b'$') || !self.open.is_empty() {
            return Ok(self.next()?.map(Header::Other));
        }
        let Some(line) = self.line()? else { return Ok(None) };
        let header = self.take(line);
        let text = &header[1..line - 2];
        if text == b"-1" && self.protocol == Protocol::Resp2 {
            return Ok(Some(Header::Other(Value::Nil)));
        }
        parse_length(text, MAX_STRING).map(|len| Some(Header::String(len)))
    }

    /// Received bytes as they are, at most so many.
    pub(crate) fn take_some(&mut self, most: usize) -> Bytes {
        self.take(self.buffer.len().min(most))
    }

    /// Moves received bytes out as they are, as many as there are and fit.
    pub(crate) fn take_into(&mut self, target: &mut [u8]) -> usize {
        let taken = self.take_some(target.len());
        target[..taken.len()].copy_from_slice(&taken);
        taken.len()
    }

    /// The next scalar or empty aggregate; opens the others on the way.
    fn next_part(&mut self) -> Result<Option<Value>, ProtocolError> {
        loop {
            let Some(&kind) = self.buffer.first() else { return Ok(None) };
            let resp3 = self.protocol == Protocol::Resp3;
            match kind {
                b'*' => {}
                b'%' | b'~' | b'>' | b'|' if resp3 => {}
                b'+' | b'-' | b':' | b'$' => return self.scalar(kind),
                b'_' | b',' | b'#' | b'(' | b'!' | b'=' if resp3 => return self.scalar(kind),
                byte => return Err(ProtocolError::UnknownType { byte, protocol: self.protocol }),
            }
            let Some(header) = self.line()? else { return Ok(None) };
            let header = self.take(header);
            let count = &header[1..header.len() - 2];
            if !resp3 && count == b"-1" {
                return Ok(Some(Value::Nil));
            }
            let count = parse_length(count, MAX_MEMBERS)?;
            if self.open.len() == MAX_DEPTH {
                return Err(ProtocolError::TooDeep { limit: MAX_DEPTH });
            }
            self.open.push(Aggregate::new(kind, count));
            if count == 0
                && let Some(value) = self.close()
            {
                return Ok(Some(value));
            }
        }
    }

    /// The scalar at the start of the buffer.
    fn scalar(&mut self, kind: u8) -> Result<Option<Value>, ProtocolError> {
        let Scalar { len, string } = match self.scalar {
            Some(scalar) => scalar,
            None => {
                let Some(line) = self.line()? else { return Ok(None) };
                let text = &self.buffer[1..line - 2];
                let null = kind == b'$' && self.protocol == Protocol::Resp2 && text == b"-1";
                let scalar = match kind {
                    b'$' if !null => {
                        Scalar { len: line + parse_length(text, MAX_STRING)? + 2, string: Some(line) }
                    }
                    b'!' | b'=' => Scalar { len: line + parse_length(text, MAX_STRING)? + 2, string: None },
                    _ => Scalar { len: line, string: None },
                };
                *self.scalar.insert(scalar)
            }
        };
        if self.buffer.len() < len {
            return Ok(None);
        }
        let mut scalar = self.take(len);
        // Else the connection would keep the memory of its largest reply, whatever becomes of that.
        if len > MAX_KEPT && self.buffer.len() <= MAX_KEPT {
            self.buffer = BytesMut::from(&self.buffer[..]);
        }
        if !scalar.ends_with(b"\r\n") {
            return Err(ProtocolError::Unterminated { len });
        }
        let Some(begin) = string else { return decode_scalar(self.protocol, kind, &scalar).map(Some) };
        scalar.truncate(len - 2);
        scalar.advance(begin);
        Ok(Some(Value::Bulk(scalar)))
    }

    /// Length of the first line of the buffer, CRLF included, once it is complete.
    fn line(&mut self) -> Result<Option<usize>, ProtocolError> {
        let searched = &self.buffer[self.searched..];
        if let Some(end) = searched.windows(2).position(|pair| pair == b"\r\n") {
            return Ok(Some(self.searched + end + 2));
        }
        if self.buffer.len() > MAX_LINE {
            return Err(ProtocolError::LineTooLong { limit: MAX_LINE });
        }
        // The last byte may be the first half of CRLF.
        self.searched = self.buffer.len().saturating_sub(1);
        Ok(None)
    }

    fn take(&mut self, len: usize) -> Bytes {
        self.searched = 0;
        self.scalar = None;
        self.buffer.split_to(len).freeze()
    }

    /// Ends the innermost aggregate. Attributes are of no use to anybody yet and yield nothing.
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
struct Aggregate {
    kind: u8,
    /// How many values complete it; for maps, keys and values both count.
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

fn parse_length(text: &[u8], limit: u64) -> Result<usize, ProtocolError> {
    let bad = || {
        let shown = &text[..text.len().min(32)];
        ProtocolError::BadLength { text: String::from_utf8_lossy(shown).into_owned(), limit }
    };
    if text.is_empty() {
        return Err(bad());
    }
    let mut number: u64 = 0;
    for &byte in text {
        let digit = byte.wrapping_sub(b'0');
        // Beyond the limit already, it could only grow: so it never overflows.
        if digit > 9 || number > limit {
            return Err(bad());
        }
        number = number * 10 + u64::from(digit);
    }
    usize::try_from(number).ok().filter(|_| number <= limit).ok_or_else(bad)
}

/// Decodes exactly one complete scalar, CRLF included.
fn decode_scalar(protocol: Protocol, kind: u8, bytes: &Bytes) -> Result<Value, ProtocolError> {
    // redis-protocol refuses errors that are not UTF-8; servers quote the caller's bytes in theirs.
    if kind == b'-' {
        return Ok(Value::Error(ServerError::from_reply(&bytes[1..bytes.len() - 2])));
    }
    let bad = || ProtocolError::BadScalar { kind: char::from(kind) };
    match protocol {
        Protocol::Resp2 => match decode_resp2(bytes) {
            Ok(Some((frame, len))) if len == bytes.len() => from_resp2(frame).ok_or_else(bad),
            _ => Err(bad()),
        },
        Protocol::Resp3 => match decode_resp3(bytes) {
            Ok(Some((frame, len))) if len == bytes.len() => from_resp3(frame).ok_or_else(bad),
            _ => Err(bad()),
        },
    }
}

fn from_resp2(frame: Resp2) -> Option<Value> {
    Some(match frame {
        Resp2::SimpleString(text) => Value::Simple(text),
        Resp2::Integer(number) => Value::Int(number),
        Resp2::BulkString(bytes) => Value::Bulk(bytes),
        Resp2::Null => Value::Nil,
        Resp2::Error(_) | Resp2::Array(_) => return None,
    })
}

fn from_resp3(frame: Resp3) -> Option<Value> {
    Some(match frame {
        Resp3::SimpleString { data, .. } => Value::Simple(data),
        Resp3::BlobString { data, .. } => Value::Bulk(data),
        Resp3::VerbatimString { data, .. } => Value::Verbatim(data),
        Resp3::BigNumber { data, .. } => Value::BigNumber(data),
        Resp3::BlobError { data, .. } => Value::Error(ServerError::from_reply(&data)),
        Resp3::Number { data, .. } => Value::Int(data),
        Resp3::Double { data, .. } => Value::Double(data),
        Resp3::Boolean { data, .. } => Value::Bool(data),
        Resp3::Null => Value::Nil,
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
