//! redis-rs itself is the judge: of the bytes of a reply, and of what converts.

use std::collections::BTreeMap;
use std::fmt::Debug;

use bytes::Bytes;
use redis::FromRedisValue;
use valkey_rdma_resp::{Decoder, FromValue, Protocol};

use super::*;

fn decoded(bytes: &[u8]) -> Value {
    let mut decoder = Decoder::new(Protocol::Resp3);
    decoder.room().extend_from_slice(bytes);
    decoder.next().expect("well-formed").expect("complete")
}

#[test]
fn a_reply_is_to_redis_rs_what_its_own_parser_makes_of_the_same_bytes() {
    for bytes in [
        &b"+OK\r\n"[..],
        b"+PONG\r\n",
        b":-7\r\n",
        b"$3\r\na\r\n\r\n",
        b"_\r\n",
        b",1.5\r\n",
        b",inf\r\n",
        b"#t\r\n",
        b"(123456789012345678901234567890\r\n",
        b"=8\r\ntxt:some\r\n",
        b"=7\r\nmkd:# x\r\n",
        b"=7\r\nxml:<a>\r\n",
        b"=4\r\ntxt:\r\n",
        b"=8\r\nmkd:a\r\nb\r\n",
        b"*2\r\n:1\r\n~1\r\n+x\r\n",
        b"%1\r\n$1\r\nk\r\n=5\r\nmkd:v\r\n",
        b">2\r\n+invalidate\r\n*1\r\n+k\r\n",
        b">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm\r\n",
        b">2\r\n+other\r\n:1\r\n",
        b"-ERR no such key\r\n",
        b"-MYCODE\r\n",
        b"-ERR\r\n",
        b"-LOADING\r\n",
        b"-MOVED 1 h:1\r\n",
        b"-MYCODE some text\r\n",
        b"-\r\n",
        b"!10\r\nERR a\r\nb c\r\n",
        b"!11\r\nMYCODE a\r\nb\r\n",
        b"*2\r\n-MYCODE\r\n!8\r\nERR a\r\nb\r\n",
    ] {
        let theirs = redis::parse_redis_value(bytes).expect("redis-rs parses it");
        let ours = to_redis(decoded(bytes)).expect("converts");
        assert_eq!(ours, theirs, "{}", String::from_utf8_lossy(bytes));
        if let Value::Error(error) = decoded(bytes) {
            let (ours, theirs) = (RedisError::from(Error::Server(error)), RedisError::from_value(theirs));
            let seen = |error: &RedisError| {
                (
                    error.kind(),
                    error.code().map(str::to_owned),
                    error.detail().map(str::to_owned),
                    error.to_string(),
                )
            };
            assert_eq!(seen(&ours), seen(&theirs), "{}", String::from_utf8_lossy(bytes));
        }
    }
}

trait OfValue {
    fn from_value(value: RedisValue) -> Self;
}

impl OfValue for RedisError {
    fn from_value(value: RedisValue) -> Self {
        match value {
            RedisValue::ServerError(error) => error.into(),
            other => panic!("no error: {other:?}"),
        }
    }
}

fn bulk(text: &str) -> Value {
    Value::Bulk(Bytes::copy_from_slice(text.as_bytes()))
}

/// What redis-rs converts, we convert to the same.
fn as_theirs<T: FromValue + FromRedisValue + Debug>(value: &Value) {
    let Ok(theirs) = redis::from_redis_value::<T>(to_redis(value.clone()).expect("converts")) else { return };
    let ours = value.clone().convert::<T>();
    let ours = ours.unwrap_or_else(|error| panic!("{value:?} is {theirs:?} to redis-rs: {error}"));
    assert_eq!(format!("{ours:?}"), format!("{theirs:?}"), "{value:?}");
}

#[test]
fn replies_convert_as_redis_rs_converts_them() {
    let verbatim = Value::Verbatim { format: *b"txt", text: Bytes::from_static(b"7") };
    let scalars = [
        Value::Int(0),
        Value::Int(1),
        Value::Int(-3),
        Value::Double(0.0),
        Value::Double(2.0),
        Value::Double(-1.5),
        Value::Double(f64::INFINITY),
        Value::Bool(true),
        Value::Bool(false),
        Value::Simple(Bytes::from_static(b"OK")),
        Value::Simple(Bytes::from_static(b"1")),
        bulk("0"),
        bulk("1"),
        bulk("1.5"),
        bulk("text"),
        bulk(""),
        verbatim,
    ];
    let map = |pairs: &[(&str, Value)]| {
        Value::Map(pairs.iter().map(|(key, value)| (bulk(key), value.clone())).collect())
    };
    let aggregates = [
        Value::Array(vec![]),
        Value::Array(vec![bulk("a"), Value::Int(1)]),
        Value::Set(vec![bulk("1"), Value::Double(2.0)]),
        map(&[("a", Value::Double(2.0))]),
        map(&[("a", bulk("1")), ("b", bulk("0"))]),
    ];
    for value in scalars.iter().chain(&aggregates) {
        // To redis-rs every other number is true.
        if *value != Value::Int(-3) {
            as_theirs::<bool>(value);
        }
        as_theirs::<f64>(value);
        as_theirs::<String>(value);
        as_theirs::<Option<String>>(value);
        as_theirs::<Bytes>(value);
        as_theirs::<Vec<u8>>(value);
        as_theirs::<(String, f64)>(value);
        as_theirs::<(String, bool, String, bool)>(value);
        as_theirs::<BTreeMap<String, f64>>(value);
        // redis-rs cuts fractions off, and bits: we refuse both.
        if !matches!(value, Value::Double(number) if number.fract() != 0.0 || !number.is_finite()) {
            as_theirs::<i64>(value);
            as_theirs::<Option<i64>>(value);
        }
    }
    // To redis-rs a string is a vector of one.
    for value in &aggregates {
        as_theirs::<Vec<i64>>(value);
        as_theirs::<Vec<(String, bool)>>(value);
        as_theirs::<[i64; 2]>(value);
    }
    for cut in [Value::Double(1.5), Value::Double(f64::INFINITY), Value::Double(1e300)] {
        assert!(cut.convert::<i64>().is_err());
    }
}
