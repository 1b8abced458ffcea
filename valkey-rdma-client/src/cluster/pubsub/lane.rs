//! [`Lane`]: the subscriptions that share a connection, and the task that keeps them on the right node.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;
use tracing::debug;
use valkey_rdma_resp::ServerErrorKind;

use crate::cluster::commands::Access;
use crate::cluster::core::{Core, Place};
use crate::cluster::node::Node;
use crate::cluster::redirect::Verdict;
use crate::cluster::tries::{Target, Tries};
use crate::error::Error;
use crate::pubsub::{Event, SlowConsumer, Subscriber, Subscription};

/// A request to change subscriptions, with a waiting caller.
pub(super) struct Order {
    pub(super) kind: Subscription,
    pub(super) subscribe: bool,
    pub(super) names: Vec<Bytes>,
    pub(super) done: oneshot::Sender<Result<(), Error>>,
}

/// Subscriptions of one slot, or all channels and patterns.
pub(super) struct Lane {
    core: Arc<Core>,
    slot: Option<u16>,
    orders: mpsc::Receiver<Order>,
    events: mpsc::Sender<Event>,
    capacity: usize,
    slow: SlowConsumer,
    wanted: BTreeSet<(Subscription, Bytes)>,
    /// An order that has to be repeated on another node.
    postponed: Option<Order>,
}

/// Why the lane leaves a connection.
enum Leave {
    /// The subscriber was dropped, or the client closed.
    Ended,
    /// It was lost, or another node has the slot.
    Moved,
}

impl Lane {
    pub(super) fn new(
        core: Arc<Core>,
        slot: Option<u16>,
        orders: mpsc::Receiver<Order>,
        events: mpsc::Sender<Event>,
        capacity: usize,
        slow: SlowConsumer,
    ) -> Self {
        Self { core, slot, orders, events, capacity, slow, wanted: BTreeSet::new(), postponed: None }
    }

    pub(super) async fn run(mut self) {
        let mut attempts = 0;
        loop {
            let core = self.core.clone();
            let events = self.events.clone();
            let opened = tokio::select! {
                opened = self.open() => opened,
                () = core.closed() => return,
                () = events.closed() => return,
            };
            match opened {
                Ok((node, subscriber)) => {
                    attempts = 0;
                    if let Leave::Ended = self.serve(&node, subscriber).await {
                        return;
                    }
                    self.core.request_refresh();
                }
                Err(error) => {
                    debug!(error = %format_args!("{error:#}"), slot = ?self.slot, "subscriptions are not restored yet");
                    self.core.request_refresh();
                    tokio::select! {
                        () = sleep(self.core.backoff().wait(attempts)) => {}
                        () = core.closed() => return,
                        () = events.closed() => return,
                    }
                    attempts += 1;
                }
            }
        }
    }

    /// Connects to the right node, and restores what is wanted.
    async fn open(&mut self) -> Result<(Arc<Node>, Subscriber), Error> {
        let target = self.slot.map_or(Target::Any, |slot| Target::Slot(slot, Access::Write));
        let mut tries = Tries::new(&self.core, target, None, "SUBSCRIBE".to_owned());
        loop {
            let place = tries.next().await?;
            match self.restore(&place).await {
                Ok(subscriber) => {
                    if !self.wanted.is_empty() {
                        // The queue may be full; then this waits for room.
                        let _gone = self.events.send(Event::Reconnected).await;
                    }
                    return Ok((place.node, subscriber));
                }
                Err(error) => tries.failed(&place, error, true).await?,
            }
        }
    }

    async fn restore(&self, place: &Place) -> Result<Subscriber, Error> {
        let subscriber = place.client.subscriber_with(self.capacity, self.slow).await.inspect_err(|_| {
            // The next try connects anew.
            place.node.lost(&place.client);
        })?;
        for kind in [Subscription::Channel, Subscription::Pattern, Subscription::Shard] {
            let names: Vec<_> =
                self.wanted.iter().filter(|(of, _)| *of == kind).map(|(_, name)| name).collect();
            subscriber.subscribe(kind, names).await?;
        }
        Ok(subscriber)
    }

    async fn serve(&mut self, node: &Arc<Node>, mut subscriber: Subscriber) -> Leave {
        let core = self.core.clone();
        let mut changes = core.topology.changes();
        if let Some(order) = self.postponed.take()
            && let Some(leave) = self.carry_out(order, node, &subscriber).await
        {
            return leave;
        }
        loop {
            tokio::select! {
                event = subscriber.next() => match event {
                    // The server has given the slot away.
                    Ok(Event::Ended { .. }) => return Leave::Moved,
                    Ok(event) => {
                        if self.events.send(event).await.is_err() {
                            return Leave::Ended;
                        }
                    }
                    Err(error) => {
                        debug!(error = %format_args!("{error:#}"), "subscriptions lost");
                        return Leave::Moved;
                    }
                },
                order = self.orders.recv() => match order {
                    None => return Leave::Ended,
                    Some(order) => {
                        if let Some(leave) = self.carry_out(order, node, &subscriber).await {
                            return leave;
                        }
                    }
                },
                Ok(()) = changes.changed() => {
                    let map = core.topology.map();
                    let stays = match self.slot {
                        Some(slot) => map.is_primary_of(slot, node),
                        None => map.nodes().into_iter().any(|known| Arc::ptr_eq(known, node)),
                    };
                    if !stays {
                        return Leave::Moved;
                    }
                }
                () = core.closed() => return Leave::Ended,
            }
        }
    }

    /// Changes subscriptions on the connection. Returns why it must be left, if it must.
    async fn carry_out(&mut self, order: Order, node: &Node, subscriber: &Subscriber) -> Option<Leave> {
        let outcome = match order.subscribe {
            true => subscriber.subscribe(order.kind, &order.names).await,
            false => subscriber.unsubscribe(order.kind, &order.names).await,
        };
        match &outcome {
            Ok(()) => {
                for name in &order.names {
                    let subscription = (order.kind, name.clone());
                    match order.subscribe {
                        true => self.wanted.insert(subscription),
                        false => self.wanted.remove(&subscription),
                    };
                }
            }
            Err(Error::Server(error)) if error.kind() == ServerErrorKind::Moved => {
                if let Verdict::Moved(slot, address) = Verdict::of(error, node.address()) {
                    self.core.topology.moved(slot, &address);
                    self.postponed = Some(order);
                    return Some(Leave::Moved);
                }
            }
            Err(Error::Lost(_)) => {
                self.postponed = Some(order);
                return Some(Leave::Moved);
            }
            Err(_) => {}
        }
        // The caller may have gone away.
        let _gone = order.done.send(outcome);
        None
    }
}
