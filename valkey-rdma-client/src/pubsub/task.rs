//! The task behind a subscriber: owns the connection, and makes the next one.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;
use tracing::{debug, warn};

use super::{Event, Message, Shared, SlowConsumer, Subscription};
use crate::command::Command;
use crate::connect::Connector;
use crate::error::{Error, LostCause};
use crate::value::Value;
use crate::wire::Wire;

/// A change of subscriptions that somebody waits for.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) kind: Subscription,
    pub(super) subscribe: bool,
    pub(super) names: Vec<Bytes>,
    pub(super) done: oneshot::Sender<Result<(), Error>>,
}

/// A command that is not confirmed in full.
struct Pending {
    kind: Subscription,
    subscribe: bool,
    names: Vec<Bytes>,
    /// Confirmations still to come, one per name.
    missing: usize,
    done: Vec<oneshot::Sender<Result<(), Error>>>,
}

pub(super) struct Task {
    wire: Wire,
    connector: Arc<Connector>,
    orders: mpsc::Receiver<Order>,
    events: mpsc::Sender<Event>,
    shared: Arc<Shared>,
    slow: SlowConsumer,
    /// What should be subscribed to, confirmed or not.
    wanted: BTreeSet<(Subscription, Bytes)>,
    pending: VecDeque<Pending>,
    /// Dropped, and not told yet.
    missed: u64,
}

/// Why a connection is no longer served.
enum Stop {
    /// The subscriber is gone.
    Gone,
    Lost(LostCause),
}

impl Task {
    pub(super) fn new(
        wire: Wire,
        connector: Arc<Connector>,
        orders: mpsc::Receiver<Order>,
        events: mpsc::Sender<Event>,
        shared: Arc<Shared>,
        slow: SlowConsumer,
    ) -> Self {
        let (wanted, pending) = (BTreeSet::new(), VecDeque::new());
        Self { wire, connector, orders, events, shared, slow, wanted, pending, missed: 0 }
    }

    pub(super) async fn run(mut self) {
        loop {
            let cause = match self.serve().await {
                Stop::Gone => return,
                Stop::Lost(cause) => cause,
            };
            warn!(peer = %self.shared.peer, %cause, "subscriptions lost");
            let for_good = matches!(cause, LostCause::SlowConsumer);
            if for_good || !self.reconnect().await {
                // The first cause stands; waiters learn of it as their senders are dropped.
                let _first = self.shared.end.set(Arc::new(cause));
                return;
            }
            if let Err(Stop::Lost(cause)) = self.resubscribe().await {
                debug!(%cause, "lost again");
            }
        }
    }

    async fn serve(&mut self) -> Stop {
        loop {
            let missed = self.missed;
            let tell = async { self.events.send(Event::Missed(missed)).await.is_ok() };
            let outcome = tokio::select! {
                order = self.orders.recv() => match order {
                    Some(order) => self.carry_out(order).await,
                    None => Err(Stop::Gone),
                },
                value = self.wire.receive() => match value {
                    Ok(value) => self.take(value),
                    Err(cause) => Err(Stop::Lost(cause)),
                },
                told = tell, if missed > 0 => {
                    self.missed = 0;
                    if told { Ok(()) } else { Err(Stop::Gone) }
                },
            };
            if let Err(stop) = outcome {
                return stop;
            }
        }
    }

    async fn carry_out(&mut self, order: Order) -> Result<(), Stop> {
        let Order { kind, subscribe, names, done } = order;
        for name in &names {
            if subscribe {
                self.wanted.insert((kind, name.clone()));
            } else {
                self.wanted.remove(&(kind, name.clone()));
            }
        }
        self.send(kind, subscribe, names, vec![done]).await
    }

    async fn send(
        &mut self,
        kind: Subscription,
        subscribe: bool,
        names: Vec<Bytes>,
        done: Vec<oneshot::Sender<Result<(), Error>>>,
    ) -> Result<(), Stop> {
        let command = names.iter().fold(Command::new(verb(kind, subscribe)), Command::arg);
        self.wire.outbox.push(&command);
        self.pending.push_back(Pending { kind, subscribe, missing: names.len(), names, done });
        self.wire.flush().await.map_err(Stop::Lost)
    }

    fn take(&mut self, value: Value) -> Result<(), Stop> {
        let items = match value {
            // RESP2 has no push messages, and nothing else is ever asked for here.
            Value::Push(items) | Value::Array(items) => items,
            Value::Error(error) => {
                let Some(refused) = self.pending.pop_front() else { return Ok(()) };
                for name in refused.names {
                    self.wanted.remove(&(refused.kind, name));
                }
                for done in refused.done {
                    drop(done.send(Err(error.clone().into())));
                }
                return Ok(());
            }
            _ => return Ok(()),
        };
        let mut words = items.into_iter().map(|item| item.into_bytes().unwrap_or_default());
        let kind = words.next().unwrap_or_default();
        let mut word = || words.next().unwrap_or_default();
        match &kind[..] {
            b"message" | b"smessage" => {
                let message = Message { channel: word(), pattern: None, payload: word() };
                self.deliver(Event::Message(message))
            }
            b"pmessage" => {
                let pattern = Some(word());
                self.deliver(Event::Message(Message { channel: word(), pattern, payload: word() }))
            }
            other => {
                self.confirm(other);
                Ok(())
            }
        }
    }

    /// Counts a confirmation towards the oldest command without all of its. A server also ends subscriptions unasked,
    /// when a slot moves; that confirms nothing.
    fn confirm(&mut self, verb_said: &[u8]) {
        let Some(oldest) = self.pending.front_mut() else { return };
        if !verb(oldest.kind, oldest.subscribe).as_bytes().eq_ignore_ascii_case(verb_said) {
            return;
        }
        oldest.missing -= 1;
        if oldest.missing == 0
            && let Some(confirmed) = self.pending.pop_front()
        {
            for done in confirmed.done {
                drop(done.send(Ok(())));
            }
        }
    }

    fn deliver(&mut self, event: Event) -> Result<(), Stop> {
        if self.missed == 0 {
            match self.events.try_send(event) {
                Ok(()) => return Ok(()),
                Err(mpsc::error::TrySendError::Closed(_)) => return Err(Stop::Gone),
                Err(mpsc::error::TrySendError::Full(_)) => {}
            }
        }
        match self.slow {
            SlowConsumer::Disconnect => Err(Stop::Lost(LostCause::SlowConsumer)),
            SlowConsumer::Drop => {
                self.missed += 1;
                self.shared.missed.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
        }
    }

    /// `false` if it may not, or nobody wants it any more.
    async fn reconnect(&mut self) -> bool {
        let Some(backoff) = self.connector.config.reconnect else { return false };
        for attempt in 0.. {
            sleep(backoff.wait(attempt)).await;
            if self.events.is_closed() {
                return false;
            }
            match self.connector.connect().await {
                Ok(wire) => {
                    self.wire = wire;
                    return true;
                }
                Err(error) => debug!(%error, attempt, "not connected"),
            }
        }
        false
    }

    /// Asks for all that is wanted. Who waited for a confirmation gets it with the last of these.
    async fn resubscribe(&mut self) -> Result<(), Stop> {
        let mut waiting: Vec<_> = self.pending.drain(..).flat_map(|pending| pending.done).collect();
        let wanted: Vec<_> = self.wanted.iter().cloned().collect();
        self.deliver(Event::Reconnected)?;
        // One by one: shards' channels may lie in different slots.
        let last = wanted.len().saturating_sub(1);
        for (at, (kind, name)) in wanted.into_iter().enumerate() {
            let done = if at == last { std::mem::take(&mut waiting) } else { Vec::new() };
            self.send(kind, true, vec![name], done).await?;
        }
        for done in waiting {
            drop(done.send(Ok(())));
        }
        Ok(())
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
