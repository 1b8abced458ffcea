//! Messages on their way from the library to the client.

use std::pin::pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tracing::{debug, info};
use valkey_rdma_client::Error;
use valkey_rdma_client::pubsub::{Event, Message};
use valkey_rdma_resp::Reply;

use super::{CAPACITY, Subscriptions};
use crate::command::class::Kind;
use crate::session::inbox::End;
use crate::session::{Closed, Session};

/// A message of a subscription.
pub(super) struct Arrived {
    kind: Kind,
    message: Message,
}

impl Arrived {
    /// What was subscribed to.
    fn name(&self) -> &Bytes {
        self.message.pattern.as_ref().unwrap_or(&self.message.channel)
    }
}

/// Messages of what the client does not know to be subscribed to.
#[derive(Default)]
pub(super) struct Early {
    pub(super) messages: Vec<Arrived>,
    bytes: usize,
}

impl Early {
    fn push(&mut self, arrived: Arrived) {
        self.bytes += arrived.message.channel.len() + arrived.message.payload.len();
        self.messages.push(arrived);
    }
}

/// As the client gets it.
impl From<Arrived> for Reply {
    fn from(Arrived { kind, message }: Arrived) -> Self {
        let word = match kind {
            Kind::Channel => "message",
            Kind::Pattern => "pmessage",
            Kind::Shard => "smessage",
        };
        let parts = message.pattern.into_iter().chain([message.channel, message.payload]);
        Self::Push([Self::bulk(word)].into_iter().chain(parts.map(Self::from)).collect())
    }
}

impl Subscriptions {
    /// The next message for the client. An error ends the client.
    fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Result<Arrived, End>> {
        loop {
            let (is_shard, event) = ready!(self.poll_event(cx));
            match event {
                Ok(Event::Message(message)) => {
                    let kind = match message.pattern {
                        Some(_) => Kind::Pattern,
                        None if is_shard => Kind::Shard,
                        None => Kind::Channel,
                    };
                    let arrived = Arrived { kind, message };
                    if self.has(&arrived) {
                        return Poll::Ready(Ok(arrived));
                    }
                    match &mut self.early {
                        Some(early) if early.messages.len() < CAPACITY => early.push(arrived),
                        Some(_) => return Poll::Ready(Err(End::TooSlow)),
                        // The client has ended the subscription. The node has not confirmed that in time.
                        None => {}
                    }
                }
                Ok(Event::Reconnected) => {
                    info!("subscriptions moved to another connection: messages may be missing")
                }
                Ok(Event::Missed(_)) => return Poll::Ready(Err(End::TooSlow)),
                // It would wait for messages that do not come. On its next connection it logs in anew.
                Ok(Event::LoginRefused { error }) => {
                    info!(%error, "a subscriber is closed: the nodes refuse its login");
                    return Poll::Ready(Err(End::Killed));
                }
                Ok(Event::Refused { .. }) | Err(_) => return Poll::Ready(Err(End::Killed)),
                Ok(event) => debug!(?event, "of a subscription"),
            }
        }
    }

    /// Whether the client has the subscription of a message.
    pub(super) fn has(&mut self, arrived: &Arrived) -> bool {
        self.names(arrived.kind).contains(arrived.name())
    }

    /// The next event, and whether it is of shard channels.
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<(bool, Result<Event, Error>)> {
        for (subscriber, is_shard) in [(&mut self.classic, false), (&mut self.shard, true)] {
            if let Poll::Ready(event) = pin!(subscriber.next()).poll(cx) {
                return Poll::Ready((is_shard, event));
            }
        }
        Poll::Pending
    }
}

impl Session {
    /// Passes on the messages that have come, whether the client reads them or not: the library would keep them, and limit only their number.
    pub(in crate::session) fn put_messages(&mut self, cx: &mut Context<'_>) -> Result<(), End> {
        while let Some(subscriptions) = &mut self.subscriptions {
            let early = subscriptions.early.as_ref().map_or(0, |early| early.bytes);
            let unread = self.out.remaining() + early;
            if subscriptions.unread.poll_too_slow(cx, unread, &self.core.limits()).is_ready() {
                return Err(End::TooSlow);
            }
            let Poll::Ready(message) = subscriptions.poll_message(cx) else { break };
            self.put(&message?.into());
            if let Poll::Ready(Err(Closed)) = self.poll_flush(cx) {
                return Err(End::Gone);
            }
        }
        Ok(())
    }

    /// As [`put_messages`](Self::put_messages), while a command waits.
    pub(in crate::session) fn pass_messages(&mut self, cx: &mut Context<'_>) -> Result<(), Closed> {
        self.put_messages(cx).map_err(|why| {
            self.report_end(why);
            Closed
        })
    }
}
