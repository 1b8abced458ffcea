//! [`CommandScanner`]: where commands end, for programs that pass them on without decoding them.

use crate::error::CommandError;
use crate::frame_scanner::Scanned;
use crate::integer;
use crate::line::LineScanner;
use crate::parser::{LINE_END, MAX_LINE, bulk_header, count_header};

/// Finds the end of each command in a client's input. Large arguments need not be in memory as a whole: the scanner counts
/// their bytes as they pass.
///
/// Look at a command with [`words`], or with [`inline_words`](crate::inline_words) if it does not begin with `*`.
#[derive(Debug, Default)]
pub struct CommandScanner {
    line: LineScanner,
    /// Words that the current command still lacks.
    missing: usize,
    /// Whether the bytes of a word come next, or its line end.
    in_word: bool,
    /// Bytes that this word still lacks, without its line end.
    word: u64,
}

impl CommandScanner {
    /// Looks at the next bytes of the input, up to the end of the current command. A line, or the line end of a word, that is not
    /// complete is not counted in [`Scanned::len`]: pass it again when more has arrived.
    ///
    /// It refuses all that Valkey 9.1 refuses, except for the length of a word: the server has a limit of its own,
    /// `proto-max-bulk-len`.
    ///
    /// A line without words and `*0` are complete commands without [`words`]. Valkey ignores them, so skip them.
    ///
    /// # Errors
    /// The first error is final: send its text and close.
    #[inline]
    pub fn scan(&mut self, bytes: &[u8]) -> Result<Scanned, CommandError> {
        let mut len = 0;
        loop {
            let rest = &bytes[len..];
            if self.in_word {
                let passed = self.word.min(rest.len() as u64);
                self.word -= passed;
                // Lossless: at most `rest.len()`.
                len += passed as usize;
                // Its end is not counted before all of it is there, like a line.
                match bytes[len..].get(..LINE_END) {
                    Some(b"\r\n") if self.word == 0 => {}
                    Some(_) if self.word == 0 => return Err(CommandError::InvalidCrlf),
                    _ => return Ok(Scanned { len, complete: false }),
                }
                len += LINE_END;
                self.in_word = false;
                self.missing -= 1;
                if self.missing == 0 {
                    return Ok(Scanned { len, complete: true });
                }
            } else if self.missing > 0 {
                let Some((line, word)) = bulk_header(&mut self.line, rest)? else {
                    return Ok(Scanned { len, complete: false });
                };
                (self.in_word, self.word) = (true, word);
                len += line;
            } else if rest.first() == Some(&b'*') {
                let Some((line, count)) = count_header(&mut self.line, rest)? else {
                    return Ok(Scanned { len, complete: false });
                };
                self.missing = count;
                len += line;
                if count == 0 {
                    return Ok(Scanned { len, complete: true });
                }
            } else {
                let found = self.line.inline(rest, MAX_LINE).map_err(|_| CommandError::InlineTooLong)?;
                return Ok(Scanned { len: len + found.unwrap_or(0), complete: found.is_some() });
            }
        }
    }
}

impl CommandScanner {
    /// Bytes that the word which has begun still lacks, by its announced length and without its line end. 0 outside of a word.
    #[doc(hidden)]
    #[must_use]
    pub fn word_lacks(&self) -> u64 {
        self.word
    }

    /// Bytes that the current command still lacks at least, by what it has announced: the word that has begun, and as many empty ones as
    /// follow it. 0 between commands.
    #[doc(hidden)]
    #[must_use]
    pub fn lacks(&self) -> u64 {
        self.word.saturating_add(self.missing.saturating_sub(1) as u64 * EMPTY_WORD)
    }
}

/// Bytes of an empty word.
const EMPTY_WORD: u64 = b"$0\r\n\r\n".len() as u64;

/// The words of an encoded command that a [`CommandScanner`] has passed, as far as they are complete in `command`.
pub fn words(command: &[u8]) -> impl Iterator<Item = &[u8]> + Clone {
    let mut rest = after_line(command).unwrap_or_default();
    std::iter::from_fn(move || {
        let text = after_line(rest)?;
        let header = rest.get(1..rest.len() - text.len() - LINE_END)?;
        let len = integer::parse(header).and_then(|len| usize::try_from(len).ok())?;
        let word = text.get(..len)?;
        rest = text.get(len + LINE_END..).unwrap_or_default();
        Some(word)
    })
}

fn after_line(bytes: &[u8]) -> Option<&[u8]> {
    let end = bytes.windows(LINE_END).position(|end| end == b"\r\n")?;
    Some(&bytes[end + LINE_END..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commands(bytes: &[u8], step: usize) -> Result<Vec<&[u8]>, CommandError> {
        let mut scanner = CommandScanner::default();
        let (mut arrived, mut scanned, mut begin, mut found) = (0, 0, 0, Vec::new());
        while arrived < bytes.len() {
            arrived = (arrived + step).min(bytes.len());
            loop {
                let Scanned { len, complete } = scanner.scan(&bytes[scanned..arrived])?;
                scanned += len;
                if !complete {
                    break;
                }
                found.push(&bytes[begin..scanned]);
                begin = scanned;
            }
        }
        assert_eq!(scanned, bytes.len(), "all of it belongs to a command");
        Ok(found)
    }

    #[test]
    fn commands_end_where_they_end_however_they_arrive() {
        let parts: [&[u8]; 6] = [
            b"*1\r\n$4\r\nPING\r\n",
            b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$6\r\na\r\nb\r\n\r\n",
            b"*0\r\n",
            b"*-1\r\n",
            b"GET k\r\n",
            b"\n",
        ];
        let bytes = parts.concat();
        for step in 1..=bytes.len() {
            assert_eq!(commands(&bytes, step).unwrap(), parts, "in pieces of {step}");
        }
    }

    #[test]
    fn words_are_found_as_far_as_they_have_arrived() {
        let command = b"*3\r\n$3\r\nSET\r\n$0\r\n\r\n$6\r\na\r\nb\r\n\r\n";
        assert_eq!(words(command).collect::<Vec<_>>(), [&b"SET"[..], b"", b"a\r\nb\r\n"]);
        assert_eq!(words(&command[..20]).collect::<Vec<_>>(), [&b"SET"[..], b""]);
        assert_eq!(words(b"*0\r\n").next(), None);
    }

    #[test]
    fn what_is_not_a_command_is_refused_with_valkeys_text() {
        for (bytes, text) in [
            (&b"*x\r\n"[..], "Protocol error: invalid multibulk length"),
            (b"*1\r\n:1\r\n", "Protocol error: expected '$', got ':'"),
            (b"*1\r\n$-1\r\n", "Protocol error: invalid bulk length"),
            (b"*2147483648\r\n", "Protocol error: invalid multibulk length"),
            (b"*1\r\n$4\r\nPINGxx", "Protocol error: invalid CRLF in request"),
            (b"*1\r\n$4\rPING\r\n", "Protocol error: invalid CRLF in request"),
            (b"*1\r*", "Protocol error: invalid CRLF in request"),
            (b"PING\0\n", "Protocol error: too big inline request"),
        ] {
            assert_eq!(commands(bytes, 1).unwrap_err().to_string(), text);
        }
        let endless = CommandScanner::default().scan(&vec![b'x'; MAX_LINE + 1]);
        assert_eq!(endless, Err(CommandError::InlineTooLong));
    }
}
