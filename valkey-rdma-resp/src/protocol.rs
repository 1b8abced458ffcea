//! [`Protocol`]: the version of the protocol.

use std::fmt;

/// Version of the RESP protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// RESP2: every server speaks it, and every connection starts with it.
    Resp2,
    /// RESP3: adds maps, sets, doubles, booleans and out-of-band messages.
    #[default]
    Resp3,
}

impl Protocol {
    /// 2 or 3.
    #[must_use]
    pub fn version(self) -> u8 {
        match self {
            Self::Resp2 => 2,
            Self::Resp3 => 3,
        }
    }
}

/// `resp2` or `resp3`.
impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Resp2 => "resp2",
            Self::Resp3 => "resp3",
        })
    }
}
