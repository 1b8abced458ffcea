//! [`Changes`]: the subscriptions that are wanted, and the commands that change them until the server has confirmed each.

use std::collections::{BTreeSet, VecDeque};

use bytes::Bytes;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::Subscription;
use super::shared::SubscriptionRequest;
use crate::command::Command;
use crate::error::Error;
use crate::link::{Deadline, RawConnection};

/// The most unconfirmed commands; beyond it, no request is taken.
pub(super) const MAX_PENDING: usize = 1024;
/// The most names in one command that restores subscriptions.
const MAX_NAMES: usize = 256;

/// The subscriptions of one connection.
#[derive(Default)]
pub(super) struct Changes {
    /// The wanted subscriptions, confirmed or not.
    wanted: BTreeSet<(Subscription, Bytes)>,
    /// In the order in which they are sent.
    pending: VecDeque<Pending>,
    /// How many of `pending` restore subscriptions.
    resubscribing: usize,
}

/// A command that is not fully confirmed.
pub(super) struct Pending {
    pub(super) kind: Subscription,
    pub(super) subscribe: bool,
    pub(super) names: Vec<Bytes>,
    /// The names that it added to the wanted set, or removed.
    pub(super) changed: Vec<Bytes>,
    /// Confirmations outstanding, one per name.
    missing: usize,
    /// The waiting caller; `None` for a restored subscription.
    done: Option<oneshot::Sender<Result<(), Error>>>,
    /// Until when the caller waits.
    pub(super) deadline: Option<Deadline>,
    /// Until when it waits for a connection, while there is none.
    pub(super) offline_deadline: Option<Instant>,
}

impl Pending {
    /// True if it restores a subscription: no caller has asked for it now.
    pub(super) fn restores(&self) -> bool {
        self.done.is_none()
    }

    /// True if its caller still waits, and may repeat it after a failure.
    pub(super) fn is_awaited(&self) -> bool {
        self.done.as_ref().is_some_and(|done| !done.is_closed())
    }

    /// When it fails if there is still no connection.
    pub(super) fn due(&self) -> Option<Instant> {
        self.offline_deadline.into_iter().chain(self.deadline.map(|deadline| deadline.at)).min()
    }

    pub(super) fn is_late(&self) -> bool {
        self.due().is_some_and(|due| due <= Instant::now())
    }

    /// Answers its caller, if that has not gone away.
    fn answer(&mut self, outcome: Result<(), Error>) {
        if let Some(done) = self.done.take() {
            let _gone = done.send(outcome);
        }
    }
}

/// What a confirmation of the server was about.
#[derive(PartialEq, Eq)]
pub(super) enum Confirmed {
    /// A command in part, or the change of a caller.
    Change,
    /// The last of the commands that restore subscriptions.
    Restored,
    /// No command: servers also end subscriptions unasked, when a slot moves.
    Nothing,
}

impl Changes {
    /// True if there is no subscription, and none is requested.
    pub(super) fn wants_nothing(&self) -> bool {
        self.wanted.is_empty()
    }

    /// True if everything is confirmed.
    pub(super) fn are_confirmed(&self) -> bool {
        self.pending.is_empty()
    }

    pub(super) fn has_room(&self) -> bool {
        self.pending.len() < MAX_PENDING
    }

    /// The oldest command: the next error reply is about it.
    pub(super) fn oldest(&self) -> Option<&Pending> {
        self.pending.front()
    }

    /// When the first change fails without a connection.
    pub(super) fn due(&self) -> Option<Instant> {
        self.pending.iter().filter_map(Pending::due).min()
    }

    /// Notes what is wanted from now on. The change must be sent, or wait.
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

    /// Keeps a change for the next connection.
    pub(super) fn wait(&mut self, pending: Pending) {
        self.pending.push_back(pending);
    }

    /// Puts a command into the write buffer. It is sent while the connection is read.
    pub(super) fn send(&mut self, pending: Pending, raw: &mut RawConnection) {
        let name = verb(pending.kind, pending.subscribe);
        let command = pending.names.iter().fold(Command::new(name), Command::arg);
        raw.write_buffer.push(&command);
        self.pending.push_back(pending);
    }

    /// Counts a confirmation for the oldest unconfirmed command.
    pub(super) fn confirm(&mut self, verb_said: &[u8], name: &Bytes) -> Confirmed {
        let Some(oldest) = self.pending.front_mut() else { return Confirmed::Nothing };
        let verb = verb(oldest.kind, oldest.subscribe);
        // Names are confirmed in the order of the command.
        let next = oldest.names.get(oldest.names.len() - oldest.missing);
        if !verb.as_bytes().eq_ignore_ascii_case(verb_said) || next != Some(name) {
            return Confirmed::Nothing;
        }
        oldest.missing -= 1;
        if oldest.missing > 0 {
            return Confirmed::Change;
        }
        match self.pending.pop_front() {
            Some(restored) if restored.restores() && self.one_is_restored() => Confirmed::Restored,
            Some(mut confirmed) => {
                confirmed.answer(Ok(()));
                Confirmed::Change
            }
            None => Confirmed::Change,
        }
    }

    /// A command that restores subscriptions is answered. True if it was the last.
    pub(super) fn one_is_restored(&mut self) -> bool {
        self.resubscribing -= 1;
        self.resubscribing == 0
    }

    /// The server has ended a subscription unasked. `None`: it was not wanted.
    pub(super) fn ended(&mut self, verb_said: &[u8], name: &Bytes) -> Option<Subscription> {
        let kinds = [Subscription::Channel, Subscription::Pattern, Subscription::Shard];
        let is_it = |kind: &Subscription| verb(*kind, false).as_bytes().eq_ignore_ascii_case(verb_said);
        let kind = kinds.into_iter().find(is_it)?;
        self.wants(kind, name).then_some(kind)
    }

    /// True if this subscription is wanted, confirmed or not.
    pub(super) fn wants(&self, kind: Subscription, name: &Bytes) -> bool {
        self.wanted.contains(&(kind, name.clone()))
    }

    pub(super) fn forget(&mut self, kind: Subscription, name: Bytes) {
        self.wanted.remove(&(kind, name));
    }

    /// Takes the oldest command, which the server has answered otherwise than with confirmations.
    pub(super) fn take_oldest(&mut self) -> Option<Pending> {
        self.pending.pop_front()
    }

    /// The oldest command, already taken, has changed nothing. Its caller gets the error.
    pub(super) fn refuse(&mut self, mut refused: Pending, error: Error) {
        let done = refused.done.take();
        self.undo(refused, 0);
        // The caller may have gone away.
        let _gone = done.map(|done| done.send(Err(error)));
    }

    /// Ends the oldest command with success, without a reply that says so: what it wants is so, or will be with the next connection.
    pub(super) fn settle_oldest(&mut self) {
        if let Some(mut settled) = self.pending.pop_front() {
            settled.answer(Ok(()));
        }
    }

    /// Ends all of them with success: without a connection there are no subscriptions, and none is wanted.
    pub(super) fn settle_all(&mut self) {
        while !self.pending.is_empty() {
            self.settle_oldest();
        }
    }

    /// Fails changes that wait for a connection, and forgets them.
    pub(super) fn fail(&mut self, is_over: impl Fn(&Pending) -> bool, why: impl Fn(&Pending) -> Error) {
        // The last first: what an earlier one has changed is undone after it.
        for number in (0..self.pending.len()).rev() {
            if self.pending.get(number).is_some_and(&is_over)
                && let Some(mut failed) = self.pending.remove(number)
            {
                let (error, done) = (why(&failed), failed.done.take());
                self.undo(failed, number);
                // The caller may have gone away.
                let _gone = done.map(|done| done.send(Err(error)));
            }
        }
    }

    /// A command has changed nothing. Those from `later` on in `pending` came after it.
    fn undo(&mut self, undone: Pending, later: usize) {
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

    /// The connection has ended. Changes that were sent on it wait for the next one, until `offline_deadline`. `was_of_use` is false if its
    /// server took no subscriptions: changes that have waited for it go on to wait.
    pub(super) fn disconnected(&mut self, offline_deadline: Option<Instant>, was_of_use: bool) {
        self.resubscribing = 0;
        self.pending.retain(|pending| !pending.restores());
        for pending in &mut self.pending {
            // Without a caller that could repeat it, it stays requested.
            let is_awaited = pending.is_awaited();
            let earlier = pending.offline_deadline.filter(|_| !was_of_use);
            pending.offline_deadline = earlier.or(offline_deadline).filter(|_| is_awaited);
            pending.deadline = pending.deadline.filter(|_| is_awaited);
        }
    }

    /// Subscribes on a new connection to everything wanted, then repeats the changes that were not confirmed on the old one. `is_slot`: all
    /// shard channels are in one slot. Returns false if there was nothing to restore.
    pub(super) fn restore(&mut self, raw: &mut RawConnection, is_slot: bool) -> bool {
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
            let most = if kind == Subscription::Shard && !is_slot { 1 } else { MAX_NAMES };
            for names in names.chunks(most) {
                self.restore_some(kind, names.to_vec(), raw);
            }
        }
        for order in orders {
            self.send(Pending { missing: order.names.len(), ..order }, raw);
        }
        self.resubscribing > 0
    }

    pub(super) fn restore_some(&mut self, kind: Subscription, names: Vec<Bytes>, raw: &mut RawConnection) {
        self.resubscribing += 1;
        let (subscribe, missing, changed) = (true, names.len(), Vec::new());
        let (done, deadline, offline_deadline) = (None, None, None);
        self.send(
            Pending { kind, subscribe, names, changed, missing, done, deadline, offline_deadline },
            raw,
        );
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
