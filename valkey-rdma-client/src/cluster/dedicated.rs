//! Dedicated connections to one node; large values and blocking commands on the node of their key.

use bytes::Bytes;
use valkey_rdma_resp::{ServerErrorKind, Value};

use super::call::{ClusterCall, Redirection, Target, within};
use super::client::Cluster;
use super::core::Place;
use super::route::{Route, Routed, UNKNOWN, no_route, route, slot_of};
use super::several_nodes::Targets;
use crate::command::Command;
use crate::command::table::{Access, find, first_key};
use crate::dedicated::Dedicated;
use crate::endpoint::NodeAddress;
use crate::error::{ClusterError, Error};
use crate::link::Deadline;
use crate::stats::Purpose;
use crate::streaming::{ValueReader, ValueWriter};

impl Cluster {
    /// Sends a blocking command on a dedicated connection to the node of its keys. If the slot moves while it blocks, the server ends it with
    /// MOVED, and it is sent to the new node. If the key has moved before its slot (ASK), it is sent there too. The timeout among its arguments
    /// then begins anew.
    ///
    /// XREAD from the end of a stream may block once: another try would pass over what came meanwhile. So the node is asked for the key before,
    /// and what ends it afterwards, such as MOVED or TRYAGAIN, is its answer.
    pub(crate) async fn block(&self, command: Command) -> Result<Value, Error> {
        let (target, repeatable) = self.target(&command)?;
        let deadline = command.limit().and_then(Deadline::after);
        let call = ClusterCall::of(&self.core, &command, target, deadline).repeatable(repeatable).dedicated();
        let key = if reads_from_end(&command) { first_key(&command) } else { None };
        let blocks_once = key.map(Bytes::copy_from_slice);
        let attempt = |place: Place| {
            let (command, blocks_once) = (within(&command, deadline), blocks_once.clone());
            async move {
                if let Some(key) = &blocks_once {
                    find_key(&place, key, deadline).await?;
                }
                let mut connection = self.core.checkout(&place, Purpose::Call).await?;
                match connection.exchange(command).await {
                    Err(error) if blocks_once.is_some() && may_have_blocked(&error) => {
                        let asked = error.server().map(|reply| Redirection::of(reply, place.node.address()));
                        if asked != Some(Redirection::Final) {
                            self.core.request_refresh();
                        }
                        Ok(Err(error))
                    }
                    answer => answer.map(Ok),
                }
            }
        };
        call.run(attempt).await?
    }

    /// Opens a dedicated connection to the node that `route` names: one node, so neither [`Route::AllPrimaries`] nor
    /// [`Route::AllNodes`]. It stays with that node: what belongs to another fails there with the server's MOVED or ASK. Once the map names
    /// another primary in place of a frozen node, this and the calls of its connections end with
    /// [`LostCause::Silent`](crate::LostCause::Silent): see [`Config::silence_limit`](crate::Config::silence_limit).
    ///
    /// ```no_run
    /// # async fn example(cluster: valkey_rdma_client::cluster::Cluster) -> Result<(), valkey_rdma_client::Error> {
    /// use valkey_rdma_client::cluster::Route;
    ///
    /// let mut connection = cluster.dedicated(Route::Key("{user1}:name".into())).await?;
    /// connection.command(["CLIENT", "NO-EVICT", "ON"]).await?;
    /// let name: String = connection.query(["GET", "{user1}:name"]).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Connect`] if the node cannot be connected to, [`Error::Lost`] if it is frozen and was replaced, [`Error::Cluster`] if there
    /// is no such node.
    ///
    /// # Cancel safety
    /// Same as [`Client::dedicated`](crate::Client::dedicated).
    pub async fn dedicated(&self, route: Route) -> Result<Dedicated, Error> {
        let Targets::One(target) = self.targets(route)? else {
            let reason = "a dedicated connection has one node";
            return Err(ClusterError::NoRoute { command: "a connection".to_owned(), reason }.into());
        };
        let deadline = self.core.config.command_timeout.and_then(Deadline::after);
        let mut call = ClusterCall::new(&self.core, target, deadline, "a connection");
        let place = call.next().await?;
        let mut connection = self.core.checkout(&place, Purpose::Dedicated).await?;
        connection.set_reusable(false);
        Ok(connection)
    }

    /// The primary that serves a key, as this client knows it now; `None` if no node serves its slot. It may serve the key no
    /// more when a command arrives there.
    #[must_use]
    pub fn node_of(&self, key: impl AsRef<[u8]>) -> Option<NodeAddress> {
        let map = self.core.topology.map();
        map.shard(slot_of(key.as_ref())).map(|shard| shard.primary.address().clone())
    }

    /// Sends a command whose reply is one string to the node of its key, and returns a reader for the string, as
    /// [`Client::stream_reply`](crate::Client::stream_reply) does.
    pub(crate) async fn stream_reply(&self, command: Command) -> Result<Option<ValueReader>, Error> {
        let (target, repeatable) = self.target(&command)?;
        let limit = self.core.config.limit(&command);
        let deadline = limit.and_then(Deadline::after);
        let call = ClusterCall::of(&self.core, &command, target, deadline).repeatable(repeatable).dedicated();
        let attempt = |place| {
            let command = command.clone();
            async move { self.core.checkout(&place, Purpose::Dedicated).await?.stream_reply(command, limit).await }
        };
        call.run(attempt).await
    }

    /// Sends a command whose last argument of `len` bytes is written piece by piece to the node of its key, as
    /// [`Client::stream_argument`](crate::Client::stream_argument) does.
    pub(crate) async fn stream_argument(&self, command: Command, len: usize) -> Result<ValueWriter, Error> {
        let (target, repeatable) = self.target(&command)?;
        let Target::Slot(slot, _) = target else {
            let reason = "it has no key before the argument to be streamed";
            return Err(no_route(&command, reason).into());
        };
        let key = Bytes::copy_from_slice(first_key(&command).unwrap_or_default());
        let limit = self.core.config.limit(&command);
        let deadline = limit.and_then(Deadline::after);
        let target = Target::Slot(slot, Access::Write);
        let call = ClusterCall::of(&self.core, &command, target, deadline).repeatable(repeatable).dedicated();
        let attempt = |place: Place| {
            let (key, command) = (key.clone(), command.clone());
            async move {
                find_key(&place, &key, deadline).await?;
                let connection = self.core.checkout(&place, Purpose::Dedicated).await?;
                connection.stream_argument(command, len, limit).await
            }
        };
        call.run(attempt).await
    }

    /// The slot of a command's keys, and whether it may run twice. The primary, because a dedicated connection reads what
    /// was written before.
    fn target(&self, command: &Command) -> Result<(Target, bool), Error> {
        if let Some(refusal) = command.refusal_outside_pipeline() {
            return Err(refusal.into());
        }
        let description = find(command).ok_or_else(|| no_route(command, UNKNOWN))?;
        match route(command, description)? {
            Routed::Slot(slot) => Ok((Target::Slot(slot, Access::Write), command.may_run_twice())),
            _ => Err(no_route(command, "it needs keys of one slot").into()),
        }
    }
}

/// Fails if the node does not serve the key. A user who may not ask gets the failure of the command itself.
async fn find_key(place: &Place, key: &[u8], deadline: Option<Deadline>) -> Result<(), Error> {
    match place.ask_for(key, deadline).await {
        Err(Error::Server(refusal)) if refusal.kind() == ServerErrorKind::NoPerm => Ok(()),
        answer => answer,
    }
}

/// True if a command that ends so may have blocked. A server that is not ready says so at once.
fn may_have_blocked(error: &Error) -> bool {
    match error {
        Error::Server(reply) => {
            !matches!(reply.kind(), ServerErrorKind::Loading | ServerErrorKind::MasterDown)
        }
        Error::Lost(lost) => lost.may_have_run,
        _ => false,
    }
}

/// True for XREAD with the id `$`: the end of the stream at the moment when the server reads the command.
fn reads_from_end(command: &Command) -> bool {
    let mut words = command.words();
    if !words.next().is_some_and(|name| name.eq_ignore_ascii_case(b"XREAD")) {
        return false;
    }
    // Keys, and as many ids.
    let streams: Vec<_> = words.skip_while(|word| !word.eq_ignore_ascii_case(b"STREAMS")).skip(1).collect();
    streams[streams.len() / 2..].contains(&&b"$"[..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_id_means_the_end_of_a_stream() {
        let from_end = |line: &str| reads_from_end(&Command::from_args(line.split(' ')));
        assert!(from_end("XREAD BLOCK 0 STREAMS s $") && from_end("xread block 0 streams a b 0-1 $"));
        for line in ["XREAD BLOCK 0 STREAMS $ 0-1", "XREAD BLOCK 0 STREAMS s 0-1", "XREAD $", "BLPOP $ 0"] {
            assert!(!from_end(line), "{line}");
        }
    }
}
