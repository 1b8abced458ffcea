//! A [`Pipeline`](crate::Pipeline) in a cluster: the commands of one node in one write, those of different nodes at the same time.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt};
use valkey_rdma_resp::Value;

use super::call::{ClusterCall, Target};
use super::client::Cluster;
use super::core::Place;
use super::node::Node;
use super::route::{Routed, route};
use crate::command::table::{Access, Description, find};
use crate::command::{Command, Commands, EncodedPipeline};
use crate::error::Error;
use crate::link::Deadline;

/// Replies, by the index of their command.
type Answers = Vec<(usize, Result<Value, Error>)>;

/// A command on its way to one slot.
struct Sent<'a> {
    index: usize,
    command: Command,
    slot: u16,
    access: Access,
    /// What happened to it so far, if it has failed.
    call: Option<Box<ClusterCall<'a>>>,
}

/// The commands of one node; if it has no connection, those of one slot.
struct Group<'a> {
    node: Option<Arc<Node>>,
    place: Option<Place>,
    commands: Vec<Sent<'a>>,
}

impl Cluster {
    /// Sends commands and waits for all replies: one per command, in order. The node of the slot `keyless` gets those that any node may run,
    /// unless it leaves commands unanswered or cannot be reached.
    pub(crate) async fn run_pipeline(
        &self,
        commands: Vec<Command>,
        keyless: Option<u16>,
    ) -> Vec<Result<Value, Error>> {
        let keyless = keyless.map(|slot| self.core.slot_beside(slot));
        let limit = self.core.config.limit_together(&commands);
        let deadline = limit.and_then(Deadline::after);
        let mut answers = Vec::with_capacity(commands.len());
        // Before, so that commands of modules keep their order too.
        let known: Vec<_> = commands.iter().map(find).collect();
        let unknown =
            commands.iter().zip(&known).filter_map(|(command, known)| known.is_none().then_some(command));
        let described = self.describe_all(unknown, deadline).await;

        let mut routed = Vec::with_capacity(commands.len());
        let mut apart = Vec::new();
        for ((index, mut command), known) in commands.into_iter().enumerate().zip(known) {
            let way = match known {
                Some(description) => way(&command, description, keyless),
                None => described.of(&command).and_then(|learned| match learned {
                    Some(learned) => way(&command, &learned.describe(command.words().nth(1)), keyless),
                    None => Ok(None),
                }),
            };
            match way {
                Ok(Some((slot, access))) => {
                    if access == Access::Read {
                        command = command.idempotent();
                    }
                    routed.push(Sent { index, command, slot, access, call: None });
                }
                Ok(None) => apart.push(self.execute_apart(index, command, limit)),
                Err(error) => answers.push((index, Err(error))),
            }
        }

        let (sent, apart) = tokio::join!(self.send_routed(routed, deadline), join_all(apart));
        answers.extend(sent.into_iter().chain(apart));
        // One for each command.
        answers.sort_unstable_by_key(|(index, _)| *index);
        answers.into_iter().map(|(_, answer)| answer).collect()
    }

    /// The way of a command that a pipeline does not send to one slot.
    async fn execute_apart(
        &self,
        index: usize,
        mut command: Command,
        limit: Option<Duration>,
    ) -> (usize, Result<Value, Error>) {
        if let Some(limit) = limit {
            command = command.timeout(limit);
        }
        (index, self.execute(command).await)
    }

    /// Sends commands of slots, those of one node together. Those that may be tried again are grouped anew, while other
    /// groups are in flight.
    async fn send_routed<'a>(&'a self, mut commands: Vec<Sent<'a>>, deadline: Option<Deadline>) -> Answers {
        let mut answers = Vec::with_capacity(commands.len());
        let mut in_flight = FuturesUnordered::new();
        loop {
            let groups = self.group(commands).into_iter();
            in_flight.extend(groups.map(|group| self.send_group(group, deadline)));
            let Some((answered, again)) = in_flight.next().await else { return answers };
            answers.extend(answered);
            commands = again;
        }
    }

    /// Sends the commands of one node. Returns those that failed there and may be tried again.
    async fn send_group<'a>(
        &'a self,
        group: Group<'a>,
        deadline: Option<Deadline>,
    ) -> (Answers, Vec<Sent<'a>>) {
        let Group { place, mut commands, .. } = group;
        let place = match place {
            Some(place) => place,
            None => match self.find_place(&mut commands, deadline).await {
                Ok(place) => place,
                Err(error) => return (unsent(commands, &error), Vec::new()),
            },
        };
        commands.iter_mut().filter_map(|sent| sent.call.as_mut()).for_each(|call| call.trouble.try_begins());
        let encoded: EncodedPipeline = commands.iter().map(|sent| &sent.command).collect();
        let outcome = match deadline.filter(|deadline| deadline.has_passed()) {
            Some(deadline) => Err(place.client.late(deadline).into()),
            None => place.client.send(Commands::Many(encoded), deadline).await.all(),
        };
        // Replies that came before a connection was lost are final.
        let (replies, failure) = match outcome {
            Ok(replies) => (replies, None),
            Err(failed) => (failed.replies, Some(failed.error)),
        };
        let mut replies = replies.into_iter();
        let mut answers = Vec::with_capacity(commands.len());
        let mut failed = Vec::new();
        for sent in commands {
            let error = match (replies.next(), &failure) {
                (Some(Ok(value)), _) => {
                    answers.push((sent.index, Ok(value)));
                    continue;
                }
                (Some(Err(error)), _) => Error::Server(error),
                (None, Some(error)) => error.clone(),
                // As many replies as commands: that is what success means.
                (None, None) => Error::Lost(place.client.lost_error()),
            };
            failed.push((sent, error));
        }
        if failed.is_empty() {
            return (answers, Vec::new());
        }
        // Side by side, because some wait.
        let judged = failed.into_iter().map(|(sent, error)| self.judge(sent, &place, error, deadline));
        let (mut again, mut asking) = (Vec::new(), Vec::new());
        for judged in join_all(judged).await {
            match judged {
                Ok((sent, call)) if call.must_ask() => asking.push((sent, call)),
                Ok((sent, call)) => again.push(Sent { call: Some(call), ..sent }),
                Err(answer) => answers.push(answer),
            }
        }
        // ASKING is said for each command. In turn, so that commands of the same slot keep their order.
        for (sent, call) in asking {
            answers.push((sent.index, call.send(Box::new(sent.command)).await));
        }
        (answers, again)
    }

    /// Decides whether a command that failed may be tried again, after a pause if it takes one.
    async fn judge<'a>(
        &'a self,
        mut sent: Sent<'a>,
        place: &Place,
        error: Error,
        deadline: Option<Deadline>,
    ) -> Result<(Sent<'a>, Box<ClusterCall<'a>>), (usize, Result<Value, Error>)> {
        let mut call = sent.call.take().unwrap_or_else(|| Box::new(self.call_of(&sent, deadline)));
        match call.failed(place, error).await {
            Ok(()) => Ok((sent, call)),
            Err(error) => Err((sent.index, Err(error))),
        }
    }

    fn call_of(&self, sent: &Sent<'_>, deadline: Option<Deadline>) -> ClusterCall<'_> {
        ClusterCall::of(&self.core, &sent.command, Target::Slot(sent.slot, sent.access), deadline)
    }

    /// Sorts commands by node. Those whose node has no connection are sorted by slot: each of these finds its own way.
    fn group<'a>(&self, commands: Vec<Sent<'a>>) -> Vec<Group<'a>> {
        let map = self.core.topology.map();
        let mut groups: Vec<Group<'a>> = Vec::new();
        // Positions of the groups with a connection, and of the others by slot: there may be as many of these as slots.
        let mut live = Vec::new();
        let mut cut_off: HashMap<u16, Vec<usize>> = HashMap::new();
        for sent in commands {
            let node = match &sent.call {
                None => self.core.choose(&map, sent.slot, sent.access).cloned(),
                Some(call) => call.pick(&map),
            };
            let client = node.clone().and_then(|node| Some((node.live()?, node)));
            let place = client.map(|(client, node)| Place { node, client, asking: false });
            let alike = if place.is_some() { &mut live } else { cut_off.entry(sent.slot).or_default() };
            let is_same = |at: &&usize| match (&groups[**at].node, &node) {
                (Some(known), Some(node)) => Arc::ptr_eq(known, node),
                _ => true,
            };
            match alike.iter().find(is_same) {
                Some(at) => groups[*at].commands.push(sent),
                None => {
                    alike.push(groups.len());
                    groups.push(Group { node, place, commands: vec![sent] });
                }
            }
        }
        groups
    }

    /// Waits for a connection to the node of a slot.
    async fn find_place<'a>(
        &'a self,
        commands: &mut [Sent<'a>],
        deadline: Option<Deadline>,
    ) -> Result<Place, Error> {
        // The others have the same slot and the same deadline, so its node is theirs.
        let first = &mut commands[0];
        let mut call = match first.call.take() {
            Some(call) => call,
            None => Box::new(self.call_of(first, deadline)),
        };
        let place = call.next().await?;
        first.call = Some(call);
        Ok(place)
    }
}

/// The slot of a command, and what it does to its keys; `None` if it goes its way apart.
fn way(
    command: &Command,
    description: &Description<'_>,
    keyless: Option<u16>,
) -> Result<Option<(u16, Access)>, Error> {
    let slot = match route(command, description)? {
        Routed::Slot(slot) => Some(slot),
        Routed::Any => keyless,
        _ => None,
    };
    Ok(slot.map(|slot| (slot, description.access)))
}

/// The answers to commands for whose slot no node was found.
fn unsent(commands: Vec<Sent<'_>>, error: &Error) -> Answers {
    let answer = |sent: Sent<'_>| {
        let error = match sent.call {
            Some(mut call) => call.give_up(error.clone()),
            None => error.clone(),
        };
        (sent.index, Err(error))
    };
    commands.into_iter().map(answer).collect()
}
