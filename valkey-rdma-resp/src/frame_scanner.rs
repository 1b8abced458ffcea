//! [`FrameScanner`]: where replies end, for programs that pass them on without decoding them, and for what a decoder passes over.

use bytes::{Buf, BytesMut};

use crate::error::RespError;
use crate::error::ServerError;
use crate::integer::parse_length;
use crate::line::LineScanner;
use crate::protocol::{MAX_LINE, MAX_MEMBERS, MAX_STRING, Protocol};
use crate::value::Value;

/// How far a scanner got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scanned {
    /// Bytes that belong to the current frame or command and were looked at. Pass the bytes after them to the next call.
    pub len: usize,
    /// Whether the frame or command ends with them.
    pub complete: bool,
}

/// Finds the end of each reply and push message in a stream of them. Types of both protocol versions are accepted.
///
/// Strings, and lines of text longer than 1 MiB, need not be in memory as a whole: the scanner counts their bytes as they pass.
///
/// ```
/// use valkey_rdma_resp::{FrameScanner, Scanned};
///
/// let mut scanner = FrameScanner::default();
/// let bytes = b"*2\r\n:1\r\n$3\r\nabc\r\n+OK\r\n";
/// assert_eq!(scanner.scan(&bytes[..14])?, Scanned { len: 14, complete: false });
/// assert_eq!(scanner.scan(&bytes[14..])?, Scanned { len: 3, complete: true });
/// assert_eq!(scanner.scan(&bytes[17..])?, Scanned { len: 5, complete: true });
/// # Ok::<_, valkey_rdma_resp::RespError>(())
/// ```
#[derive(Debug, Default)]
pub struct FrameScanner {
    line: LineScanner,
    /// Values that each open aggregate still lacks, outermost first.
    open: Vec<u64>,
    /// Bytes that the string being received still lacks, its line end included.
    string: u64,
    /// Announced length of that string, for errors.
    string_len: u64,
    /// Inside of a long line of text, whose first part was passed.
    in_text: bool,
}

impl FrameScanner {
    /// Looks at the next bytes of the stream, up to the end of the current frame. A line that is not complete is not
    /// counted in [`Scanned::len`]: pass it again when more has arrived.
    ///
    /// # Errors
    /// The first error is final: the bytes after it have no meaning.
    #[inline]
    pub fn scan(&mut self, bytes: &[u8]) -> Result<Scanned, RespError> {
        let mut len = 0;
        loop {
            if self.string > 0 {
                len += self.pass_string(&bytes[len..])?;
                if self.string > 0 {
                    return Ok(Scanned { len, complete: false });
                }
            } else if self.in_text {
                len += self.pass_text(&bytes[len..]);
                if self.in_text {
                    return Ok(Scanned { len, complete: false });
                }
            } else {
                let rest = &bytes[len..];
                let found = match self.line.crlf(rest, MAX_LINE) {
                    Ok(found) => found,
                    Err(_) if matches!(rest.first(), Some(b'+' | b'-' | b'(')) => {
                        (self.line, self.in_text) = (LineScanner::default(), true);
                        continue;
                    }
                    Err(_) => return Err(RespError::LineTooLong { limit: MAX_LINE }),
                };
                let Some(line) = found else {
                    if let Some(&kind) = rest.first() {
                        check_kind(kind)?;
                    }
                    return Ok(Scanned { len, complete: false });
                };
                len += line;
                if !self.begin_value(&rest[..line])? {
                    continue;
                }
            }
            if self.end_value() {
                return Ok(Scanned { len, complete: true });
            }
        }
    }

    /// Begins the value with this first line. `true` if the line is all of it.
    fn begin_value(&mut self, line: &[u8]) -> Result<bool, RespError> {
        let kind = line[0];
        // First: a line may be nothing but its end.
        check_kind(kind)?;
        let text = &line[1..line.len() - 2];
        match kind {
            b'$' | b'*' if text == b"-1" => return Ok(true),
            b'$' | b'!' | b'=' => {
                self.string_len = parse_length(text, MAX_STRING)? as u64;
                self.string = self.string_len + LINE_END;
                return Ok(false);
            }
            b'*' | b'~' | b'>' | b'%' | b'|' => {}
            _ => return Ok(true),
        }
        let count = parse_length(text, MAX_MEMBERS)? as u64;
        let members = match kind {
            b'%' => 2 * count,
            // The value that the attributes are about follows them.
            b'|' => 2 * count + 1,
            _ => count,
        };
        if members == 0 {
            return Ok(true);
        }
        if self.open.len() == MAX_DEPTH {
            return Err(RespError::TooDeep { limit: MAX_DEPTH });
        }
        self.open.push(members);
        Ok(false)
    }

    /// Counts a complete value. `true` if the frame is complete with it.
    fn end_value(&mut self) -> bool {
        while let Some(missing) = self.open.last_mut() {
            *missing -= 1;
            if *missing > 0 {
                return false;
            }
            self.open.pop();
        }
        true
    }

    /// Passes over bytes of a long line, up to its end. Returns how many.
    fn pass_text(&mut self, bytes: &[u8]) -> usize {
        if let Some(end) = bytes.windows(2).position(|end| end == b"\r\n") {
            self.in_text = false;
            return end + 2;
        }
        // The first half of a line end is looked at again.
        bytes.len() - usize::from(bytes.last() == Some(&b'\r'))
    }

    /// Passes over bytes of the current string, and checks that it ends with CRLF. Returns how many.
    fn pass_string(&mut self, bytes: &[u8]) -> Result<usize, RespError> {
        let len = self.string.min(bytes.len() as u64);
        let payload = self.string.saturating_sub(LINE_END).min(len);
        // Lossless: at most `bytes.len()`.
        let (payload, len) = (payload as usize, len as usize);
        for &byte in &bytes[payload..len] {
            let expected = if self.string - payload as u64 == LINE_END { b'\r' } else { b'\n' };
            if byte != expected {
                let len = usize::try_from(self.string_len).unwrap_or(usize::MAX);
                return Err(RespError::Unterminated { len });
            }
            self.string -= 1;
        }
        self.string -= payload as u64;
        Ok(len)
    }
}

fn check_kind(kind: u8) -> Result<(), RespError> {
    match kind {
        b'+' | b'-' | b':' | b'$' | b'*' | b'_' | b',' | b'#' | b'(' | b'!' | b'=' | b'%' | b'~' | b'>'
        | b'|' => Ok(()),
        byte => Err(RespError::UnknownType { byte, protocol: Protocol::Resp3 }),
    }
}

/// The deepest nesting of aggregates accepted. A script of one client can nest its reply as deep as Lua's stack of 8000 levels, and
/// must not end a connection for others.
const MAX_DEPTH: usize = 64 * 1024;

/// Length of `\r\n`.
const LINE_END: u64 = 2;

/// Passes over a part of a reply that is well formed, but beyond a limit. A script of one caller can return such a reply, and the
/// replies to others follow it on the same connection.
#[derive(Debug)]
pub(crate) struct Skipped {
    scanner: FrameScanner,
    /// The error that stands in its place.
    error: &'static str,
}

impl Skipped {
    pub(crate) fn new(error: &'static str) -> Self {
        Self { scanner: FrameScanner::default(), error }
    }

    /// Passes over the bytes of that part. Returns what stands in its place once all of it has arrived.
    pub(crate) fn pass(&mut self, buffer: &mut BytesMut) -> Result<Option<Value>, RespError> {
        let Scanned { len, complete } = self.scanner.scan(buffer)?;
        buffer.advance(len);
        Ok(complete.then(|| replacement(self.error)))
    }
}

/// An error in the place of a part of a reply.
pub(crate) fn replacement(error: &str) -> Value {
    Value::Error(ServerError::from_reply(error.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lengths of the frames in `bytes`, which arrive in pieces of `step` bytes.
    fn frames(bytes: &[u8], step: usize) -> Result<Vec<usize>, RespError> {
        let mut scanner = FrameScanner::default();
        let (mut arrived, mut scanned, mut begin, mut found) = (0, 0, 0, Vec::new());
        while arrived < bytes.len() {
            arrived = (arrived + step).min(bytes.len());
            loop {
                let Scanned { len, complete } = scanner.scan(&bytes[scanned..arrived])?;
                scanned += len;
                if !complete {
                    break;
                }
                found.push(scanned - begin);
                begin = scanned;
            }
        }
        assert_eq!(scanned, bytes.len(), "all of it belongs to a frame");
        Ok(found)
    }

    #[test]
    fn frames_end_where_they_end_however_they_arrive() {
        let parts: [&[u8]; 14] = [
            b"+OK\r\n",
            b"-ERR no\r\n",
            b":-7\r\n",
            b"$0\r\n\r\n",
            b"$-1\r\n",
            b"*-1\r\n",
            b"*0\r\n",
            b"$8\r\na\r\nb\r\nc\n\r\n",
            b"*2\r\n*1\r\n$1\r\nx\r\n*0\r\n",
            b"%2\r\n+a\r\n:1\r\n+b\r\n%0\r\n",
            b"|1\r\n+ttl\r\n:3\r\n$2\r\nhi\r\n",
            b">2\r\n$3\r\nfoo\r\n=7\r\ntxt:abc\r\n",
            b"~1\r\n!5\r\nERR x\r\n",
            b"*3\r\n,1.5\r\n#t\r\n_\r\n",
        ];
        let bytes = parts.concat();
        let lengths: Vec<_> = parts.iter().map(|part| part.len()).collect();
        for step in 1..=bytes.len() {
            assert_eq!(frames(&bytes, step).unwrap(), lengths, "in pieces of {step}");
        }
    }

    #[test]
    fn what_is_not_a_reply_is_refused() {
        for bytes in [
            &b"hello\r\n"[..],
            b"h",
            b"\r\n",
            b"$5\r\nabcdefg\r\n",
            b"$1\r\nab\n",
            b"$-2\r\n",
            b"*x\r\n",
            b"$99999999999999\r\n",
            b"%-1\r\n",
        ] {
            assert!(frames(bytes, bytes.len()).is_err(), "{}", bytes.escape_ascii());
        }
        let deep = b"*1\r\n".repeat(MAX_DEPTH + 1);
        assert!(matches!(frames(&deep, deep.len()), Err(RespError::TooDeep { .. })));
        let mut endless = FrameScanner::default();
        assert!(matches!(endless.scan(&vec![b'$'; MAX_LINE + 1]), Err(RespError::LineTooLong { .. })));
    }

    #[test]
    fn long_lines_of_text_pass_in_pieces() {
        let long = [&b"-ERR "[..], &vec![b'x'; 3 * MAX_LINE], b"\n\r\r\n"].concat();
        let bytes = [&b"*2\r\n"[..], &long, &long, b":1\r\n"].concat();
        for step in [MAX_LINE / 2 + 7, bytes.len()] {
            assert_eq!(frames(&bytes, step).unwrap(), [4 + 2 * long.len(), 4], "in pieces of {step}");
        }
        let mut scanner = FrameScanner::default();
        let first = scanner.scan(&long[..long.len() - 1]).unwrap();
        assert_eq!(first, Scanned { len: long.len() - 2, complete: false });
        assert_eq!(scanner.scan(b"\r\n").unwrap(), Scanned { len: 2, complete: true });
    }
}
