//! [`Words`]: the arguments of a command, read back from its encoded form.

use std::slice;

use bytes::Bytes;

use super::{CRLF, Command, CommandName};

/// The name and the arguments, in order.
#[derive(Clone)]
pub(crate) struct Words<'a> {
    /// What is left of the current chunk.
    rest: &'a [u8],
    parts: slice::Iter<'a, Bytes>,
    tail: &'a [u8],
}

impl Command {
    /// The name and the arguments, in order.
    pub(crate) fn words(&self) -> Words<'_> {
        Words::new(&self.parts, &self.tail)
    }

    /// The number of arguments, name included.
    pub(crate) fn arguments(&self) -> usize {
        self.arguments
    }

    /// A copy of the name that outlives the command. Kept where the caller's future is: a query allocates no more for it.
    pub(crate) fn kept_name(&self) -> CommandName {
        CommandName::new(self.words().next().unwrap_or_default())
    }
}

impl<'a> Words<'a> {
    /// Those of encoded bytes in chunks: arguments, or whole commands behind [`command`](Self::command).
    pub(crate) fn new(parts: &'a [Bytes], tail: &'a [u8]) -> Self {
        let mut parts = parts.iter();
        match parts.next() {
            Some(first) => Self { rest: first, parts, tail },
            None => Self { rest: tail, parts, tail: &[] },
        }
    }

    /// Enters the next command, once all words of the one before were taken. Returns their number.
    pub(crate) fn command(&mut self) -> Option<usize> {
        self.pass_line_end()?;
        self.number()
    }

    /// Passes the CRLF that comes behind a shared argument.
    fn pass_line_end(&mut self) -> Option<()> {
        if self.chunk()?.first() == Some(&b'\r') {
            self.rest = self.rest.get(CRLF..)?;
            self.chunk()?;
        }
        Some(())
    }

    /// The chunk that continues the current one, once that is used up.
    fn chunk(&mut self) -> Option<&'a [u8]> {
        while self.rest.is_empty() {
            self.rest = match self.parts.next() {
                Some(part) => part,
                None if self.tail.is_empty() => return None,
                None => std::mem::take(&mut self.tail),
            };
        }
        Some(self.rest)
    }
}

impl<'a> Iterator for Words<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if let Some((word, rest)) = short_word(self.rest) {
            self.rest = rest;
            return Some(word);
        }
        self.next_in_chunks()
    }
}

impl<'a> Words<'a> {
    /// A word of any length, which may have a chunk to itself.
    fn next_in_chunks(&mut self) -> Option<&'a [u8]> {
        self.pass_line_end()?;
        let len = self.number()?;
        if self.rest.is_empty() {
            // A shared argument has a chunk to itself.
            self.chunk()?;
        }
        let (word, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest.get(CRLF..).unwrap_or_default();
        Some(word)
    }
}

impl Words<'_> {
    /// Reads the number of a header, `$3` or `*3`.
    fn number(&mut self) -> Option<usize> {
        let mut number = 0;
        let mut at = 1;
        while let Some(digit @ b'0'..=b'9') = self.rest.get(at) {
            number = number * 10 + usize::from(digit - b'0');
            at += 1;
        }
        self.rest = self.rest.get(at + CRLF..)?;
        Some(number)
    }
}

/// The next word and what follows it, if it has less than 100 bytes, as nearly all names and keys do, and is not shared.
fn short_word(encoded: &[u8]) -> Option<(&[u8], &[u8])> {
    let digit = |byte: u8| usize::from(byte.wrapping_sub(b'0'));
    let (len, rest) = match *encoded {
        [b'$', ones, b'\r', b'\n', ref rest @ ..] => (digit(ones), rest),
        [b'$', tens, ones, b'\r', b'\n', ref rest @ ..] => (digit(tens) * 10 + digit(ones), rest),
        _ => return None,
    };
    let (word, rest) = rest.split_at_checked(len)?;
    Some((word, rest.get(CRLF..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_what_was_added() {
        let big = vec![b'x'; 9000];
        let large = Bytes::from(big.clone());
        let command = Command::new("MSET").arg("a").arg(large.clone()).arg("").arg(&big).arg("z");
        let words: Vec<_> = command.words().collect();
        assert_eq!(words, [&b"MSET"[..], b"a", &large, b"", &big, b"z"]);
        let ends = Command::new("SET").arg(large.clone()).arg(large.clone());
        assert_eq!(ends.words().collect::<Vec<_>>(), [&b"SET"[..], &large, &large]);
        assert_eq!(ends.arguments(), 3);
        assert_eq!(Command::from_args([""; 0]).words().next(), None);
    }

    #[cfg(feature = "redis")]
    #[test]
    fn words_of_a_command_encoded_elsewhere_are_the_same() {
        let command = Command::from_packed(b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$0\r\n\r\n".to_vec());
        assert_eq!(command.words().collect::<Vec<_>>(), [&b"SET"[..], b"a", b""]);
    }
}
