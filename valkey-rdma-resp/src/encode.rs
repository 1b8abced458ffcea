//! From a [`Reply`] to RESP2 or RESP3 bytes.
//!
//! Replies are written straight into the [`Output`]. A codec that encodes into one buffer would copy every large value once
//! more, and would need each reply rebuilt as a frame of its protocol version first. The tests decode the result with
//! the redis-protocol crate.

use crate::output::Output;
use crate::protocol::{MAX_DEPTH, Protocol, TOO_DEEP};
use crate::reply::Reply;

/// Appends `reply` to `output`, encoded for `protocol`. What lies deeper than [`MAX_DEPTH`] lists, as deep as a [`Decoder`](crate::Decoder)
/// reads, is replaced by an error reply in its place.
pub fn encode(reply: &Reply, protocol: Protocol, output: &mut Output) {
    encode_at(0, reply, protocol, output);
}

/// Encodes what `depth` lists contain.
fn encode_at(depth: usize, reply: &Reply, protocol: Protocol, output: &mut Output) {
    if depth == MAX_DEPTH && reply.is_list() {
        return line(b"-", TOO_DEEP, output);
    }
    let inner = depth + 1;
    let resp3 = protocol == Protocol::Resp3;
    match reply {
        Reply::Simple(text) => line(b"+", text, output),
        Reply::Error(text) => line(b"-", text, output),
        Reply::Integer(number) => header(b":", *number, output),
        Reply::Bulk(bytes) => {
            length(b"$", bytes.len(), output);
            output.put_shared(bytes);
            output.put(b"\r\n");
        }
        Reply::Null | Reply::NullArray if resp3 => output.put(b"_\r\n"),
        Reply::Null => output.put(b"$-1\r\n"),
        Reply::NullArray => output.put(b"*-1\r\n"),
        Reply::Array(items) => list(inner, b"*", items, protocol, output),
        Reply::Set(items) => list(inner, if resp3 { b"~" } else { b"*" }, items, protocol, output),
        Reply::Push(items) => list(inner, if resp3 { b">" } else { b"*" }, items, protocol, output),
        Reply::Sequence(items) => items.iter().for_each(|item| encode_at(inner, item, protocol, output)),
        Reply::Map(pairs) => {
            if resp3 {
                length(b"%", pairs.len(), output);
            } else {
                length(b"*", 2 * pairs.len(), output);
            }
            for (key, value) in pairs {
                encode_at(inner, key, protocol, output);
                encode_at(inner, value, protocol, output);
            }
        }
        Reply::Double(number) if resp3 => line(b",", &double(*number), output),
        Reply::Double(number) => text(&double(*number), output),
        Reply::Bool(truth) if resp3 => output.put(if *truth { b"#t\r\n" } else { b"#f\r\n" }),
        Reply::Bool(truth) => header(b":", i64::from(*truth), output),
        Reply::BigNumber(digits) if resp3 => line(b"(", digits, output),
        Reply::BigNumber(digits) => text(digits, output),
        Reply::Verbatim { format, text } if resp3 => {
            length(b"=", format.len() + 1 + text.len(), output);
            output.put(format);
            output.put(b":");
            output.put_shared(text);
            output.put(b"\r\n");
        }
        Reply::Verbatim { text, .. } => encode_at(depth, &Reply::Bulk(text.clone()), protocol, output),
    }
}

/// Appends a line. A line break inside `text` would start another reply, so it is replaced by a blank.
fn line(prefix: &[u8], text: &str, output: &mut Output) {
    output.put(prefix);
    if text.contains(['\r', '\n']) {
        output.put(text.replace(['\r', '\n'], " ").as_bytes());
    } else {
        output.put(text.as_bytes());
    }
    output.put(b"\r\n");
}

/// Encodes a list whose items are at `depth`.
fn list(depth: usize, prefix: &[u8], items: &[Reply], protocol: Protocol, output: &mut Output) {
    length(prefix, items.len(), output);
    for item in items {
        encode_at(depth, item, protocol, output);
    }
}

fn text(text: &str, output: &mut Output) {
    length(b"$", text.len(), output);
    output.put(text.as_bytes());
    output.put(b"\r\n");
}

fn length(prefix: &[u8], len: usize, output: &mut Output) {
    header(prefix, i64::try_from(len).expect("nothing in memory is longer than i64::MAX"), output);
}

fn header(prefix: &[u8], number: i64, output: &mut Output) {
    output.put(prefix);
    output.put_decimal(number);
    output.put(b"\r\n");
}

/// Formats a number as Valkey does: the fewest digits that identify it, with an exponent if it is very large or very small.
///
/// Source: valkey `deps/fpconv/fpconv_dtoa.c`, `emit_digits`.
#[must_use]
pub fn double(number: f64) -> String {
    if number.is_nan() {
        return "nan".to_owned();
    }
    if number.is_infinite() {
        return number.to_string();
    }
    // Digits, and the power of ten of the first.
    let scientific = format!("{number:e}");
    let (digits, power) = scientific.split_once('e').expect("that is the format");
    let power: i32 = power.parse().expect("that is the format");
    let count = i32::try_from(digits.bytes().filter(u8::is_ascii_digit).count()).expect("17 at most");
    let last = power - count + 1;
    let plain = if last >= 0 { power < count + 7 } else { last > -7 || power.abs() < 4 };
    if plain {
        return number.to_string();
    }
    let sign = if power < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{}", power.abs())
}

#[cfg(test)]
mod tests {
    use bytes::{Buf, Bytes};
    use redis_protocol::resp2::types::{BytesFrame as Frame2, Resp2Frame};
    use redis_protocol::resp3::types::{BytesFrame as Frame3, FrameKind, Resp3Frame};

    use super::*;

    fn bytes_of(reply: &Reply, protocol: Protocol) -> Bytes {
        let mut output = Output::default();
        encode(reply, protocol, &mut output);
        output.copy_to_bytes(output.remaining())
    }

    /// Each reply with its RESP2 and its RESP3 form.
    fn samples() -> Vec<(Reply, &'static str, &'static str)> {
        let one = || Reply::Integer(1);
        vec![
            (Reply::OK, "+OK\r\n", "+OK\r\n"),
            (Reply::error("ERR a\r\n+OK"), "-ERR a  +OK\r\n", "-ERR a  +OK\r\n"),
            (Reply::Integer(-5), ":-5\r\n", ":-5\r\n"),
            (Reply::bulk("a\r\nb"), "$4\r\na\r\nb\r\n", "$4\r\na\r\nb\r\n"),
            (Reply::bulk(""), "$0\r\n\r\n", "$0\r\n\r\n"),
            (Reply::Null, "$-1\r\n", "_\r\n"),
            (Reply::NullArray, "*-1\r\n", "_\r\n"),
            (Reply::Array(vec![one(), Reply::Null]), "*2\r\n:1\r\n$-1\r\n", "*2\r\n:1\r\n_\r\n"),
            (Reply::Array(vec![]), "*0\r\n", "*0\r\n"),
            (Reply::Map(vec![(Reply::simple("k"), one())]), "*2\r\n+k\r\n:1\r\n", "%1\r\n+k\r\n:1\r\n"),
            (Reply::Set(vec![one()]), "*1\r\n:1\r\n", "~1\r\n:1\r\n"),
            (
                Reply::Push(vec![Reply::bulk("message"), one()]),
                "*2\r\n$7\r\nmessage\r\n:1\r\n",
                ">2\r\n$7\r\nmessage\r\n:1\r\n",
            ),
            (Reply::Double(1.5), "$3\r\n1.5\r\n", ",1.5\r\n"),
            (Reply::Double(1e21), "$5\r\n1e+21\r\n", ",1e+21\r\n"),
            (Reply::Double(1.5e-9), "$6\r\n1.5e-9\r\n", ",1.5e-9\r\n"),
            (Reply::Double(f64::NEG_INFINITY), "$4\r\n-inf\r\n", ",-inf\r\n"),
            (Reply::Bool(true), ":1\r\n", "#t\r\n"),
            (Reply::Bool(false), ":0\r\n", "#f\r\n"),
            (Reply::BigNumber("123".into()), "$3\r\n123\r\n", "(123\r\n"),
            (Reply::Verbatim { format: *b"txt", text: "hi".into() }, "$2\r\nhi\r\n", "=6\r\ntxt:hi\r\n"),
        ]
    }

    #[test]
    fn every_reply_has_its_bytes_in_both_protocols() {
        for (reply, resp2, resp3) in samples() {
            assert_eq!(bytes_of(&reply, Protocol::Resp2), resp2, "{reply:?}");
            assert_eq!(bytes_of(&reply, Protocol::Resp3), resp3, "{reply:?}");
        }
    }

    /// A stack that overflowed would end the process.
    #[test]
    fn what_is_nested_too_deeply_is_an_error_that_a_decoder_reads() {
        type Wrap = fn(Reply) -> Reply;
        let wraps: [Wrap; 3] = [
            |inner| Reply::Array(vec![inner]),
            |inner| Reply::Map(vec![(Reply::Null, inner)]),
            |inner| Reply::Sequence(vec![inner]),
        ];
        for wrap in wraps {
            for (depth, is_too_deep) in [(MAX_DEPTH, false), (MAX_DEPTH + 1, true), (3000, true)] {
                let mut reply = Reply::Integer(1);
                for _ in 0..depth {
                    reply = wrap(reply);
                }
                for protocol in [Protocol::Resp2, Protocol::Resp3] {
                    let bytes = bytes_of(&reply, protocol);
                    assert_eq!(
                        bytes.ends_with(format!("-{TOO_DEEP}\r\n").as_bytes()),
                        is_too_deep,
                        "{depth}"
                    );
                    let mut decoder = crate::Decoder::new(protocol);
                    decoder.room().extend_from_slice(&bytes);
                    assert!(decoder.next().unwrap().is_some(), "{depth}");
                    assert_eq!(decoder.buffered(), 0, "{depth}");
                }
            }
        }
    }

    #[test]
    fn another_decoder_reads_exactly_what_is_written() {
        for (reply, ..) in samples() {
            let bytes = bytes_of(&reply, Protocol::Resp2);
            let (frame, used) = redis_protocol::resp2::decode::decode_bytes(&bytes).unwrap().unwrap();
            assert_eq!(used, bytes.len(), "{reply:?}");
            assert_eq!(
                matches!(reply, Reply::Null | Reply::NullArray),
                frame == Frame2::Null,
                "{:?}",
                frame.kind()
            );

            let bytes = bytes_of(&reply, Protocol::Resp3);
            let (frame, used) =
                redis_protocol::resp3::decode::complete::decode_bytes(&bytes).unwrap().unwrap();
            assert_eq!(used, bytes.len(), "{reply:?}");
            assert_eq!(matches!(reply, Reply::Map(_)), frame.kind() == FrameKind::Map);
            assert_eq!(matches!(reply, Reply::Double(_)), matches!(frame, Frame3::Double { .. }));
        }
    }
}
