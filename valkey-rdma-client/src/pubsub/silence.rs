//! [`SilenceCheck`]: distinguishes a server that publishes nothing from one that is frozen, over TCP. Over RDMA, servers send keepalives.

use std::future::pending;
use std::time::Duration;

use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};
use valkey_rdma_resp::Value;

use crate::command::Command;
use crate::config::Config;
use crate::error::LostCause;
use crate::link::{RawConnection, keepalive_limit};

/// Watches one connection with subscriptions.
#[derive(Debug)]
pub(crate) struct SilenceCheck {
    /// `None`: silence is not limited, or the transport notices it.
    clock: Option<Clock>,
    /// Halves of the limit since something has come.
    silent_halves: u32,
    /// Bytes of a message that has not come whole, at the last look.
    part: usize,
    /// True if the server owes the answer to a PING.
    pub(crate) owes_pong: bool,
}

#[derive(Debug)]
struct Clock {
    limit: Duration,
    halves: Interval,
}

/// What a silence calls for.
#[derive(Debug, PartialEq, Eq)]
enum Silence {
    /// It may be a pause.
    Short,
    /// The server must be asked.
    Ask,
    /// The server has not answered within this limit.
    Over(Duration),
}

impl SilenceCheck {
    pub(crate) fn new(raw: &RawConnection, config: &Config) -> Self {
        let clock = keepalive_limit(&raw.info, config).map(|limit| {
            let mut halves = interval_at(Instant::now() + limit / 2, limit / 2);
            // A program that was itself frozen reads first what has come.
            halves.set_missed_tick_behavior(MissedTickBehavior::Delay);
            Clock { limit, halves }
        });
        Self { clock, silent_halves: 0, part: 0, owes_pong: false }
    }

    /// Receives the next value. Sends PING after a silence, and fails if the server leaves it without an answer. `owed`: the server owes an
    /// answer without a PING.
    ///
    /// Cancel safe: nothing is lost.
    pub(crate) async fn receive(&mut self, raw: &mut RawConnection, owed: bool) -> Result<Value, LostCause> {
        loop {
            let silence = tokio::select! {
                // What has come is read before the server counts as silent.
                biased;
                value = raw.receive() => {
                    self.silent_halves = 0;
                    return value;
                }
                silence = self.look(owed) => silence,
            };
            match silence {
                // Part of a large message has come.
                _ if self.has_grown(raw.decoder.buffered()) => {}
                Silence::Short => {}
                Silence::Ask => {
                    raw.write_buffer.push(&Command::new("PING"));
                    self.owes_pong = true;
                }
                Silence::Over(limit) => return Err(LostCause::Silent { limit }),
            }
        }
    }

    /// Notes how much of a message has come. True if that is more than before.
    fn has_grown(&mut self, part: usize) -> bool {
        let has_grown = std::mem::replace(&mut self.part, part) < part;
        if has_grown {
            self.silent_halves = 0;
        }
        has_grown
    }

    /// Waits for the next look, and says what to do. `owed`: the server owes an answer without being asked. Dropping it loses nothing.
    async fn look(&mut self, owed: bool) -> Silence {
        let Some(clock) = &mut self.clock else { return pending().await };
        clock.halves.tick().await;
        self.silent_halves += 1;
        match self.silent_halves {
            1 => Silence::Short,
            _ if !owed && !self.owes_pong => Silence::Ask,
            2 | 3 => Silence::Short,
            _ => Silence::Over(clock.limit),
        }
    }
}
