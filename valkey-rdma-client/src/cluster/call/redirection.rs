//! [`Redirection`]: what an error reply of a cluster node asks its client to do; and what a [`ClusterCall`] does after a failure.

use crate::endpoint::NodeAddress;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tracing::debug;
use valkey_rdma_resp::{ServerError, ServerErrorKind};

use super::{ClusterCall, Target};
use crate::cluster::core::Place;
use crate::cluster::slots_reply::SLOTS;
use crate::command::table::Access;
use crate::error::{ClusterError, Error, LostConnection, TimedOut};
use crate::runtime::until;
use crate::spans;
use valkey_rdma_transport::sync::lock;

/// What to do after an error reply. None of these commands has run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cluster) enum Redirection {
    /// MOVED: the slot belongs to this node from now on.
    Moved(u16, NodeAddress),
    /// ASK: this once, this node has the key of this slot.
    Ask(u16, NodeAddress),
    /// TRYAGAIN: some of the keys have moved and some have not.
    TryAgain,
    /// CLUSTERDOWN, LOADING, MASTERDOWN, READONLY, a blocking command on what was a primary: the node, or the cluster, is not ready.
    NotReady,
    /// The answer to the command.
    Final,
}

impl Redirection {
    /// `answering` is the node that answers: it stands in for an endpoint that it does not know.
    pub(in crate::cluster) fn of(error: &ServerError, answering: &NodeAddress) -> Self {
        match error.kind() {
            ServerErrorKind::Moved => match target(&error.message, answering) {
                Some((slot, Named::Node(address))) => Self::Moved(slot, address),
                // The map may have its address.
                Some((_, Named::Sender | Named::Unknown)) => Self::NotReady,
                None => Self::Final,
            },
            ServerErrorKind::Ask => match target(&error.message, answering) {
                Some((slot, Named::Node(to))) => Self::Ask(slot, to),
                // Until the slot has moved.
                Some((_, Named::Sender | Named::Unknown)) => Self::TryAgain,
                None => Self::Final,
            },
            ServerErrorKind::TryAgain => Self::TryAgain,
            ServerErrorKind::ClusterDown
            | ServerErrorKind::Loading
            | ServerErrorKind::MasterDown
            | ServerErrorKind::ReadOnly => Self::NotReady,
            // A primary that becomes a replica ends blocking commands. CLIENT UNBLOCK has another text.
            _ if error.code == "UNBLOCKED" && error.message.contains("instance state changed") => {
                Self::NotReady
            }
            _ => Self::Final,
        }
    }
}

/// The node that a redirection names.
enum Named {
    Node(NodeAddress),
    /// The node that answers. To follow that would only lead in a circle.
    Sender,
    /// A node without an address. `3999 ?:6381`: the cluster prefers host names, and it announces none. `3999 :0`: the cluster has lost it.
    Unknown,
}

/// Reads `3999 127.0.0.1:6381`. An empty host is that of the answering node, and so is port 0.
fn target(message: &str, answering: &NodeAddress) -> Option<(u16, Named)> {
    let (slot, address) = message.split_once(' ')?;
    let slot = slot.parse().ok().filter(|slot| usize::from(*slot) < SLOTS)?;
    let (host, port) = address.trim().rsplit_once(':')?;
    let port: u16 = port.parse().ok()?;
    let host = match (host, port) {
        ("?", _) | ("", 0) => return Some((slot, Named::Unknown)),
        ("", _) => &*answering.host,
        (host, _) => host,
    };
    let node = NodeAddress::new(host, if port == 0 { answering.port } else { port });
    Some((slot, if node == *answering { Named::Sender } else { Named::Node(node) }))
}

/// The slot of a MOVED that leads nowhere, and what it names instead of another node.
fn dead_end(error: &Error, answering: &NodeAddress) -> Option<(u16, Named)> {
    let moved = error.server().filter(|reply| reply.kind() == ServerErrorKind::Moved)?;
    target(&moved.message, answering).filter(|(_, named)| !matches!(named, Named::Node(_)))
}

/// What follows a failure.
impl ClusterCall<'_> {
    /// Judges the failure of a try. `Ok`: try again.
    pub(in crate::cluster) async fn failed(&mut self, place: &Place, error: Error) -> Result<(), Error> {
        let judged = match error {
            Error::Server(reply) => {
                self.trouble.try_answered();
                self.answered(place, reply).await
            }
            Error::Lost(lost) => self.lost(place, lost).await,
            Error::TimedOut(late) => {
                self.core.request_refresh();
                // A try has what is left of the call's time. The program knows the time of the whole.
                let limit = self.deadline.map_or(late.limit, |deadline| deadline.limit);
                Err(TimedOut { limit, ..late }.into())
            }
            // A dedicated connection to the node could not be made.
            Error::Connect(_) => {
                self.avoided = Some(place.node.clone());
                lock(&self.core.counters).lost += 1;
                self.unreachable(error).await
            }
            _ => Err(error),
        };
        judged.map_err(|error| self.give_up(error))
    }

    /// A node has answered with an error.
    async fn answered(&mut self, place: &Place, reply: ServerError) -> Result<(), Error> {
        let redirection = self.redirection(place, &reply).await;
        let is_loading = reply.kind() == ServerErrorKind::Loading;
        let error = Error::Server(reply);
        match (redirection, &self.target) {
            (Redirection::Final, _) => Err(error),
            // This passes. In any other state the same node answers the same again.
            (Redirection::NotReady, _) if is_loading => self.not_ready(place, error).await,
            (_, Target::Node(_)) => Err(error),
            // Its keys do not choose the node.
            (Redirection::Moved(..) | Redirection::Ask(..), Target::Primary(..)) => Err(error),
            (Redirection::Moved(slot, address), _) => {
                lock(&self.core.counters).moved += 1;
                self.count_redirect(&error)?;
                self.primary_only = true;
                if matches!(self.target, Target::Any) {
                    // It has keys after all.
                    self.target = Target::Slot(slot, Access::Write);
                }
                let node = self.core.topology.moved(slot, &address);
                debug!(target: spans::TARGET, slot, to = %node.name(), "following MOVED");
                self.core.request_refresh();
                self.settle(error).await
            }
            (Redirection::Ask(_, address), _) => {
                lock(&self.core.counters).ask += 1;
                self.count_redirect(&error)?;
                let node = self.core.topology.node(&address);
                debug!(target: spans::TARGET, to = %node.name(), "following ASK");
                self.ask = Some(node);
                self.settle(error).await
            }
            (Redirection::TryAgain, _) => {
                lock(&self.core.counters).try_again += 1;
                self.pause(error, false).await
            }
            (Redirection::NotReady, _) => self.not_ready(place, error).await,
        }
    }

    /// The connection was lost.
    async fn lost(&mut self, place: &Place, lost: LostConnection) -> Result<(), Error> {
        lock(&self.core.counters).lost += 1;
        if !self.is_dedicated || !place.client.is_whole() {
            place.node.lost(&place.client);
        }
        self.core.request_refresh();
        let may_have_run = lost.may_have_run;
        let error = Error::Lost(lost);
        if self.core.is_closed() || (may_have_run && !self.is_repeatable) {
            return Err(error);
        }
        self.primary_only |= self.reads_replicas();
        if may_have_run {
            self.losses += 1;
            if self.losses > self.core.config.retries {
                return Err(error);
            }
            self.may_have_run = Some(error);
            // It was sent: what it waited for before is over.
            self.trouble.end();
            return Ok(());
        }
        // The first time it may just have been idle for too long.
        if self.trouble.has_begun() {
            return self.pause(error, true).await;
        }
        self.trouble.begin();
        Ok(())
    }

    /// True if it was sent to a replica, perhaps.
    fn reads_replicas(&self) -> bool {
        let reads = matches!(self.target, Target::Slot(_, Access::Read));
        reads && !self.primary_only && self.core.config.cluster.read_from.uses_replicas()
    }

    /// Counts a redirection, which ends what the command waited for before.
    fn count_redirect(&mut self, error: &Error) -> Result<(), Error> {
        if self.redirects == self.core.config.cluster.max_redirects {
            return Err(self.redirected(error.clone()));
        }
        self.redirects += 1;
        self.trouble.end();
        Ok(())
    }

    /// Nodes need a moment to agree: the first redirections are followed at once, later ones after a pause.
    async fn settle(&mut self, error: Error) -> Result<(), Error> {
        if self.redirects <= FOLLOWED_AT_ONCE {
            return Ok(());
        }
        // A new map must not hurry this: redirections make maps.
        self.pause(error, false).await.map_err(|error| self.redirected(error))
    }

    /// Says of the last redirection that there were too many.
    fn redirected(&self, error: Error) -> Error {
        match error {
            Error::Server(last) => {
                let (command, count) = (self.name.clone(), self.redirects);
                ClusterError::Redirected { command, count, last }.into()
            }
            other => other,
        }
    }

    /// The node serves no commands of this kind now.
    async fn not_ready(&mut self, place: &Place, error: Error) -> Result<(), Error> {
        lock(&self.core.counters).not_ready += 1;
        self.core.request_refresh();
        let nowhere = dead_end(&error, place.node.address());
        if let Some((_, Named::Sender)) = nowhere {
            place.node.renew(&place.client);
        }
        if self.reads_replicas() {
            place.node.pass_over();
            self.primary_only = true;
            return Ok(());
        }
        // Such a MOVED means nothing to a caller: nodes only say that way which slot none of them serves.
        let uncovered = nowhere.map(|(slot, _)| ClusterError::Uncovered { slot: Some(slot) }.into());
        self.pause(uncovered.unwrap_or(error), true).await
    }

    /// The node cannot be connected to.
    pub(super) async fn unreachable(&mut self, error: Error) -> Result<(), Error> {
        if self.core.is_closed() {
            return Err(error);
        }
        self.core.request_refresh();
        // As for one that is connected, loading passes.
        if matches!(self.target, Target::Node(_)) && !error.is_loading() {
            return Err(error);
        }
        if self.reads_replicas() {
            self.primary_only = true;
            return Ok(());
        }
        // Waiting does not change that.
        if matches!(&error, Error::Connect(refused) if refused.cause().refuses_user()) {
            return Err(error);
        }
        self.pause(error, true).await
    }

    /// Waits a little, and for a new map if that matters. Fails with `error`, which says that the last try has not run, if it
    /// has waited for too long.
    pub(super) async fn pause(&mut self, error: Error, wake_on_change: bool) -> Result<(), Error> {
        let mut changes = self.core.topology.changes();
        if wake_on_change {
            self.core.request_refresh();
        }
        let patience = self.patience();
        if patience.is_some_and(|patience| patience <= Instant::now()) {
            return Err(self.may_have_run.take().unwrap_or(error));
        }
        let wait = FIRST_PAUSE.saturating_mul(1 << self.pauses.min(MOST_DOUBLINGS));
        let wait = wait.mul_f64(0.5 + fastrand::f64() / 2.0);
        self.pauses += 1;
        tokio::select! {
            () = sleep(wait) => Ok(()),
            Ok(()) = changes.changed(), if wake_on_change => Ok(()),
            // A try with no time left would only blur what happened.
            () = until(patience) => Err(self.may_have_run.take().unwrap_or(error)),
        }
    }
}

/// This many redirections in a row are normal while slots move.
const FOLLOWED_AT_ONCE: u32 = 3;
/// The longest first wait.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// Waits grow up to 640 ms.
const MOST_DOUBLINGS: u32 = 6;

#[cfg(test)]
mod tests {
    use super::*;

    fn redirection(text: &str) -> Redirection {
        Redirection::of(&ServerError::from_reply(text.as_bytes()), &NodeAddress::new("self", 7))
    }

    #[test]
    fn redirections_name_a_node() {
        assert_eq!(
            redirection("MOVED 3999 10.0.0.1:6381"),
            Redirection::Moved(3999, NodeAddress::new("10.0.0.1", 6381))
        );
        let fd00 = NodeAddress::new("fd00::1", 6381);
        assert_eq!(redirection("ASK 1 fd00::1:6381"), Redirection::Ask(1, fd00));
        assert_eq!(redirection("MOVED 0 :6381"), Redirection::Moved(0, NodeAddress::new("self", 6381)));
        assert_eq!(redirection("MOVED 0 host:0"), Redirection::Moved(0, NodeAddress::new("host", 7)));
    }

    #[test]
    fn a_redirection_that_makes_no_sense_is_the_answer() {
        for text in ["MOVED", "MOVED x h:1", "MOVED 16384 h:1", "MOVED 1 h", "MOVED 1 h:x", "MOVED ?", "ASK"]
        {
            assert_eq!(redirection(text), Redirection::Final, "{text}");
        }
    }

    /// As a cluster that prefers host names names a node without one.
    #[test]
    fn a_redirection_to_a_node_without_a_name_is_waited_out() {
        assert_eq!(redirection("MOVED 1 ?:1"), Redirection::NotReady);
        assert_eq!(redirection("ASK 1 ?:1"), Redirection::TryAgain);
    }

    /// `:0` is a node whose address the cluster has lost: `noaddr` of CLUSTER NODES.
    #[test]
    fn a_redirection_to_no_node_or_to_the_node_that_sends_it_is_waited_out() {
        for address in [":0", "self:0", ":7", "self:7"] {
            assert_eq!(redirection(&format!("MOVED 1 {address}")), Redirection::NotReady, "{address}");
            assert_eq!(redirection(&format!("ASK 1 {address}")), Redirection::TryAgain, "{address}");
        }
    }

    #[test]
    fn conditions_that_pass_are_waited_out() {
        for text in ["CLUSTERDOWN x", "LOADING x", "MASTERDOWN x", "READONLY x"] {
            assert_eq!(redirection(text), Redirection::NotReady, "{text}");
        }
        let failed_over =
            "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)";
        assert_eq!(redirection(failed_over), Redirection::NotReady);
        assert_eq!(redirection("UNBLOCKED client unblocked via CLIENT UNBLOCK"), Redirection::Final);
        assert_eq!(redirection("TRYAGAIN x"), Redirection::TryAgain);
        assert_eq!(redirection("WRONGTYPE x"), Redirection::Final);
    }
}
