//! Transactions of a client of a cluster: queued here, and sent as a whole to the node of their slot.

use bytes::Bytes;
use tokio::sync::OwnedSemaphorePermit;
use valkey_rdma_client::cluster::Routing;
use valkey_rdma_client::{AbortedTransaction, ClusterError, Command, Error, Fate, ServerError, Value, Watch};
use valkey_rdma_resp::{Reply, words};

use super::super::{Attached, Closed, Session};
use super::Begun;
use crate::cluster::{NO_CLUSTER, failure, is_about_nodes};
use crate::command::class::{Class, State};
use crate::command::words::is;

/// A transaction that has begun.
#[derive(Default)]
pub(super) struct Queued {
    commands: Vec<Command>,
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
    watch: Watch,
    slot: u16,
    _permit: OwnedSemaphorePermit,
}

impl Session {
    /// MULTI, EXEC or DISCARD with arguments, which a server refuses. EXEC discards the transaction then, and the others let it fail.
    pub(super) fn refuse_arguments(&mut self, state: State, command: &[u8], begun: &mut Begun) {
        let name = words(command).next().unwrap_or_default().escape_ascii().to_string().to_lowercase();
        let wrong = format!("wrong number of arguments for '{name}' command");
        let text = if state == State::Exec {
            (begun.transaction, begun.watch) = (None, None);
            format!("EXECABORT Transaction discarded because of: {wrong}")
        } else {
            begun.transaction.iter_mut().for_each(Queued::fail);
            format!("ERR {wrong}")
        };
        self.put_refusal(&Reply::error(text));
    }

    /// A command after MULTI.
    pub(super) async fn queue(
        &mut self,
        class: Class,
        command: &Bytes,
        begun: &mut Begun,
    ) -> Result<(), Closed> {
        match class {
            Class::State(State::Exec) => return self.exec(begun).await,
            Class::State(State::Discard) => {
                (begun.transaction, begun.watch) = (None, None);
                self.put(&Reply::OK);
                return Ok(());
            }
            Class::State(State::Multi) => {
                self.put_refusal(&Reply::error("ERR MULTI calls can not be nested"));
                return Ok(());
            }
            Class::State(State::Watch) => {
                self.put_refusal(&Reply::error("ERR WATCH inside MULTI is not allowed"));
                return Ok(());
            }
            _ => {}
        }
        let most = self.core.limits().queued_bytes;
        let slot_before = begun.watch.as_ref().map(|watched| watched.slot);
        let Some(queued) = &mut begun.transaction else { return Ok(()) };
        let built = Command::from_args(words(command));
        let is_about_cluster = words(command).next().is_some_and(|name| is(name, "CLUSTER"));
        let slot = match (class, Routing::of(&built)) {
            _ if is_about_cluster => Err(Reply::error(NO_CLUSTER)),
            (Class::State(_) | Class::Local(_), _) => Err(refusal(command, "it is about a connection")),
            (_, Ok(Routing::Slot(slot))) => match queued.slot.or(slot_before) {
                Some(first) if first != slot => Err(cross_slot(first, slot)),
                _ => Ok(Some(slot)),
            },
            (_, Ok(Routing::Any)) => Ok(queued.slot),
            (_, Ok(Routing::Several)) if words(command).next().is_some_and(|name| is(name, "PING")) => {
                Ok(queued.slot)
            }
            (_, Ok(_)) => Err(refusal(command, "it concerns several nodes")),
            (_, Err(error)) => {
                queued.has_failed = true;
                let reply = match error {
                    ClusterError::NoRoute { .. } if self.is_unknown(command).await? => unknown(command),
                    _ => self.failure_of(command, &error.into())?,
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
                queued.commands.push(built);
                self.put(&Reply::simple("QUEUED"));
            }
            Err(reply) => {
                queued.has_failed = true;
                self.note_refusal(command);
                self.put_refusal(&reply);
            }
        }
        Ok(())
    }

    /// Whether a node says that it does not know a command. Nothing of it but its name is sent: it must not run outside of its transaction.
    async fn is_unknown(&mut self, command: &[u8]) -> Result<bool, Closed> {
        let Attached::Cluster(lane) = self.route.backend.shared(&self.identity) else { return Ok(false) };
        let Ok(client) = self.while_open(false, lane.connected()).await? else { return Ok(false) };
        let name = words(command).next().unwrap_or_default();
        let question = Command::from_args([&b"COMMAND"[..], b"INFO", name]).idempotent();
        let answer = self.while_open(false, client.command(question)).await?;
        Ok(answer.is_ok_and(|known| known.as_slice().is_some_and(|all| all.iter().all(Value::is_nil))))
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
            Some(Watched { watch, _permit: permit, .. }) => (watch.transaction(), Some(permit)),
            None if queued.commands.is_empty() => {
                self.put(&Reply::Array(Vec::new()));
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
        self.put(&reply);
        Ok(())
    }

    pub(super) async fn watch(&mut self, command: &Bytes, begun: &mut Begun) -> Result<(), Closed> {
        let keys: Vec<_> = words(command).skip(1).collect();
        let slot = match Routing::of(&Command::from_args(words(command))) {
            Ok(Routing::Slot(slot)) => slot,
            Ok(_) => {
                self.put(&Reply::error("ERR wrong number of arguments for 'watch' command"));
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
            Some(watched) => self.while_open(false, watched.watch.watch(&keys)).await?,
            None => {
                let Some(client) = self.library().await? else { return Ok(()) };
                let Some(permit) = self.permit().await? else { return Ok(()) };
                let watch = self.while_open(false, client.watch(&keys)).await?;
                watch.map(|watch| begun.watch = Some(Watched { watch, slot, _permit: permit }))
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
