//! A task without a connection: it makes the next one, and changes of subscriptions wait for it with a time limit.

use std::mem;
use std::pin::pin;
use std::sync::atomic::Ordering;

use tokio::time::Instant;
use tracing::{debug, warn};
use valkey_rdma_resp::ServerError;

use super::{Left, Source, Stop, Task};
use crate::error::{ClusterError, Error, LostConnection};
use crate::link::{Deadline, RawConnection, Redialer, Registration};
use crate::pubsub::Event;
use crate::pubsub::changes::Pending;
use crate::pubsub::shared::SubscriptionRequest;
use crate::runtime::until;

impl Task {
    /// Notes that the connection is lost. Changes that were sent on it wait for the next one.
    pub(super) fn disconnected(&mut self, mut raw: RawConnection, left: &Left, is_slot: bool) {
        let why = match left {
            Left::Lost(cause) => {
                let lost = LostConnection::without_command(self.shared.peer.clone(), cause.clone());
                Some(lost.into())
            }
            // The only server there is.
            Left::Redirected(reply) if !is_slot => Some(reply.clone().into()),
            // That another server has a slot does not explain why the next connection is not made.
            Left::Redirected(_) | Left::Moved => None,
        };
        self.status.disconnected(why);
        self.outage = Some(Outage::new());
        // The next connection of a slot may be to another node.
        self.lost = raw.abandon().filter(|_| !is_slot);
        self.lost.iter().for_each(Registration::set_reconnecting);
        let was_of_use = !matches!(left, Left::Redirected(_));
        self.changes.disconnected(self.offline_deadline(), was_of_use);
    }

    /// Waits for a subscription, without a connection. `None`: the subscriber was dropped.
    pub(super) async fn rest(&mut self) -> Option<()> {
        self.changes.settle_all();
        self.status.rests();
        self.outage = Some(Outage::new());
        while self.changes.wants_nothing() {
            tokio::select! {
                order = self.orders.recv() => match order? {
                    order if order.subscribe => self.wait(order),
                    // The caller may have gone away.
                    order => drop(order.done.send(Ok(()))),
                },
                () = self.outbox.flush_until_dropped() => return None,
            }
        }
        Some(())
    }

    /// Makes the next connection.
    ///
    /// # Errors
    /// [`Stop::Idle`] if there is no subscription to connect for, [`Stop::Gone`] if the subscriber was dropped.
    pub(super) async fn connect<S: Source>(
        &mut self,
        source: &mut S,
        redialer: &mut Redialer,
    ) -> Result<RawConnection, Stop> {
        loop {
            let is_awaited = self.is_awaited.clone();
            let next = redialer.next(|| is_awaited.load(Ordering::Relaxed), source.connect());
            match self.wait_offline(next, S::IS_SLOT).await? {
                Ok(raw) => {
                    // Callers whose time is up may have been given the reason already.
                    let why = self.status.not_connected(self.offline_timeout.unwrap_or_default());
                    self.changes.fail(Pending::is_late, |_| why.clone());
                    self.outage.iter_mut().for_each(|outage| outage.ended(why.clone()));
                    self.status.connected(&raw);
                    self.lost = None;
                    return Ok(raw);
                }
                Err(error) => {
                    let text = format!("{error:#}");
                    if self.outage.as_mut().is_some_and(|outage| outage.warns(&text)) {
                        warn!(peer = %self.shared.peer, slot = self.slot, error = %text, "subscriptions not restored yet");
                    } else {
                        debug!(error = %text, "not connected");
                    }
                    self.status.failed(error.clone());
                    if is_final(&error) {
                        // The server is there, and a longer wait would not help.
                        let waits = |pending: &Pending| pending.is_awaited() || pending.due().is_some();
                        self.changes.fail(waits, |_| error.clone());
                    }
                    if let Some(refusal) = refused_user(&error) {
                        self.report_refused_login(refusal);
                    }
                }
            }
        }
    }

    /// Reports once in each outage that the login is refused: the program would wait for messages without a sign.
    fn report_refused_login(&mut self, refusal: &ServerError) {
        let Some(outage) = self.outage.as_mut().filter(|_| !self.changes.wants_nothing()) else { return };
        if !mem::replace(&mut outage.has_reported_login, true) {
            self.outbox.report(Event::LoginRefused { error: refusal.clone() });
        }
    }

    /// Waits for `work`, takes requests meanwhile, and fails those that have waited too long.
    async fn wait_offline<T>(&mut self, work: impl Future<Output = T>, is_slot: bool) -> Result<T, Stop> {
        let mut work = pin!(work);
        loop {
            if is_slot && self.changes.wants_nothing() {
                return Err(Stop::Idle);
            }
            let due = self.changes.due();
            self.is_awaited.store(due.is_some(), Ordering::Relaxed);
            tokio::select! {
                done = &mut work => return Ok(done),
                () = self.outbox.flush_until_dropped() => return Err(Stop::Gone),
                order = self.orders.recv(), if self.changes.has_room() => match order {
                    Some(order) => self.wait(order),
                    None => return Err(Stop::Gone),
                },
                () = until(due) => self.fail_late(),
            }
        }
    }

    /// Notes a change that waits for a connection.
    fn wait(&mut self, order: SubscriptionRequest) {
        let mut pending = self.changes.note(order);
        // Its caller learned before the outage that it stays requested.
        let outage = self.outage.as_ref().zip(pending.deadline);
        if outage.is_some_and(|(outage, deadline)| outage.began_after(deadline)) {
            pending.deadline = None;
        } else {
            pending.offline_deadline = self.offline_deadline();
        }
        self.changes.wait(pending);
    }

    /// Fails the changes that have waited too long for a connection.
    fn fail_late(&mut self) {
        let status = &self.status;
        let offline_timeout = self.offline_timeout.unwrap_or_default();
        self.changes.fail(Pending::is_late, |pending| {
            let own = pending.deadline.filter(|deadline| deadline.has_passed());
            status.not_connected(own.map_or(offline_timeout, |deadline| deadline.limit))
        });
    }

    /// Until when a change waits for a connection that comes now.
    fn offline_deadline(&self) -> Option<Instant> {
        self.offline_timeout.and_then(|limit| Instant::now().checked_add(limit))
    }
}

/// True if waiting does not change what keeps subscriptions from being made.
fn is_final(error: &Error) -> bool {
    matches!(error, Error::Cluster(ClusterError::Redirected { .. })) || refused_user(error).is_some()
}

/// What the server says, if it does not accept the user.
fn refused_user(error: &Error) -> Option<&ServerError> {
    match error {
        Error::Connect(refused) if refused.cause().refuses_user() => error.server(),
        _ => None,
    }
}

/// The most reasons that are logged as warnings: a reason may contain something that differs each time.
const MAX_WARNINGS: usize = 8;

/// A time without a connection of a subscriber.
pub(super) struct Outage {
    begin: Instant,
    /// When it ended, and its last reason.
    end: Option<(Instant, Error)>,
    /// The reasons that are logged.
    warned: Vec<String>,
    /// True once the program knows that the login is refused.
    has_reported_login: bool,
}

impl Outage {
    fn new() -> Self {
        Self { begin: Instant::now(), end: None, warned: Vec::new(), has_reported_login: false }
    }

    /// Notes that there is a connection again.
    fn ended(&mut self, why: Error) {
        self.end = Some((Instant::now(), why));
    }

    /// True the first time for each reason: it is logged as a warning then. False after the most warnings.
    fn warns(&mut self, reason: &str) -> bool {
        let warns = self.warned.len() < MAX_WARNINGS && !self.warned.iter().any(|warned| warned == reason);
        if warns {
            self.warned.push(reason.to_owned());
        }
        warns
    }

    /// True if a change with this deadline failed before the connection was lost: the change stays requested.
    fn began_after(&self, deadline: Deadline) -> bool {
        deadline.at <= self.begin
    }

    /// Why a change with this deadline failed while there was no connection; `None` if it did not.
    pub(super) fn reason_of(&self, deadline: Deadline) -> Option<Error> {
        let (end, why) = self.end.as_ref()?;
        (!self.began_after(deadline) && deadline.at <= *end).then(|| why.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_that_alternate_are_warned_of_once_each() {
        let mut outage = Outage::new();
        let warned: Vec<_> =
            ["refused", "closed"].repeat(3).into_iter().map(|why| outage.warns(why)).collect();
        assert_eq!(warned, [true, true, false, false, false, false]);
    }

    #[test]
    fn reasons_that_differ_each_time_do_not_fill_the_log() {
        let mut outage = Outage::new();
        assert_eq!((0..1000).filter(|port| outage.warns(&format!("port {port}"))).count(), MAX_WARNINGS);
    }
}
