//! [`Named`]: a command of direct transfers, such as `BLOB.GET`, which a stock server does not know.

use valkey_rdma_resp::{integer, words};

/// What becomes of the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Get,
    Set,
}

impl Verb {
    /// The server's command.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Set => "SET",
        }
    }
}

/// A command with the prefix of direct transfers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) verb: Verb,
    /// It names memory of the client. Otherwise it means what [`Verb::name`] does, with the same arguments.
    pub(crate) has_ranges: bool,
}

impl Named {
    /// `PREFIX.GET key [range ...]` or `PREFIX.SET key data`, `PREFIX.SET key len range ...`. Of a long one, the first part is enough.
    pub(crate) fn of(command: &[u8], prefix: &str) -> Option<Self> {
        let name = words(command).next()?;
        let (before, suffix) = name.split_at_checked(prefix.len())?;
        if !before.eq_ignore_ascii_case(prefix.as_bytes()) {
            return None;
        }
        let (verb, others) = match &suffix.to_ascii_uppercase()[..] {
            b".GET" => (Verb::Get, 2),
            b".SET" => (Verb::Set, 3),
            _ => return None,
        };
        let end = command.iter().position(|byte| *byte == b'\r')?;
        let count = integer::parse(command.get(1..end)?)?;
        Some(Self { verb, has_ranges: count > others })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::words::encode;

    #[test]
    fn commands_are_known_by_prefix_and_number_of_words() {
        let named = |line: &str| {
            let found = Named::of(&encode(line.split(' ')), "BLOB")?;
            Some((found.verb, found.has_ranges))
        };
        for (line, found) in [
            ("BLOB.GET k", Some((Verb::Get, false))),
            ("blob.get k 1 2 3", Some((Verb::Get, true))),
            ("Blob.Set k data", Some((Verb::Set, false))),
            ("BLOB.SET k 3 1", Some((Verb::Set, true))),
            ("BLOB.SET", Some((Verb::Set, false))),
            ("BLOB.INFO k", None),
            ("BLOB", None),
            ("LOB.GET k", None),
            ("BLOBS.GET k", None),
            ("GET k", None),
        ] {
            assert_eq!(named(line), found, "{line}");
        }
        let long = encode(["BLOB.SET", "k", "data"]);
        assert!(Named::of(&long[..long.len() - 8], "BLOB").is_some(), "its first part is enough");
    }
}
