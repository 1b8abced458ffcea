//! What went wrong during a test: counted by kind, the first few kept in full.

use std::collections::BTreeMap;
use std::fmt;

use valkey_rdma_program::printable;

/// How many faults are kept in full; all are counted.
const KEPT: usize = 5;
/// How many kinds are counted separately, so that a server with endless error codes cannot fill memory.
const KINDS: usize = 64;

/// A reply that is not the right one, or a request without a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// What it is counted under.
    pub kind: FaultKind,
    /// What happened: which request, what was expected, what came.
    pub detail: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.kind, printable(&self.detail))
    }
}

/// The kinds under which faults are counted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum FaultKind {
    /// A value of the right length with other bytes.
    WrongBytes,
    /// A value that is too short or too long.
    WrongLength,
    /// No value for a key that has one.
    Missing,
    /// A reply of another type or with another text.
    WrongReply,
    /// An error reply of the server, with its code (`ERR`, `OOM`, ...).
    ServerError(String),
    /// The connection was lost before the reply came.
    ConnectionLost,
    /// No complete reply arrived within `--reply-timeout`.
    NoReply,
    /// A connection could not be opened anew (`-k 0`).
    ConnectFailed,
    /// The client library does not send this command on a shared connection.
    Refused,
    /// Requests that were never sent because the server did not come back.
    NotSent,
    /// The keys that the test reads could not be written.
    NotPopulated,
    /// A thread of this tool ended by a bug.
    ThreadLost,
    /// Kinds beyond the number that is counted separately.
    Other,
}

impl fmt::Display for FaultKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FaultKind::WrongBytes => out.write_str("wrong bytes"),
            FaultKind::WrongLength => out.write_str("wrong length"),
            FaultKind::Missing => out.write_str("missing value"),
            FaultKind::WrongReply => out.write_str("wrong reply"),
            FaultKind::ServerError(code) => write!(out, "server error {}", printable(code)),
            FaultKind::ConnectionLost => out.write_str("connection lost"),
            FaultKind::NoReply => out.write_str("no reply"),
            FaultKind::ConnectFailed => out.write_str("connect failed"),
            FaultKind::Refused => out.write_str("refused by the client"),
            FaultKind::NotSent => out.write_str("not sent"),
            FaultKind::NotPopulated => out.write_str("keys not written"),
            FaultKind::ThreadLost => out.write_str("thread lost"),
            FaultKind::Other => out.write_str("other errors"),
        }
    }
}

/// The faults of one test.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Faults {
    counts: BTreeMap<FaultKind, u64>,
    first: Vec<Fault>,
    /// What to do about them, if they do not say so themselves.
    advice: Option<&'static str>,
}

impl Faults {
    /// Counts `fault`, and keeps it if it is one of the first.
    pub(crate) fn add(&mut self, fault: Fault) {
        self.add_many(fault, 1);
    }

    /// Counts `fault` `times` times, and keeps it once if it is one of the first.
    pub(crate) fn add_many(&mut self, fault: Fault, times: u64) {
        let known = self.counts.contains_key(&fault.kind) || self.counts.len() < KINDS;
        let kind = if known { fault.kind.clone() } else { FaultKind::Other };
        *self.counts.entry(kind).or_default() += times;
        self.keep(fault);
    }

    /// Keeps a fault, unless enough are kept or one like it is.
    fn keep(&mut self, fault: Fault) {
        if self.first.len() < KEPT && !self.first.contains(&fault) {
            self.first.push(fault);
        }
    }

    /// Adds the faults of another run of the same test.
    pub(crate) fn merge(&mut self, other: Faults) {
        for (kind, count) in other.counts {
            *self.counts.entry(kind).or_default() += count;
        }
        other.first.into_iter().for_each(|fault| self.keep(fault));
        self.advice = self.advice.or(other.advice);
    }

    /// Adds what to do about them.
    pub(crate) fn advise(&mut self, advice: &'static str) {
        self.advice = Some(advice);
    }

    /// Changes the texts that are kept.
    pub(crate) fn rewrite(&mut self, text: impl Fn(&str) -> String) {
        for fault in &mut self.first {
            fault.detail = text(&fault.detail);
        }
    }

    /// Whether nothing went wrong.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// How many requests have a fault.
    pub fn total(&self) -> u64 {
        self.counts.values().sum()
    }

    /// Number of faults per kind, in a fixed order.
    pub fn counts(&self) -> impl Iterator<Item = (&FaultKind, u64)> {
        self.counts.iter().map(|(kind, &count)| (kind, count))
    }

    /// The first few faults that differ, in full.
    pub fn first(&self) -> &[Fault] {
        &self.first
    }

    /// What to do about them, if that is known and they do not say so themselves.
    pub fn advice(&self) -> Option<&'static str> {
        self.advice
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(kind: FaultKind) -> Fault {
        Fault { kind, detail: "GET key:000000000001".to_owned() }
    }

    #[test]
    fn all_faults_are_counted_and_the_first_of_each_text_kept() {
        let mut faults = Faults::default();
        for _ in 0..100 {
            faults.add(fault(FaultKind::WrongBytes));
        }
        faults.add(fault(FaultKind::ServerError("OOM".to_owned())));
        assert_eq!(faults.total(), 101);
        assert_eq!(faults.first().len(), 2);
        let counts: Vec<_> = faults.counts().map(|(kind, count)| (kind.to_string(), count)).collect();
        assert_eq!(counts, [("wrong bytes".to_owned(), 100), ("server error OOM".to_owned(), 1)]);
        let again = faults.clone();
        faults.merge(again);
        assert_eq!((faults.total(), faults.first().len()), (202, 2));
    }

    #[test]
    fn a_text_of_the_server_cannot_move_the_cursor() {
        let kind = FaultKind::ServerError("\x1b[2J".to_owned());
        let fault = Fault { kind, detail: "SET k: \x1b[2J\rit can't be set".to_owned() };
        assert_eq!(fault.to_string(), r"server error \u{1b}[2J: SET k: \u{1b}[2J\rit can't be set");
    }

    #[test]
    fn of_faults_that_all_differ_a_few_are_kept() {
        let mut faults = Faults::default();
        for n in 0..100 {
            faults.add(Fault { kind: FaultKind::WrongBytes, detail: n.to_string() });
        }
        assert_eq!((faults.total(), faults.first().len()), (100, KEPT));
    }

    #[test]
    fn endless_error_codes_do_not_fill_memory() {
        let mut faults = Faults::default();
        for code in 0..10_000 {
            faults.add(fault(FaultKind::ServerError(code.to_string())));
        }
        assert_eq!(faults.total(), 10_000);
        assert!(faults.counts().count() <= KINDS + 1);
    }
}
