//! Replies as far as a load tool looks at them: type, length, and whether their bytes are the right ones.
//!
//! Replies are looked at while they arrive and never kept, so that a value of 512 MiB costs no memory.

mod skim;
mod value;

pub(crate) use skim::Skimmer;

/// What a reply's strings must hold.
pub(crate) trait Want {
    /// What the string at `element` of an array (0 for a reply that is a string) must be; `None` if that is not known.
    fn string(&self, element: usize) -> Option<Wanted<'_>>;
}

/// What one string must be.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Wanted<'a> {
    /// Any bytes of this length.
    Len(usize),
    /// These bytes.
    Bytes(&'a [u8]),
}

impl Wanted<'_> {
    fn len(&self) -> usize {
        match self {
            Wanted::Len(len) => *len,
            Wanted::Bytes(bytes) => bytes.len(),
        }
    }

    /// Whether a string is that.
    pub(crate) fn is(&self, got: &[u8]) -> bool {
        match self {
            Wanted::Len(len) => got.len() == *len,
            Wanted::Bytes(bytes) => got == *bytes,
        }
    }
}

/// Knows nothing of any string.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WantNothing;

impl Want for WantNothing {
    fn string(&self, _: usize) -> Option<Wanted<'_>> {
        None
    }
}

/// The type of a reply.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Kind {
    /// No value.
    #[default]
    Nil,
    /// A short text such as `OK`.
    Status,
    /// An error.
    Error,
    /// An integer.
    Integer,
    /// A string.
    Bulk,
    /// An array, a set or a map.
    Array,
    /// Another scalar of RESP3.
    Other,
}

/// How a string differs from what it must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// No string where one must be.
    Missing {
        /// Its length in bytes.
        wanted: usize,
    },
    /// Something else than a string, as a member of an array.
    Type {
        /// Length in bytes of the string.
        wanted: usize,
    },
    /// Another length.
    Length {
        /// In bytes, as received.
        got: usize,
        /// In bytes.
        wanted: usize,
        /// The first byte that differs within the shorter of both, if its bytes were compared.
        first: Option<Byte>,
    },
    /// Other bytes.
    Bytes {
        /// Length of the whole string.
        len: usize,
        /// The first one.
        first: Byte,
    },
}

/// A byte that differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Byte {
    /// Where it is.
    pub(crate) at: usize,
    /// What it is.
    pub(crate) got: u8,
    /// What it must be.
    pub(crate) wanted: u8,
}

/// What was seen of a complete reply.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen {
    /// Its type.
    pub(crate) kind: Kind,
    /// Bytes of a string, members of an array (keys and values of a map).
    pub(crate) len: usize,
    /// The value of an integer.
    pub(crate) integer: i64,
    /// The start of a status or error text, the first error inside an array included.
    text: Text,
    /// Whether an array holds an error.
    pub(crate) holds_error: bool,
    /// The first string that is not what it must be, and which one it is.
    pub(crate) wrong: Option<(usize, Wrong)>,
    /// Bytes of all its strings.
    pub(crate) payload: u64,
}

impl Seen {
    /// The start of a status or error text.
    pub(crate) fn text(&self) -> &[u8] {
        &self.text.bytes[..usize::from(self.text.len)]
    }

    fn set_text(&mut self, text: &[u8]) {
        let len = text.len().min(Text::MOST);
        self.text.bytes[..len].copy_from_slice(&text[..len]);
        self.text.len = len as u8;
    }

    /// Notes how a string differs, if it is the first one that does.
    fn note(&mut self, element: usize, wrong: Wrong) {
        self.wrong.get_or_insert((element, wrong));
    }

    /// Makes it the empty reply, for the next one.
    fn clear(&mut self) {
        (self.kind, self.len, self.integer, self.holds_error) = (Kind::Nil, 0, 0, false);
        (self.text.len, self.wrong, self.payload) = (0, None, 0);
    }
}

/// The start of a text, for messages.
#[derive(Debug, Clone, Copy)]
struct Text {
    bytes: [u8; Text::MOST],
    len: u8,
}

impl Text {
    const MOST: usize = 96;
}

impl Default for Text {
    fn default() -> Text {
        Text { bytes: [0; Text::MOST], len: 0 }
    }
}

/// The first difference between what came at `from` of a string and what must be there.
fn difference(from: usize, got: &[u8], wanted: &[u8]) -> Option<Byte> {
    let wanted = wanted.get(from..).unwrap_or_default();
    let common = got.len().min(wanted.len());
    if got[..common] == wanted[..common] {
        return None;
    }
    let at = got.iter().zip(wanted).position(|(got, wanted)| got != wanted)?;
    Some(Byte { at: from + at, got: got[at], wanted: wanted[at] })
}
