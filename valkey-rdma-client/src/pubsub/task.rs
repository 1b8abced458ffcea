//! [`Task`]: keeps the subscriptions of one server, or of one slot of a cluster. Owns the connection, and makes the next one.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tracing::{debug, info, warn};
use valkey_rdma_resp::{ServerError, ServerErrorKind, Value};

use super::changes::{Changes, Confirmed};
use super::outbox::Outbox;
use super::shared::{Shared, Status, SubscriptionRequest, TaskHandle};
use super::silence::SilenceCheck;
use super::{Event, Message, SlowConsumer, Subscription};
use crate::config::Config;
use crate::error::{Chain, Error, LostCause};
use crate::link::{RawConnection, Redialer, Registration};

mod offline;

use self::offline::Outage;

/// Where the connections of a task come from, and which server has its subscriptions.
pub(crate) trait Source: Send {
    /// True for a slot of a cluster: its connection opens with the first subscription and closes with the last, and follows the slot.
    const IS_SLOT: bool;

    /// How the connection is made again. `None`: its loss ends the subscriber.
    fn redialer(&self) -> Option<Redialer>;

    fn config(&self) -> &Config;

    /// Connects to the server that has the subscriptions now.
    fn connect(&mut self) -> impl Future<Output = Result<RawConnection, Error>> + Send;

    /// Completes when another server than that of this connection has the subscriptions.
    fn moved(&self, raw: &RawConnection) -> BoxFuture<'static, ()>;

    /// What an error reply to a subscription means.
    fn judge(&self, refusal: &ServerError) -> Judgement {
        Judgement::of_one_server(refusal)
    }

    /// True if a server has named another one, which has not confirmed yet: it may know more than [`moved`](Self::moved) does.
    fn is_redirected(&self) -> bool {
        false
    }

    /// The connection was left.
    fn left(&mut self, _why: Left) {}

    /// The server has confirmed all subscriptions, or there are none any more: what is known of redirections is of no use.
    fn settled(&mut self) {}
}

/// What an error reply to a subscription means.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Judgement {
    /// The server does not allow it.
    Final,
    /// Another server has the subscriptions.
    Elsewhere,
    /// The server takes none now.
    NotReady,
}

impl Judgement {
    /// Of a refusal that names no other server. CLUSTERDOWN and TRYAGAIN concern one slot: the server takes other subscriptions.
    pub(crate) fn of_one_server(refusal: &ServerError) -> Self {
        use ServerErrorKind::{Busy, Loading, MasterDown};
        if matches!(refusal.kind(), Busy | Loading | MasterDown) { Self::NotReady } else { Self::Final }
    }
}

/// Why a connection was left.
pub(crate) enum Left {
    Lost(Arc<LostCause>),
    /// Another server has the subscriptions.
    Moved,
    /// As `Moved`, or not now, says this reply.
    Redirected(ServerError),
}

/// Why serving a connection ended.
enum Stop {
    /// The subscriber was dropped.
    Gone,
    /// The program was too slow, and wants its subscriptions to end then.
    TooSlow,
    /// No connection is needed for no subscriptions.
    Idle,
    Left(Left),
}

impl From<LostCause> for Stop {
    fn from(cause: LostCause) -> Self {
        Self::Left(Left::Lost(Arc::new(cause)))
    }
}

/// The current connection.
struct Connection {
    raw: RawConnection,
    silence: SilenceCheck,
}

pub(crate) struct Task {
    /// The slot, in logs.
    slot: Option<u16>,
    orders: mpsc::Receiver<SubscriptionRequest>,
    shared: Arc<Shared>,
    status: Arc<Status>,
    changes: Changes,
    /// Events other than messages wait in it for room. They are never dropped.
    outbox: Outbox,
    /// How long a change waits for a connection.
    offline_timeout: Option<Duration>,
    /// Its entry in the client's registry, while it has no connection.
    lost: Option<Registration>,
    /// The last time without a connection, which may last still.
    outage: Option<Outage>,
    /// True while a change waits for a connection, and fails without one.
    is_awaited: Arc<AtomicBool>,
    /// True from the warning that the server takes no subscriptions now until it has confirmed all.
    is_warned: bool,
}

impl Task {
    /// `None`: the subscriber has ended.
    pub(crate) fn new(
        slot: Option<u16>,
        shared: &Arc<Shared>,
        status: Arc<Status>,
        offline_timeout: Option<Duration>,
    ) -> Option<(TaskHandle, Self)> {
        let (sender, orders) = mpsc::channel(16);
        let task = Self {
            slot,
            orders,
            shared: shared.clone(),
            status: status.clone(),
            changes: Changes::default(),
            outbox: Outbox::new(shared.events()?),
            offline_timeout,
            lost: None,
            outage: None,
            is_awaited: Arc::default(),
            is_warned: false,
        };
        Some((TaskHandle { orders: sender, status }, task))
    }

    /// Keeps the subscriptions until the subscriber ends. `first` is the first connection, if there is one.
    pub(crate) async fn run(mut self, source: impl Source, first: Option<RawConnection>) {
        let shared = self.shared.clone();
        tokio::select! {
            cause = self.keep(source, first) => cause.into_iter().for_each(|cause| shared.finish(cause)),
            // Another task has ended it.
            () = shared.ended() => {}
        }
    }

    /// Returns why the subscriber ends. `None`: it was dropped.
    async fn keep<S: Source>(
        &mut self,
        mut source: S,
        first: Option<RawConnection>,
    ) -> Option<Arc<LostCause>> {
        let mut redialer = source.redialer();
        let mut next = first.map(|raw| Connection::new(raw, &source));
        if next.is_some() {
            redialer.iter_mut().for_each(Redialer::connected);
        }
        loop {
            let mut connection = match next.take() {
                Some(connection) => connection,
                None => match self.connect(&mut source, redialer.as_mut()?).await {
                    Ok(raw) => self.restore(Connection::new(raw, &source), S::IS_SLOT),
                    Err(Stop::Idle) => {
                        source.settled();
                        self.rest().await?;
                        redialer = source.redialer();
                        continue;
                    }
                    Err(_) => return None,
                },
            };
            let left = match self.serve(&mut source, &mut connection).await {
                Stop::Gone => return None,
                Stop::TooSlow => {
                    warn!(peer = %self.shared.peer, "the program takes its messages too slowly: its subscriptions end");
                    return Some(Arc::new(LostCause::SlowConsumer));
                }
                Stop::Idle => continue,
                Stop::Left(left) => left,
            };
            let cause = match &left {
                Left::Lost(cause) => cause.clone(),
                Left::Moved | Left::Redirected(_) => Arc::new(LostCause::Moved),
            };
            match &left {
                // Once per outage: it is asked again every few seconds.
                Left::Redirected(reply) if !S::IS_SLOT && !mem::replace(&mut self.is_warned, true) => {
                    warn!(peer = %self.shared.peer, %reply, "the server does not take subscriptions now");
                }
                Left::Redirected(reply) => debug!(slot = self.slot, %reply, "subscriptions not taken"),
                _ => {
                    warn!(peer = %self.shared.peer, slot = self.slot, cause = %Chain(&*cause), "subscriptions lost");
                }
            }
            let Some(redialer) = &mut redialer else { return Some(cause) };
            match &left {
                Left::Lost(_) => redialer.lost(),
                Left::Moved => redialer.moved(),
                // The connection was of no use: the attempt goes on with another server.
                Left::Redirected(_) if S::IS_SLOT => redialer.redirected(),
                // There is only this one.
                Left::Redirected(_) => redialer.lost(),
            }
            self.disconnected(connection.raw, &left, S::IS_SLOT);
            source.left(left);
        }
    }

    async fn serve<S: Source>(&mut self, source: &mut S, connection: &mut Connection) -> Stop {
        let mut moved = source.moved(&connection.raw);
        let mut is_settled = false;
        loop {
            if self.changes.are_confirmed() {
                if S::IS_SLOT && self.changes.wants_nothing() {
                    return Stop::Idle;
                }
                source.settled();
                (is_settled, self.is_warned) = (true, false);
            }
            let owed = !self.changes.are_confirmed();
            let outcome = tokio::select! {
                biased;
                order = self.orders.recv(), if self.takes_orders(connection) => match order {
                    Some(order) => {
                        self.apply(order, connection);
                        Ok(())
                    }
                    None => Err(Stop::Gone),
                },
                value = connection.silence.receive(&mut connection.raw, owed) => match value {
                    Ok(value) => self.take(value, source, connection),
                    Err(cause) => Err(cause.into()),
                },
                () = self.outbox.flush_until_dropped() => Err(Stop::Gone),
                () = &mut moved, if is_settled || !source.is_redirected() => Err(Stop::Left(Left::Moved)),
            };
            if let Err(stop) = outcome {
                return stop;
            }
        }
    }

    /// False while too many are unconfirmed, or the server owes the answer to a PING: whose error reply that is must be clear.
    fn takes_orders(&self, connection: &Connection) -> bool {
        self.changes.has_room() && !connection.silence.owes_pong
    }

    fn apply(&mut self, order: SubscriptionRequest, connection: &mut Connection) {
        // Its caller got this error already: the change is not requested.
        let outage = self.outage.as_ref().zip(order.deadline);
        if let Some(why) = outage.and_then(|(outage, deadline)| outage.reason_of(deadline)) {
            drop(order.done.send(Err(why)));
            return;
        }
        let pending = self.changes.note(order);
        self.changes.send(pending, &mut connection.raw);
    }

    fn take<S: Source>(&mut self, value: Value, source: &S, connection: &mut Connection) -> Result<(), Stop> {
        let items = match value {
            // RESP2 has no push messages, and no other command is sent here.
            Value::Push(items) | Value::Array(items) => items,
            // The login does not allow PING. That is an answer too.
            Value::Error(_) if connection.silence.owes_pong => {
                connection.silence.owes_pong = false;
                return Ok(());
            }
            Value::Error(error) => return self.refused(error, source, connection),
            // PONG
            _ => {
                connection.silence.owes_pong = false;
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
            // As RESP2 answers PING while subscriptions hold.
            b"pong" => {
                connection.silence.owes_pong = false;
                Ok(())
            }
            other => {
                let name = word();
                match self.changes.confirm(other, &name) {
                    Confirmed::Change => {}
                    Confirmed::Restored => self.outbox.report(Event::Reconnected),
                    Confirmed::Nothing => return self.ended(other, name, S::IS_SLOT),
                }
                Ok(())
            }
        }
    }

    /// The server ends a subscription unasked.
    fn ended(&mut self, verb_said: &[u8], name: Bytes, is_slot: bool) -> Result<(), Stop> {
        let Some(to) = self.changes.ended(verb_said, &name) else { return Ok(()) };
        if is_slot {
            return Err(Stop::Left(Left::Moved));
        }
        self.changes.forget(to, name.clone());
        self.outbox.report(Event::Ended { to, name });
        Ok(())
    }

    /// The server refuses the oldest command, all of it.
    fn refused<S: Source>(
        &mut self,
        error: ServerError,
        source: &S,
        connection: &mut Connection,
    ) -> Result<(), Stop> {
        let Some(oldest) = self.changes.oldest() else { return Ok(()) };
        let judgement = source.judge(&error);
        match judgement {
            Judgement::Elsewhere if !oldest.restores() => {
                // It goes to the next server, unless its caller knows already that it is requested. Subscriptions end with their connection,
                // and on a server that has given their slot away.
                if !oldest.subscribe || oldest.deadline.is_some_and(|deadline| deadline.has_passed()) {
                    self.changes.settle_oldest();
                }
                return Err(Stop::Left(Left::Redirected(error)));
            }
            Judgement::Elsewhere | Judgement::NotReady if oldest.restores() => {
                return Err(Stop::Left(Left::Redirected(error)));
            }
            _ => {}
        }
        let Some(refused) = self.changes.take_oldest() else { return Ok(()) };
        if !refused.restores() {
            if judgement == Judgement::NotReady && refused.subscribe && !refused.is_awaited() {
                // No caller could repeat it.
                self.report_refused(refused.kind, refused.changed, &error);
            } else {
                self.changes.refuse(refused, error.into());
            }
            return Ok(());
        }
        if refused.names.len() == 1 {
            self.report_refused(refused.kind, refused.names, &error);
        } else {
            // One by one, so that only the offending ones are refused.
            for name in refused.names {
                // The program may have unsubscribed since the command was sent.
                if self.changes.wants(refused.kind, &name) {
                    self.changes.restore_some(refused.kind, vec![name], &mut connection.raw);
                }
            }
        }
        if self.changes.one_is_restored() {
            self.outbox.report(Event::Reconnected);
        }
        Ok(())
    }

    /// Reports refused subscriptions that stay wanted: the server may accept them on the next connection. Leaves out those that the program
    /// has unsubscribed meanwhile.
    fn report_refused(&mut self, to: Subscription, names: Vec<Bytes>, error: &ServerError) {
        for name in names {
            if self.changes.wants(to, &name) {
                self.outbox.report(Event::Refused { to, name, error: error.clone() });
            }
        }
    }

    fn deliver(&mut self, message: Message) -> Result<(), Stop> {
        match (self.outbox.send_now(Event::Message(message)), self.shared.slow) {
            (Ok(()), _) => Ok(()),
            (Err(TrySendError::Closed(_)), _) => Err(Stop::Gone),
            (Err(TrySendError::Full(_)), SlowConsumer::Disconnect) => Err(Stop::TooSlow),
            (Err(TrySendError::Full(_)), SlowConsumer::Drop) => {
                self.shared.miss();
                self.outbox.miss();
                Ok(())
            }
        }
    }

    /// Subscribes again on a new connection. The first connection of a slot may restore nothing.
    fn restore(&mut self, mut connection: Connection, is_slot: bool) -> Connection {
        let restores = self.changes.restore(&mut connection.raw, is_slot);
        let info = &connection.raw.info;
        if is_slot && !restores {
            debug!(slot = self.slot, connection = %info, "subscriber connected");
            return connection;
        }
        info!(peer = %self.shared.peer, slot = self.slot, connection = %info, "subscriber connected again");
        if !restores {
            self.outbox.report(Event::Reconnected);
        }
        connection
    }
}

impl Connection {
    fn new(raw: RawConnection, source: &impl Source) -> Self {
        let silence = SilenceCheck::new(&raw, source.config());
        Self { raw, silence }
    }
}

/// The subscriber ends with each of its tasks, also if one panics or is dropped with its runtime.
impl Drop for Task {
    fn drop(&mut self) {
        self.shared.finish(Arc::new(LostCause::Stopped));
    }
}
