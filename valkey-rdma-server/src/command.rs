//! One command as a peer sent it.

use bytes::Bytes;

/// A command and its arguments, binary safe. It always has a name.
///
/// **Memory**: an argument of [`LARGE`](Self::LARGE) bytes or more has an allocation of its own; a shorter one is
/// a slice of the connection's read buffer and keeps all of it alive. To store an argument beyond
/// the call, take it with [`keep`](Self::keep).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    words: Vec<Bytes>,
}

impl Command {
    /// Length in bytes from which on an argument owns its memory.
    pub const LARGE: usize = 16 * 1024;

    /// A command as a peer would have sent it, for testing handlers.
    pub fn new(name: impl Into<Bytes>, args: impl IntoIterator<Item = impl Into<Bytes>>) -> Self {
        let words = std::iter::once(name.into()).chain(args.into_iter().map(Into::into)).collect();
        Self { words }
    }

    /// A command from what the parser found. `None` if that is not even a name.
    pub(crate) fn from_words(words: Vec<Bytes>) -> Option<Self> {
        if words.is_empty() { None } else { Some(Self { words }) }
    }

    /// The name as sent: case varies between clients.
    pub fn name(&self) -> &[u8] {
        &self.words[0]
    }

    /// Whether this is command `name`, in any case.
    pub fn is(&self, name: &str) -> bool {
        self.name().eq_ignore_ascii_case(name.as_bytes())
    }

    /// The arguments after the name.
    pub fn args(&self) -> &[Bytes] {
        &self.words[1..]
    }

    /// Bytes of the arguments.
    pub(crate) fn len(&self) -> usize {
        self.args().iter().map(Bytes::len).sum()
    }

    /// The whole command in a form that may be stored for long: see [`keep`](Self::keep).
    pub(crate) fn kept(&self) -> Self {
        let keep = |word: &Bytes| {
            if word.len() >= Self::LARGE { word.clone() } else { Bytes::copy_from_slice(word) }
        };
        Self { words: self.words.iter().map(keep).collect() }
    }

    /// Argument `index` (0 is the first after the name) in a form that may be stored for long: without a copy if it is
    /// [`LARGE`](Self::LARGE), else as a copy that pins nothing else. `None` if there are fewer arguments.
    pub fn keep(&self, index: usize) -> Option<Bytes> {
        let arg = self.args().get(index)?;
        Some(if arg.len() >= Self::LARGE { arg.clone() } else { Bytes::copy_from_slice(arg) })
    }
}
