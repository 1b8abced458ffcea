//! [`Protocol`]: the version of the protocol. The limits of replies.

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

/// The deepest nesting of aggregates that is returned. Valkey's own replies stay below 10. A [`Value`](crate::Value) is dropped, copied
/// and printed recursively, so the limit must fit the stack of any thread: 1024 levels of a debug build take 2 MiB.
pub const MAX_DEPTH: usize = 128;
/// The longest line that is returned, in bytes: a status, an error, a number, a length. Valkey's own lines stay below 64 KiB.
pub const MAX_LINE: usize = 1024 * 1024;
/// The largest string accepted, in bytes: 16 GiB, or 1 GiB where addresses have 32 bits and no buffer can have 2 GiB.
/// Valkey's limit, `proto-max-bulk-len`, is 512 MiB by default.
pub const MAX_STRING: u64 = if usize::BITS < 64 { 1 << 30 } else { 16 << 30 };
/// The most members of one aggregate accepted, as in Valkey's own parser.
pub const MAX_MEMBERS: u64 = i32::MAX as u64;

/// Replaces what is nested too deeply.
pub(crate) const TOO_DEEP: &str = "ERR the reply is nested too deeply";
