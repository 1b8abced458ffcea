//! [`Program`]: what may answer a command in place of the server, in the server's own words.
//!
//! A script, a function and a command of a module answer with errors of their own. These may have any form: that of MOVED with whatever
//! address, or that of LOADING after the script has run. A client that follows the first sends its login there, and the commands of other
//! tasks with that slot. One that obeys the second runs the command twice. So an error of such a command counts only where it is the node's own.

use bytes::Bytes;
use futures_util::FutureExt;
use tokio::time::timeout;
use valkey_rdma_resp::{ServerError, ServerErrorKind};

use super::{ClusterCall, Redirection, Target};
use crate::cluster::core::{Core, Place};
use crate::cluster::discovery::own_slots;
use crate::command::table::{find, first_key};
use crate::command::{Command, CommandClass};
use crate::endpoint::NodeAddress;
use crate::error::Error;
use crate::link::is_of_replica;
use crate::runtime::until;

/// A script, a function, or a command of a module.
pub(super) enum Program {
    /// It has this first key.
    WithKey(Bytes),
    /// A script or a function without keys: no node redirects it.
    WithoutKeys,
    /// A command of a module, whose keys no server describes.
    WithUnknownKeys,
}

impl Program {
    /// `None`: nothing but the server answers the command.
    pub(super) fn of(core: &Core, command: &Command) -> Option<Self> {
        if find(command).is_none() {
            return Some(core.first_learned_key(command).map_or(Self::WithUnknownKeys, Self::WithKey));
        }
        let key = || first_key(command).map(Bytes::copy_from_slice);
        let is_script = command.class() == CommandClass::RunsScript;
        is_script.then(|| key().map_or(Self::WithoutKeys, Self::WithKey))
    }
}

impl ClusterCall<'_> {
    /// What an error reply asks for, if it is the node's own and about the slot of this command.
    pub(super) async fn redirection(&self, place: &Place, reply: &ServerError) -> Redirection {
        let said = Redirection::of(reply, place.node.address());
        if let (Redirection::Moved(slot, _) | Redirection::Ask(slot, _), Target::Slot(own, _)) =
            (&said, &self.target)
            && slot != own
        {
            return Redirection::Final;
        }
        match (&self.program, reply.kind()) {
            (None, _) => said,
            // Boxed, because it is rare.
            (Some(program), ServerErrorKind::Moved | ServerErrorKind::Ask) => {
                self.confirmed(program, place, said).boxed().await
            }
            (Some(_), _) if is_text_of_server(reply) => said,
            (Some(_), _) => Redirection::Final,
        }
    }

    /// Asks the node that redirects a program for the program's key. A node that redirects the question too says where to go. One that answers it
    /// serves the key, so that the program has run, and the redirection is its answer.
    async fn confirmed(&self, program: &Program, place: &Place, said: Redirection) -> Redirection {
        match program {
            Program::WithoutKeys => return Redirection::Final,
            Program::WithUnknownKeys => {}
            Program::WithKey(key) => match place.ask_for(key, self.deadline).await {
                Ok(()) => {
                    if self.is_primary(place).await {
                        return Redirection::Final;
                    }
                }
                Err(Error::Server(reply))
                    if matches!(reply.kind(), ServerErrorKind::Moved | ServerErrorKind::Ask) =>
                {
                    return Redirection::of(&reply, place.node.address());
                }
                // The user may not run EXISTS, for example.
                Err(_) => {}
            },
        }
        // Nothing says more, and it may lead to nodes of the cluster only.
        let is_known = match &said {
            Redirection::Moved(_, address) | Redirection::Ask(_, address) => self.finds(address).await,
            _ => false,
        };
        if is_known { said } else { Redirection::Final }
    }

    /// Whether a node of the cluster has this address: by the map, or by the next one, because a node may have its first slot since the last.
    async fn finds(&self, address: &NodeAddress) -> bool {
        let has = || self.core.topology.map().has(address, false);
        if !has() {
            tokio::select! {
                () = self.core.refreshed() => {}
                () = until(self.deadline.map(|deadline| deadline.at)) => {}
            }
        }
        has()
    }

    /// False if the node has become a replica: one that may be read answers the question, and redirects a program that may write.
    async fn is_primary(&self, place: &Place) -> bool {
        let Target::Slot(slot, _) = self.target else { return true };
        if !self.core.config.cluster.read_from.uses_replicas() {
            return true;
        }
        match timeout(place.client.endpoint().timeout(), own_slots(&place.node)).await {
            Ok(Ok(own)) => own.iter().any(|range| range.contains(&slot)),
            Ok(Err(_)) | Err(_) => true,
        }
    }
}

/// True for the texts of the server itself, before a command runs. A script that returns the same text wants what follows.
///
/// Source: valkey `src/server.c`, `createSharedObjects`; `src/cluster.c`, `clusterRedirectClient`; `src/script.c`, `scriptPrepareForRun`.
fn is_text_of_server(reply: &ServerError) -> bool {
    let begins = |text: &str| reply.message.starts_with(text);
    match reply.kind() {
        ServerErrorKind::TryAgain => begins("Multiple keys request during rehashing"),
        ServerErrorKind::ClusterDown => begins("The cluster is down") || begins("Hash slot not served"),
        // Behind the server's name.
        ServerErrorKind::Loading => reply.message.contains(" is loading the dataset"),
        ServerErrorKind::MasterDown => begins("Link with MASTER is down"),
        ServerErrorKind::ReadOnly => is_of_replica(reply),
        ServerErrorKind::Unblocked => begins("force unblock from blocking operation"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_texts_of_servers_are_known_and_those_of_scripts_are_not() {
        let is_of_server = |text: &str| is_text_of_server(&ServerError::from_reply(text.as_bytes()));
        for text in [
            "TRYAGAIN Multiple keys request during rehashing of slot",
            "CLUSTERDOWN The cluster is down",
            "CLUSTERDOWN The cluster is down and only accepts read commands",
            "CLUSTERDOWN Hash slot not served",
            "LOADING Valkey is loading the dataset in memory",
            "LOADING Redis is loading the dataset in memory",
            "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
            "MASTERDOWN Link with MASTER is down and slave-serve-stale-data is set to 'no'.",
            "READONLY You can't write against a read only replica. script: 1f, on @user_script:1.",
            "READONLY You can't write against a read only slave.",
            "READONLY Can not run script with write flag on readonly replica",
            "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)",
        ] {
            assert!(is_of_server(text), "{text}");
        }
        for text in ["TRYAGAIN busy", "CLUSTERDOWN", "LOADING wait", "MASTERDOWN x", "READONLY mode", "ERR x"]
        {
            assert!(!is_of_server(text), "{text}");
        }
    }
}
