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

impl LineScanner {
    /// Length of the line up to its CRLF, CRLF included. `None` if its end has not arrived.
    #[inline]
    pub(crate) fn crlf(&mut self, buffer: &[u8], limit: usize) -> Result<Option<usize>, TooLong> {
        self.find(buffer, limit, |line| line.ends_with(b"\r\n"))
    }

    /// Length of the line up to its LF, LF included. `None` if its end has not arrived.
    #[inline]
    pub(crate) fn lf(&mut self, buffer: &[u8], limit: usize) -> Result<Option<usize>, TooLong> {
        self.find(buffer, limit, |_| true)
    }

    #[inline]
    fn find(
        &mut self,
        buffer: &[u8],
        limit: usize,
        is_line: impl Fn(&[u8]) -> bool,
    ) -> Result<Option<usize>, TooLong> {
        while let Some(at) = buffer[self.searched..].iter().position(|&byte| byte == b'\n') {
            let end = self.searched + at + 1;
            if is_line(&buffer[..end]) {
                self.searched = 0;
                return Ok(Some(end));
            }
            self.searched = end;
        }
        self.searched = buffer.len();
        if buffer.len() > limit { Err(TooLong) } else { Ok(None) }
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
        assert_eq!(scanner.lf(b"a b\nrest", 99).unwrap(), Some(4));
    }

    #[test]
    fn a_line_without_end_is_refused() {
        let mut scanner = LineScanner::default();
        assert!(scanner.crlf(b"12345", 5).unwrap().is_none());
        assert!(scanner.crlf(b"123456", 5).is_err());
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
