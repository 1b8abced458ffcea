//! Whether a reply is the right one, to the last byte.

use valkey_rdma_client::{Error, Value};

use crate::faults::{Fault, FaultKind};
use crate::workload::{Key, Test};

/// How much of a wrong reply is told.
const TOLD: usize = 40;

/// Checks the reply to one request; `expected` is the value of `key`, which only [`Test::Get`] reads.
///
/// # Errors
/// The [`Fault`] to count if anything but the right reply came.
pub fn check(test: Test, key: &Key, expected: &[u8], reply: &Result<Value, Error>) -> Result<(), Fault> {
    match reply {
        Ok(Value::Simple(status)) if test == Test::Ping && status == "PONG" => Ok(()),
        Ok(Value::Simple(status)) if test == Test::Set && status == "OK" => Ok(()),
        Ok(Value::Bulk(value)) if test == Test::Get && value == expected => Ok(()),
        wrong => Err(fault(test, key, expected, wrong)),
    }
}

/// Whether `error` ends the connection that it came from.
pub fn ends_connection(error: &Error) -> bool {
    !matches!(error, Error::Server(_))
}

/// Tells what is wrong with a reply; apart, so that the way of right replies stays short.
#[cold]
fn fault(test: Test, key: &Key, expected: &[u8], reply: &Result<Value, Error>) -> Fault {
    let request = match test {
        Test::Ping => "PING".to_owned(),
        Test::Set => format!("SET {key}"),
        Test::Get => format!("GET {key}"),
    };
    let (kind, what) = match reply {
        Err(Error::Server(error)) => (FaultKind::ServerError(error.code.clone()), error.to_string()),
        Err(error) => (FaultKind::ConnectionLost, error.to_string()),
        Ok(Value::Nil) if test == Test::Get => {
            (FaultKind::Missing, format!("no value, expected {} bytes", expected.len()))
        }
        Ok(Value::Bulk(value)) if test == Test::Get => difference(expected, value),
        Ok(other) => {
            let wanted = match test {
                Test::Ping => "PONG",
                Test::Set => "OK",
                Test::Get => "a bulk string",
            };
            (FaultKind::WrongReply, format!("expected {wanted}, got {}", told(other)))
        }
    };
    Fault { kind, story: format!("{request}: {what}") }
}

/// Where two values part.
fn difference(expected: &[u8], value: &[u8]) -> (FaultKind, String) {
    let first = expected.iter().zip(value).position(|(wanted, got)| wanted != got);
    let place = match first {
        Some(at) => format!("byte {at} is {:#04x}, expected {:#04x}", value[at], expected[at]),
        None => "the bytes that there are, are right".to_owned(),
    };
    if value.len() == expected.len() {
        (FaultKind::WrongBytes, format!("{place} ({} bytes in all)", value.len()))
    } else {
        let lengths = format!("{} bytes, expected {}; {place}", value.len(), expected.len());
        (FaultKind::WrongLength, lengths)
    }
}

/// A reply in a few words, whatever it holds.
fn told(value: &Value) -> String {
    match value {
        Value::Simple(text) => format!("the status {}", quoted(text)),
        Value::Bulk(text) => format!("the string {}", quoted(text)),
        Value::Nil => "no value".to_owned(),
        Value::Int(number) => format!("the integer {number}"),
        Value::Array(items) => format!("an array of {}", items.len()),
        _ => "a reply of another type".to_owned(),
    }
}

fn quoted(text: &[u8]) -> String {
    let shown = &text[..text.len().min(TOLD)];
    let rest = if shown.len() < text.len() { "..." } else { "" };
    format!("\"{}{rest}\"", shown.escape_ascii())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn bulk(value: &'static [u8]) -> Result<Value, Error> {
        Ok(Value::Bulk(Bytes::from_static(value)))
    }

    fn checked(test: Test, reply: Result<Value, Error>) -> Result<(), (FaultKind, String)> {
        check(test, &Key::numbered(12), b"abcd", &reply).map_err(|fault| (fault.kind, fault.story))
    }

    #[test]
    fn the_right_replies_pass() {
        assert_eq!(checked(Test::Ping, Ok(Value::Simple("PONG".into()))), Ok(()));
        assert_eq!(checked(Test::Set, Ok(Value::Simple("OK".into()))), Ok(()));
        assert_eq!(checked(Test::Get, bulk(b"abcd")), Ok(()));
    }

    #[test]
    fn every_other_reply_is_told_apart() {
        for (test, reply, kind, story) in [
            (
                Test::Get,
                bulk(b"abXd"),
                FaultKind::WrongBytes,
                "GET key:000000000012: byte 2 is 0x58, expected 0x63 (4 bytes in all)",
            ),
            (
                Test::Get,
                bulk(b"abc"),
                FaultKind::WrongLength,
                "GET key:000000000012: 3 bytes, expected 4; the bytes that there are, are right",
            ),
            (
                Test::Get,
                bulk(b"Xbcde"),
                FaultKind::WrongLength,
                "GET key:000000000012: 5 bytes, expected 4; byte 0 is 0x58, expected 0x61",
            ),
            (
                Test::Get,
                Ok(Value::Nil),
                FaultKind::Missing,
                "GET key:000000000012: no value, expected 4 bytes",
            ),
            (
                Test::Get,
                Ok(Value::Simple("OK".into())),
                FaultKind::WrongReply,
                "GET key:000000000012: expected a bulk string, got the status \"OK\"",
            ),
            (
                Test::Ping,
                bulk(b"PONG"),
                FaultKind::WrongReply,
                "PING: expected PONG, got the string \"PONG\"",
            ),
            (
                Test::Set,
                Ok(Value::Int(1)),
                FaultKind::WrongReply,
                "SET key:000000000012: expected OK, got the integer 1",
            ),
        ] {
            assert_eq!(checked(test, reply), Err((kind, story.to_owned())));
        }
    }
}
