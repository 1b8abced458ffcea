//! [`Lane`]: the subscriptions that share a connection, and the task that keeps them on the right node.

use std::collections::{BTreeSet, VecDeque};
use std::future::pending;
use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::debug;
use valkey_rdma_resp::ServerError;

use super::standing::Standing;
use crate::cluster::call::{ClusterCall, Redirection, Target};
use crate::cluster::core::{Core, Place};
use crate::cluster::node::Node;
use crate::command::table::Access;
use crate::config::STABLE_AFTER;
use crate::error::{ClusterError, Error, LostCause};
use crate::link::Deadline;
use crate::pubsub::{Event, Outbox, SlowConsumer, Subscriber, Subscription, SubscriptionRequest};

/// The most orders that wait for a connection. More wait in the queue of their callers.
const MAX_WAITING: usize = 1024;

/// Subscriptions of one slot, or all channels and patterns.
pub(super) struct Lane {
    core: Arc<Core>,
    slot: Option<u16>,
    orders: mpsc::Receiver<SubscriptionRequest>,
    capacity: usize,
    slow: SlowConsumer,
    outbox: Outbox,
    wanted: BTreeSet<(Subscription, Bytes)>,
    /// The orders to carry out on the next connection.
    waiting: VecDeque<Waiting>,
    standing: Arc<Standing>,
    /// Since when there is no connection.
    offline_since: Instant,
    /// True once the server has given the slot away.
    is_given_away: bool,
}

/// An order that waits for a connection.
struct Waiting {
    order: SubscriptionRequest,
    /// When it fails without one.
    due: Option<Deadline>,
}

impl Lane {
    pub(super) fn new(
        core: Arc<Core>,
        slot: Option<u16>,
        orders: mpsc::Receiver<SubscriptionRequest>,
        standing: Arc<Standing>,
        events: mpsc::Sender<Event>,
        (capacity, slow): (usize, SlowConsumer),
    ) -> Self {
        Self {
            core,
            slot,
            orders,
            capacity: capacity.max(1),
            slow,
            outbox: Outbox::new(events),
            wanted: BTreeSet::new(),
            waiting: VecDeque::new(),
            standing,
            offline_since: Instant::now(),
            is_given_away: false,
        }
    }

    /// Returns when the program was too slow, and wants its subscriptions to end then. Returns without an error if the program has gone.
    pub(super) async fn run(&mut self) -> Result<(), Error> {
        let mut attempts = 0;
        loop {
            if self.wanted.is_empty() && self.waiting.is_empty() {
                // No connection is kept for no subscriptions.
                let order = tokio::select! {
                    order = self.orders.recv() => order,
                    () = self.outbox.flush_until_dropped() => return Ok(()),
                };
                let Some(order) = order else { return Ok(()) };
                match order.subscribe {
                    true => self.wait(order),
                    false => answer(order, Ok(())),
                }
                continue;
            }
            let (outcome, is_stable) = match self.open().await {
                Ok((node, subscriber)) => {
                    let born = Instant::now();
                    let outcome = self.serve(&node, subscriber).await;
                    (outcome, born.elapsed() > STABLE_AFTER)
                }
                Err(error) => (Err(error), false),
            };
            let was_online = self.standing.is_online();
            if was_online {
                self.offline_since = Instant::now();
            }
            self.standing.set_offline();
            if let Err(error) = outcome {
                if is_too_slow(&error) {
                    // What came before is delivered first.
                    self.outbox.flush().await;
                    return Err(error);
                }
                debug!(error = %format_args!("{error:#}"), slot = ?self.slot, "subscriptions lost, or not restored yet");
                self.standing.set_failed(&error);
                if is_final(&error) {
                    self.waiting.drain(..).for_each(|waiting| answer(waiting.order, Err(error.clone())));
                }
            }
            if !self.wanted.is_empty() {
                self.core.request_refresh();
            }
            if is_stable || (self.wanted.is_empty() && self.waiting.is_empty()) {
                attempts = 0;
                continue;
            }
            // A server that ends each connection at once gets growing waits too.
            let mut reached = self.core.topology.reached();
            let pause = self.core.topology.backoff().wait(attempts);
            let pause = async move {
                tokio::select! {
                    () = sleep(pause) => {}
                    // The network is there again, perhaps.
                    _ = reached.changed(), if !was_online => {}
                }
            };
            self.meanwhile(None, pause).await?;
            attempts += 1;
        }
    }

    /// Connects to the right node, restores what is wanted, and carries out the waiting orders.
    async fn open(&mut self) -> Result<(Arc<Node>, Subscriber), Error> {
        let core = self.core.clone();
        let target = self.slot.map_or(Target::Any, |slot| Target::Slot(slot, Access::Write));
        let mut call = ClusterCall::new(&core, target, None, "SUBSCRIBE").repeatable(true).dedicated();
        loop {
            let place = self.meanwhile(None, call.next()).await??;
            match self.open_at(&place).await {
                Ok(subscriber) => return Ok((place.node, subscriber)),
                Err(error) if is_too_slow(&error) => return Err(error),
                Err(error) => {
                    // The subscriptions were restored, and a waiting order has failed: orders wait from now on.
                    if self.standing.is_online() {
                        self.offline_since = Instant::now();
                    }
                    self.standing.set_failed(&error);
                    self.meanwhile(None, call.failed(&place, error)).await??;
                }
            }
        }
    }

    async fn open_at(&mut self, place: &Place) -> Result<Subscriber, Error> {
        self.is_given_away = false;
        let connecting = place.client.subscriber_with(self.capacity, self.slow);
        let mut subscriber = self.meanwhile(None, connecting).await??;
        self.restore(&place.node, &mut subscriber).await?;
        if !self.wanted.is_empty() {
            self.outbox.report(Event::Reconnected);
        }
        self.fail_late();
        self.standing.set_online();
        while let Some(Waiting { order, .. }) = self.waiting.pop_front() {
            self.carry_out(order, &place.node, &mut subscriber).await?;
        }
        Ok(subscriber)
    }

    /// Subscribes to what is wanted. Reports what the server refuses, which stays wanted.
    async fn restore(&mut self, node: &Node, subscriber: &mut Subscriber) -> Result<(), Error> {
        for kind in [Subscription::Channel, Subscription::Pattern, Subscription::Shard] {
            let names: Vec<_> =
                self.wanted.iter().filter(|(of, _)| *of == kind).map(|(_, name)| name.clone()).collect();
            let together = subscriber.request(kind, true, names.clone());
            match self.meanwhile(Some(subscriber), together).await? {
                Err(Error::Server(error)) if is_refusal(&error, node) => {}
                outcome => {
                    outcome?;
                    continue;
                }
            }
            // One by one, so that only the offending ones are refused.
            for name in names {
                let alone = subscriber.request(kind, true, vec![name.clone()]);
                match self.meanwhile(Some(subscriber), alone).await? {
                    Err(Error::Server(error)) if is_refusal(&error, node) => {
                        self.outbox.report(Event::Refused { to: kind, name, error });
                    }
                    outcome => outcome?,
                }
            }
        }
        Ok(())
    }

    /// Keeps the subscriptions until the connection must be left, or they have all ended.
    async fn serve(&mut self, node: &Arc<Node>, mut subscriber: Subscriber) -> Result<(), Error> {
        let outcome = self.attend(node, &mut subscriber).await;
        // What came before the end.
        let mut missed = 0;
        while let Some(event) = subscriber.received() {
            match event {
                Event::Ended { .. } => {}
                Event::Message(_) if self.outbox.len() >= self.capacity => missed += 1,
                event => self.outbox.push(event),
            }
        }
        if missed > 0 {
            self.outbox.push(Event::Missed(missed));
        }
        outcome
    }

    async fn attend(&mut self, node: &Arc<Node>, subscriber: &mut Subscriber) -> Result<(), Error> {
        let core = self.core.clone();
        let mut changes = core.topology.changes();
        // The map may have changed while the connection was made.
        changes.mark_changed();
        while !self.wanted.is_empty() && !self.is_given_away {
            tokio::select! {
                () = self.outbox.flush(), if !self.outbox.is_empty() => {}
                event = subscriber.next(), if self.outbox.is_empty() => self.pass_on(event?),
                // Without a sender, the lane ends soon.
                Some(order) = self.orders.recv() => self.carry_out(order, node, subscriber).await?,
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
        Ok(())
    }

    /// Passes an event of the connection on.
    fn pass_on(&mut self, event: Event) {
        match event {
            Event::Ended { .. } => self.is_given_away = true,
            event => self.outbox.push(event),
        }
    }

    /// Changes subscriptions on the connection. An error means that another connection is needed: the order waits for it.
    async fn carry_out(
        &mut self,
        order: SubscriptionRequest,
        node: &Node,
        subscriber: &mut Subscriber,
    ) -> Result<(), Error> {
        let request = subscriber.request(order.kind, order.subscribe, order.names.clone());
        let outcome = self.meanwhile(Some(subscriber), request).await.and_then(|answered| answered);
        match outcome {
            Err(error) if is_elsewhere(&error, node) => {
                // Its caller may know already that it is requested.
                if order.subscribe && !order.deadline.is_some_and(Deadline::has_passed) {
                    let due = self.due(&order);
                    self.waiting.push_front(Waiting { order, due });
                } else {
                    self.note(&order);
                    // Subscriptions end with their connection, and on a node that has given their slot away.
                    answer(order, Ok(()));
                }
                Err(error)
            }
            outcome => {
                // What timed out is requested all the same.
                if let Ok(()) | Err(Error::TimedOut(_)) = outcome {
                    self.note(&order);
                }
                answer(order, outcome);
                Ok(())
            }
        }
    }

    /// Notes what is wanted from now on.
    fn note(&mut self, order: &SubscriptionRequest) {
        for name in &order.names {
            let subscription = (order.kind, name.clone());
            match order.subscribe {
                true => self.wanted.insert(subscription),
                false => self.wanted.remove(&subscription),
            };
        }
    }

    /// Does `work`, and passes events on meanwhile, so that none finds a full queue although the program takes them. Without a connection,
    /// takes orders too, and fails those that are late. Fails itself if the connection ends.
    async fn meanwhile<T>(
        &mut self,
        mut subscriber: Option<&mut Subscriber>,
        work: impl Future<Output = T>,
    ) -> Result<T, Error> {
        let mut work = pin!(work);
        loop {
            let is_online = self.standing.is_online();
            let due = self.waiting.iter().filter_map(|waiting| Some(waiting.due?.at)).min();
            let event = async {
                match &mut subscriber {
                    Some(subscriber) => subscriber.next().await,
                    None => pending().await,
                }
            };
            tokio::select! {
                done = &mut work => return Ok(done),
                () = self.outbox.flush(), if !self.outbox.is_empty() => {}
                event = event, if self.outbox.is_empty() => self.pass_on(event?),
                Some(order) = self.orders.recv(), if !is_online && self.waiting.len() < MAX_WAITING => {
                    self.wait(order);
                }
                () = sleep_until(due.unwrap_or_else(Instant::now)), if !is_online && due.is_some() => self.fail_late(),
            }
        }
    }

    /// Lets an order wait for a connection.
    fn wait(&mut self, order: SubscriptionRequest) {
        // If its time was up before the connection was lost, its caller knows that it is requested.
        let was_late = order.deadline.is_some_and(|deadline| deadline.at <= self.offline_since);
        let due = if was_late { None } else { self.due(&order) };
        self.waiting.push_back(Waiting { order, due });
    }

    /// When an order fails that waits from now on: by its own limit, or as commands do.
    fn due(&self, order: &SubscriptionRequest) -> Option<Deadline> {
        let patience = self.core.config.node.offline_timeout.and_then(Deadline::after);
        order.deadline.into_iter().chain(patience).min_by_key(|deadline| deadline.at)
    }

    /// Fails the orders that have waited for too long.
    fn fail_late(&mut self) {
        for waiting in std::mem::take(&mut self.waiting) {
            match waiting.due.filter(|due| due.has_passed()) {
                Some(due) => answer(waiting.order, Err(self.standing.late(&self.core, self.slot, due))),
                None => self.waiting.push_back(waiting),
            }
        }
    }
}

/// True if the server does not allow a subscription, rather than sending it elsewhere or asking for patience.
fn is_refusal(error: &ServerError, node: &Node) -> bool {
    Redirection::of(error, node.address()) == Redirection::Final
}

/// True if a change needs another connection.
fn is_elsewhere(error: &Error, node: &Node) -> bool {
    match error {
        Error::Lost(_) => true,
        Error::Server(error) => matches!(Redirection::of(error, node.address()), Redirection::Moved(..)),
        _ => false,
    }
}

/// True if waiting does not change what keeps subscriptions from being made.
fn is_final(error: &Error) -> bool {
    match error {
        Error::Cluster(ClusterError::Redirected { .. }) => true,
        Error::Connect(refused) => refused.cause().refuses_user(),
        _ => false,
    }
}

/// True if the program was too slow, and wants its subscriptions to end then.
fn is_too_slow(error: &Error) -> bool {
    matches!(error, Error::Lost(lost) if matches!(lost.cause(), LostCause::SlowConsumer))
}

fn answer(order: SubscriptionRequest, outcome: Result<(), Error>) {
    // The caller may have gone away.
    let _gone = order.done.send(outcome);
}
