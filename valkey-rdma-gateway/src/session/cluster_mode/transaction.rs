//! Transactions of a client of a cluster: queued here, and sent as a whole to the node of their slot.

use bytes::Bytes;
use tokio::sync::OwnedSemaphorePermit;
use valkey_rdma_client::cluster::Routing;
use valkey_rdma_client::{
    AbortedTransaction, Client, ClusterError, Command, Error, Fate, ServerError, Value, Watch,
};
use valkey_rdma_resp::{Reply, words};

use super::super::{Closed, Session};
use super::{Begun, reads_replicas};
use crate::cluster::{NO_CLUSTER, failure, is_about_nodes};
use crate::command::class::{Class, Local, State};
use crate::command::words::is;
use crate::session::answers::wrong_arity;
use crate::upstream::private::database;

/// A transaction that has begun.
#[derive(Default)]
pub(super) struct Queued {
    commands: Vec<Command>,
    /// Places of commands that change nothing here: EXEC answers them with OK.
    no_ops: Vec<usize>,
    bytes: usize,
    slot: Option<u16>,
    /// One of them may block: the library sends them on a connection of their own.
    may_block: bool,
    /// A command was refused: EXEC will be too.
    has_failed: bool,
}

impl Queued {
    /// One of its commands was refused.
    pub(super) fn fail(&mut self) {
        self.has_failed = true;
    }

    /// Bytes of its commands.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Keys that the client watches, all in one slot, on a connection of their own.
pub(super) struct Watched {
    /// `None`: they count as changed.
    watch: Option<Watch>,
    slot: u16,
    _permit: OwnedSemaphorePermit,
}

impl Watched {
    /// The client has another login or protocol, and the connection has the former: nothing may run there any more. A server would go on
    /// with the new one. To the client it looks as if a key had changed, so it tries again.
    pub(super) fn give_up(&mut self) {
        self.watch = None;
    }
}

impl Session {
    /// A command after MULTI.
    pub(super) async fn queue(
        &mut self,
        class: Class,
        command: &Bytes,
        begun: &mut Begun,
    ) -> Result<(), Closed> {
        let most = self.core.limits().queued_bytes;
        let slot_before = begun.watch.as_ref().map(|watched| watched.slot);
        let Some(queued) = &mut begun.transaction else { return Ok(()) };
        match class {
            Class::State(State::Exec) => return self.exec(begun).await,
            Class::State(State::Discard) => {
                (begun.transaction, begun.watch) = (None, None);
                self.put(&Reply::OK);
                return Ok(());
            }
            Class::State(State::Multi | State::Watch) => {
                queued.fail();
                let name = if class == Class::State(State::Multi) { "multi" } else { "watch" };
                let text = format!("ERR Command '{name}' not allowed inside a transaction");
                self.put_refusal(&Reply::error(text));
                return Ok(());
            }
            _ => {}
        }
        let is_no_op = self.changes_nothing(class, command);
        let built = Command::from_args(words(command));
        let name = words(command).next().unwrap_or_default();
        let routing = match (class, Routing::of(&built)) {
            (Class::Ordinary | Class::Script | Class::Alone, Err(ClusterError::NoRoute { .. })) => {
                let Some(client) = self.library().await? else {
                    queued.fail();
                    return Ok(());
                };
                self.while_open(false, routing_of(&client, &built)).await?
            }
            (_, known) => known.map(Some).map_err(Error::from),
        };
        let slot = match (class, routing) {
            _ if is_no_op => Ok(queued.slot),
            _ if is(name, "CLUSTER") || is(name, "CLUSTERSCAN") => Err(Reply::error(NO_CLUSTER)),
            (Class::State(_) | Class::Local(_), _) => Err(refusal(command, "it is about a connection")),
            (_, Ok(Some(Routing::Slot(slot)))) => match queued.slot.or(slot_before) {
                Some(first) if first != slot => Err(cross_slot(first, slot)),
                _ => Ok(Some(slot)),
            },
            (_, Ok(Some(Routing::Any))) => Ok(queued.slot),
            (_, Ok(Some(Routing::Several))) if is(name, "PING") => Ok(queued.slot),
            (_, Ok(Some(_))) => Err(refusal(command, "it concerns several nodes")),
            _ if is(name, "SCAN") => Err(refusal(command, "it goes through all nodes")),
            (_, unroutable) => {
                queued.fail();
                let reply = match unroutable {
                    Err(error) => self.failure_of(command, &error)?,
                    Ok(_) => unknown(command),
                };
                self.put(&reply);
                return Ok(());
            }
        };
        let slot = slot.and_then(|slot| match queued.bytes + command.len() > most {
            true => Err(refusal(command, "its commands are longer than limits.queued_bytes")),
            false => Ok(slot),
        });
        match slot {
            Ok(slot) => {
                queued.slot = slot;
                queued.bytes += command.len();
                queued.may_block |= class == Class::Alone;
                match is_no_op {
                    true => queued.no_ops.push(queued.commands.len() + queued.no_ops.len()),
                    false => queued.commands.push(built),
                }
                self.put(&Reply::simple("QUEUED"));
            }
            Err(reply) => {
                queued.fail();
                self.note_refusal(command);
                self.put_refusal(&reply);
            }
        }
        Ok(())
    }

    /// Whether a command of a transaction may be left out: the gateway has no such state, or has it already.
    fn changes_nothing(&self, class: Class, command: &[u8]) -> bool {
        match class {
            // EXEC compares the watched keys before it runs a command.
            Class::State(State::Unwatch) => true,
            Class::State(State::Lasting) => reads_replicas(command),
            Class::Local(Local::Select) => {
                database(command) == Some(self.identity.database) && words(command).count() == 2
            }
            _ => false,
        }
    }

    /// EXEC: the transaction goes to its node, and waits there until its slot has moved. If watched keys cannot be watched any more,
    /// because their slot has moved or the connection is lost, they count as changed.
    async fn exec(&mut self, begun: &mut Begun) -> Result<(), Closed> {
        let (queued, watched) = (begun.transaction.take().unwrap_or_default(), begun.watch.take());
        if queued.has_failed {
            self.put_refusal(&Reply::error("EXECABORT Transaction discarded because of previous errors."));
            return Ok(());
        }
        let is_watched = watched.is_some();
        let (mut transaction, _permit) = match watched {
            Some(Watched { watch: Some(watch), _permit: permit, .. }) => (watch.transaction(), Some(permit)),
            Some(Watched { watch: None, .. }) => {
                self.put(&Reply::NullArray);
                return Ok(());
            }
            None if queued.commands.is_empty() => {
                self.put(&completed(Reply::Array(Vec::new()), &queued.no_ops));
                return Ok(());
            }
            None => {
                let Some(client) = self.library().await? else { return Ok(()) };
                let permit = if queued.may_block { self.permit().await? } else { None };
                if queued.may_block && permit.is_none() {
                    return Ok(());
                }
                (client.transaction(), permit)
            }
        };
        for command in queued.commands {
            transaction.push(command);
        }
        let outcome = self.while_open(false, transaction.execute()).await?;
        let reply = match outcome {
            Ok(replies) => Reply::Array(replies.into_iter().map(reply_of).collect()),
            Err(Error::Aborted(AbortedTransaction::Watched)) => Reply::NullArray,
            Err(error) if is_watched && (error.fate() == Fate::NotSent || is_about_nodes(&error)) => {
                Reply::NullArray
            }
            Err(error) => failure(&error, self.metrics()).ok_or(Closed)?,
        };
        self.put(&completed(reply, &queued.no_ops));
        Ok(())
    }

    pub(super) async fn watch(&mut self, command: &Bytes, begun: &mut Begun) -> Result<(), Closed> {
        let keys: Vec<_> = words(command).skip(1).collect();
        let slot = match Routing::of(&Command::from_args(words(command))) {
            Ok(Routing::Slot(slot)) => slot,
            Ok(_) => {
                self.put(&wrong_arity(command));
                return Ok(());
            }
            Err(error) => {
                let reply = self.failure_of(command, &error.into())?;
                self.put(&reply);
                return Ok(());
            }
        };
        let outcome = match &mut begun.watch {
            Some(watched) if watched.slot != slot => {
                let reply = cross_slot(watched.slot, slot);
                self.note_refusal(command);
                self.put_refusal(&reply);
                return Ok(());
            }
            Some(Watched { watch: Some(watch), .. }) => self.while_open(false, watch.watch(&keys)).await?,
            Some(Watched { watch: None, .. }) => Ok(()),
            None => {
                let Some(client) = self.library().await? else { return Ok(()) };
                let Some(permit) = self.permit().await? else { return Ok(()) };
                let watch = self.while_open(false, client.watch(&keys)).await?;
                watch.map(|watch| begun.watch = Some(Watched { watch: Some(watch), slot, _permit: permit }))
            }
        };
        let reply = match outcome {
            Ok(()) => Reply::OK,
            Err(error) => failure(&error, self.metrics()).ok_or(Closed)?,
        };
        self.put(&reply);
        Ok(())
    }
}

/// The nodes that a command concerns. A node is asked about one that the library does not know, by its name alone: it must not run
/// outside of its transaction. `None`: no node knows it either.
async fn routing_of(client: &Client, command: &Command) -> Result<Option<Routing>, Error> {
    match client.cluster() {
        Some(cluster) => cluster.routing(command).await,
        None => Ok(None),
    }
}

/// The reply of EXEC, with those to commands that were not sent.
fn completed(reply: Reply, no_ops: &[usize]) -> Reply {
    match reply {
        Reply::Array(mut replies) => {
            // A node may have sent fewer replies than it has got commands.
            no_ops.iter().for_each(|&place| replies.insert(place.min(replies.len()), Reply::OK));
            Reply::Array(replies)
        }
        other => other,
    }
}

fn reply_of(reply: Result<Value, ServerError>) -> Reply {
    reply.map_or_else(Reply::from, Reply::from)
}

fn refusal(command: &[u8], why: &str) -> Reply {
    let name = words(command).next().unwrap_or_default().escape_ascii().to_string().to_uppercase();
    Reply::error(format!("ERR the gateway of a cluster refuses {name} in a transaction: {why}"))
}

fn cross_slot(first: u16, second: u16) -> Reply {
    Reply::error(format!(
        "CROSSSLOT the keys of a transaction, with those it watches, must be in one slot, and these are in {first} and {second}: use keys with the same hash tag, such as {{user1}}:name"
    ))
}

/// The error of a server for a command that it does not know.
fn unknown(command: &[u8]) -> Reply {
    let mut words = words(command).map(Bytes::copy_from_slice);
    valkey_rdma_resp::Command::new(words.next().unwrap_or_default(), words).unknown()
}
