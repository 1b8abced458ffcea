//! What a client has sent: ordinary commands go to the shared connection, and what comes next is found out.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::time::{Sleep, sleep};
use valkey_rdma_resp::CommandError;

use super::route::Way;
use super::{Closed, Session};
use crate::config::limits::Limits;

/// The result of looking at the input.
pub(super) enum Parsed {
    NeedsInput,
    /// Earlier commands must be answered first: as many are in flight as may be, or the next is a script.
    Full,
    /// The next command goes another way than to the shared connection.
    Leaves(Way),
    Broken(CommandError),
}

impl Session {
    /// Submits the ordinary commands at the front of the input. Returns how many, and what comes next.
    pub(super) fn parse(&mut self, outstanding: u32, limits: &Limits) -> (Parsed, u32) {
        let mut submitted = 0;
        loop {
            let (next, commands) = self.parse_batch(outstanding + submitted, limits);
            submitted += commands;
            if !self.reader.is_held() {
                // At one server, only a command that names memory of the client is kept until so much of it has arrived.
                let is_kept = self.route.backend.cluster.is_some()
                    || matches!(next, Parsed::NeedsInput) && self.reader.len() > limits.command_bytes;
                self.in_flight.hold(if is_kept { self.reader.len() } else { 0 });
                return (next, submitted);
            }
        }
    }

    fn parse_batch(&mut self, outstanding: u32, limits: &Limits) -> (Parsed, u32) {
        let most = u32::try_from(limits.commands_in_flight).unwrap_or(u32::MAX).saturating_sub(outstanding);
        let most_bytes = self.in_flight.room(limits);
        let (mut commands, mut last) = (0, 0);
        let next = loop {
            let is_complete = match self.reader.scan() {
                Err(error) => break Parsed::Broken(error),
                Ok(complete) => complete,
            };
            if !is_complete {
                match self.is_too_long(limits) {
                    Err(error) => break Parsed::Broken(error),
                    Ok(false) => break Parsed::NeedsInput,
                    Ok(true) => {}
                }
            }
            let way = self.route(!is_complete, commands == 0, limits);
            if self.reader.is_held() {
                break Parsed::NeedsInput;
            }
            match way {
                Way::Shared { script } => {
                    let is_full = commands == most || self.reader.batch().len() >= most_bytes;
                    if is_full || !self.choose_shared(script, outstanding + commands) {
                        break Parsed::Full;
                    }
                    last = self.reader.batch().len();
                    self.reader.accept();
                    commands += 1;
                }
                Way::Answer(local) if !is_complete => match self.awaits_rest(local) {
                    true => break Parsed::NeedsInput,
                    false => break Parsed::Broken(CommandError::InvalidBulkLen),
                },
                way => break Parsed::Leaves(way),
            }
        };
        if commands > 0 {
            let now = Instant::now();
            self.client.count(commands, &self.reader.batch()[last..], now);
            self.in_flight.sent(commands, self.reader.batch().len());
            if outstanding == 0 && self.shared.should_leave(now) {
                self.shared = self.route.backend.shared_for(self.shared.is_for_scripts(), &self.identity);
            }
            self.shared.submit(&self.client.inbox, self.reader.batch(), commands, now);
            self.reader.drop_batch();
        }
        (next, commands)
    }

    /// Bytes of a command that are kept until all of it has arrived.
    pub(super) fn longest(&self, limits: &Limits) -> usize {
        if self.route.backend.cluster.is_some() { limits.cluster_command_bytes } else { limits.command_bytes }
    }

    /// Whether a command that has not ended must go on in pieces, or is refused: it is too long, or there is no room for more of it.
    ///
    /// A word that is longer than a server takes is the server's to refuse, if the command goes there in pieces. Otherwise it fails here.
    pub(super) fn is_too_long(&mut self, limits: &Limits) -> Result<bool, CommandError> {
        let is_cluster = self.route.backend.cluster.is_some();
        if is_cluster {
            self.reader.check_word()?;
        }
        let is_full = is_cluster && self.in_flight.is_overloaded(limits);
        let most = if is_full { limits.command_bytes } else { self.longest(limits) };
        Ok(self.reader.is_long(most)? || is_cluster && self.names_too_much())
    }

    /// Drops the current command; `kept` bytes of others stay. If it has not ended, the client still sends it, and reads no answer before:
    /// what is missing is read and dropped too, as long as some of it comes every [`PATIENCE`]. Nothing may be in flight.
    pub(super) async fn drop_command(&mut self, kept: usize) -> Result<(), Closed> {
        let is_complete = self.reader.scan().is_ok_and(|complete| complete);
        drop(self.reader.take());
        self.in_flight.hold(kept);
        if is_complete {
            return Ok(());
        }
        let mut patience = pin!(sleep(PATIENCE));
        poll_fn(|cx| self.poll_drop_rest(cx, patience.as_mut())).await
    }

    fn poll_drop_rest(
        &mut self,
        cx: &mut Context<'_>,
        mut patience: Pin<&mut Sleep>,
    ) -> Poll<Result<(), Closed>> {
        loop {
            if let Some(why) = self.poll_end(cx) {
                self.report_end(why);
                return Poll::Ready(Err(Closed));
            }
            let found = self.reader.scan_on();
            drop(self.reader.take());
            match found {
                Ok(true) => return Poll::Ready(Ok(())),
                Ok(false) if !self.eof => {}
                Ok(false) => return Poll::Ready(Err(Closed)),
                Err(error) => return Poll::Ready(Err(self.broken(&error))),
            }
            if self.poll_read(cx)?.is_pending() {
                return patience.poll(cx).map(|()| Err(Closed));
            }
            patience.as_mut().reset(tokio::time::Instant::now() + PATIENCE);
        }
    }

    /// Attaches to the shared connection that a command needs. `false` if earlier commands must be answered before: what follows a
    /// script may go where the script went, but a script not where others wait.
    fn choose_shared(&mut self, needed: bool, in_flight: u32) -> bool {
        let is = self.shared.is_for_scripts();
        if in_flight > 0 {
            return is || !needed;
        }
        if is != needed {
            self.shared = self.route.backend.shared_for(needed, &self.identity);
        }
        true
    }
}

/// How long a client may send nothing of a command that is dropped.
const PATIENCE: Duration = Duration::from_secs(30);
