//! Cases about servers: scripted clients connect, do something, and look at the answer.

mod agreement;
mod closing;
mod context;
mod credits;
mod handshake;
mod immediates;
mod messages;
mod process;
mod run;
mod transfers;
mod windows;

pub use context::{Context, Target};
pub use process::Spawned;
pub use run::{Options, run};

use crate::Case;

/// All cases, group by group. [`Target::cases`] has those that apply to a server.
pub fn cases() -> impl Iterator<Item = &'static Case<Context>> {
    [
        handshake::CASES,
        messages::CASES,
        agreement::CASES,
        windows::CASES,
        immediates::CASES,
        credits::CASES,
        closing::CASES,
        transfers::CASES,
    ]
    .into_iter()
    .flatten()
}
