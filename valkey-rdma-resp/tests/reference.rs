//! Another implementation of RESP, the redis-protocol crate, reads what this one writes and writes what this one reads.

use bytes::{Buf, Bytes};
use proptest::collection::vec;
use proptest::prelude::*;
use redis_protocol::resp2::types::OwnedFrame as Frame2;
use redis_protocol::resp3::types::{OwnedFrame as Frame3, VerbatimStringFormat};
use valkey_rdma_resp::{
    Command, Decoder, Output, Parser, Protocol, Reply, RespError, Room, ServerError, Value, encode,
    put_header,
};

/// Replies without a set or a map of several members: the reference keeps those in hash tables and loses their order.
fn reply() -> impl Strategy<Value = Reply> {
    let leaf = prop_oneof![
        "[a-zA-Z ]{0,20}".prop_map(Reply::simple),
        "[A-Z]{1,8} [a-z ]{1,20}".prop_map(Reply::error),
        any::<i64>().prop_map(Reply::Integer),
        vec(any::<u8>(), 0..200).prop_map(Reply::bulk),
        (Command::LARGE..Command::LARGE + 99).prop_map(|len| Reply::bulk(vec![b'x'; len])),
        Just(Reply::Null),
        Just(Reply::NullArray),
        any::<f64>()
            .prop_filter("nan is not equal to itself", |number| !number.is_nan())
            .prop_map(Reply::Double),
        any::<bool>().prop_map(Reply::Bool),
        "-?[1-9][0-9]{0,40}".prop_map(|digits| Reply::BigNumber(digits.into())),
        ("[a-z\r\n]{0,20}", prop_oneof![Just(*b"txt"), Just(*b"mkd")])
            .prop_map(|(text, format)| Reply::Verbatim { format, text: text.into() }),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..6).prop_map(Reply::Array),
            vec(inner.clone(), 0..6).prop_map(Reply::Push),
            vec(inner.clone(), 0..2).prop_map(Reply::Set),
            vec((inner.clone(), inner), 0..2).prop_map(Reply::Map),
        ]
    })
}

fn bytes_of(reply: &Reply, protocol: Protocol) -> Bytes {
    let mut output = Output::default();
    encode(reply, protocol, &mut output);
    output.copy_to_bytes(output.remaining())
}

/// Decodes `bytes`, received in pieces of `step` bytes, to one value.
fn decode(bytes: &[u8], protocol: Protocol, step: usize) -> Result<Option<Value>, RespError> {
    let mut decoder = Decoder::new(protocol);
    let mut value = None;
    for piece in bytes.chunks(step) {
        decoder.room().extend_from_slice(piece);
        if let Some(next) = decoder.next()? {
            assert_eq!(value.replace(next), None, "one value");
        }
    }
    assert!(decoder.is_empty());
    Ok(value)
}

fn error(text: &str) -> Value {
    Value::Error(ServerError::from_reply(text.as_bytes()))
}

/// The reference's frame as our value. A RESP2 null array is the reference's null string.
fn of_resp2(frame: &Frame2) -> Value {
    match frame {
        Frame2::SimpleString(text) => Value::Simple(text.clone().into()),
        Frame2::Error(text) => error(text),
        Frame2::Integer(number) => Value::Int(*number),
        Frame2::BulkString(bytes) => Value::Bulk(bytes.clone().into()),
        Frame2::Array(items) => Value::Array(items.iter().map(of_resp2).collect()),
        Frame2::Null => Value::Nil,
    }
}

fn of_resp3(frame: &Frame3) -> Value {
    let all = |items: &[Frame3]| items.iter().map(of_resp3).collect();
    match frame {
        Frame3::SimpleString { data, .. } => Value::Simple(data.clone().into()),
        Frame3::SimpleError { data, .. } => error(data),
        Frame3::BlobString { data, .. } => Value::Bulk(data.clone().into()),
        Frame3::BlobError { data, .. } => Value::Error(ServerError::from_reply(data)),
        Frame3::Number { data, .. } => Value::Int(*data),
        Frame3::Double { data, .. } => Value::Double(*data),
        Frame3::Boolean { data, .. } => Value::Bool(*data),
        Frame3::BigNumber { data, .. } => Value::BigNumber(data.clone().into()),
        Frame3::VerbatimString { data, format, .. } => {
            let format = match format {
                VerbatimStringFormat::Text => *b"txt",
                VerbatimStringFormat::Markdown => *b"mkd",
            };
            Value::Verbatim { format, text: data.clone().into() }
        }
        Frame3::Null => Value::Nil,
        Frame3::Array { data, .. } => Value::Array(all(data)),
        Frame3::Push { data, .. } => Value::Push(all(data)),
        Frame3::Set { data, .. } => Value::Set(data.iter().map(of_resp3).collect()),
        Frame3::Map { data, .. } => {
            Value::Map(data.iter().map(|(k, v)| (of_resp3(k), of_resp3(v))).collect())
        }
        other => panic!("not a reply: {other:?}"),
    }
}

/// Whether the reference can read `reply` in RESP3: it refuses aggregates as members of sets and keys of maps.
fn reference_reads(reply: &Reply) -> bool {
    let scalar = |reply: &Reply| {
        !matches!(reply, Reply::Array(_) | Reply::Set(_) | Reply::Map(_) | Reply::Push(_) | Reply::Double(_))
    };
    match reply {
        Reply::Array(items) | Reply::Push(items) => items.iter().all(reference_reads),
        Reply::Set(items) => items.iter().all(scalar),
        Reply::Map(pairs) => pairs.iter().all(|(key, value)| scalar(key) && reference_reads(value)),
        _ => true,
    }
}

proptest! {
    #[test]
    fn the_reference_and_our_decoder_read_the_same_resp2(reply in reply(), step in 1..40_usize) {
        let bytes = bytes_of(&reply, Protocol::Resp2);
        let (frame, used) = redis_protocol::resp2::decode::decode(&bytes).unwrap().unwrap();
        prop_assert_eq!(used, bytes.len());
        prop_assert_eq!(decode(&bytes, Protocol::Resp2, step), Ok(Some(of_resp2(&frame))));
    }

    #[test]
    fn the_reference_and_our_decoder_read_the_same_resp3(
        reply in reply().prop_filter("the reference's limits", reference_reads),
        step in 1..40_usize,
    ) {
        let bytes = bytes_of(&reply, Protocol::Resp3);
        let (frame, used) = redis_protocol::resp3::decode::complete::decode(&bytes).unwrap().unwrap();
        prop_assert_eq!(used, bytes.len());
        prop_assert_eq!(decode(&bytes, Protocol::Resp3, step), Ok(Some(of_resp3(&frame))));
    }

    #[test]
    fn commands_of_the_reference_and_of_ours_are_parsed(
        words in vec(vec(any::<u8>(), 0..100), 1..12),
        step in 1..40_usize,
    ) {
        let frame = Frame2::Array(words.iter().cloned().map(Frame2::BulkString).collect());
        let mut encoded = vec![0; frame_len(&words)];
        let len = redis_protocol::resp2::encode::encode(&mut encoded, &frame, false).unwrap();
        prop_assert_eq!(len, encoded.len());
        let mut ours = Vec::new();
        put_header(&mut ours, b'*', words.len());
        for word in &words {
            put_header(&mut ours, b'$', word.len());
            ours.extend_from_slice(word);
            ours.extend_from_slice(b"\r\n");
        }
        prop_assert_eq!(&ours, &encoded);

        let mut parser = Parser::new(1_000_000);
        let mut found = None;
        for piece in encoded.chunks(step) {
            match parser.room() {
                Room::Buffer(buffer) => buffer.extend_from_slice(piece),
                Room::Argument(_) => panic!("no argument is large"),
            }
            if let Some(command) = parser.next_command(true).unwrap() {
                found = Some(command);
            }
        }
        let command = found.expect("complete");
        prop_assert_eq!(command.name(), &words[0][..]);
        prop_assert_eq!(command.args(), &words[1..].iter().cloned().map(Bytes::from).collect::<Vec<_>>()[..]);
        prop_assert_eq!(parser.pending(), 0);
    }

    /// Any bytes at all: errors, never a panic, and the same outcome however they arrive.
    #[test]
    fn any_bytes_are_read_the_same_in_pieces(bytes in vec(prop_oneof![Just(b'\r'), Just(b'\n'), b' '..b'~'], 0..60)) {
        for protocol in [Protocol::Resp2, Protocol::Resp3] {
            let outcome = |step: usize| {
                let mut decoder = Decoder::new(protocol);
                let mut values = Vec::new();
                for piece in bytes.chunks(step) {
                    decoder.room().extend_from_slice(piece);
                    loop {
                        match decoder.next() {
                            Ok(Some(value)) => values.push(format!("{value:?}")),
                            Ok(None) => break,
                            Err(error) => return (values, Some(error)),
                        }
                    }
                }
                (values, None)
            };
            prop_assert_eq!(outcome(1), outcome(usize::MAX));
        }
        let outcome = |step: usize| {
            let mut parser = Parser::new(1_000_000);
            let mut commands = Vec::new();
            for piece in bytes.chunks(step) {
                match parser.room() {
                    Room::Buffer(buffer) => buffer.extend_from_slice(piece),
                    Room::Argument(_) => break,
                }
                loop {
                    match parser.next_command(true) {
                        Ok(Some(command)) => commands.push(command),
                        Ok(None) => break,
                        Err(error) => return (commands, Some(error)),
                    }
                }
            }
            (commands, None)
        };
        prop_assert_eq!(outcome(1), outcome(usize::MAX));
    }
}

fn frame_len(words: &[Vec<u8>]) -> usize {
    let header = |number: usize| 3 + number.to_string().len();
    header(words.len()) + words.iter().map(|word| header(word.len()) + word.len() + 2).sum::<usize>()
}
