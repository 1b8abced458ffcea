//! The generator: connections on their own threads, which send a [`Job`] and measure it.
//!
//! A [`Fleet`] is all connections to one target. Each of its threads has a runtime and a share of the connections, and
//! shares nothing with the others while a job runs but the number of the next request. Connections outlive jobs, and are
//! opened anew when they are lost.
//!
//! A connection is driven in one of two ways. *Directly*, one task encodes, writes, reads and checks, which costs as
//! little as a load tool can: the shape of valkey-benchmark. *Shared*, through a client [`Library`], many tasks use one
//! connection: the shape of an application. So do direct transfers of this project's client.

mod background;
mod block_on;
mod connections;
mod dial;
mod direct;
mod fleet;
mod job;
mod libraries;
mod library;
mod link_info;
mod open;
mod ours;
mod out;
mod pace;
mod reply_timer;
mod retry;
mod running;
mod share;
mod shared;
mod thread;
mod transfers;
mod usage;

pub(crate) use background::Background;
pub use dial::CALL_LIMIT;
pub(crate) use dial::{DialError, Target, dial_client};
pub(crate) use fleet::{Fleet, FleetError};
pub(crate) use job::Job;
pub use job::{Limit, Verify};
pub(crate) use libraries::Choice;
pub use libraries::Libraries;
pub use library::{Connection, Failure, Library};
pub(crate) use link_info::LinkInfo;
pub(crate) use open::complete;
pub(crate) use ours::link_info;
pub(crate) use pace::{Arrivals, Pace};
pub(crate) use running::Watch;
pub(crate) use usage::Usage;
#[cfg(test)]
pub(crate) use {
    dial::dial,
    open::{Opening, open_all},
};
