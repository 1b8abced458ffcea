//! Cases about servers: scripted clients connect, do something, and look at the answer.

mod closing;
mod context;
mod credits;
mod handshake;
mod immediates;
mod login;
mod messages;
mod process;
mod run;
mod windows;

pub use context::{Context, Target};
pub use login::Login;
pub use process::Spawned;
pub use run::{Options, run};

use crate::Case;

/// All cases, group by group.
pub fn cases() -> impl Iterator<Item = &'static Case<Context>> {
    [handshake::CASES, messages::CASES, windows::CASES, immediates::CASES, credits::CASES, closing::CASES]
        .into_iter()
        .flatten()
}
