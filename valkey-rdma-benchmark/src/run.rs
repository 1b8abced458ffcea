//! A run of tests: what is planned, and the sessions on which it is done.
//!
//! A [`Plan`] says what is sent and when it ends. A [`Session`] is the connections to one server: it prepares the keys of a test,
//! warms up, and measures. [`compare`](compare()) measures two sessions in turns, [`sweep`](sweep()) one at rising rates.
//! [`CELLS`] are what `--evidence` compares.

mod cells;
mod compare;
mod plan;
mod progress;
mod server_info;
mod session;
mod sweep;

pub(crate) use cells::{CELLS, Cell, PREFIX, Way, cells_from_list, keyspace_bytes, most_in_flight};
pub(crate) use compare::compare;
#[cfg(test)]
pub(crate) use plan::SAMPLE;
pub(crate) use plan::{Plan, STEP};
pub(crate) use progress::{Progress, Whole};
pub(crate) use server_info::ServerInfo;
pub(crate) use session::Session;
pub(crate) use sweep::sweep;
