use super::*;

/// Feeds bytes in pieces of the given size and collects what comes out.
fn decode_in(protocol: Protocol, bytes: &[u8], piece: usize) -> Result<Vec<Value>, RespError> {
    let mut decoder = Decoder::new(protocol);
    let mut values = Vec::new();
    for piece in bytes.chunks(piece) {
        decoder.room().extend_from_slice(piece);
        while let Some(value) = decoder.next()? {
            values.push(value);
        }
    }
    Ok(values)
}

fn decode(protocol: Protocol, bytes: &[u8]) -> Result<Vec<Value>, RespError> {
    decode_in(protocol, bytes, usize::MAX)
}

fn bulk(text: &'static str) -> Value {
    Value::Bulk(Bytes::from_static(text.as_bytes()))
}

fn simple(text: &'static str) -> Value {
    Value::Simple(Bytes::from_static(text.as_bytes()))
}

fn server_error(code: &str, message: &str) -> Value {
    Value::Error(ServerError { code: code.to_owned(), message: message.to_owned() })
}

#[test]
fn every_type_decodes_however_it_is_split() {
    use Protocol::{Resp2, Resp3};
    let table: Vec<(Protocol, &[u8], Value)> = vec![
        (Resp2, b"+OK\r\n", simple("OK")),
        (Resp2, b"+\r\n", simple("")),
        (Resp2, b"-ERR no\r\n", server_error("ERR", "no")),
        (Resp2, b"-OOPS\r\n", server_error("OOPS", "")),
        (Resp2, b":-42\r\n", Value::Int(-42)),
        (Resp2, b"$5\r\na\r\nb\0\r\n", bulk("a\r\nb\0")),
        (Resp2, b"$0\r\n\r\n", bulk("")),
        (Resp2, b"$-1\r\n", Value::Nil),
        (Resp2, b"*-1\r\n", Value::Nil),
        (Resp2, b"*0\r\n", Value::Array(vec![])),
        (
            Resp2,
            b"*4\r\n$1\r\na\r\n*0\r\n*2\r\n:1\r\n*-1\r\n-ERR x\r\n",
            Value::Array(vec![
                bulk("a"),
                Value::Array(vec![]),
                Value::Array(vec![Value::Int(1), Value::Nil]),
                server_error("ERR", "x"),
            ]),
        ),
        (Resp3, b"_\r\n", Value::Nil),
        // A module forwards the reply of a command as the command gave it.
        (Resp3, b"$-1\r\n", Value::Nil),
        (Resp3, b"*-1\r\n", Value::Nil),
        (
            Resp3,
            b"%2\r\n$-1\r\n*-1\r\n+a\r\n*2\r\n*-1\r\n$-1\r\n",
            Value::Map(vec![
                (Value::Nil, Value::Nil),
                (simple("a"), Value::Array(vec![Value::Nil, Value::Nil])),
            ]),
        ),
        // A script can say that anything is a big number.
        (Resp3, b"*2\r\n(12x\r\n(\r\n", Value::Array(vec![replacement(NO_NUMBER), replacement(NO_NUMBER)])),
        (Resp3, b",1.5\r\n", Value::Double(1.5)),
        (Resp3, b",-inf\r\n", Value::Double(f64::NEG_INFINITY)),
        (Resp3, b"#t\r\n", Value::Bool(true)),
        (Resp3, b"#f\r\n", Value::Bool(false)),
        (Resp3, b"(12345678901234567890\r\n", Value::BigNumber(Bytes::from_static(b"12345678901234567890"))),
        (Resp3, b"!8\r\nERR a\r\nb\r\n", server_error("ERR", "a\r\nb")),
        (
            Resp3,
            b"=9\r\ntxt:a\r\nbc\r\n",
            Value::Verbatim { format: *b"txt", text: Bytes::from_static(b"a\r\nbc") },
        ),
        (Resp3, b"~2\r\n:1\r\n:1\r\n", Value::Set(vec![Value::Int(1), Value::Int(1)])),
        (Resp3, b">2\r\n+invalidate\r\n_\r\n", Value::Push(vec![simple("invalidate"), Value::Nil])),
        (Resp3, b"%0\r\n", Value::Map(vec![])),
        (
            Resp3,
            b"%3\r\n+b\r\n:1\r\n*1\r\n:7\r\n%1\r\n+k\r\n+v\r\n+b\r\n:3\r\n",
            Value::Map(vec![
                (simple("b"), Value::Int(1)),
                (Value::Array(vec![Value::Int(7)]), Value::Map(vec![(simple("k"), simple("v"))])),
                (simple("b"), Value::Int(3)),
            ]),
        ),
        // Attributes come before the value they describe, anywhere.
        (
            Resp3,
            b"|1\r\n+ttl\r\n:3\r\n|0\r\n*1\r\n|1\r\n+x\r\n*1\r\n_\r\n:5\r\n",
            Value::Array(vec![Value::Int(5)]),
        ),
    ];
    for (protocol, bytes, expected) in table {
        let shown = String::from_utf8_lossy(bytes);
        let twice = [bytes, bytes].concat();
        for piece in 1..=twice.len() {
            let values =
                decode_in(protocol, &twice, piece).unwrap_or_else(|error| panic!("{shown:?}: {error}"));
            assert_eq!(values, [expected.clone(), expected.clone()], "{shown:?} in pieces of {piece}");
        }
    }
}

#[test]
fn errors_that_are_not_utf8_are_replies_like_others() {
    let values = decode(Protocol::Resp3, b"-ERR unknown command '\xff'\r\n").expect("a reply");
    assert_eq!(values, [server_error("ERR", "unknown command '\u{fffd}'")]);
}

#[test]
fn garbage_is_a_typed_error() {
    use Protocol::{Resp2, Resp3};
    let length = |text: &str, limit| RespError::BadLength { text: text.to_owned(), limit };
    let table: Vec<(Protocol, &[u8], RespError)> = vec![
        (Resp3, b"HTTP/1.1 400 Bad Request\r\n", RespError::UnknownType { byte: b'H', protocol: Resp3 }),
        (Resp3, b"\0", RespError::UnknownType { byte: 0, protocol: Resp3 }),
        (Resp3, b"\r\n", RespError::UnknownType { byte: b'\r', protocol: Resp3 }),
        (Resp2, b"%1\r\n", RespError::UnknownType { byte: b'%', protocol: Resp2 }),
        (Resp2, b"_\r\n", RespError::UnknownType { byte: b'_', protocol: Resp2 }),
        (Resp3, b";4\r\n", RespError::UnknownType { byte: b';', protocol: Resp3 }),
        (Resp3, b"$9223372036854775808\r\n", length("9223372036854775808", MAX_STRING)),
        (Resp3, b"$99999999999999999999999999999999999\r\n", length(&"9".repeat(32), MAX_STRING)),
        (Resp2, b"$-2\r\n", length("-2", MAX_STRING)),
        (Resp3, b"$?\r\n", length("?", MAX_STRING)),
        (Resp3, b"$+5\r\n", length("+5", MAX_STRING)),
        (Resp3, b"$\r\n", length("", MAX_STRING)),
        (Resp3, b"*2147483648\r\n", length("2147483648", MAX_MEMBERS)),
        (Resp3, b"%-1\r\n", length("-1", MAX_MEMBERS)),
        (Resp3, b"~-1\r\n", length("-1", MAX_MEMBERS)),
        (Resp3, b">-1\r\n", length("-1", MAX_MEMBERS)),
        (Resp3, b"=-1\r\n", length("-1", MAX_STRING)),
        (Resp2, b"*-2\r\n", length("-2", MAX_MEMBERS)),
        (Resp3, b"*1:\r\n", length("1:", MAX_MEMBERS)),
        (Resp3, b"$1\r\nabc", RespError::Unterminated { len: 1 }),
        (Resp3, b"=12\r\ntxt:12345678abc", RespError::Unterminated { len: 12 }),
        (Resp3, b":12x\r\n", RespError::BadScalar { kind: ':' }),
        (Resp3, b":\r\n", RespError::BadScalar { kind: ':' }),
        (Resp3, b":9223372036854775808\r\n", RespError::BadScalar { kind: ':' }),
        (Resp3, b"#x\r\n", RespError::BadScalar { kind: '#' }),
        (Resp3, b",one\r\n", RespError::BadScalar { kind: ',' }),
        (Resp3, b"=3\r\ntxt\r\n", RespError::BadScalar { kind: '=' }),
        (Resp3, b"=0\r\n\r\n", RespError::BadScalar { kind: '=' }),
    ];
    for (protocol, bytes, expected) in table {
        let shown = String::from_utf8_lossy(bytes);
        for piece in [1, bytes.len()] {
            assert_eq!(
                decode_in(protocol, bytes, piece),
                Err(expected.clone()),
                "{shown:?} in pieces of {piece}"
            );
        }
    }
}

#[test]
fn a_line_without_end_is_given_up() {
    for kind in [&b":"[..], b"$", b"*", b",", b"="] {
        let bytes = [kind, &vec![b'x'; 2 * MAX_LINE]].concat();
        let result = decode_in(Protocol::Resp3, &bytes, READ_ROOM);
        assert_eq!(result, Err(RespError::LineTooLong { limit: MAX_LINE }));
    }
}

/// `EVAL "return {ok=string.rep('x', 2000000)}" 0` has such a reply.
#[test]
fn a_long_line_of_text_is_an_error_in_its_place() {
    for kind in [&b"+"[..], b"-", b"("] {
        let long = [kind, &vec![b'x'; 2 * MAX_LINE], b"\r\n"].concat();
        let bytes = [&b"*2\r\n:1\r\n"[..], &long, &long, b":7\r\n"].concat();
        let expected =
            [Value::Array(vec![Value::Int(1), replacement(TOO_LONG)]), replacement(TOO_LONG), Value::Int(7)];
        for piece in [READ_ROOM, MAX_LINE + 1, usize::MAX] {
            assert!(decode_in(Protocol::Resp3, &bytes, piece).as_deref() == Ok(&expected), "{piece}");
        }
    }
    let longest = [b"+", &vec![b'x'; MAX_LINE - 3][..], b"\r\n"].concat();
    let values = decode_in(Protocol::Resp3, &longest, READ_ROOM).expect("a reply");
    assert_eq!(values[0].as_bytes().map(<[u8]>::len), Some(MAX_LINE - 3));
}

#[test]
fn what_is_skipped_is_not_complete_before_its_end_and_leaves_no_memory_behind() {
    let mut decoder = Decoder::new(Protocol::Resp2);
    decoder.room().extend_from_slice(&[b"+", &vec![b'x'; 2 * MAX_LINE][..]].concat());
    assert_eq!(decoder.next(), Ok(None));
    assert!(!decoder.is_empty());
    decoder.room().extend_from_slice(b"\r\n$1\r\n");
    assert_eq!(decoder.next(), Ok(Some(replacement(TOO_LONG))));
    assert!(decoder.buffer.capacity() <= MAX_KEPT);
    assert!(matches!(decoder.header(), Ok(Some(Header::String(1)))));
}

#[test]
fn a_longest_string_is_waited_for_and_a_longer_one_refused() {
    for kind in ["$", "!", "="] {
        let waits = decode(Protocol::Resp3, format!("{kind}{MAX_STRING}\r\n").as_bytes());
        assert_eq!(waits, Ok(Vec::new()), "{kind}");
        // With 32 bits, the second is beyond the largest address once its end is added.
        for longer in [MAX_STRING + 1, u64::from(u32::MAX).max(MAX_STRING + 1)] {
            let refused = decode(Protocol::Resp3, format!("{kind}{longer}\r\n").as_bytes());
            let expected = RespError::bad_length(longer.to_string().as_bytes(), MAX_STRING);
            assert_eq!(refused, Err(expected), "{kind}");
        }
    }
}

#[test]
fn what_is_nested_too_deeply_is_an_error_in_its_place() {
    let deepest = [b"*1\r\n".repeat(MAX_DEPTH), b":1\r\n".to_vec()].concat();
    let value = decode(Protocol::Resp3, &deepest).expect("allowed").remove(0);
    assert_eq!(value.clone(), value);

    // Attributes belong to the value that follows them.
    let kinds = [
        ("*2\r\n:0\r\n", ""),
        ("%1\r\n+key\r\n", ""),
        ("|1\r\n+a\r\n:0\r\n*1\r\n", ""),
        ("*2\r\n", ":0\r\n"),
        ("~1\r\n", ""),
    ];
    for (opens, closes) in kinds {
        for depth in [MAX_DEPTH + 1, 8000] {
            let deep = [&*opens.repeat(depth), "$1\r\nx\r\n", &closes.repeat(depth)].concat();
            let bytes = [b":1\r\n", deep.as_bytes(), b":2\r\n"].concat();
            for piece in [1, 7, usize::MAX] {
                let values = decode_in(Protocol::Resp3, &bytes, piece).expect("replies");
                assert_eq!(
                    (values.len(), &values[0], &values[2]),
                    (3, &Value::Int(1), &Value::Int(2)),
                    "{opens:?}"
                );
                let mut inner = &values[1];
                let mut levels = 0;
                while let Some(next) = innermost(inner) {
                    (inner, levels) = (next, levels + 1);
                }
                assert_eq!((inner, levels), (&replacement(TOO_DEEP), MAX_DEPTH), "{opens:?}");
            }
        }
    }
}

/// The only member of an aggregate that is not a scalar of the test above.
fn innermost(value: &Value) -> Option<&Value> {
    match value {
        Value::Map(pairs) => Some(&pairs[0].1),
        other => other.as_slice()?.iter().find(|member| **member != Value::Int(0)),
    }
}

#[test]
fn nesting_without_end_is_given_up() {
    for kind in ["*1\r\n", "%1\r\n", "|1\r\n", "~2\r\n"] {
        let bytes = kind.repeat(100_000);
        assert!(
            matches!(decode(Protocol::Resp3, bytes.as_bytes()), Err(RespError::TooDeep { .. })),
            "{kind}"
        );
    }
}

#[test]
fn announcements_set_aside_a_bounded_amount() {
    let mut decoder = Decoder::new(Protocol::Resp3);
    decoder.room().extend_from_slice(format!("${MAX_STRING}\r\n").as_bytes());
    assert_eq!(decoder.next(), Ok(None));
    let room = decoder.room();
    assert!(room.capacity() <= MAX_AHEAD + READ_ROOM, "{}", room.capacity());

    let mut decoder = Decoder::new(Protocol::Resp3);
    decoder.room().extend_from_slice(&b"*2147483647\r\n".repeat(MAX_DEPTH));
    assert_eq!(decoder.next(), Ok(None));
    let members: usize = decoder.open.iter().map(|aggregate| aggregate.items.capacity()).sum();
    assert!(members <= MAX_DEPTH * MAX_MEMBERS_AHEAD, "{members}");
}

#[test]
fn a_large_string_gets_room_once_and_is_not_copied() {
    const LEN: usize = 3_670_016;
    let mut decoder = Decoder::new(Protocol::Resp3);
    let reply = [format!("${LEN}\r\n").into_bytes(), vec![b'v'; LEN], b"\r\n".to_vec()].concat();
    // As a stream fills it: never more than there is room for, and first a little.
    let mut rest = &reply[..];
    let mut buffers = Vec::new();
    while !rest.is_empty() {
        assert_eq!(decoder.next(), Ok(None));
        let room = decoder.room();
        let (now, later) = rest.split_at(rest.len().min(room.capacity() - room.len()).min(65_536));
        room.extend_from_slice(now);
        buffers.push(room.as_ptr());
        rest = later;
    }
    let value = decoder.next().expect("RESP").and_then(Value::into_bytes).expect("complete");
    assert_eq!(value.len(), LEN);
    assert_eq!(value.as_ptr().addr() - buffers.last().expect("filled").addr(), reply.len() - LEN - 2);
    buffers.dedup();
    assert!(buffers.len() <= 2, "moved {} times", buffers.len() - 1);
}

#[test]
fn a_large_array_is_not_kept_as_bytes() {
    let mut decoder = Decoder::new(Protocol::Resp3);
    decoder.room().extend_from_slice(b"*100000\r\n");
    for _ in 0..99_999 {
        decoder.room().extend_from_slice(b"$3\r\nabc\r\n");
        assert_eq!(decoder.next(), Ok(None));
        assert!(decoder.buffer.is_empty());
    }
    decoder.room().extend_from_slice(b":1\r\n");
    let value = decoder.next().expect("RESP").expect("complete");
    assert_eq!(value.as_slice().map(<[Value]>::len), Some(100_000));
}

#[test]
fn a_line_taken_in_part_is_not_remembered() {
    let mut decoder = Decoder::new(Protocol::Resp2);
    decoder.room().extend_from_slice(b"+OK");
    assert_eq!(decoder.next(), Ok(None));
    assert_eq!(decoder.take_some(3), "+OK");
    decoder.room().extend_from_slice(b":1");
    assert_eq!(decoder.next(), Ok(None));
    decoder.room().extend_from_slice(b"\r\n");
    assert_eq!(decoder.next(), Ok(Some(Value::Int(1))));
}
