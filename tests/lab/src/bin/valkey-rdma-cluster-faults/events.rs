//! What happens to the cluster.

use std::fmt;
use std::time::Duration;

use clap::ValueEnum;
use valkey_rdma_testkit::Signal;

use crate::servers::{FAR, Servers};
use crate::target::DEADLINE;

/// What an event has done.
pub(crate) struct Effect {
    /// The shards that it is about.
    pub(crate) affected: Vec<usize>,
    /// How often an operator had to begin anew.
    pub(crate) repeats: usize,
}

impl Effect {
    fn on(affected: Vec<usize>) -> Self {
        Self { affected, repeats: 0 }
    }
}

/// A fault, or an operator's work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Event {
    /// Nothing happens: what the table shows of a healthy cluster.
    Nothing,
    /// CLUSTER FAILOVER of shard 0.
    Failover,
    /// CLUSTER FAILOVER FORCE of shard 1.
    Force,
    /// CLUSTER FAILOVER TAKEOVER of shard 2.
    Takeover,
    /// The primary of shard 0 is killed with signal 9.
    Kill,
    /// The primary of shard 1 is stopped: it accepts, and never answers.
    Freeze,
    /// The primary of shard 2 comes back without RDMA: TCP lives.
    NoRdma,
    /// The fabrics of the client and of node 2, the primary of shard 2, are separated: TCP lives.
    Partition,
    /// Ranges of slots move, each all at once, from shard 0 to 1, and from 1 to 2 (CLUSTER MIGRATESLOTS).
    Migrate,
    /// Slots move one by one, from shard 0 to 1, and from 1 to 2 (valkey-cli --cluster reshard).
    Reshard,
}

impl Event {
    pub(crate) const ALL: [Self; 10] = [
        Self::Nothing,
        Self::Failover,
        Self::Force,
        Self::Takeover,
        Self::Kill,
        Self::Freeze,
        Self::Partition,
        Self::NoRdma,
        // These last: afterwards the keys of a shard are on several.
        Self::Migrate,
        Self::Reshard,
    ];

    /// Whether it can happen: to servers with the RDMA module, with commands that separate fabrics, from Valkey 9.0 on.
    pub(crate) fn is_possible(self, rdma: bool, cut: bool, version: &str) -> bool {
        match self {
            Self::NoRdma => rdma,
            Self::Partition => cut,
            Self::Migrate => !version.starts_with("8."),
            _ => true,
        }
    }

    /// How long it lasts at least: until commands that wait for a node without an answer have ended.
    pub(crate) fn lasts(self) -> Duration {
        match self {
            Self::Freeze => DEADLINE * 3 / 2,
            // Soft-RoCE reports a loss after some 15 s.
            Self::Partition => DEADLINE * 3,
            _ => Duration::ZERO,
        }
    }

    /// Makes it happen. `slots` is how many move.
    pub(crate) async fn happen(self, servers: &mut Servers, slots: usize) -> Result<Effect, String> {
        match self {
            Self::Nothing => Ok(Effect::on(vec![])),
            Self::Failover => fail_over(servers, 0, "").await,
            Self::Force => fail_over(servers, 1, "FORCE").await,
            Self::Takeover => fail_over(servers, 2, "TAKEOVER").await,
            Self::Kill => {
                let shard = servers.shard(0).await?;
                servers.kill(shard.0);
                servers.promoted(shard).await?;
                servers.restart(shard.0, true)?;
                Ok(Effect::on(vec![0]))
            }
            Self::Freeze => {
                let shard = servers.shard(1).await?;
                servers.signal(shard.0, Signal::STOP);
                servers.promoted(shard).await?;
                Ok(Effect::on(vec![1]))
            }
            Self::NoRdma => {
                // As a replica first, so that no data is lost.
                let shard = servers.shard(2).await?;
                servers.kill(shard.1);
                servers.restart(shard.1, false)?;
                servers.settled().await?;
                fail_over(servers, 2, "").await
            }
            Self::Partition => {
                if servers.shard(2).await?.0 != FAR {
                    fail_over(servers, 2, "").await?;
                }
                servers.cut().await?;
                Ok(Effect::on(vec![2]))
            }
            Self::Migrate => {
                servers.migrate(0, 1, slots / 2).await?;
                servers.migrate(1, 2, slots - slots / 2).await?;
                Ok(Effect::on(vec![0, 1, 2]))
            }
            Self::Reshard => {
                let repeats = servers.reshard(0, 1, slots / 2).await?
                    + servers.reshard(1, 2, slots - slots / 2).await?;
                Ok(Effect { affected: vec![0, 1, 2], repeats })
            }
        }
    }

    /// Repairs what [`happen`](Self::happen) has left broken.
    pub(crate) async fn end(self, servers: &mut Servers) -> Result<(), String> {
        match self {
            Self::Freeze => {
                for node in [1, 4] {
                    servers.signal(node, Signal::CONT);
                }
                Ok(())
            }
            Self::Partition => servers.mend().await,
            _ => Ok(()),
        }
    }
}

async fn fail_over(servers: &Servers, shard: usize, how: &str) -> Result<Effect, String> {
    let before = servers.shard(shard).await?;
    servers.fail_over(shard, how).await?;
    servers.promoted(before).await?;
    Ok(Effect::on(vec![shard]))
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Their names on the command line.
        f.pad(self.to_possible_value().as_ref().map_or("", |value| value.get_name()))
    }
}
