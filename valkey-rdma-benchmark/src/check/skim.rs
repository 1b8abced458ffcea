//! Reads replies from bytes as they arrive, in pieces of any size, without keeping them.
//!
//! Not `valkey_rdma_resp::Decoder`, because that returns whole strings: here the bytes of a string are compared while they
//! arrive, so that checking a value of 512 MiB needs a read buffer of 64 KiB.

use valkey_rdma_resp::integer::{parse_length, parse_reply};
use valkey_rdma_resp::{MAX_DEPTH, MAX_LINE, MAX_MEMBERS, MAX_STRING, Protocol, RespError};

use super::{Byte, Kind, Seen, Want, Wanted, Wrong, difference};

/// Reads one reply after the other.
#[derive(Debug, Default)]
pub(crate) struct Skimmer {
    /// Arrays that are not complete, outermost first.
    open: Vec<Open>,
    /// The string that is being received.
    string: Option<Bulk>,
    /// The start of a line whose end has not come.
    partial: Vec<u8>,
    /// Whether the current reply is a push message, which answers no request.
    push: bool,
    seen: Seen,
}

#[derive(Debug)]
struct Open {
    kind: u8,
    /// Members that are still to come.
    left: u64,
    members: u64,
}

#[derive(Debug)]
struct Bulk {
    len: usize,
    at: usize,
    /// Which of the strings it is that [`Want`] may know.
    element: Option<usize>,
    differs: Option<Byte>,
}

impl Skimmer {
    /// What was seen of the reply that [`feed`](Self::feed) said is complete.
    pub(crate) fn seen(&self) -> &Seen {
        &self.seen
    }

    /// Takes bytes up to the end of a reply: how many, and whether a reply is complete. Push messages are passed over.
    /// After a [`RespError`] nothing that follows has a meaning.
    pub(crate) fn feed(&mut self, input: &[u8], want: &impl Want) -> Result<(usize, bool), RespError> {
        let mut at = 0;
        while at < input.len() {
            if self.string.is_some() {
                let (taken, ended) = self.string(&input[at..], want)?;
                at += taken;
                if ended && self.member_ends() {
                    return Ok((at, true));
                }
                continue;
            }
            let Some(end) = input[at..].iter().position(|&byte| byte == b'\n') else {
                if self.partial.len() + input.len() - at > MAX_LINE {
                    return Err(RespError::LineTooLong { limit: MAX_LINE });
                }
                self.partial.extend_from_slice(&input[at..]);
                return Ok((input.len(), false));
            };
            let end = at + end + 1;
            let ended = if self.partial.is_empty() {
                self.line(&input[at..end], want)?
            } else {
                let mut line = std::mem::take(&mut self.partial);
                line.extend_from_slice(&input[at..end]);
                self.line(&line, want)?
            };
            at = end;
            if ended && self.member_ends() {
                return Ok((at, true));
            }
        }
        Ok((at, false))
    }

    /// Takes a whole line; whether it is a member of its own.
    fn line(&mut self, line: &[u8], want: &impl Want) -> Result<bool, RespError> {
        let kind = line[0];
        let text = line.strip_suffix(b"\r\n").and_then(|line| line.get(1..));
        let Some(text) = text else { return Err(unknown_type(kind)) };
        if self.open.is_empty() && !self.push {
            self.seen.clear();
            self.push = kind == b'>';
        }
        let top = self.open.is_empty();
        match kind {
            b'+' => self.scalar(top, Kind::Status, text, want),
            b'-' => self.scalar(top, Kind::Error, text, want),
            b':' => {
                let number = parse_reply(text).ok_or(RespError::BadScalar { kind: ':' })?;
                if top {
                    (self.seen.kind, self.seen.integer) = (Kind::Integer, number);
                } else {
                    self.no_string(want);
                }
            }
            b'_' => self.nil(top, want),
            b',' | b'#' | b'(' => self.scalar(top, Kind::Other, text, want),
            b'$' | b'=' | b'!' => match text {
                b"-1" => self.nil(top, want),
                text => {
                    self.begin_string(top, kind, parse_length(text, MAX_STRING)?, want);
                    return Ok(false);
                }
            },
            b'*' | b'~' | b'>' | b'%' | b'|' => match text {
                b"-1" => self.nil(top, want),
                text => {
                    let count = parse_length(text, MAX_MEMBERS)? as u64;
                    let members = if matches!(kind, b'%' | b'|') { count.saturating_mul(2) } else { count };
                    if top && kind != b'|' {
                        (self.seen.kind, self.seen.len) = (Kind::Array, members as usize);
                    } else if kind != b'|' {
                        self.no_string(want);
                    }
                    if members > 0 {
                        if self.open.len() == MAX_DEPTH {
                            return Err(RespError::TooDeep { limit: MAX_DEPTH });
                        }
                        self.open.push(Open { kind, left: members, members });
                        return Ok(false);
                    }
                    // An empty attribute belongs to the reply that follows.
                    return Ok(kind != b'|');
                }
            },
            kind => return Err(unknown_type(kind)),
        }
        Ok(true)
    }

    fn scalar(&mut self, top: bool, kind: Kind, text: &[u8], want: &impl Want) {
        if top {
            self.seen.kind = kind;
            self.seen.set_text(text);
        } else if kind == Kind::Error && !self.seen.holds_error {
            self.seen.holds_error = true;
            self.seen.set_text(text);
        } else {
            self.no_string(want);
        }
    }

    /// A member arrived that is not a string, perhaps where one is expected.
    fn no_string(&mut self, want: &impl Want) {
        if let Some(element) = self.element()
            && let Some(wanted) = want.string(element)
        {
            self.seen.note(element, Wrong::Type { wanted: wanted.len() });
        }
    }

    fn nil(&mut self, top: bool, want: &impl Want) {
        if top {
            self.seen.kind = Kind::Nil;
        }
        if let Some(element) = self.element()
            && let Some(wanted) = want.string(element)
        {
            self.seen.note(element, Wrong::Missing { wanted: wanted.len() });
        }
    }

    fn begin_string(&mut self, top: bool, kind: u8, len: usize, want: &impl Want) {
        if top {
            (self.seen.kind, self.seen.len) = (if kind == b'!' { Kind::Error } else { Kind::Bulk }, len);
        } else if kind == b'!' {
            self.seen.holds_error = true;
        }
        self.seen.payload += len as u64;
        let element = self.element().filter(|&element| want.string(element).is_some());
        self.string = Some(Bulk { len, at: 0, element, differs: None });
    }

    /// Which string of the reply comes now, if it is at a place that [`Want`] knows.
    fn element(&self) -> Option<usize> {
        match &self.open[..] {
            [] => Some(0),
            [only] if only.kind == b'*' => Some((only.members - only.left) as usize),
            _ => None,
        }
    }

    /// Takes bytes of the current string. Returns how many, and whether it has ended.
    fn string(&mut self, input: &[u8], want: &impl Want) -> Result<(usize, bool), RespError> {
        let Some(string) = &mut self.string else { return Ok((0, false)) };
        let body = input.len().min(string.len.saturating_sub(string.at));
        if string.differs.is_none()
            && body > 0
            && let Some(Wanted::Bytes(wanted)) = string.element.and_then(|element| want.string(element))
        {
            string.differs = difference(string.at, &input[..body], wanted);
        }
        string.at += body;
        let mut taken = body;
        while taken < input.len() && string.at >= string.len && string.at < string.len + 2 {
            if input[taken] != b"\r\n"[string.at - string.len] {
                return Err(RespError::Unterminated { len: string.len });
            }
            (taken, string.at) = (taken + 1, string.at + 1);
        }
        if string.at < string.len + 2 {
            return Ok((taken, false));
        }
        let (len, differs, element) = (string.len, string.differs, string.element);
        self.string = None;
        if let Some(element) = element
            && let Some(wanted) = want.string(element)
        {
            match (wanted.len(), differs) {
                (wanted, first) if wanted != len => {
                    self.seen.note(element, Wrong::Length { got: len, wanted, first });
                }
                (_, Some(first)) => self.seen.note(element, Wrong::Bytes { len, first }),
                (_, None) => {}
            }
        }
        Ok((taken, true))
    }

    /// A member is complete, and with it perhaps the arrays around it; whether the whole reply is.
    fn member_ends(&mut self) -> bool {
        while let Some(open) = self.open.last_mut() {
            open.left -= 1;
            if open.left > 0 {
                return false;
            }
            let attribute = open.kind == b'|';
            self.open.pop();
            if attribute {
                return false;
            }
        }
        !std::mem::take(&mut self.push)
    }
}

/// The skimmer reads the types of both versions, which are those of RESP3.
#[cold]
fn unknown_type(byte: u8) -> RespError {
    RespError::UnknownType { byte, protocol: Protocol::Resp3 }
}

#[cfg(test)]
mod tests {
    use super::super::WantNothing;
    use super::*;

    struct Values(&'static [&'static [u8]]);

    impl Want for Values {
        fn string(&self, element: usize) -> Option<Wanted<'_>> {
            self.0.get(element).map(|bytes| Wanted::Bytes(bytes))
        }
    }

    /// Reads `input` in pieces of every size and returns what was seen, which must not depend on that.
    fn skim(input: &[u8], want: &impl Want) -> Vec<String> {
        let mut all: Vec<Vec<String>> = Vec::new();
        for size in 1..=input.len() {
            let (mut skimmer, mut seen) = (Skimmer::default(), Vec::new());
            for mut piece in input.chunks(size) {
                while !piece.is_empty() {
                    let (taken, complete) = skimmer.feed(piece, want).unwrap();
                    piece = &piece[taken..];
                    if complete {
                        let Seen { kind, len, integer, wrong, holds_error, .. } = skimmer.seen();
                        let text = skimmer.seen().text().escape_ascii();
                        seen.push(format!("{kind:?} {len} {integer} {text} {holds_error} {wrong:?}"));
                    }
                }
            }
            all.push(seen);
        }
        assert!(all.windows(2).all(|pair| pair[0] == pair[1]), "{all:?}");
        all.swap_remove(0)
    }

    #[test]
    fn every_type_is_read_in_pieces_of_any_size() {
        let input = b"+OK\r\n-ERR no\r\n:-42\r\n$3\r\nabc\r\n$-1\r\n*2\r\n:1\r\n*1\r\n$1\r\nx\r\n_\r\n%1\r\n+a\r\n#t\r\n*0\r\n$0\r\n\r\n";
        let seen = skim(input, &WantNothing);
        let expected = [
            "Status 0 0 OK false None",
            "Error 0 0 ERR no false None",
            "Integer 0 -42  false None",
            "Bulk 3 0  false None",
            "Nil 0 0  false None",
            "Array 2 0  false None",
            "Nil 0 0  false None",
            "Array 2 0  false None",
            "Array 0 0  false None",
            "Bulk 0 0  false None",
        ];
        assert_eq!(seen, expected);
    }

    #[test]
    fn push_messages_and_attributes_answer_nothing() {
        let input = b">2\r\n+invalidate\r\n*1\r\n$1\r\nk\r\n|1\r\n+ttl\r\n:3\r\n$1\r\nv\r\n";
        assert_eq!(skim(input, &WantNothing), ["Bulk 1 0  false None"]);
    }

    #[test]
    fn an_error_within_an_array_is_seen() {
        assert_eq!(skim(b"*2\r\n+OK\r\n-OOM full\r\n", &WantNothing), ["Array 2 0 OOM full true None"]);
    }

    #[test]
    fn wrong_strings_are_reported_with_their_first_difference() {
        let want = Values(&[b"abcd", b"efgh"]);
        for (input, expected) in [
            (&b"*2\r\n$4\r\nabcd\r\n$4\r\nefgh\r\n"[..], "Array 2 0  false None"),
            (
                b"*2\r\n$4\r\nabcd\r\n$4\r\nefXh\r\n",
                "Array 2 0  false Some((1, Bytes { len: 4, first: Byte { at: 2, got: 88, wanted: 103 } }))",
            ),
            (b"$3\r\nabc\r\n", "Bulk 3 0  false Some((0, Length { got: 3, wanted: 4, first: None }))"),
            (b"*2\r\n$4\r\nabcd\r\n:7\r\n", "Array 2 0  false Some((1, Type { wanted: 4 }))"),
            (b"*2\r\n+abcd\r\n$4\r\nefgh\r\n", "Array 2 0  false Some((0, Type { wanted: 4 }))"),
            (b"*2\r\n*1\r\n:1\r\n$4\r\nefgh\r\n", "Array 2 0  false Some((0, Type { wanted: 4 }))"),
            (b"$-1\r\n", "Nil 0 0  false Some((0, Missing { wanted: 4 }))"),
        ] {
            assert_eq!(skim(input, &want), [expected]);
        }
    }

    #[test]
    fn integers_have_64_bits() {
        let input = b":-9223372036854775808\r\n:9223372036854775807\r\n";
        let expected =
            ["Integer 0 -9223372036854775808  false None", "Integer 0 9223372036854775807  false None"];
        assert_eq!(skim(input, &WantNothing), expected);
        for input in [&b":9223372036854775808\r\n"[..], b":-9223372036854775809\r\n"] {
            assert!(Skimmer::default().feed(input, &WantNothing).is_err(), "{input:?}");
        }
    }

    #[test]
    fn bytes_that_are_not_resp_are_refused() {
        for input in [&b"HTTP/1.1 400\r\n"[..], b"$abc\r\n", b"$1\r\nabcd", b"*-2\r\n", b"\n"] {
            assert!(Skimmer::default().feed(input, &WantNothing).is_err(), "{input:?}");
        }
        let deep = b"*1\r\n".repeat(200);
        assert_eq!(
            Skimmer::default().feed(&deep, &WantNothing),
            Err(RespError::TooDeep { limit: MAX_DEPTH })
        );
        let long = vec![b'+'; MAX_LINE + 1];
        assert_eq!(
            Skimmer::default().feed(&long, &WantNothing),
            Err(RespError::LineTooLong { limit: MAX_LINE })
        );
    }
}
