//! [`UnexpectedReply`]: a reply that does not convert, and where it came from.

use std::fmt;

use crate::value::Value;

/// A reply of another type than the caller asked for.
///
/// The text says which member of the reply does not convert, and which command it answers where that is known:
/// `LRANGE: member 2 of the reply: expected an integer of 64 bits, got a string of 1 bytes`. A value of a map goes by its key:
/// `HGETALL: "age" of the reply: expected an integer of 64 bits, got a string of 1 bytes`.
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
    members: Vec<Member>,
}

/// Where a value is in what contains it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Member {
    /// `None` for a value that is missing.
    index: Option<usize>,
    /// The key of a value in a map, if it is short text.
    key: Option<String>,
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

    /// An error for a field that a reply must have and does not.
    ///
    /// ```
    /// use valkey_rdma_resp::UnexpectedReply;
    ///
    /// let error = UnexpectedReply::missing("age").in_reply_to("HGETALL");
    /// assert_eq!(error.to_string(), "HGETALL: \"age\" of the reply: expected a value, got nothing; ask for an Option where a value may be missing");
    /// ```
    #[must_use]
    pub fn missing(field: impl Into<String>) -> Self {
        Self::new("a value", NOTHING).at(None, Some(field.into()))
    }

    /// Says that the value is the member of an array or set with this index, or is in the pair of a map with this index.
    #[must_use]
    pub fn within(self, index: usize) -> Self {
        self.at(Some(index), None)
    }

    /// Says that the value is in the pair of a map with this index and this key. The text names the key if it is short.
    pub(crate) fn within_pair(self, index: usize, key: &Value) -> Self {
        let name = match key {
            Value::Int(number) => Some(number.to_string()),
            other => other.as_str().filter(|name| name.len() <= LONGEST_NAME).map(str::to_owned),
        };
        self.at(Some(index), name)
    }

    fn at(mut self, index: Option<usize>, key: Option<String>) -> Self {
        self.origin.get_or_insert_default().members.push(Member { index, key });
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
    /// from 0. Empty for the reply itself, and for a field that is missing in it.
    #[must_use]
    pub fn members(&self) -> Vec<usize> {
        self.places().rev().filter_map(|member| member.index).collect()
    }

    /// The innermost first.
    fn places(&self) -> impl DoubleEndedIterator<Item = &Member> {
        self.origin.iter().flat_map(|origin| &origin.members)
    }

    /// Takes the index of the outermost member away: what is left is about that member alone.
    pub fn take_outermost(&mut self) -> Option<usize> {
        self.origin.as_mut()?.members.pop_if(|member| member.index.is_some())?.index
    }
}

impl fmt::Display for UnexpectedReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(command) = self.command() {
            write!(f, "{command}: ")?;
        }
        for member in self.places() {
            match (&member.key, member.index) {
                (Some(key), _) => write!(f, "{key:?} of ")?,
                (None, Some(index)) => write!(f, "member {index} of ")?,
                (None, None) => {}
            }
        }
        if self.places().next().is_some() {
            f.write_str("the reply: ")?;
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

/// Keys of more bytes are not part of a text.
const LONGEST_NAME: usize = 64;
