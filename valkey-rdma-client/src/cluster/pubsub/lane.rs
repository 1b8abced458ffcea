//! [`Lane`]: the subscriptions that share a connection, and the task that keeps them on the right node.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use tracing::debug;
use valkey_rdma_resp::ServerError;

use crate::cluster::core::{Core, Place};
use crate::cluster::node::Node;
use crate::cluster::redirect::Verdict;
use crate::cluster::tries::{Target, Tries};
use crate::config::STABLE_AFTER;
use crate::error::{ClusterError, Error};
use crate::pubsub::{Event, Outbox, SlowConsumer, Subscriber, Subscription, SubscriptionRequest};
use crate::resp::command_table::Access;

/// Subscriptions of one slot, or all channels and patterns.
pub(super) struct Lane {
    core: Arc<Core>,
    slot: Option<u16>,
    orders: mpsc::Receiver<SubscriptionRequest>,
    capacity: usize,
    slow: SlowConsumer,
    wanted: BTreeSet<(Subscription, Bytes)>,
    /// The order to carry out on the next connection.
    postponed: Option<SubscriptionRequest>,
}

/// A connection on which everything wanted is subscribed.
struct Opened {
    node: Arc<Node>,
    subscriber: Subscriber,
    /// What the program must know of it.
    reports: Vec<Event>,
}

impl Lane {
    pub(super) fn new(
        core: Arc<Core>,
        slot: Option<u16>,
        orders: mpsc::Receiver<SubscriptionRequest>,
        capacity: usize,
        slow: SlowConsumer,
    ) -> Self {
        let capacity = capacity.max(1);
        Self { core, slot, orders, capacity, slow, wanted: BTreeSet::new(), postponed: None }
    }

    /// Ends when the client is closed, or the program drops its end of `events`.
    pub(super) async fn run(self, events: mpsc::Sender<Event>) {
        let core = self.core.clone();
        tokio::select! {
            () = self.work(Outbox::new(events.clone())) => {}
            () = core.ended() => {}
            () = events.closed() => {}
        }
    }

    async fn work(mut self, mut outbox: Outbox) {
        let mut attempts = 0;
        loop {
            if self.wanted.is_empty() && self.postponed.is_none() {
                // No connection is kept for no subscriptions.
                let Some(order) = beside(&mut outbox, self.orders.recv()).await else { return };
                if order.subscribe {
                    self.postponed = Some(order);
                } else {
                    answer(order, Ok(()));
                }
                continue;
            }
            match beside(&mut outbox, self.open()).await {
                Ok(Opened { node, subscriber, reports }) => {
                    let born = Instant::now();
                    reports.into_iter().for_each(|event| outbox.report(event));
                    self.serve(&node, subscriber, &mut outbox).await;
                    if born.elapsed() > STABLE_AFTER || self.wanted.is_empty() {
                        attempts = 0;
                    } else {
                        // A server that ends each connection at once gets growing waits too.
                        beside(&mut outbox, sleep(self.core.topology.backoff().wait(attempts))).await;
                        attempts += 1;
                    }
                }
                Err(error) => {
                    debug!(error = %format_args!("{error:#}"), slot = ?self.slot, "subscriptions are not restored yet");
                    self.core.request_refresh();
                    if let Error::Cluster(ClusterError::Redirected { .. }) = error
                        && let Some(order) = self.postponed.take()
                    {
                        answer(order, Err(error));
                    }
                    beside(&mut outbox, sleep(self.core.topology.backoff().wait(attempts))).await;
                    attempts += 1;
                }
            }
        }
    }

    /// Connects to the right node, restores what is wanted, and carries out the postponed order.
    async fn open(&mut self) -> Result<Opened, Error> {
        let core = self.core.clone();
        let target = self.slot.map_or(Target::Any, |slot| Target::Slot(slot, Access::Write));
        let mut tries = Tries::new(&core, target, None, "SUBSCRIBE".to_owned()).apart();
        loop {
            let place = tries.next().await?;
            match self.open_at(&place).await {
                Ok(opened) => return Ok(opened),
                Err(error) => tries.failed(&place, error, true).await?,
            }
        }
    }

    async fn open_at(&mut self, place: &Place) -> Result<Opened, Error> {
        let subscriber = place.client.subscriber_with(self.capacity, self.slow).await?;
        let mut reports = self.restore(&place.node, &subscriber).await?;
        if !self.wanted.is_empty() {
            reports.push(Event::Reconnected);
        }
        if let Some(order) = self.postponed.take() {
            self.carry_out(order, &place.node, &subscriber).await?;
        }
        Ok(Opened { node: place.node.clone(), subscriber, reports })
    }

    /// Subscribes to what is wanted. Returns events about what the server refuses, which stays wanted.
    async fn restore(&self, node: &Node, subscriber: &Subscriber) -> Result<Vec<Event>, Error> {
        let mut refused = Vec::new();
        for kind in [Subscription::Channel, Subscription::Pattern, Subscription::Shard] {
            let names: Vec<_> =
                self.wanted.iter().filter(|(of, _)| *of == kind).map(|(_, name)| name).collect();
            match subscriber.subscribe(kind, &names).await {
                Err(Error::Server(error)) if is_refusal(&error, node) => {}
                outcome => {
                    outcome?;
                    continue;
                }
            }
            // One by one, so that only the offending ones are refused.
            for name in names {
                match subscriber.subscribe(kind, [name]).await {
                    Err(Error::Server(error)) if is_refusal(&error, node) => {
                        refused.push(Event::Refused { to: kind, name: name.clone(), error });
                    }
                    outcome => outcome?,
                }
            }
        }
        Ok(refused)
    }

    /// Keeps the subscriptions until the connection must be left, or they have all ended.
    async fn serve(&mut self, node: &Arc<Node>, mut subscriber: Subscriber, outbox: &mut Outbox) {
        let core = self.core.clone();
        let mut changes = core.topology.changes();
        // The map may have changed while the connection was made.
        changes.mark_changed();
        while !self.wanted.is_empty() {
            tokio::select! {
                () = outbox.flush(), if !outbox.is_empty() => {}
                event = subscriber.next(), if outbox.is_empty() => match event {
                    // The server has given the slot away.
                    Ok(Event::Ended { .. }) => break,
                    Ok(event) => outbox.push(event),
                    Err(error) => {
                        debug!(error = %format_args!("{error:#}"), "subscriptions lost");
                        break;
                    }
                },
                // Without a sender, the lane ends soon.
                Some(order) = self.orders.recv() => {
                    if self.carry_out(order, node, &subscriber).await.is_err() {
                        break;
                    }
                }
                Ok(()) = changes.changed() => {
                    let map = core.topology.map();
                    let stays = match self.slot {
                        Some(slot) => map.is_primary_of(slot, node),
                        None => map.nodes().iter().any(|known| Arc::ptr_eq(known, node)),
                    };
                    if !stays {
                        break;
                    }
                }
            }
        }
        // What came before the end.
        let mut missed = 0;
        while let Some(event) = subscriber.received() {
            match event {
                Event::Ended { .. } => {}
                Event::Message(_) if outbox.len() >= self.capacity => missed += 1,
                event => outbox.push(event),
            }
        }
        if missed > 0 {
            outbox.push(Event::Missed(missed));
        }
        if !self.wanted.is_empty() {
            core.request_refresh();
        }
    }

    /// Changes subscriptions on the connection. An error means that another connection is needed: the order is postponed.
    async fn carry_out(
        &mut self,
        order: SubscriptionRequest,
        node: &Node,
        subscriber: &Subscriber,
    ) -> Result<(), Error> {
        let mut outcome = match order.subscribe {
            true => subscriber.subscribe(order.kind, &order.names).await,
            false => subscriber.unsubscribe(order.kind, &order.names).await,
        };
        let elsewhere = match &outcome {
            Err(Error::Lost(_)) => true,
            Err(Error::Server(error)) => matches!(Verdict::of(error, node.address()), Verdict::Moved(..)),
            _ => false,
        };
        if elsewhere && order.subscribe {
            self.postponed = Some(order);
            return outcome;
        }
        if elsewhere {
            // Subscriptions end with their connection, and on a node that has given their slot away.
            outcome = Ok(());
        }
        // What timed out is requested all the same.
        if let Ok(()) | Err(Error::TimedOut(_)) = outcome {
            for name in &order.names {
                let subscription = (order.kind, name.clone());
                match order.subscribe {
                    true => self.wanted.insert(subscription),
                    false => self.wanted.remove(&subscription),
                };
            }
        }
        answer(order, outcome);
        Ok(())
    }
}

/// True if the server does not allow a subscription, rather than sending it elsewhere or asking for patience.
fn is_refusal(error: &ServerError, node: &Node) -> bool {
    Verdict::of(error, node.address()) == Verdict::Final
}

fn answer(order: SubscriptionRequest, outcome: Result<(), Error>) {
    // The caller may have gone away.
    let _gone = order.done.send(outcome);
}

/// Runs `work`, and passes events on meanwhile.
async fn beside<T>(outbox: &mut Outbox, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    loop {
        tokio::select! {
            done = &mut work => return done,
            () = outbox.flush(), if !outbox.is_empty() => {}
        }
    }
}
