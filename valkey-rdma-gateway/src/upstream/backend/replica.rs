//! Asks whether connections in use lead to a replica. A new one may reach another server, if the server's name has come to mean that.

use std::sync::Arc;
use std::time::Instant;

use super::{Backend, Shared};
use crate::upstream::identity::Key;
use crate::upstream::shared::SharedHandle;
use crate::upstream::standing::{Complaint, Standing};

impl Backend {
    /// The shared connections that clients use, without those on which the question would wait behind a slow command.
    pub(super) fn in_use(&self, now: Instant) -> Vec<SharedHandle> {
        let is_in_use = |shared: &Arc<Shared>| {
            let serves = shared.key != Key::Checker && shared.users() > 0 && shared.connection().is_some();
            serves && !shared.is_stalled(now)
        };
        self.all_shared().into_iter().filter(is_in_use).filter_map(|shared| shared.attach()).collect()
    }
}

/// Why a server that has answered with READONLY is not the one that its clients need, if it says so on one of their connections. If it says
/// otherwise on all of them, the errors count no longer.
pub(super) async fn leads_to_replica(in_use: Vec<SharedHandle>, standing: &Standing) -> Option<String> {
    for shared in &in_use {
        let hello = shared.ask(&["HELLO"]).await?;
        if let Some(why) = Complaint::ReadOnly.confirmed(&hello) {
            return Some(why);
        }
    }
    if !in_use.is_empty() {
        standing.refute(Complaint::ReadOnly);
    }
    None
}
