//! A subscriber without a connection: it makes the next one, and changes of subscriptions wait for it with a time limit.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::time::{Instant, sleep_until};
use tracing::{debug, warn};

use super::outage::Outage;
use super::request::SubscriptionRequest;
use super::silence::SilenceCheck;
use super::task::{MAX_PENDING, Pending, Task};
use crate::error::{Error, LostCause, LostConnection};
use crate::link::{Redialer, Registration};
use crate::stats::Purpose;

impl Pending {
    /// When it fails if there is still no connection.
    fn due(&self) -> Option<Instant> {
        self.offline_deadline.into_iter().chain(self.deadline.map(|deadline| deadline.at)).min()
    }

    fn is_late(&self) -> bool {
        self.due().is_some_and(|due| due <= Instant::now())
    }
}

impl Task {
    /// Notes that the connection is lost. Changes that were sent on it wait for the next one.
    pub(super) fn disconnected(&mut self, cause: &Arc<LostCause>) {
        self.shared.disconnected(LostConnection::without_command(self.shared.peer.clone(), cause.clone()));
        self.outage = Some(Outage::new());
        self.lost = self.raw.abandon();
        self.lost.iter().for_each(Registration::set_reconnecting);
        self.resubscribing = 0;
        self.pending.retain(|pending| pending.done.is_some());
        let offline_deadline = self.offline_deadline();
        for pending in &mut self.pending {
            // Without a caller that could repeat it, it stays requested.
            let is_awaited = pending.done.as_ref().is_some_and(|done| !done.is_closed());
            pending.offline_deadline = offline_deadline.filter(|_| is_awaited);
            pending.deadline = pending.deadline.filter(|_| is_awaited);
        }
    }

    /// Returns `false` if the subscriber was dropped.
    pub(super) async fn reconnect(&mut self, redialer: &mut Redialer) -> bool {
        let connector = self.connector.clone();
        loop {
            let is_awaited = self.is_awaited.clone();
            let next = redialer.next(
                || is_awaited.load(Ordering::Relaxed),
                // A server that reads its data takes subscriptions meanwhile.
                connector.connect(Purpose::Subscriber),
            );
            let Some(connected) = self.wait_offline(next).await else { return false };
            match connected {
                Ok(raw) => {
                    if let Some(why) = self.shared.connected(&raw) {
                        // Their callers may have been given the reason already.
                        self.fail(Pending::is_late, &why);
                        if let Some(outage) = &mut self.outage {
                            outage.ended(why);
                        }
                    }
                    self.lost = None;
                    self.silence = SilenceCheck::new(&raw, &connector.config);
                    self.raw = raw;
                    return true;
                }
                Err(error) => {
                    let text = format!("{error:#}");
                    if self.outage.as_mut().is_some_and(|outage| outage.warns(&text)) {
                        warn!(peer = %self.shared.peer, error = %text, "subscriptions not restored yet");
                    } else {
                        debug!(error = %text, "not connected");
                    }
                    let refuses_login = error.refuses_login();
                    let why = Error::from(error);
                    self.shared.disconnected(why.clone());
                    if refuses_login {
                        // The server is there, and a longer wait would not help.
                        self.fail(|pending| pending.due().is_some(), &why);
                    }
                }
            }
        }
    }

    /// Waits for `work`, takes requests meanwhile, and fails those that have waited too long. `None`: the subscriber was dropped.
    async fn wait_offline<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        loop {
            let due = self.pending.iter().filter_map(Pending::due).min();
            self.is_awaited.store(due.is_some(), Ordering::Relaxed);
            tokio::select! {
                done = &mut work => return Some(done),
                () = self.outbox.flush_until_dropped() => return None,
                order = self.orders.recv(), if self.pending.len() < MAX_PENDING => {
                    let pending = self.wait(order?);
                    self.pending.push_back(pending);
                }
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                    if let Some(why) = self.shared.outage() {
                        self.fail(Pending::is_late, &why);
                    }
                }
            }
        }
    }

    /// Notes a change that waits for a connection.
    fn wait(&mut self, order: SubscriptionRequest) -> Pending {
        let mut pending = self.note(order);
        // Its caller learned before the outage that it stays requested.
        let outage = self.outage.as_ref().zip(pending.deadline);
        if outage.is_some_and(|(outage, deadline)| outage.began_after(deadline)) {
            pending.deadline = None;
        } else {
            pending.offline_deadline = self.offline_deadline();
        }
        pending
    }

    /// Fails changes that wait for a connection, and forgets them.
    fn fail(&mut self, is_over: impl Fn(&Pending) -> bool, why: &Error) {
        // The last first: what an earlier one has changed is undone after it.
        for number in (0..self.pending.len()).rev() {
            if self.pending.get(number).is_some_and(&is_over)
                && let Some(mut failed) = self.pending.remove(number)
            {
                let done = failed.done.take();
                self.undo(failed, number);
                // The caller may have gone away.
                let _gone = done.map(|done| done.send(Err(why.clone())));
            }
        }
    }

    /// Until when a change waits for a connection that comes now.
    fn offline_deadline(&self) -> Option<Instant> {
        self.connector.config.offline_timeout.and_then(|limit| Instant::now().checked_add(limit))
    }
}
