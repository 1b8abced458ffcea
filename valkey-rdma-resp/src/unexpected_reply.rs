//! [`UnexpectedReply`]: a reply that does not convert, and where it came from.

use std::fmt;

/// A reply of another type than the caller asked for.
///
/// The text says which member of the reply does not convert, and which command it answers where that is known:
/// `LRANGE: member 2 of the reply: expected an integer of 64 bits, got a string of 1 bytes`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnexpectedReply {
    /// The type asked for.
    pub wanted: &'static str,
    /// The reply, or its member: its kind, and its length or number. Never the text of a string, which may be secret.
    pub got: String,
    /// Apart, because errors are moved more often than they are read.
    origin: Option<Box<Origin>>,
}

/// Where a value comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Origin {
    command: Option<String>,
    /// The innermost member first.
    members: Vec<usize>,
}

impl UnexpectedReply {
    /// An error for a value that is not `wanted`. Say what came instead with [`Value::describe`](crate::Value::describe).
    ///
    /// ```
    /// use valkey_rdma_resp::{FromValue, UnexpectedReply, Value};
    ///
    /// struct Yes;
    ///
    /// impl FromValue for Yes {
    ///     fn from_value(value: Value) -> Result<Self, UnexpectedReply> {
    ///         match value.as_str() {
    ///             Some("yes") => Ok(Self),
    ///             _ => Err(UnexpectedReply::new("yes", value.describe())),
    ///         }
    ///     }
    /// }
    ///
    /// let error = Value::Int(7).convert::<Yes>().err().unwrap();
    /// assert_eq!(error.to_string(), "expected yes, got the integer 7");
    /// ```
    #[must_use]
    pub fn new(wanted: &'static str, got: impl Into<String>) -> Self {
        Self { wanted, got: got.into(), origin: None }
    }

    /// Says that the value is the member of an array or set with this index, or is in the pair of a map with this index.
    #[must_use]
    pub fn within(mut self, index: usize) -> Self {
        self.origin.get_or_insert_default().members.push(index);
        self
    }

    /// Says which command the reply answers.
    #[must_use]
    pub fn in_reply_to(mut self, command: impl Into<String>) -> Self {
        self.origin.get_or_insert_default().command = Some(command.into());
        self
    }

    /// Name of the command that the reply answers, if it is known.
    #[must_use]
    pub fn command(&self) -> Option<&str> {
        self.origin.as_ref()?.command.as_deref()
    }

    /// Which member of the reply does not convert: an index in the reply, then one within that member, and so on, each counted
    /// from 0. Empty for the reply itself.
    #[must_use]
    pub fn members(&self) -> Vec<usize> {
        self.origin.iter().flat_map(|origin| origin.members.iter().rev()).copied().collect()
    }

    /// Takes the index of the outermost member away: what is left is about that member alone.
    pub fn take_outermost(&mut self) -> Option<usize> {
        self.origin.as_mut()?.members.pop()
    }
}

impl fmt::Display for UnexpectedReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(command) = self.command() {
            write!(f, "{command}: ")?;
        }
        let members = self.members();
        for (depth, member) in members.iter().rev().enumerate() {
            write!(f, "{}member {member}", if depth == 0 { "" } else { " of " })?;
        }
        if !members.is_empty() {
            f.write_str(" of the reply: ")?;
        }
        write!(f, "expected {}, got {}", self.wanted, self.got)?;
        if self.got == NOTHING {
            f.write_str("; ask for an Option where a value may be missing")?;
        }
        Ok(())
    }
}

impl std::error::Error for UnexpectedReply {}

/// What a reply without a value is called.
pub(crate) const NOTHING: &str = "nothing";
