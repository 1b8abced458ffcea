//! [`Command`]: one command, as a client sent it.

use bytes::Bytes;

/// A command and its arguments. Both are binary safe, and a command always has a name.
///
/// **Memory**: an argument of at least [`LARGE`](Self::LARGE) bytes has its own allocation. A shorter one is a slice of
/// the connection's read buffer and keeps that whole buffer alive. To store an argument for longer than the call, take
/// it with [`keep`](Self::keep).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    words: Vec<Bytes>,
}

impl Command {
    /// Arguments of at least this many bytes have their own allocation. 16 KiB.
    pub const LARGE: usize = 16 * 1024;

    /// Creates a command as if a client had sent it, for tests of handlers.
    pub fn new(name: impl Into<Bytes>, args: impl IntoIterator<Item = impl Into<Bytes>>) -> Self {
        let words = std::iter::once(name.into()).chain(args.into_iter().map(Into::into)).collect();
        Self { words }
    }

    /// Creates a command from its words. `None` if there is not even a name.
    pub(crate) fn from_words(words: Vec<Bytes>) -> Option<Self> {
        if words.is_empty() { None } else { Some(Self { words }) }
    }

    /// The name as sent. Clients differ in case; compare with [`is`](Self::is).
    pub fn name(&self) -> &[u8] {
        &self.words[0]
    }

    /// Whether the name is `name`, ignoring case.
    pub fn is(&self, name: &str) -> bool {
        self.name().eq_ignore_ascii_case(name.as_bytes())
    }

    /// The arguments after the name.
    pub fn args(&self) -> &[Bytes] {
        &self.words[1..]
    }

    /// Total length of the arguments, in bytes.
    pub fn args_len(&self) -> usize {
        self.args().iter().map(Bytes::len).sum()
    }

    /// Returns a copy of the command that may be stored for long: see [`keep`](Self::keep).
    pub fn kept(&self) -> Self {
        let keep = |word: &Bytes| {
            if word.len() >= Self::LARGE { word.clone() } else { Bytes::copy_from_slice(word) }
        };
        Self { words: self.words.iter().map(keep).collect() }
    }

    /// Returns argument `index` (0 is the first after the name) in a form that may be stored for long: a
    /// [`LARGE`](Self::LARGE) one without a copy, a shorter one as a copy that keeps no other memory alive. `None` if
    /// there are fewer arguments.
    pub fn keep(&self, index: usize) -> Option<Bytes> {
        let arg = self.args().get(index)?;
        Some(if arg.len() >= Self::LARGE { arg.clone() } else { Bytes::copy_from_slice(arg) })
    }
}
