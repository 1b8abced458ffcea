//! [`Description`]: what Valkey says of a command: where its keys are, whether it writes, which nodes it concerns.

/// A command or subcommand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Description<'a> {
    /// In capital letters.
    pub(crate) name: &'a str,
    pub(crate) access: Access,
    pub(crate) keys: KeyRule<'a>,
    pub(crate) request: Request,
    pub(crate) response: Response,
    /// Of a container such as CONFIG or XGROUP.
    pub(crate) subcommands: &'a [Description<'a>],
}

/// What a command does to the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// It only reads: replicas answer it too, and running it twice does no harm.
    Read,
    Write,
    /// It concerns the server or the connection.
    Neither,
}

/// Where the keys of a command are.
#[derive(Clone, Copy, Debug)]
pub(crate) enum KeyRule<'a> {
    Specs(&'a [KeySpec]),
    /// The first argument alone, as in most commands.
    First,
    /// SORT: the first argument, and what follows the last STORE.
    Sort,
    /// GEORADIUS and GEORADIUSBYMEMBER: the first argument, and what follows the last STORE or STOREDIST.
    Radius,
    /// MIGRATE: the third argument, or everything after KEYS.
    Migrate,
}

/// One group of keys, or of what has a slot like a key: shard channels, the cursor of CLUSTERSCAN.
///
/// Source: valkey.io/topics/key-specs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeySpec {
    pub(crate) begin: Begin,
    pub(crate) find: Find,
}

/// Where a group of keys begins.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Begin {
    /// At this argument; the command's name is number 0.
    Index(usize),
    /// Behind this word, which is searched from this argument on.
    Keyword(Word, usize),
}

/// A short keyword, held in place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Word {
    bytes: [u8; Word::MOST],
    len: usize,
}

impl Word {
    /// Longer than every keyword of Valkey.
    const MOST: usize = 16;

    /// `None` if it is too long.
    pub(crate) const fn new(text: &str) -> Option<Self> {
        let len = text.len();
        let mut bytes = [0; Self::MOST];
        if len > Self::MOST {
            return None;
        }
        let mut at = 0;
        while at < len {
            bytes[at] = text.as_bytes()[at];
            at += 1;
        }
        Some(Self { bytes, len })
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// How a group of keys goes on.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Find {
    /// Up to `last`, counted from the first key, or if negative from the end of the command. With a `limit` above 1, only
    /// the first part of that many: XREAD has as many ids as keys behind STREAMS.
    Range { last: isize, step: usize, limit: usize },
    /// The argument at `count` has the number of keys, and the first is at `first`; both counted from the beginning.
    Counted { count: usize, first: usize, step: usize },
}

/// Which nodes a command concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// The node of its keys, or any node if it has none.
    Default,
    AllNodes,
    /// All primaries.
    AllShards,
    /// Each primary with some of its keys: it can be split.
    MultiShard,
    /// SCAN and CLUSTERSCAN.
    Special,
}

/// What the replies of several nodes amount to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Response {
    /// Arrays are joined, and other replies listed by node.
    Default,
    Sum,
    Min,
    Max,
    And,
    Or,
    /// One of the replies, or the first error.
    AllSucceeded,
    /// The first reply that is not an error.
    OneSucceeded,
    /// Listed by node.
    Special,
}

pub(super) const fn row(
    name: &'static str,
    access: Access,
    keys: KeyRule<'static>,
    request: Request,
    response: Response,
    subcommands: &'static [Description<'static>],
) -> Description<'static> {
    Description { name, access, keys, request, response, subcommands }
}

pub(super) const fn keys(specs: &'static [KeySpec]) -> KeyRule<'static> {
    KeyRule::Specs(specs)
}

pub(super) const fn key(begin: Begin, find: Find) -> KeySpec {
    KeySpec { begin, find }
}

pub(super) const fn keyword(text: &'static str, from: usize) -> Begin {
    match Word::new(text) {
        Some(word) => Begin::Keyword(word, from),
        None => panic!("a keyword of the table is too long"),
    }
}
