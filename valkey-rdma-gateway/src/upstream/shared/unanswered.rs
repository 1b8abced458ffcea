//! Commands that have no connection any more, or none yet: their clients get an error, or are closed.

use std::future::Future;
use std::pin::pin;
use std::time::{Duration, Instant};

use tokio::time::{sleep, sleep_until};

use super::Shared;
use super::queue::Slot;
use crate::core::Core;
use crate::session::inbox::End;
use crate::upstream::open_error::OpenError;

impl Shared {
    /// Answers the commands of clients that have gone or, after an outage, have closed their side: these gave up, and may have sent the
    /// same again.
    pub(super) fn answer_left(&self, after_outage: bool) {
        let left = self.queue().take_left(after_outage);
        let why = "its client closed its side while there was no connection";
        self.answer_waiting(left, &OpenError::Unreachable(why.to_owned()));
    }

    /// After a loss: closes the clients whose commands may have run, and keeps what is sent again. `batch` was being written.
    pub(super) fn close_lost(&self, batch: &[u8]) {
        let lost = self.queue().lose(batch);
        self.metrics.may_have_run.add(lost.may_have_run);
        self.metrics.not_sent.add(lost.not_sent);
        self.metrics.sent_again.add(lost.sent_again);
        lost.clients.iter().for_each(|inbox| inbox.end(End::Lost));
    }

    /// Does `work` while there is no connection, and answers commands as soon as they have waited for too long.
    pub(super) async fn answer_overdue<T>(
        &self,
        core: &Core,
        why: &OpenError,
        work: impl Future<Output = T>,
    ) -> T {
        let mut work = pin!(work);
        loop {
            let since = self.queue().oldest().unwrap_or_else(Instant::now);
            tokio::select! {
                done = &mut work => return done,
                () = sleep_until((since + core.limits().offline()).into()) => self.answer_unsent(core, why),
            }
        }
    }

    /// Answers commands as soon as they come, because of `why`: until `wait` is over, or the login has changed.
    pub(super) async fn refuse_for(&self, core: &Core, why: &OpenError, wait: Duration) {
        let mut over = pin!(sleep(wait));
        loop {
            tokio::select! {
                () = &mut over => return,
                () = self.retry.notified() => return,
                () = self.commands() => self.answer_unsent(core, why),
            }
        }
    }

    /// Answers commands that waited for a connection: all of them if the server refused the login, those that have waited for too
    /// long if there was no server.
    pub(super) fn answer_unsent(&self, core: &Core, error: &OpenError) {
        let now = Instant::now();
        let before = match error {
            OpenError::Refused(_) | OpenError::NoDatabase(_) => Some(now),
            OpenError::Settings(_) | OpenError::Unreachable(_) => now.checked_sub(core.limits().offline()),
        };
        let Some(before) = before else { return };
        let old = self.queue().take_older(before);
        if self.identity.is_outdated(error) {
            old.iter().for_each(|slot| slot.inbox.stop());
        }
        self.answer_waiting(old, error);
    }

    /// Answers commands that are not sent, because of `error`, and counts them.
    fn answer_waiting(&self, slots: impl IntoIterator<Item = Slot>, error: &OpenError) {
        let (now, reply) = (Instant::now(), error.reply());
        let mut unsent = 0;
        for slot in slots {
            // It was sent once.
            let may_have_run = slot.is_repeated && !error.is_refusal();
            match may_have_run {
                true => self.metrics.may_have_run.add(slot.counted().into()),
                false => unsent += u64::from(slot.counted()),
            }
            let Some(reply) = reply.as_ref().filter(|_| !may_have_run) else {
                slot.inbox.end(End::Lost);
                continue;
            };
            slot.inbox.put(&reply.repeat(slot.replies as usize), slot.replies, now);
        }
        error.count_unsent(unsent, &self.metrics);
    }
}
