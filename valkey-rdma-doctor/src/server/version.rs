//! The version of a Valkey server.

use std::fmt;

/// The version of a Valkey server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Version(pub(super) u16, pub(super) u16, pub(super) u16);

impl Version {
    /// From the reply to `INFO server`. `None` if it is not a Valkey's.
    pub(super) fn of_info(info: &str) -> Option<Self> {
        let text = super::field(info, "valkey_version")?;
        let mut numbers = text.split('.').map(|number| number.parse().ok());
        Some(Self(numbers.next()??, numbers.next()??, numbers.next()??))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}
