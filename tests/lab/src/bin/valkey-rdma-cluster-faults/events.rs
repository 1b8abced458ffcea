//! What happens to the cluster.

use std::fmt;

use clap::ValueEnum;
use valkey_rdma_testkit::Signal;

use crate::servers::Servers;

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
    /// A third of all slots moves: from shard 0 to 1, and from 1 to 2.
    Reshard,
}

impl Event {
    pub(crate) const ALL: [Self; 8] = [
        Self::Nothing,
        Self::Failover,
        Self::Force,
        Self::Takeover,
        Self::Kill,
        Self::Freeze,
        Self::NoRdma,
        // Last: afterwards the keys of a shard are on several.
        Self::Reshard,
    ];

    /// Needs servers with the RDMA module.
    pub(crate) fn is_about_rdma(self) -> bool {
        self == Self::NoRdma
    }

    /// Makes it happen. Returns the shards that it is about.
    pub(crate) async fn happen(self, servers: &mut Servers) -> Result<Vec<usize>, String> {
        match self {
            Self::Nothing => Ok(vec![]),
            Self::Failover => fail_over(servers, 0, "").await,
            Self::Force => fail_over(servers, 1, "FORCE").await,
            Self::Takeover => fail_over(servers, 2, "TAKEOVER").await,
            Self::Kill => {
                let shard = servers.shard(0).await?;
                servers.kill(shard.0);
                servers.promoted(shard).await?;
                servers.restart(shard.0, true)?;
                Ok(vec![0])
            }
            Self::Freeze => {
                let shard = servers.shard(1).await?;
                servers.signal(shard.0, Signal::STOP);
                servers.promoted(shard).await?;
                Ok(vec![1])
            }
            Self::NoRdma => {
                // As a replica first, so that no data is lost.
                let shard = servers.shard(2).await?;
                servers.kill(shard.1);
                servers.restart(shard.1, false)?;
                servers.settled().await?;
                fail_over(servers, 2, "").await
            }
            Self::Reshard => {
                servers.reshard(0, 1, THIRD / 2).await?;
                servers.reshard(1, 2, THIRD - THIRD / 2).await?;
                Ok(vec![0, 1, 2])
            }
        }
    }

    /// Repairs what [`happen`](Self::happen) has left broken.
    pub(crate) async fn end(self, servers: &mut Servers) -> Result<(), String> {
        if self == Self::Freeze {
            for node in [1, 4] {
                servers.signal(node, Signal::CONT);
            }
        }
        Ok(())
    }
}

async fn fail_over(servers: &Servers, shard: usize, how: &str) -> Result<Vec<usize>, String> {
    let before = servers.shard(shard).await?;
    servers.fail_over(shard, how).await?;
    servers.promoted(before).await?;
    Ok(vec![shard])
}

/// A third of all slots.
const THIRD: usize = 16384 / 3;

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Nothing => "nothing",
            Self::Failover => "failover",
            Self::Force => "force",
            Self::Takeover => "takeover",
            Self::Kill => "kill",
            Self::Freeze => "freeze",
            Self::NoRdma => "no-rdma",
            Self::Reshard => "reshard",
        })
    }
}
