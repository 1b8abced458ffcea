//! What the right reply to a command is.

use crate::check::{Byte, Kind, Seen, Wrong};
use crate::measure::{Fault, FaultKind};

/// The right reply, as far as it can be known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expect {
    /// Anything but an error: for commands that the user gives.
    Anything,
    /// This status.
    Status(&'static str),
    /// This status, or no value.
    StatusOrNil(&'static str),
    /// Any integer.
    Integer,
    /// No value.
    Nil,
    /// A string.
    String,
    /// A string, or no value.
    StringOrNil,
    /// An array with at most this number of members.
    Array(usize),
    /// An array with at least one and at most this number of members.
    Items(usize),
    /// The value of the key that the command names.
    Value,
    /// The values of this number of keys, all that the command names.
    Values(usize),
}

impl Expect {
    /// Whether the strings of the reply are values of keys.
    pub(crate) fn is_of_values(self) -> bool {
        matches!(self, Expect::Value | Expect::Values(_))
    }

    /// Whether this reply is right.
    pub(crate) fn is_met(self, seen: &Seen) -> bool {
        if seen.kind == Kind::Error || seen.holds_error || seen.wrong.is_some() {
            return false;
        }
        match self {
            Expect::Anything => true,
            Expect::Status(text) => seen.kind == Kind::Status && seen.text() == text.as_bytes(),
            Expect::StatusOrNil(text) => {
                seen.kind == Kind::Nil || seen.kind == Kind::Status && seen.text() == text.as_bytes()
            }
            Expect::Integer => seen.kind == Kind::Integer,
            Expect::Nil => seen.kind == Kind::Nil,
            Expect::String | Expect::Value => seen.kind == Kind::Bulk,
            Expect::StringOrNil => matches!(seen.kind, Kind::Bulk | Kind::Nil),
            Expect::Array(most) => seen.kind == Kind::Array && seen.len <= most,
            Expect::Items(most) => seen.kind == Kind::Array && (1..=most).contains(&seen.len),
            Expect::Values(count) => seen.kind == Kind::Array && seen.len == count,
        }
    }

    /// What is wrong with the reply to `request`, for which [`is_met`](Self::is_met) is false.
    #[cold]
    pub(crate) fn fault(self, request: &str, seen: &Seen) -> Fault {
        let (kind, what) = self.complaint(seen);
        Fault { kind, detail: format!("{request}: {what}") }
    }

    fn complaint(self, seen: &Seen) -> (FaultKind, String) {
        if seen.kind == Kind::Error || seen.holds_error {
            let text = String::from_utf8_lossy(seen.text()).into_owned();
            let code = text.split(' ').next().unwrap_or_default().to_owned();
            return (FaultKind::ServerError(code), text);
        }
        match seen.wrong {
            Some((element, wrong)) if seen.kind == Kind::Array => {
                let (kind, what) = difference(wrong);
                (kind, format!("value {element}: {what}"))
            }
            Some((_, wrong)) => difference(wrong),
            None => (FaultKind::WrongReply, format!("expected {}, got {}", self.wanted(), describe(seen))),
        }
    }

    fn wanted(self) -> String {
        match self {
            Expect::Anything => "anything but an error".to_owned(),
            Expect::Status(text) => text.to_owned(),
            Expect::StatusOrNil(text) => format!("{text} or no value"),
            Expect::Integer => "an integer".to_owned(),
            Expect::Nil => "no value".to_owned(),
            Expect::String | Expect::Value => "a bulk string".to_owned(),
            Expect::StringOrNil => "a bulk string or no value".to_owned(),
            Expect::Array(most) => format!("an array of at most {most}"),
            Expect::Items(most) => format!("an array of 1 to {most}"),
            Expect::Values(count) => format!("an array of {count}"),
        }
    }
}

/// Where two values part.
fn difference(wrong: Wrong) -> (FaultKind, String) {
    let place =
        |first: Byte| format!("byte {} is {:#04x}, expected {:#04x}", first.at, first.got, first.wanted);
    match wrong {
        Wrong::Missing { wanted } => (FaultKind::Missing, format!("no value, expected {wanted} bytes")),
        Wrong::Type { wanted } => {
            (FaultKind::WrongReply, format!("no bulk string, expected one of {wanted} bytes"))
        }
        Wrong::Bytes { len, first } => {
            (FaultKind::WrongBytes, format!("{} ({len} bytes in all)", place(first)))
        }
        Wrong::Length { got, wanted, first } => {
            let place = first.map(|first| format!("; {}", place(first))).unwrap_or_default();
            (FaultKind::WrongLength, format!("{got} bytes, expected {wanted}{place}"))
        }
    }
}

/// A reply in a few words, whatever it holds.
fn describe(seen: &Seen) -> String {
    match seen.kind {
        Kind::Status => format!("the status \"{}\"", seen.text().escape_ascii()),
        Kind::Bulk => format!("a string of {} bytes", seen.len),
        Kind::Nil => "no value".to_owned(),
        Kind::Integer => format!("the integer {}", seen.integer),
        Kind::Array => format!("an array of {}", seen.len),
        Kind::Error | Kind::Other => "a reply of another type".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_range_is_not_the_items_of_a_list() {
        let array = |len| {
            let mut seen = Seen::default();
            (seen.kind, seen.len) = (Kind::Array, len);
            seen
        };
        assert!(Expect::Items(100).is_met(&array(1)) && Expect::Items(100).is_met(&array(100)));
        assert!(!Expect::Items(100).is_met(&array(0)) && !Expect::Items(100).is_met(&array(101)));
        assert!(Expect::Array(2).is_met(&array(0)), "a set may be drained");
    }
}
