//! Lines: finding the end of one, writing one.

/// Finds the end of the line at the front of a growing buffer, and remembers how much of the buffer it has searched.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LineScanner {
    /// Bytes at the front of the buffer that contain no line end.
    searched: usize,
}

/// A line has no end within the limit.
#[derive(Debug)]
pub(crate) struct TooLong;

/// How much of the buffer a header of a command takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeaderEnd {
    /// Its end has not arrived.
    Missing,
    /// This many bytes, CRLF included.
    At(usize),
    /// Another byte than LF follows its CR.
    Wrong,
}

impl LineScanner {
    /// Length of a line of a reply, CRLF included. `None` if its end has not arrived. A lone CR or LF is part of the line.
    #[inline]
    pub(crate) fn crlf(&mut self, buffer: &[u8], limit: usize) -> Result<Option<usize>, TooLong> {
        while let Some(at) = buffer[self.searched..].iter().position(|&byte| byte == b'\n') {
            let end = self.searched + at + 1;
            if buffer[..end].ends_with(b"\r\n") {
                self.searched = 0;
                // However it arrives.
                return if end > limit { Err(TooLong) } else { Ok(Some(end)) };
            }
            self.searched = end;
        }
        self.missing(buffer, limit).map(|()| None)
    }

    /// Looks for the end of a header of a command: its first CR, which LF must follow.
    ///
    /// Source: valkey `src/networking.c`, `parseMultibulk`.
    #[inline]
    pub(crate) fn header(&mut self, buffer: &[u8], limit: usize) -> Result<HeaderEnd, TooLong> {
        let Some(at) = buffer[self.searched..].iter().position(|&byte| byte == b'\r') else {
            return self.missing(buffer, limit).map(|()| HeaderEnd::Missing);
        };
        let end = self.searched + at + 1;
        self.searched = end - 1;
        Ok(match buffer.get(end) {
            None => HeaderEnd::Missing,
            Some(b'\n') => {
                self.searched = 0;
                HeaderEnd::At(end + 1)
            }
            Some(_) => HeaderEnd::Wrong,
        })
    }

    /// Length of an inline command, its LF included. `None` if its end has not arrived.
    ///
    /// Valkey searches it with `strchr`, so it finds no end behind a NUL: it waits for more than 64 KiB and refuses them. A line with
    /// a NUL is refused here at once, because nothing can complete it.
    ///
    /// Source: valkey `src/networking.c`, `parseInlineBuffer`.
    #[inline]
    pub(crate) fn inline(&mut self, buffer: &[u8], limit: usize) -> Result<Option<usize>, TooLong> {
        match buffer[self.searched..].iter().position(|&byte| byte == b'\n' || byte == 0) {
            Some(at) if buffer[self.searched + at] == 0 => Err(TooLong),
            Some(at) => Ok(Some(std::mem::take(&mut self.searched) + at + 1)),
            None => self.missing(buffer, limit).map(|()| None),
        }
    }

    /// Notes that `buffer` holds no line end.
    #[inline]
    fn missing(&mut self, buffer: &[u8], limit: usize) -> Result<(), TooLong> {
        self.searched = buffer.len();
        if buffer.len() > limit { Err(TooLong) } else { Ok(()) }
    }
}

/// Appends the header of a string or an aggregate, such as `$5\r\n` or `*3\r\n`: the type byte `kind`, a length, CRLF.
#[inline]
pub fn put_header(buffer: &mut Vec<u8>, kind: u8, number: usize) {
    match number {
        // Most lengths have one or two digits: one append.
        0..10 => buffer.extend_from_slice(&[kind, b'0' + number as u8, b'\r', b'\n']),
        10..100 => {
            let (tens, ones) = (b'0' + (number / 10) as u8, b'0' + (number % 10) as u8);
            buffer.extend_from_slice(&[kind, tens, ones, b'\r', b'\n']);
        }
        _ => {
            buffer.push(kind);
            buffer.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
            buffer.extend_from_slice(b"\r\n");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_end_in_two_pieces_is_found() {
        let mut scanner = LineScanner::default();
        assert_eq!(scanner.crlf(b"+a\nb\r", 99).unwrap(), None);
        assert_eq!(scanner.crlf(b"+a\nb\r\nrest", 99).unwrap(), Some(6));
        assert_eq!(scanner.inline(b"a", 99).unwrap(), None);
        assert_eq!(scanner.inline(b"a b\nrest", 99).unwrap(), Some(4));
        assert_eq!(scanner.header(b"*1", 99).unwrap(), HeaderEnd::Missing);
        assert_eq!(scanner.header(b"*1\r", 99).unwrap(), HeaderEnd::Missing);
        assert_eq!(scanner.header(b"*1\r\nrest", 99).unwrap(), HeaderEnd::At(4));
    }

    #[test]
    fn a_header_ends_at_its_first_cr_and_an_inline_command_has_no_nul() {
        let mut scanner = LineScanner::default();
        assert_eq!(scanner.header(b"*1\r2\r\n", 99).unwrap(), HeaderEnd::Wrong);
        assert_eq!(LineScanner::default().header(b"*1\n2\r\n", 99).unwrap(), HeaderEnd::At(6));
        assert!(LineScanner::default().inline(b"a\0b\n", 99).is_err());
        assert_eq!(LineScanner::default().inline(b"a\nb\0\n", 99).unwrap(), Some(2));
    }

    #[test]
    fn a_line_without_end_is_refused() {
        let mut scanner = LineScanner::default();
        assert!(scanner.crlf(b"12345", 5).unwrap().is_none());
        assert!(scanner.crlf(b"123456", 5).is_err());
        assert!(LineScanner::default().crlf(b"123\r\n", 5).is_ok());
        assert!(LineScanner::default().crlf(b"1234\r\n", 5).is_err());
    }

    #[test]
    fn headers_of_any_length_are_written() {
        for number in [0, 9, 10, 99, 100, 12_345, usize::MAX] {
            let mut header = Vec::new();
            put_header(&mut header, b'$', number);
            assert_eq!(header, format!("${number}\r\n").into_bytes());
        }
    }
}
