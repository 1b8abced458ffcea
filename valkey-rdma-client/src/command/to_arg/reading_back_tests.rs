//! What the client writes it reads back, for each type that is both an argument and a reply.

use std::fmt::Debug;

use bytes::Buf;
use valkey_rdma_resp::{Decoder, FromValue, Output, Protocol, Reply, Value, encode};

use super::*;

/// The reply of a server that was given these arguments, and returns them as strings: alone, or as members of an array.
fn returned(value: &impl ToArg, alone: bool) -> Reply {
    let command = Command::new("X").arg(value);
    let mut words = command.words().skip(1).map(|word| Reply::bulk(word.to_vec()));
    match (words.next(), alone) {
        (Some(word), true) => {
            assert!(words.next().is_none(), "one argument");
            word
        }
        (first, _) => Reply::Array(first.into_iter().chain(words).collect()),
    }
}

/// What a client decodes.
fn decoded(reply: &Reply, protocol: Protocol) -> Value {
    let mut output = Output::default();
    encode(reply, protocol, &mut output);
    let mut decoder = Decoder::new(protocol);
    while output.has_remaining() {
        let chunk = output.chunk();
        decoder.room().extend_from_slice(chunk);
        let len = chunk.len();
        output.advance(len);
    }
    decoder.next().expect("well-formed").expect("complete")
}

fn reads_back<T: ToArg + FromValue + PartialEq + Debug>(value: &T, alone: bool) {
    for protocol in [Protocol::Resp2, Protocol::Resp3] {
        let read: T = decoded(&returned(value, alone), protocol).convert().expect("converts");
        assert_eq!(&read, value, "{protocol:?}");
    }
}

/// Also as what the server keeps as a number: a score. RESP3 returns that as a double.
fn reads_back_as_score<T: ToArg + FromValue + PartialEq + Debug>(value: &T) {
    let Reply::Bulk(digits) = returned(value, true) else { panic!("one string") };
    let score: f64 = std::str::from_utf8(&digits).expect("ASCII").parse().expect("a number");
    for protocol in [Protocol::Resp2, Protocol::Resp3] {
        let read: T = decoded(&Reply::Double(score), protocol).convert().expect("converts");
        assert_eq!(&read, value, "{protocol:?}");
    }
}

#[test]
fn truth_is_read_back() {
    for truth in [true, false] {
        reads_back(&truth, true);
        reads_back_as_score(&truth);
        reads_back(&Some(truth), true);
        reads_back(&vec![truth, !truth], false);
        reads_back(&BTreeMap::from([("a".to_owned(), truth), ("b".to_owned(), !truth)]), false);
    }
}

#[test]
fn integers_are_read_back() {
    macro_rules! each {
        ($($type:ident $random:ident),*) => { $(
            for value in [0, 1, $type::MIN, $type::MAX] {
                reads_back(&value, true);
            }
            for _ in 0..1000 {
                let value = fastrand::$random(..);
                reads_back(&value, true);
                reads_back(&Some(value), true);
                reads_back(&(value, value), false);
                // What a double can represent.
                if i64::try_from(value).is_ok_and(|value| value.unsigned_abs() < 1 << 53) {
                    reads_back_as_score(&value);
                }
            }
        )* };
    }
    each!(i8 i8, u8 u8, i16 i16, u16 u16, i32 i32, u32 u32, i64 i64, u64 u64, i128 i128, u128 u128, isize isize, usize usize);
}

#[test]
fn floats_are_read_back_bit_by_bit() {
    fn doubles(value: f64) {
        for protocol in [Protocol::Resp2, Protocol::Resp3] {
            for reply in [returned(&value, true), Reply::Double(value)] {
                let read: f64 = decoded(&reply, protocol).convert().expect("converts");
                let same = read.to_bits() == value.to_bits() || (read.is_nan() && value.is_nan());
                assert!(same, "{value:e} is {read:e}");
            }
        }
    }
    fn singles(value: f32) {
        for protocol in [Protocol::Resp2, Protocol::Resp3] {
            for reply in [returned(&value, true), Reply::Double(f64::from(value))] {
                let read: f32 = decoded(&reply, protocol).convert().expect("converts");
                let same = read.to_bits() == value.to_bits() || (read.is_nan() && value.is_nan());
                assert!(same, "{value:e} is {read:e}");
            }
        }
    }
    for value in [0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, f64::MIN_POSITIVE, 5e-324, f64::MAX]
    {
        doubles(value);
        singles(value as f32);
    }
    for _ in 0..10_000 {
        doubles(f64::from_bits(fastrand::u64(..)));
        singles(f32::from_bits(fastrand::u32(..)));
    }
}

fn text() -> String {
    (0..fastrand::usize(..20)).map(|_| fastrand::char(..)).collect()
}

fn bytes() -> Vec<u8> {
    (0..fastrand::usize(..20)).map(|_| fastrand::u8(..)).collect()
}

#[test]
fn strings_and_bytes_are_read_back() {
    for _ in 0..1000 {
        reads_back(&text(), true);
        reads_back(&Some(text()), true);
        reads_back(&fastrand::char(..), true);
        reads_back(&bytes(), true);
        reads_back(&Bytes::from(bytes()), true);
        reads_back(&fastrand::u64(..).to_ne_bytes(), true);
    }
    reads_back(&"x".repeat(9000), true);
}

#[test]
fn collections_are_read_back() {
    for _ in 0..200 {
        let texts: Vec<_> = (0..fastrand::usize(..9)).map(|_| text()).collect();
        reads_back(&texts, false);
        reads_back(&texts.iter().map(|text| Bytes::from(text.clone())).collect::<Vec<_>>(), false);
        reads_back(&texts.iter().cloned().collect::<HashSet<_>>(), false);
        reads_back(&texts.iter().cloned().collect::<BTreeSet<_>>(), false);
        let pairs: Vec<(String, f64)> = texts.iter().map(|text| (text.clone(), fastrand::f64())).collect();
        reads_back(&pairs, false);
        reads_back(
            &pairs.iter().map(|(key, number)| (key.clone(), *number as i64 == 0)).collect::<HashMap<_, _>>(),
            false,
        );
        reads_back(&pairs.iter().cloned().collect::<BTreeMap<_, _>>(), false);
        reads_back(&(text(), fastrand::i64(..)), false);
        reads_back(&[fastrand::i16(..), fastrand::i16(..), 0], false);
        reads_back(&[text(), text()], false);
    }
}
