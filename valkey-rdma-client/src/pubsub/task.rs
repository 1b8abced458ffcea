//! The task behind a subscriber: owns the connection, and makes the next one.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tracing::{info, warn};
use valkey_rdma_resp::{ServerError, Value};

use super::outage::Outage;
use super::outbox::Outbox;
use super::request::SubscriptionRequest;
use super::silence::SilenceCheck;
use super::{Event, Message, Shared, SlowConsumer, Subscription};
use crate::command::Command;
use crate::error::{Chain, Error, LostCause};
use crate::link::Deadline;
use crate::link::{Connector, RawConnection, Redialer, Registration};

/// The most unconfirmed commands; beyond it, no request is taken.
pub(super) const MAX_PENDING: usize = 1024;
/// The most names in one command that restores subscriptions.
const MAX_NAMES: usize = 256;

/// A command that is not fully confirmed.
pub(super) struct Pending {
    kind: Subscription,
    subscribe: bool,
    names: Vec<Bytes>,
    /// The names that it added to the wanted set, or removed.
    changed: Vec<Bytes>,
    /// Confirmations outstanding, one per name.
    missing: usize,
    /// The waiting caller; `None` for a restored subscription.
    pub(super) done: Option<oneshot::Sender<Result<(), Error>>>,
    /// Until when the caller waits.
    pub(super) deadline: Option<Deadline>,
    /// Until when it waits for a connection, while there is none.
    pub(super) offline_deadline: Option<Instant>,
}

pub(super) struct Task {
    pub(super) raw: RawConnection,
    pub(super) connector: Arc<Connector>,
    pub(super) orders: mpsc::Receiver<SubscriptionRequest>,
    pub(super) shared: Arc<Shared>,
    slow: SlowConsumer,
    /// The wanted subscriptions, confirmed or not.
    wanted: BTreeSet<(Subscription, Bytes)>,
    pub(super) pending: VecDeque<Pending>,
    /// How many of `pending` restore subscriptions.
    pub(super) resubscribing: usize,
    pub(super) silence: SilenceCheck,
    /// Events other than messages wait in it for room. They are never dropped.
    pub(super) outbox: Outbox,
    /// Its entry in the client's registry, while it has no connection.
    pub(super) lost: Option<Registration>,
    /// The last time without a connection, which may last still.
    pub(super) outage: Option<Outage>,
    /// True while a change waits for a connection, and fails without one.
    pub(super) is_awaited: Arc<AtomicBool>,
}

/// Why serving a connection ended.
enum Stop {
    /// The subscriber was dropped.
    Gone,
    Lost(LostCause),
}

impl Task {
    pub(super) fn new(
        raw: RawConnection,
        connector: Arc<Connector>,
        orders: mpsc::Receiver<SubscriptionRequest>,
        events: mpsc::Sender<Event>,
        shared: Arc<Shared>,
        slow: SlowConsumer,
    ) -> Self {
        let silence = SilenceCheck::new(&raw, &connector.config);
        Self {
            raw,
            silence,
            connector,
            orders,
            shared,
            slow,
            wanted: BTreeSet::new(),
            pending: VecDeque::new(),
            resubscribing: 0,
            outbox: Outbox::new(events),
            lost: None,
            outage: None,
            is_awaited: Arc::default(),
        }
    }

    pub(super) async fn run(mut self) {
        let connector = self.connector.clone();
        let mut redialer = Redialer::of(&connector);
        redialer.iter_mut().for_each(Redialer::connected);
        loop {
            let cause = match self.serve().await {
                Stop::Gone => return,
                Stop::Lost(cause) => Arc::new(cause),
            };
            warn!(peer = %self.shared.peer, cause = %Chain(&*cause), "subscriptions lost");
            let is_restored = match &mut redialer {
                Some(redialer) if !matches!(*cause, LostCause::SlowConsumer) => {
                    redialer.lost();
                    self.disconnected(&cause);
                    self.reconnect(redialer).await
                }
                _ => false,
            };
            if !is_restored {
                // The first cause stands. Waiting callers are notified because their senders are dropped.
                let _first = self.shared.end.set(cause);
                return;
            }
            info!(peer = %self.shared.peer, connection = %self.raw.info, "subscriber connected again");
            self.restore();
        }
    }

    async fn serve(&mut self) -> Stop {
        loop {
            let outcome = tokio::select! {
                biased;
                order = self.orders.recv(), if self.takes_orders() => match order {
                    Some(order) => {
                        self.apply(order);
                        Ok(())
                    }
                    None => Err(Stop::Gone),
                },
                value = self.silence.receive(&mut self.raw, !self.pending.is_empty()) => match value {
                    Ok(value) => self.take(value),
                    Err(cause) => Err(Stop::Lost(cause)),
                },
                () = self.outbox.flush_until_dropped() => Err(Stop::Gone),
            };
            if let Err(stop) = outcome {
                return stop;
            }
        }
    }

    /// False while too many are unconfirmed, or the server owes the answer to a PING: whose error reply that is must be clear.
    fn takes_orders(&self) -> bool {
        self.pending.len() < MAX_PENDING && !self.silence.owes_pong
    }

    fn apply(&mut self, order: SubscriptionRequest) {
        // Its caller got this error already: the change is not requested.
        let outage = self.outage.as_ref().zip(order.deadline);
        if let Some(why) = outage.and_then(|(outage, deadline)| outage.reason_of(deadline)) {
            drop(order.done.send(Err(why)));
            return;
        }
        let pending = self.note(order);
        self.send(pending);
    }

    /// Notes what is wanted from now on.
    pub(super) fn note(&mut self, order: SubscriptionRequest) -> Pending {
        let SubscriptionRequest { kind, subscribe, names, deadline, done } = order;
        let mut changed = names.clone();
        changed.retain(|name| {
            let subscription = (kind, name.clone());
            if subscribe { self.wanted.insert(subscription) } else { self.wanted.remove(&subscription) }
        });
        let (missing, done) = (names.len(), Some(done));
        Pending { kind, subscribe, missing, names, changed, done, deadline, offline_deadline: None }
    }

    /// Puts a command into the write buffer. It is sent while the connection is read.
    fn send(&mut self, pending: Pending) {
        let name = verb(pending.kind, pending.subscribe);
        let command = pending.names.iter().fold(Command::new(name), Command::arg);
        self.raw.write_buffer.push(&command);
        self.pending.push_back(pending);
    }

    fn take(&mut self, value: Value) -> Result<(), Stop> {
        let items = match value {
            // RESP2 has no push messages, and no other command is sent here.
            Value::Push(items) | Value::Array(items) => items,
            // The login does not allow PING. That is an answer too.
            Value::Error(_) if self.silence.owes_pong => {
                self.silence.owes_pong = false;
                return Ok(());
            }
            Value::Error(error) => {
                self.refused(error);
                return Ok(());
            }
            // PONG
            _ => {
                self.silence.owes_pong = false;
                return Ok(());
            }
        };
        let mut words = items.into_iter().map(|item| item.into_bytes().unwrap_or_default());
        let kind = words.next().unwrap_or_default();
        let mut word = || words.next().unwrap_or_default();
        match &kind[..] {
            b"message" | b"smessage" => {
                let message = Message { channel: word(), pattern: None, payload: word() };
                self.deliver(message)
            }
            b"pmessage" => {
                let pattern = Some(word());
                self.deliver(Message { channel: word(), pattern, payload: word() })
            }
            other => {
                let name = word();
                // As RESP2 answers PING while subscriptions hold.
                if other == b"pong" {
                    self.silence.owes_pong = false;
                } else if !self.confirm(other, &name) {
                    self.ended(other, name);
                }
                Ok(())
            }
        }
    }

    /// Counts a confirmation for the oldest unconfirmed command. Returns `false` if that is about something else: a server
    /// also ends subscriptions unasked, when a slot moves.
    fn confirm(&mut self, verb_said: &[u8], name: &Bytes) -> bool {
        let Some(oldest) = self.pending.front_mut() else { return false };
        let verb = verb(oldest.kind, oldest.subscribe);
        // Names are confirmed in the order of the command.
        let next = &oldest.names[oldest.names.len() - oldest.missing];
        if !verb.as_bytes().eq_ignore_ascii_case(verb_said) || next != name {
            return false;
        }
        oldest.missing -= 1;
        if oldest.missing == 0
            && let Some(confirmed) = self.pending.pop_front()
        {
            match confirmed.done {
                Some(done) => drop(done.send(Ok(()))),
                None => self.restored(),
            }
        }
        true
    }

    /// The server ends a subscription unasked.
    fn ended(&mut self, verb_said: &[u8], name: Bytes) {
        let kinds = [Subscription::Channel, Subscription::Pattern, Subscription::Shard];
        let is_it = |kind: &Subscription| verb(*kind, false).as_bytes().eq_ignore_ascii_case(verb_said);
        if let Some(to) = kinds.into_iter().find(is_it)
            && self.wanted.remove(&(to, name.clone()))
        {
            self.outbox.report(Event::Ended { to, name });
        }
    }

    /// The server refuses the oldest command, all of it.
    fn refused(&mut self, error: ServerError) {
        let Some(mut refused) = self.pending.pop_front() else { return };
        let Some(done) = refused.done.take() else {
            let Pending { kind, names, .. } = refused;
            if let [name] = &names[..] {
                // It stays wanted: the server may accept it next time.
                self.outbox.report(Event::Refused { to: kind, name: name.clone(), error });
            } else {
                // One by one, so that only the offending ones are refused.
                names.into_iter().for_each(|name| self.restore_some(kind, vec![name]));
            }
            return self.restored();
        };
        self.undo(refused, 0);
        drop(done.send(Err(error.into())));
    }

    /// A command has changed nothing. Those from `later` on in `pending` came after it.
    pub(super) fn undo(&mut self, undone: Pending, later: usize) {
        let Pending { kind, subscribe, changed, .. } = undone;
        for name in changed {
            // Restored subscriptions decide nothing: they follow what is wanted.
            let mut next = self.pending.iter_mut().skip(later).filter(|pending| {
                pending.done.is_some() && pending.kind == kind && pending.names.contains(&name)
            });
            match next.next() {
                // Now it is that one which makes the change, and undoes it.
                Some(next) if next.subscribe == subscribe => {
                    if !next.changed.contains(&name) {
                        next.changed.push(name);
                    }
                }
                // What that one wants was so before both.
                Some(next) => next.changed.retain(|changed| *changed != name),
                None if subscribe => drop(self.wanted.remove(&(kind, name))),
                None => drop(self.wanted.insert((kind, name))),
            }
        }
    }

    fn deliver(&mut self, message: Message) -> Result<(), Stop> {
        match (self.outbox.send_now(Event::Message(message)), self.slow) {
            (Ok(()), _) => Ok(()),
            (Err(TrySendError::Closed(_)), _) => Err(Stop::Gone),
            (Err(TrySendError::Full(_)), SlowConsumer::Disconnect) => {
                Err(Stop::Lost(LostCause::SlowConsumer))
            }
            (Err(TrySendError::Full(_)), SlowConsumer::Drop) => {
                self.shared.missed.fetch_add(1, Ordering::Relaxed);
                self.outbox.miss();
                Ok(())
            }
        }
    }

    /// Subscribes on a new connection to everything wanted, then repeats the requests that were not confirmed on the
    /// old one.
    fn restore(&mut self) {
        let orders = std::mem::take(&mut self.pending);
        let mut wanted = self.wanted.clone();
        for order in orders.iter().filter(|order| order.subscribe) {
            for name in &order.changed {
                wanted.remove(&(order.kind, name.clone()));
            }
        }
        for kind in [Subscription::Channel, Subscription::Pattern, Subscription::Shard] {
            let names: Vec<_> =
                wanted.iter().filter(|(of, _)| *of == kind).map(|(_, name)| name.clone()).collect();
            // Shard channels may belong to different slots.
            let most = if kind == Subscription::Shard { 1 } else { MAX_NAMES };
            for names in names.chunks(most) {
                self.restore_some(kind, names.to_vec());
            }
        }
        for order in orders {
            self.send(Pending { missing: order.names.len(), ..order });
        }
        if self.resubscribing == 0 {
            self.outbox.report(Event::Reconnected);
        }
    }

    fn restore_some(&mut self, kind: Subscription, names: Vec<Bytes>) {
        self.resubscribing += 1;
        let (missing, changed) = (names.len(), Vec::new());
        let (deadline, offline_deadline) = (None, None);
        self.send(Pending {
            kind,
            subscribe: true,
            names,
            changed,
            missing,
            done: None,
            deadline,
            offline_deadline,
        });
    }

    /// A command that restores subscriptions is answered.
    fn restored(&mut self) {
        self.resubscribing -= 1;
        if self.resubscribing == 0 {
            self.outbox.report(Event::Reconnected);
        }
    }
}

fn verb(kind: Subscription, subscribe: bool) -> &'static str {
    match (kind, subscribe) {
        (Subscription::Channel, true) => "SUBSCRIBE",
        (Subscription::Channel, false) => "UNSUBSCRIBE",
        (Subscription::Pattern, true) => "PSUBSCRIBE",
        (Subscription::Pattern, false) => "PUNSUBSCRIBE",
        (Subscription::Shard, true) => "SSUBSCRIBE",
        (Subscription::Shard, false) => "SUNSUBSCRIBE",
    }
}
