//! A subscriber without a connection: it makes the next one, and changes of subscriptions wait for it with a time limit.

use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{debug, warn};

use super::outage::Outage;
use super::request::SubscriptionRequest;
use super::silence::SilenceCheck;
use super::task::{MAX_PENDING, Pending, Task};
use crate::config::Backoff;
use crate::error::{Error, LostCause, LostConnection};
use crate::link::Registration;
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

    /// Returns `false` if reconnecting is disabled or the subscriber was dropped.
    pub(super) async fn reconnect(&mut self, first: u32) -> bool {
        let connector = self.connector.clone();
        let Some(backoff) = connector.config.reconnect else { return false };
        let mut reached = connector.reached.subscribe();
        // As the shared connection does: servers that end connections as soon as they are made are not hurried.
        let is_first_outage = first <= 1;
        for attempt in first.. {
            let news = is_first_outage.then_some(&mut reached);
            if self.pause(backoff, backoff.wait(attempt), news).await.is_none() {
                return false;
            }
            // A server that reads its data takes subscriptions meanwhile.
            let Some(connected) = self.wait_offline(connector.connect(Purpose::Subscriber)).await else {
                return false;
            };
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
                        debug!(error = %text, attempt, "not connected");
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
        false
    }

    /// Waits before an attempt: less while a change waits that would fail before the attempt, or once the server was `reached`. `None`: the
    /// subscriber was dropped.
    async fn pause(
        &mut self,
        backoff: Backoff,
        mut wait: Duration,
        mut reached: Option<&mut watch::Receiver<()>>,
    ) -> Option<()> {
        let patience = self.connector.config.patience();
        let step = patience.map_or(Duration::MAX, |patience| backoff.step(patience));
        loop {
            let part = wait.min(step);
            let news = async {
                match &mut reached {
                    Some(reached) => drop(reached.changed().await),
                    None => pending().await,
                }
            };
            let is_reached = async {
                tokio::select! {
                    () = sleep(part) => false,
                    // The server is there.
                    () = news => true,
                }
            };
            let is_reached = self.wait_offline(is_reached).await?;
            wait -= part;
            if is_reached || wait.is_zero() || self.pending.iter().any(|pending| pending.due().is_some()) {
                return Some(());
            }
        }
    }

    /// Waits for `work`, takes requests meanwhile, and fails those that have waited too long. `None`: the subscriber was dropped.
    async fn wait_offline<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        loop {
            let due = self.pending.iter().filter_map(Pending::due).min();
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
