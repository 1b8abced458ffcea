//! [`Subscriptions`]: how many channels, patterns and shard channels a connection has, from the server's confirmations.

use valkey_rdma_resp::{integer, words};

use crate::command::class::Kind;

/// Counts of subscriptions, in the order of [`Kind`].
#[derive(Debug, Default)]
pub(super) struct Subscriptions([i64; 3]);

/// What a frame of pub/sub is.
pub(super) enum Heard {
    Message,
    /// A subscription has begun or ended; `left` of its kind are left.
    Confirmation {
        kind: Kind,
        subscribed: bool,
        left: i64,
    },
}

impl Subscriptions {
    pub(super) fn any(&self) -> bool {
        self.0.iter().any(|count| *count > 0)
    }

    /// Notes a frame: all of it if `whole`, or its first bytes. `None` if it is not of pub/sub.
    pub(super) fn received(&mut self, frame: &[u8], whole: bool) -> Option<Heard> {
        let (name, count) = name_and_count(frame)?;
        let (kind, subscribed) = match &name[..] {
            b"subscribe" => (Kind::Channel, true),
            b"psubscribe" => (Kind::Pattern, true),
            b"ssubscribe" => (Kind::Shard, true),
            b"unsubscribe" => (Kind::Channel, false),
            b"punsubscribe" => (Kind::Pattern, false),
            b"sunsubscribe" => (Kind::Shard, false),
            b"message" | b"pmessage" | b"smessage" => return Some(Heard::Message),
            _ => return None,
        };
        let [channels, patterns, shards] = &mut self.0;
        // The server counts channels and patterns together.
        let before = if kind == Kind::Shard { *shards } else { *channels + *patterns };
        let step = if subscribed { 1 } else { -1 };
        let count = count.filter(|_| whole).unwrap_or(before + step);
        match kind {
            Kind::Channel => *channels = count - *patterns,
            Kind::Pattern => *patterns = count - *channels,
            Kind::Shard => *shards = count,
        }
        Some(Heard::Confirmation { kind, subscribed, left: self.0[kind as usize] })
    }
}

/// The first word of a push message or an array, and its last value, if that is a number: `subscribe`, a channel, a count.
fn name_and_count(frame: &[u8]) -> Option<(Vec<u8>, Option<i64>)> {
    if !matches!(frame.first(), Some(b'>' | b'*')) {
        return None;
    }
    let name = words(frame).next()?.to_ascii_lowercase();
    let last = frame.strip_suffix(b"\r\n").unwrap_or_default().rsplit(|&byte| byte == b'\n').next();
    Some((name, last.and_then(|last| last.strip_prefix(b":")).and_then(integer::parse)))
}
