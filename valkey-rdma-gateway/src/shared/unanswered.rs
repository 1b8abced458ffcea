//! Commands that have no connection any more, or none yet: the gateway answers them itself.

use std::future::Future;
use std::pin::pin;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::time::{sleep, sleep_until};

use super::Shared;
use super::queue::Slot;
use crate::core::Core;
use crate::inbox::End;
use crate::open_error::{OpenError, one_line};
use crate::server::Server;

impl Shared {
    /// Answers the commands of clients that have gone or, after an outage, have closed their side: these gave up, and may have sent the
    /// same again.
    pub(super) fn answer_left(&self, after_outage: bool) {
        let left = self.queue().take_left(after_outage);
        let why = "its client closed its side while there was no connection";
        self.answer_waiting(left, &OpenError::Unreachable(why.to_owned()));
    }

    /// Answers the commands that may have run, and counts those that will be sent again.
    pub(super) fn answer_lost(&self, server: &Server, cause: &str, batch: &[u8]) {
        let lost = self.queue().lose(batch);
        let reply = may_have_run(&format!("the connection to {} was lost: {cause}", server.endpoint()));
        let now = Instant::now();
        for (at, (inbox, commands)) in lost.commands.into_iter().enumerate() {
            if !inbox.is_of_gateway() {
                self.metrics.may_have_run.add(commands.into());
            }
            if at == 0 && lost.first_has_begun {
                inbox.end(End::HalfReply);
                continue;
            }
            inbox.put(&reply.repeat(commands as usize), commands, now);
        }
        self.metrics.sent_again.add(self.in_flight() as u64);
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
            OpenError::Refused(_) => Some(now),
            OpenError::Unreachable(_) => now.checked_sub(core.limits().offline()),
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
        // Reads that were sent once.
        let repeated = if error.is_refusal() { reply.clone() } else { may_have_run(&error.to_string()) };
        let mut unsent = 0;
        for slot in slots {
            let commands = slot.replies;
            if slot.is_repeated && !error.is_refusal() {
                self.metrics.may_have_run.add(slot.counted().into());
            } else {
                unsent += u64::from(slot.counted());
            }
            let reply = if slot.is_repeated { &repeated } else { &reply };
            slot.inbox.put(&reply.repeat(commands as usize), commands, now);
        }
        error.count_unsent(unsent, &self.metrics);
    }
}

/// The error reply for a command that was sent.
fn may_have_run(why: &str) -> Bytes {
    format!("-UPSTREAMLOST {}; the command may have run\r\n", one_line(why)).into()
}
