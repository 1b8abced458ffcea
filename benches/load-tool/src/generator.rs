//! The generator: connections on their own threads, which send a [`Job`] and measure it.
//!
//! A [`Fleet`] is all connections to one target. Each of its threads has a runtime and a share of the connections, and
//! shares nothing with the others while a job runs but the number of the next request. Connections outlive jobs, and are
//! opened anew when they are lost.
//!
//! A connection is driven in one of two ways. *Directly*, one task encodes, writes, reads and checks, which costs as
//! little as a load tool can: the shape of valkey-benchmark. *Shared*, through the client library, many tasks use one
//! connection: the shape of an application.

mod background;
mod commands;
mod connections;
mod dial;
mod direct;
mod fleet;
mod job;
mod lent;
mod open;
mod out;
mod pace;
mod reply_timer;
mod retry;
mod running;
mod share;
mod shared;
mod thread;
mod usage;

pub(crate) use background::Background;
pub(crate) use connections::LinkInfo;
pub(crate) use dial::{DialError, Target, dial_client, dial_plain};
pub(crate) use fleet::{Fleet, FleetError};
pub(crate) use job::{Job, Limit, Verify};
pub(crate) use open::complete;
pub(crate) use pace::{Arrivals, Pace};
pub(crate) use reply_timer::{NoReply, ReplyTimer};
pub(crate) use running::Watch;
pub(crate) use usage::Usage;
#[cfg(test)]
pub(crate) use {
    dial::dial,
    open::{Opening, open_all},
};
