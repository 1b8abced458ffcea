//! Inline commands: a line that a person typed, or that a tool without RESP sent.

use bytes::{Bytes, BytesMut};

use crate::error::CommandError;

/// Splits a line into words at blanks. Escapes in `"..."` are `\n`, `\r`, `\t`, `\b`, `\a` and `\xHH`; in `'...'` only `\'`.
/// A quote may open and close anywhere in a word: `a"b c"d` is one. `None` if a quote is not closed.
///
/// Source: valkey 9.1 `src/sds.c`, `sdsnsplitargs`. Servers before it refuse text directly after a closed quote. 9.1.2 also drops each
/// byte 0xff, which this keeps.
pub(crate) fn split(line: &[u8]) -> Option<Vec<Bytes>> {
    let mut words = Vec::new();
    let mut rest = after_blanks(line.strip_suffix(b"\r").unwrap_or(line));
    while !rest.is_empty() {
        let mut word = BytesMut::new();
        rest = after_blanks(take_word(rest, &mut word)?);
        words.push(word.freeze());
    }
    Some(words)
}

/// Splits an inline command, line end included, into words.
///
/// # Errors
/// [`CommandError::UnbalancedQuotes`] if a quote is not closed.
pub fn inline_words(line: &[u8]) -> Result<Vec<Bytes>, CommandError> {
    split(line.strip_suffix(b"\n").unwrap_or(line)).ok_or(CommandError::UnbalancedQuotes)
}

/// Skips what C's `isspace` holds for, a vertical tab included.
fn after_blanks(line: &[u8]) -> &[u8] {
    let is_blank = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0x0b;
    let begin = line.iter().position(|byte| !is_blank(byte)).unwrap_or(line.len());
    &line[begin..]
}

/// Whether a command of this name is a line of an HTTP request: a web page can make a browser send one to any port, with
/// commands in its body. No command has such a name, so close the connection before anything after it runs.
///
/// Source: valkey `src/server.c`, `processCommand`; `src/networking.c`, `securityWarningCommand`.
#[inline]
#[must_use]
pub fn is_http(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"POST") || name.eq_ignore_ascii_case(b"HOST:")
}

/// Appends one word to `word` and returns the text after it.
fn take_word<'a>(mut rest: &'a [u8], word: &mut BytesMut) -> Option<&'a [u8]> {
    while let [byte, tail @ ..] = rest {
        rest = match byte {
            b' ' | b'\n' | b'\r' | b'\t' => return Some(tail),
            b'"' | b'\'' => take_quoted(tail, word, *byte)?,
            byte => {
                word.extend_from_slice(&[*byte]);
                tail
            }
        };
    }
    Some(rest)
}

/// Appends the text of a quote to `word` and returns the text after its end. `None` if it has none.
fn take_quoted<'a>(mut rest: &'a [u8], word: &mut BytesMut, quote: u8) -> Option<&'a [u8]> {
    loop {
        let (byte, tail) = match rest {
            [b'\\', b'x', high, low, tail @ ..] if quote == b'"' && is_hex(*high) && is_hex(*low) => {
                (hex(*high) << 4 | hex(*low), tail)
            }
            // The last byte of a line is never escaped: `"\"` at its end is a backslash.
            [b'\\', escaped, tail @ ..] if quote == b'"' && !tail.is_empty() => (unescape(*escaped), tail),
            [b'\\', b'\'', tail @ ..] if quote == b'\'' && !tail.is_empty() => (b'\'', tail),
            [byte, tail @ ..] if *byte == quote => return Some(tail),
            [byte, tail @ ..] => (*byte, tail),
            [] => return None,
        };
        word.extend_from_slice(&[byte]);
        rest = tail;
    }
}

fn unescape(escaped: u8) -> u8 {
    match escaped {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 0x08,
        b'a' => 0x07,
        other => other,
    }
}

fn is_hex(byte: u8) -> bool {
    byte.is_ascii_hexdigit()
}

/// Value of a digit for which [`is_hex`] holds.
fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

#[cfg(test)]
mod tests {
    use super::{CommandError, inline_words, is_http, split};

    fn words(line: &[u8]) -> Option<Vec<Vec<u8>>> {
        split(line).map(|words| words.into_iter().map(|word| word.to_vec()).collect())
    }

    #[test]
    fn blanks_separate_words() {
        assert_eq!(
            words(b"  SET  key\tvalue\r"),
            Some(vec![b"SET".to_vec(), b"key".to_vec(), b"value".to_vec()])
        );
        assert_eq!(words(b""), Some(vec![]));
        assert_eq!(words(b" \r"), Some(vec![]));
        // A vertical tab and a form feed separate no words, but do not begin one.
        assert_eq!(words(b"\x0b\x0cPING a\x0bb"), Some(vec![b"PING".to_vec(), b"a\x0bb".to_vec()]));
    }

    #[test]
    fn quotes_keep_blanks_and_know_escapes() {
        assert_eq!(
            words(br#"ECHO "a b\x00\n\"" 'c \' d\n' """#),
            Some(vec![b"ECHO".to_vec(), b"a b\0\n\"".to_vec(), b"c ' d\\n".to_vec(), b"".to_vec(),])
        );
    }

    #[test]
    fn the_first_words_of_an_http_request_are_recognised() {
        for name in ["POST", "post", "Host:", "HOST:"] {
            assert!(is_http(name.as_bytes()), "{name}");
        }
        for name in ["", "GET", "POSTS", "HOST", "XHOST:"] {
            assert!(!is_http(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn a_quote_may_open_and_close_in_a_word() {
        for (line, word) in [
            (&br#"{"a":1}"#[..], "{a:1}"),
            (b"'a'b", "ab"),
            (br#"a"b c"d'e "f'"#, "ab cde \"f"),
            (br#"a"""#, "a"),
            (br#""a"'b'"#, "ab"),
        ] {
            assert_eq!(words(line), Some(vec![word.as_bytes().to_vec()]), "{}", line.escape_ascii());
        }
    }

    #[test]
    fn a_whole_line_is_split() {
        assert_eq!(inline_words(b"SET k \"a b\"\r\n").unwrap(), ["SET", "k", "a b"]);
        assert_eq!(inline_words(b"SET \"a\r\n"), Err(CommandError::UnbalancedQuotes));
    }

    #[test]
    fn an_open_quote_is_refused() {
        for line in [&b"ECHO \"a"[..], b"ECHO 'a", b"ECHO \"a\"b\"", b"ECHO 'a'b'", b"ECHO \"a\\"] {
            assert_eq!(words(line), None, "{}", line.escape_ascii());
        }
    }
}
