//! [`ClusterPipeline`]: commands for several nodes, sent together.

use std::borrow::Borrow;
use std::sync::Arc;

use futures_util::future::join_all;
use valkey_rdma_resp::Value;

use super::client::ClusterClient;
use super::commands::{Access, find};
use super::core::Place;
use super::route::{Routed, route};
use super::tries::{Target, Tries};
use crate::error::Error;
use crate::multiplexer::{Deadline, Replies, ReplyBuffer};
use crate::resp::{Command, CommandClass, EncodedPipeline, RefusedCommand};

/// Commands sent together: those of one node in one write, those of different nodes at the same time.
///
/// ```no_run
/// # async fn example(cluster: valkey_rdma_client::ClusterClient) -> Result<(), valkey_rdma_client::Error> {
/// let replies = cluster.pipeline().command(["GET", "a"]).command(["INCR", "b"]).send().await?;
/// for reply in replies {
///     match reply {
///         Ok(value) => println!("{value:?}"),
///         Err(error) => println!("{error}; {}", error.fate()),
///     }
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Order
/// Replies are in the order of the commands. Commands with keys of the same slot run in their order, unless that slot moves
/// to another node meanwhile. Between slots there is no order.
#[derive(Clone, Debug)]
#[must_use = "a pipeline does nothing until sent"]
pub struct ClusterPipeline {
    cluster: ClusterClient,
    commands: Vec<Command>,
}

impl ClusterClient {
    /// Begins a pipeline.
    pub fn pipeline(&self) -> ClusterPipeline {
        ClusterPipeline { cluster: self.clone(), commands: Vec::new() }
    }

    /// The way of a command that a pipeline does not send to one slot.
    async fn execute_apart(&self, index: usize, command: Command) -> Answers {
        vec![(index, self.execute(command).await)]
    }

    /// Sends the commands of one node. A command that fails there goes on alone.
    async fn send_group(&self, group: Group, deadline: Option<Deadline>) -> Answers {
        let Group { place, commands, .. } = group;
        let encoded: EncodedPipeline = commands.iter().map(|sent| &sent.command).collect();
        // Replies that came before a connection was lost are final.
        let buffer = Arc::new(ReplyBuffer::with_capacity(commands.len()));
        let outcome = place.client.run_until(encoded, Replies::Streamed(buffer.clone(), 0), deadline).await;
        let mut replies = Vec::with_capacity(commands.len());
        buffer.take(&mut replies);
        let mut replies = replies.into_iter();
        let mut answers = Vec::with_capacity(commands.len());
        let mut again = Vec::new();
        for sent in commands {
            let error = match (replies.next(), &outcome) {
                (Some(Ok(value)), _) => {
                    answers.push((sent.index, Ok(value)));
                    continue;
                }
                (Some(Err(error)), _) => Error::Server(error),
                (None, Err(error)) => error.clone(),
                // As many replies as commands: that is what success means.
                (None, Ok(_)) => Error::Lost(place.client.lost()),
            };
            again.push((sent, error));
        }
        // In turn, so that commands of the same slot keep their order.
        for (sent, error) in again {
            let Sent { index, command, slot, access } = sent;
            let target = Target::Slot(slot, access);
            let place = Place { node: place.node.clone(), client: place.client.clone(), asking: false };
            let failure = Some((place, error));
            answers.push((index, self.with_tries(Box::new(command), target, deadline, failure).await));
        }
        answers
    }
}

/// Replies, by the index of their command.
type Answers = Vec<(usize, Result<Value, Error>)>;

/// A command on its way to one slot.
struct Sent {
    index: usize,
    command: Command,
    slot: u16,
    access: Access,
}

/// The commands of one node.
struct Group {
    place: Place,
    commands: Vec<Sent>,
}

impl ClusterPipeline {
    /// Adds a command, given as its name and arguments.
    pub fn command(mut self, args: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Self {
        self.commands.push(Command::from_args(args));
        self
    }

    /// Adds a [`Command`].
    pub fn with(mut self, command: Command) -> Self {
        self.commands.push(command);
        self
    }

    /// Adds a command in place, for loops.
    pub fn push(&mut self, command: impl Borrow<Command>) -> &mut Self {
        self.commands.push(command.borrow().clone());
        self
    }

    /// Number of commands.
    #[must_use]
    pub fn len(&self) -> usize {
        self.commands.len()
    }

    /// True if the pipeline is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    /// Sends the commands and waits for all replies: one per command, in order. Each has its own error, and each error its
    /// own [fate](Error::fate): some commands may have run and others not. All of them share one time limit, the longest
    /// that one of them has.
    ///
    /// Commands that concern several nodes, such as DBSIZE or MGET of several slots, run beside the others.
    ///
    /// # Errors
    /// [`Error::Refused`] if a command cannot be shared, or for MULTI: [`ClusterClient::transaction`] keeps its commands
    /// together. Then none was sent.
    ///
    /// # Cancel safety
    /// Dropping the future discards the replies. The commands may or may not run.
    pub async fn send(self) -> Result<Vec<Result<Value, Error>>, Error> {
        let Self { cluster, commands } = self;
        for command in &commands {
            if let Some(refusal) = command.shared_refusal().or_else(|| transaction_refusal(command)) {
                return Err(refusal.into());
            }
        }
        let limits = commands.iter().filter_map(Command::limit);
        let limit = limits.max().or(cluster.core.config.node.command_timeout);
        let deadline = limit.and_then(Deadline::after);
        let mut answers = Vec::with_capacity(commands.len());

        let mut routed = Vec::with_capacity(commands.len());
        let mut apart = Vec::new();
        for (index, mut command) in commands.into_iter().enumerate() {
            let Some(description) = find(&command) else {
                apart.push(cluster.execute_apart(index, command));
                continue;
            };
            match route(&command, description) {
                Ok(Routed::Slot(slot)) => {
                    if description.access == Access::Read {
                        command = command.idempotent();
                    }
                    routed.push(Sent { index, command, slot, access: description.access });
                }
                Ok(_) => apart.push(cluster.execute_apart(index, command)),
                Err(error) => answers.push((index, Err(error.into()))),
            }
        }

        let (groups, homeless) = cluster.group(routed);
        let sent = groups.into_iter().map(|group| cluster.send_group(group, deadline));
        let waiting = homeless.into_iter().map(|commands| cluster.send_later(commands, deadline));
        let (sent, (waiting, apart)) =
            tokio::join!(join_all(sent), async { tokio::join!(join_all(waiting), join_all(apart)) });
        answers.extend(sent.into_iter().chain(waiting).chain(apart).flatten());
        // One for each command.
        answers.sort_unstable_by_key(|(index, _)| *index);
        Ok(answers.into_iter().map(|(_, answer)| answer).collect())
    }
}

impl ClusterClient {
    /// Sorts commands by node. Those whose node has no connection come back by slot: each of these finds its own way.
    fn group(&self, commands: Vec<Sent>) -> (Vec<Group>, Vec<Vec<Sent>>) {
        let map = self.core.topology.map();
        let mut groups: Vec<Group> = Vec::new();
        let mut homeless: Vec<Vec<Sent>> = Vec::new();
        for sent in commands {
            let node = self.core.choose(&map, sent.slot, sent.access);
            let live = node.and_then(|node| Some((node, node.live()?)));
            match live {
                Some((node, client)) => {
                    match groups.iter_mut().find(|group| Arc::ptr_eq(&group.place.node, node)) {
                        Some(group) => group.commands.push(sent),
                        None => {
                            let place = Place { node: node.clone(), client, asking: false };
                            groups.push(Group { place, commands: vec![sent] });
                        }
                    }
                }
                None => match homeless.iter_mut().find(|others| others[0].slot == sent.slot) {
                    Some(others) => others.push(sent),
                    None => homeless.push(vec![sent]),
                },
            }
        }
        (groups, homeless)
    }

    /// Waits for a connection to the node of a slot, then sends its commands together.
    async fn send_later(&self, commands: Vec<Sent>, deadline: Option<Deadline>) -> Answers {
        let Some(first) = commands.first() else { return Vec::new() };
        let target = Target::Slot(first.slot, first.access);
        let mut tries = Tries::new(&self.core, target, deadline, first.command.name());
        match tries.next().await {
            Ok(place) => self.send_group(Group { place, commands }, deadline).await,
            Err(error) => commands.into_iter().map(|sent| (sent.index, Err(error.clone()))).collect(),
        }
    }
}

/// MULTI and EXEC would be sent to some node, and the commands between them to others.
pub(super) fn transaction_refusal(command: &Command) -> Option<RefusedCommand> {
    match command.class() {
        CommandClass::Multi | CommandClass::EndMulti => {
            Some(RefusedCommand { command: command.name(), reason: USE_TRANSACTION })
        }
        _ => None,
    }
}

const USE_TRANSACTION: &str = "a pipeline may go to several nodes; use ClusterClient::transaction";
