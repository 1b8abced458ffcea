//! [`RdmaPort`]: from the port that a node announces to its RDMA port.

use std::fmt;
use std::str::FromStr;

/// How a client finds the RDMA port of a node. Clusters and Sentinels announce TCP ports only.
///
/// ```
/// use valkey_rdma_client::RdmaPort;
///
/// assert_eq!("+100".parse(), Ok(RdmaPort::Offset(100)));
/// assert_eq!("6380".parse(), Ok(RdmaPort::Fixed(6380)));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RdmaPort {
    /// The same number on both transports: `same`, the default.
    #[default]
    Same,
    /// The announced port plus this number: `+N`.
    Offset(u16),
    /// The same port on every node: `N`.
    Fixed(u16),
    /// Each node is asked once per connect, over TCP, by INFO: `discover`. With TLS, that is encrypted too.
    Discover,
}

impl RdmaPort {
    /// The RDMA port of a node that announces `port`. `None` if the node must be asked, or if the sum exceeds 65535.
    #[must_use]
    pub fn of(self, port: u16) -> Option<u16> {
        match self {
            Self::Same => Some(port),
            Self::Offset(more) => port.checked_add(more),
            Self::Fixed(port) => Some(port),
            Self::Discover => None,
        }
    }
}

impl FromStr for RdmaPort {
    /// What is allowed.
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let number = |digits: &str| digits.parse().ok().filter(|number| *number > 0).ok_or(ALLOWED);
        match (text, text.strip_prefix('+')) {
            ("same", _) => Ok(Self::Same),
            ("discover", _) => Ok(Self::Discover),
            (_, Some(more)) => Ok(Self::Offset(number(more)?)),
            (port, None) => Ok(Self::Fixed(number(port)?)),
        }
    }
}

impl fmt::Display for RdmaPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Same => f.write_str("same"),
            Self::Offset(more) => write!(f, "+{more}"),
            Self::Fixed(port) => write!(f, "{port}"),
            Self::Discover => f.write_str("discover"),
        }
    }
}

const ALLOWED: &str = "same, +N, N or discover, with N from 1 to 65535";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_and_printed_alike() {
        for text in ["same", "+10000", "7000", "discover"] {
            assert_eq!(text.parse::<RdmaPort>().map(|rule| rule.to_string()).as_deref(), Ok(text));
        }
        for wrong in ["", "+", "0", "+0", "65536", "-1", "Same"] {
            assert_eq!(wrong.parse::<RdmaPort>(), Err(ALLOWED), "{wrong}");
        }
    }

    #[test]
    fn a_port_beyond_the_last_is_none() {
        assert_eq!(RdmaPort::Offset(1).of(65534), Some(65535));
        assert_eq!(RdmaPort::Offset(1).of(65535), None);
        assert_eq!(RdmaPort::Fixed(7).of(9), Some(7));
    }
}
