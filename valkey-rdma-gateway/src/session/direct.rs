//! Direct transfers (spec, area D): `BLOB.GET` and `BLOB.SET` with memory of the client become GET and SET at a server that knows no RDMA. The
//! value passes through registered memory of the client's connection as it arrives: see [`moving`].
//!
//! It has a connection to the server for itself meanwhile: no other client waits behind a large value.

mod moving;
pub(super) mod staging;
mod upstream;

use std::sync::{Arc, OnceLock};

use bytes::{Buf, Bytes};
use tracing::warn;
use valkey_rdma_client::{Client, Command, Error};
use valkey_rdma_resp::{CommandError, Output, Reply, integer, words};
use valkey_rdma_server::{DirectError, RemoteRanges};
use valkey_rdma_transport::raw::FailureStatus;
use valkey_rdma_transport::{CloseReason, Direct, TransportError};

use self::moving::{Failed, Moving};
use self::staging::Staging;
use self::upstream::{Found, Lost, Sink, Source};
use super::route::LONGEST_DIRECT;
use super::{Closed, Session};
use crate::cluster::{failure, refusal};
use crate::command::class::Class;
use crate::command::direct::Verb;
use crate::core::Core;
use crate::observe::metrics::Metrics;
use crate::upstream::open_error::one_line;
use crate::upstream::private::Private;

/// What a command asks for.
struct Call {
    verb: Verb,
    key: Bytes,
    /// Length of the value that is set.
    len: usize,
    ranges: RemoteRanges,
    direct: Direct,
    core: Arc<Core>,
    staging: Arc<OnceLock<Staging>>,
}

/// What to reply, and how many bytes were moved, if there was a value.
type Moved = (Done, Option<usize>);

/// A reply.
enum Done {
    Reply(Reply),
    /// The server's own reply.
    AsServer(Bytes),
}

impl Session {
    /// Carries out a command that names memory of the client. Nothing is in flight.
    pub(super) async fn direct(&mut self, verb: Verb, command: &Bytes) -> Result<(), Closed> {
        if command.len() > LONGEST_DIRECT {
            return Err(self.broken(&CommandError::InvalidBulkLen));
        }
        let call = match self.direct_call(verb, command) {
            Ok(call) => call,
            Err(refusal) => {
                self.put(&refusal);
                return Ok(());
            }
        };
        let done = match self.route.backend.cluster.is_some() {
            true => self.move_at_node(&call).await?,
            false => self.move_at_server(&call).await?,
        };
        match done {
            Done::Reply(reply) => self.put(&reply),
            Done::AsServer(reply) => self.out.put(&reply),
        }
        Ok(())
    }

    /// Reads the command. An error is the reply.
    fn direct_call(&mut self, verb: Verb, command: &Bytes) -> Result<Call, Reply> {
        let words: Vec<_> = words(command).map(|word| command.slice_ref(word)).collect();
        let (key, len, place) = match (verb, &words[..]) {
            (Verb::Get, [_, key, place @ ..]) => (key, 0, place),
            (Verb::Set, [_, key, len, place @ ..]) => {
                let len = integer::parse(len).and_then(|len| usize::try_from(len).ok());
                (key, len.ok_or(Reply::error("ERR value is not an integer or out of range"))?, place)
            }
            _ => return Err(Reply::error("ERR syntax error")),
        };
        let ranges = RemoteRanges::parse(place)?;
        let direct = self.stream.direct().ok_or(Reply::error(
            "NODIRECT this connection has no direct transfers: the client has not asked for them",
        ))?;
        fits(len, &ranges)?;
        let (core, staging) = (self.core.clone(), self.staging.clone());
        Ok(Call { verb, key: key.clone(), len, ranges, direct, core, staging })
    }

    async fn move_at_server(&mut self, call: &Call) -> Result<Done, Closed> {
        let mut private = match self.private().await? {
            Ok(private) => private,
            Err(error) if error.is_about_room() => return Ok(Done::Reply(no_room(&error.to_string()))),
            Err(error) => {
                self.answer_unsent(Class::Ordinary, error)?;
                return Ok(Done::AsServer(Bytes::new()));
            }
        };
        self.metrics().private_commands.add(1);
        let mut replies = Output::default();
        let moved = self.while_open(false, call.at_server(&mut private, &mut replies)).await;
        let done = match moved {
            Ok(Err(Failed::Upstream(lost))) => {
                // A get changes nothing, and a set without its last byte is none.
                let may_have_run = call.verb == Verb::Set && !private.has_open_command();
                self.report_loss(&private, may_have_run.into(), &lost.to_string());
                if call.verb == Verb::Set {
                    // It may have refused the value before its end.
                    self.out.put(&replies.copy_to_bytes(replies.remaining()));
                }
                return call.lost(&lost);
            }
            Ok(Err(Failed::Client(error))) => self.client_failed(error),
            Ok(Ok(moved)) => Ok(self.moved(call, moved)),
            Err(Closed) => Err(self.client_ended()),
        };
        // A value that is not read to its end is in the way of the next client.
        match private.is_plain() {
            true => self.route.backend.pool.give_back(&self.identity, private),
            false => self.route.backend.pool.retire(self.identity.clone(), private, true),
        }
        done
    }

    async fn move_at_node(&mut self, call: &Call) -> Result<Done, Closed> {
        // What cannot be had is answered.
        let Some(client) = self.library().await? else { return Ok(Done::AsServer(Bytes::new())) };
        let _permit = match self.route.backend.pool.permit().await {
            Ok(permit) => permit,
            Err(error) => return Ok(Done::Reply(no_room(&error.to_string()))),
        };
        self.metrics().private_commands.add(1);
        match self.while_open(false, Box::pin(call.at_node(client))).await {
            Ok(Err(Failed::Upstream(lost))) => match call.answer(&lost, self.metrics()) {
                Some(reply) => Ok(Done::Reply(reply)),
                None => call.lost(&lost),
            },
            Ok(Err(Failed::Client(error))) => self.client_failed(error),
            Ok(Ok(moved)) => Ok(self.moved(call, moved)),
            Err(Closed) => Err(self.client_ended()),
        }
    }

    /// Counts what was moved.
    fn moved(&self, call: &Call, (done, moved): Moved) -> Done {
        if let Some(len) = moved {
            let metrics = self.metrics();
            let (transfers, bytes) = match call.verb {
                Verb::Get => (&metrics.direct_gets, &metrics.direct_get_bytes),
                Verb::Set => (&metrics.direct_sets, &metrics.direct_set_bytes),
            };
            transfers.add(1);
            bytes.add(len as u64);
        }
        done
    }

    fn client_failed(&self, error: TransportError) -> Result<Done, Closed> {
        match self.stream.close_error() {
            Some(_) => Err(self.client_ended()),
            None => Ok(Done::Reply(DirectError::from(error).into())),
        }
    }

    fn client_ended(&self) -> Closed {
        self.report_refused_transfer();
        Closed
    }

    /// Logs that the client's device has refused a transfer, if the connection has ended by that.
    pub(super) fn report_refused_transfer(&self) {
        // A device refuses a window with a wrong key in the same way.
        if self.staging.get().is_some()
            && let Some(TransportError::Lost(CloseReason::Failed(FailureStatus::RemoteAccess))) =
                self.stream.close_error()
            && let Some(unlogged) = self.core.refused_transfers.pass(std::time::Instant::now())
        {
            let (id, peer, error) = (self.client.id, &self.client.peer, DirectError::Refused);
            warn!(id, peer, %error, unlogged, "client closed");
        }
    }
}

impl Call {
    /// GET or SET on a private connection.
    async fn at_server(&self, private: &mut Private, replies: &mut Output) -> Result<Moved, Failed> {
        if self.verb == Verb::Set {
            let staging = match self.staging() {
                Ok(staging) => staging,
                Err(refusal) => return Ok((Done::Reply(refusal), None)),
            };
            let begin = async { Ok(Sink::new(private, replies, &self.key, self.len)) };
            self.moving(staging, self.len).read_into(begin).await?;
            return Ok((Done::AsServer(replies.copy_to_bytes(replies.remaining())), Some(self.len)));
        }
        match upstream::get(private, &self.key).await.map_err(Failed::Upstream)? {
            Found::Value(len, begun) => {
                *replies = begun;
                self.write(len, Source::Server(private, replies)).await
            }
            Found::Other(reply) => Ok((Done::AsServer(reply), None)),
        }
    }

    /// The same at the node of the key.
    async fn at_node(&self, client: Client) -> Result<Moved, Failed> {
        let failed = |error: Error| Failed::Upstream(error.into());
        let command = Command::new(self.verb.name()).arg(&self.key);
        if self.verb == Verb::Set {
            let staging = match self.staging() {
                Ok(staging) => staging,
                Err(refusal) => return Ok((Done::Reply(refusal), None)),
            };
            let begin = async { Ok(Sink::Node(client.stream_argument(command, self.len).await?.into())) };
            self.moving(staging, self.len).read_into(begin).await?;
            return Ok((Done::Reply(Reply::OK), Some(self.len)));
        }
        match client.stream_reply(command).await.map_err(failed)? {
            Some(mut reader) => self.write(reader.len(), Source::Node(&mut reader)).await,
            None => Ok((Done::Reply(Reply::Null), None)),
        }
    }

    /// Writes a value of this length to the client, if it fits and there is memory.
    async fn write(&self, len: usize, mut source: Source<'_>) -> Result<Moved, Failed> {
        let staging = match fits(len, &self.ranges).and_then(|()| self.staging()) {
            Ok(staging) => staging,
            Err(refusal) => {
                // The client waits for that: else it could have many such values read at the same time.
                source.skip(len).await.map_err(Failed::Upstream)?;
                return Ok((Done::Reply(refusal), None));
            }
        };
        let crc = self.moving(staging, len).write_from(&mut source).await?;
        source.finish().await.map_err(Failed::Upstream)?;
        let reply = [i64::try_from(len).unwrap_or(i64::MAX), crc.into()];
        Ok((Done::Reply(Reply::array(reply)), Some(len)))
    }

    /// The memory of this connection, from its first transfer that has a value: without a login it pins none. An error is the reply.
    fn staging(&self) -> Result<&Staging, Reply> {
        match self.staging.get() {
            Some(staging) => Ok(staging),
            None => {
                let new = Staging::new(&self.direct, &self.core.limits(), &self.core.staged)?;
                Ok(self.staging.get_or_init(|| new))
            }
        }
    }

    fn moving<'a>(&'a self, staging: &'a Staging, len: usize) -> Moving<'a> {
        Moving { direct: &self.direct, staging, ranges: &self.ranges, len }
    }

    /// The reply to a failure at a node. `None`: it was lost.
    fn answer(&self, lost: &Lost, metrics: &Metrics) -> Option<Reply> {
        match (lost, self.verb) {
            (Lost::Server(_), _) => None,
            (Lost::Node(error), _) if is_node_full(error) => Some(no_room(&error.to_string())),
            // Its client asks again over the stream, so no command is without its reply.
            (Lost::Node(error), Verb::Get) => refusal(error, metrics),
            (Lost::Node(error), Verb::Set) => failure(error, metrics),
        }
    }

    /// The server was lost. A value may be stored or not, so its client is closed, as the end of the server would close it. A get has
    /// changed nothing, and may be tried over the stream (spec clause D-7).
    fn lost(&self, lost: &Lost) -> Result<Done, Closed> {
        match self.verb {
            Verb::Get => Ok(Done::Reply(Reply::error(format!(
                "NODIRECT the server was lost before the end of the value: {}",
                one_line(&lost.to_string())
            )))),
            Verb::Set => Err(Closed),
        }
    }
}

/// The reply if there is no connection for a transfer: those that clients share may carry the command out (spec clause D-7).
fn no_room(why: &str) -> Reply {
    Reply::error(format!("NODIRECT {}", one_line(why.trim_start_matches('-'))))
}

/// Whether a node has no room for another connection.
fn is_node_full(error: &Error) -> bool {
    error.server().is_some_and(|error| error.to_string().starts_with("ERR max number of clients"))
}

fn fits(len: usize, ranges: &RemoteRanges) -> Result<(), Reply> {
    let room = ranges.room();
    if len as u64 > room { Err(DirectError::TooSmall { len, room }.into()) } else { Ok(()) }
}

#[cfg(all(test, feature = "emulated"))]
mod tests;
