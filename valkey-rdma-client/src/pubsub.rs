//! [`Subscriber`]: published messages as a stream.

// A `Subscriber` is the program's side. A task (`task.rs`) keeps the subscriptions of one server, or of one slot of a cluster: it owns the
// connection and the changes that are not confirmed (`changes.rs`), and makes the next connection.

use bytes::Bytes;
use valkey_rdma_resp::ServerError;

mod changes;
mod outbox;
mod shared;
mod silence;
mod subscriber;
mod task;
#[cfg(test)]
mod tests;

pub(crate) use self::shared::{Shared, Status, TaskHandle};
pub(crate) use self::silence::SilenceCheck;
pub(crate) use self::subscriber::Slots;
pub use self::subscriber::Subscriber;
pub(crate) use self::task::{Judgement, Left, Source, Task};

/// Default capacity of a subscriber's event queue: a number of events, of whatever size.
pub const DEFAULT_CAPACITY: usize = 1024;

/// What happens if a subscriber takes messages more slowly than they arrive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SlowConsumer {
    /// Messages are dropped while the queue is full, and [`Event::Missed`] reports how many. The default.
    #[default]
    Drop,
    /// The subscriber ends with [`LostCause::SlowConsumer`](crate::LostCause::SlowConsumer), and its connections are closed: as servers end
    /// clients that do not read. What found room in the queue can still be read before that. In a cluster too, one full queue ends all of it.
    Disconnect,
}

/// An event of a subscriber.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A message.
    Message(Message),
    /// This many messages were dropped here, because the subscriber was too slow.
    Missed(u64),
    /// A connection was lost, or left for another server or because its server took no subscriptions then, and its subscriptions are restored
    /// on a new one, except those [refused](Self::Refused). Messages published in between are lost. Messages on already restored subscriptions may arrive before
    /// this event.
    Reconnected,
    /// The server has ended a subscription unasked: the slot of a shard channel has moved to another node. A client of a cluster follows
    /// the slot instead, and reports [`Reconnected`](Self::Reconnected).
    Ended {
        /// Kind of the subscription.
        to: Subscription,
        /// The name or pattern.
        name: Bytes,
    },
    /// A subscription of the lost connection is refused on the new one. Or the server takes no subscriptions now, and the caller of this
    /// one has gone away. In both cases it is requested again on the next connection.
    Refused {
        /// Kind of the subscription.
        to: Subscription,
        /// The name or pattern.
        name: Bytes,
        /// Why.
        error: ServerError,
    },
    /// The connection was lost, and the server does not accept the login for the next one, or requires one. The subscriber goes on trying,
    /// because the login may be mended. Reported once for each loss of each connection.
    LoginRefused {
        /// Why.
        error: ServerError,
    },
}

/// A published message.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Message {
    /// The channel it was published on.
    pub channel: Bytes,
    /// The matching pattern, for a subscription to a pattern.
    pub pattern: Option<Bytes>,
    /// The message itself.
    pub payload: Bytes,
}

/// Kinds of subscriptions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Subscription {
    /// A channel by name: SUBSCRIBE.
    Channel,
    /// All channels that match a pattern: PSUBSCRIBE.
    Pattern,
    /// A shard channel: SSUBSCRIBE.
    Shard,
}

/// Names of channels, or patterns: text or bytes in an array, a vector or another iterator.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a list of names",
    note = "give a list, also of one name: `[\"news\"]`"
)]
pub trait Names {
    /// Returns the names.
    fn into_names(self) -> Vec<Bytes>;
}

// What the compiler would ask for instead is of no use to the caller.
#[diagnostic::do_not_recommend]
impl<I: IntoIterator<Item: AsRef<[u8]>>> Names for I {
    fn into_names(self) -> Vec<Bytes> {
        self.into_iter().map(|name| Bytes::copy_from_slice(name.as_ref())).collect()
    }
}
