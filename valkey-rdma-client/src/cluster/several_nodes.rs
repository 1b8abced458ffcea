//! One command to several nodes: the nodes that a [`Route`] names, and MGET, MSET, DEL and the like with keys of several slots, split by slot.

use std::collections::HashSet;
use std::sync::Arc;

use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt};
use indexmap::IndexMap;
use valkey_rdma_resp::{UnexpectedReply, Value, integer};

use super::call::{ClusterCall, Target};
use super::client::Cluster;
use super::join::join;
use super::node::Node;
use super::route::{Route, slot_of};
use super::slots_reply::SLOTS;
use crate::command::table::{Access, Description, Response, find, for_each_key};
use crate::command::{Command, IntoCommand};
use crate::error::{ClusterError, Error};
use crate::link::Deadline;
use crate::spans::Call;

/// What a [`Route`] names.
pub(super) enum Targets {
    One(Target),
    Several(Vec<Target>),
}

impl Cluster {
    /// Sends a command to the nodes that `route` names, whatever its keys say. Replies of several nodes are joined as for
    /// commands [without keys](crate::cluster#commands-without-keys).
    ///
    /// ```no_run
    /// # async fn example(cluster: valkey_rdma_client::cluster::Cluster) -> Result<(), valkey_rdma_client::Error> {
    /// use valkey_rdma_client::cluster::{NodeAddress, Route};
    ///
    /// let node = Route::Node(NodeAddress::new("10.0.0.1", 6379));
    /// cluster.command_on(node, ["BGSAVE"]).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same errors as [`Client::command`](crate::Client::command); [`ClusterError::UnknownNode`] if the cluster has no such node.
    ///
    /// # Cancel safety
    /// Same as [`Client::command`](crate::Client::command).
    pub async fn command_on(&self, route: Route, command: impl IntoCommand) -> Result<Value, Error> {
        let command = command.into_command();
        if let Some(refusal) = command.shared_refusal() {
            return Err(refusal.into());
        }
        let response = find(&command).map_or(Response::Default, |description| description.response);
        let deadline = self.core.config.limit(&command).and_then(Deadline::after);
        let call = Call::command(self.endpoint(), &command);
        let answer = async {
            match self.targets(route)? {
                Targets::One(target) => self.core.send_to(target, Box::new(command), deadline).await,
                Targets::Several(targets) => self.fan_out(command, targets, response).await,
            }
        };
        call.run(answer).await
    }

    /// The node that gets commands without keys beside this key, as [`Pipeline::keyless_beside`](crate::Pipeline::keyless_beside) sends them.
    // For the gateway.
    #[doc(hidden)]
    #[must_use]
    pub fn route_beside(&self, key: impl AsRef<[u8]>) -> Route {
        Route::Slot(self.core.slot_beside(slot_of(key.as_ref())))
    }

    /// Finds what a route names.
    pub(super) fn targets(&self, route: Route) -> Result<Targets, ClusterError> {
        Ok(match route {
            Route::Key(key) => Targets::One(Target::Slot(slot_of(&key), Access::Write)),
            Route::Slot(slot) if usize::from(slot) >= SLOTS => {
                return Err(ClusterError::Uncovered { slot: Some(slot) });
            }
            Route::Slot(slot) => Targets::One(Target::Slot(slot, Access::Write)),
            Route::Any => Targets::One(Target::Any),
            Route::Node(address) => match self.core.topology.find(&address) {
                Some(node) => Targets::One(Target::Node(node)),
                None => return Err(ClusterError::UnknownNode { address: address.to_string() }),
            },
            Route::AllPrimaries => Targets::Several(self.all_primaries()),
            Route::AllNodes => Targets::Several(self.all_nodes()),
        })
    }

    /// Each primary, or its successor if it fails.
    pub(super) fn all_primaries(&self) -> Vec<Target> {
        let primaries = self.core.topology.map().primaries().into_iter();
        let target = |(node, slot): (Arc<Node>, Option<u16>)| match slot {
            Some(slot) => Target::Primary(node, slot),
            None => Target::Node(node),
        };
        primaries.map(target).collect()
    }

    pub(super) fn all_nodes(&self) -> Vec<Target> {
        self.core.topology.map().nodes().into_iter().map(Target::Node).collect()
    }

    /// Sends a command to nodes at once, and joins the replies. Each node has the command's time limit to itself.
    pub(super) async fn fan_out(
        &self,
        command: Command,
        targets: Vec<Target>,
        response: Response,
    ) -> Result<Value, Error> {
        if targets.is_empty() {
            return Err(ClusterError::Uncovered { slot: None }.into());
        }
        let deadline = self.core.config.limit(&command).and_then(Deadline::after);
        let mut sent: FuturesUnordered<_> = (0..)
            .zip(targets)
            .map(|(at, target)| {
                let command = Box::new(command.clone());
                async move {
                    let call = ClusterCall::of(&self.core, &command, target, deadline);
                    (at, call.answer(command).await)
                }
            })
            .collect();
        let mut replies = Vec::with_capacity(sent.len());
        while let Some((at, answered)) = sent.next().await {
            // The others may have to wait for a node that is gone.
            if response == Response::OneSucceeded
                && let Ok((_, reply)) = answered
            {
                return Ok(reply);
            }
            replies.push((at, answered));
        }
        replies.sort_unstable_by_key(|(at, _): &(usize, _)| *at);
        let mut seen = HashSet::new();
        let named = replies.into_iter().filter_map(|(_, answered)| match answered {
            // A node that took the slots of another is asked for both, and counts once.
            Ok((node, reply)) => {
                seen.insert(node.address().clone()).then(|| (node.name().to_string(), Ok(reply)))
            }
            Err(error) => Some((String::new(), Err(error))),
        });
        join(named.collect(), response)
    }
}

/// A part of a command: keys of one slot.
struct Part {
    slot: u16,
    command: Command,
    /// Which keys of the whole these are, counted from 0.
    places: Vec<usize>,
}

impl Cluster {
    /// Runs a command with keys of several slots. The parts run independently of each other: if one fails, the others may
    /// have run.
    pub(super) async fn execute_split(
        &self,
        command: Command,
        description: &Description<'_>,
    ) -> Result<Value, Error> {
        let parts = split(&command, description)?;
        let limit = self.core.config.limit(&command);
        let count = parts.iter().flat_map(|part| &part.places).max().map_or(0, |last| last + 1);
        let access = description.access;
        let (places, sent): (Vec<_>, Vec<_>) = parts
            .into_iter()
            .map(|Part { slot, command, places }| {
                (places, self.core.send_to_slot(command, slot, access, limit))
            })
            .unzip();
        let replies = join_all(sent).await;
        if description.response != Response::Default {
            return join(
                replies.into_iter().map(|reply| (String::new(), reply)).collect(),
                description.response,
            );
        }
        let mut values = vec![Value::Nil; count];
        for (places, reply) in places.into_iter().zip(replies) {
            let items = match reply? {
                Value::Array(items) if items.len() == places.len() => items,
                other => {
                    let wanted = "an array with a value for each key";
                    return Err(UnexpectedReply::new(wanted, other.describe()).into());
                }
            };
            for (place, item) in places.into_iter().zip(items) {
                values[place] = item;
            }
        }
        Ok(Value::Array(values))
    }
}

/// Groups the keys by slot, in the order in which the slots first come. What follows a key up to the next belongs to it,
/// as the values of MSET do. MSETEX counts its keys in front, and has options behind them that every part repeats.
///
/// A command that the server refuses for its form must not run in part, so only one node gets it. If the value of the last key is missing, that is
/// the part with that key. If the count is not a number as servers read them, it is the whole command.
///
/// # Errors
/// [`ClusterError::CrossSlot`] if the keys are not evenly spaced, as the description of a module's command may say. What belongs
/// to which key is then unknown.
fn split(command: &Command, description: &Description<'_>) -> Result<Vec<Part>, ClusterError> {
    let mut keys = Vec::new();
    for_each_key(command, description.keys, &mut |at, key| {
        keys.push((at, slot_of(key)));
        true
    });
    let words: Vec<_> = command.words().collect();
    let step = step_of(&keys).ok_or_else(|| cross_slot(command, &keys))?;
    let first = keys.first().map_or(1, |(at, _)| *at);
    let end = keys.last().map_or(words.len(), |(at, _)| at + step);
    let options = words.get(end..).unwrap_or_default();
    let counted = first > 1;
    if counted && integer::parse(words[1]).is_none() {
        let (slot, places) = (keys.first().map_or(0, |(_, slot)| *slot), (0..keys.len()).collect());
        return Ok(vec![Part { slot, command: command.clone(), places }]);
    }
    let mut groups: IndexMap<u16, Vec<usize>> = IndexMap::new();
    for (place, (_, slot)) in keys.iter().enumerate() {
        groups.entry(*slot).or_default().push(place);
    }
    if let Some((_, last)) = keys.last()
        && end > words.len()
    {
        groups.retain(|slot, _| slot == last);
    }
    let parts = groups.into_iter().map(|(slot, places)| {
        let mut part = Command::new(words[0]);
        if counted {
            part = part.arg(places.len().to_string());
        }
        for place in &places {
            let at = keys[*place].0;
            for word in words.iter().skip(at).take(step) {
                part = part.arg(word);
            }
        }
        for option in options {
            part = part.arg(option);
        }
        if command.is_idempotent() {
            part = part.idempotent();
        }
        if let Some(limit) = command.limit() {
            part = part.timeout(limit);
        }
        Part { slot, command: part, places }
    });
    Ok(parts.collect())
}

/// The distance from each key to the next. `None` if they differ, or if the keys are not in ascending order.
fn step_of(keys: &[(usize, u16)]) -> Option<usize> {
    let mut steps = keys.windows(2).map(|pair| pair[1].0.checked_sub(pair[0].0));
    let Some(first) = steps.next() else { return Some(1) };
    first.filter(|step| *step > 0 && steps.all(|other| other == Some(*step)))
}

fn cross_slot(command: &Command, keys: &[(usize, u16)]) -> ClusterError {
    let first = keys.first().map_or(0, |(_, slot)| *slot);
    let second = keys.iter().map(|(_, slot)| *slot).find(|slot| *slot != first).unwrap_or(first);
    ClusterError::CrossSlot { command: command.name(), first, second }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::table::{Begin, Find, KeyRule, KeySpec, Request};

    fn parts(line: &str) -> Vec<(String, Vec<usize>)> {
        let command = Command::from_args(line.split(' '));
        let parts = split(&command, find(&command).expect("known")).expect("split");
        let line = |command: &Command| {
            let words: Vec<_> = command.words().map(String::from_utf8_lossy).collect();
            words.join(" ")
        };
        parts.iter().map(|part| (line(&part.command), part.places.clone())).collect()
    }

    #[test]
    fn keys_of_a_slot_stay_together_and_know_their_places() {
        let expected = [("MGET {a}1 {a}2".to_owned(), vec![0, 2]), ("MGET b".to_owned(), vec![1])];
        assert_eq!(parts("MGET {a}1 b {a}2"), expected);
        let expected = [("MSET {a}1 1 {a}2 3".to_owned(), vec![0, 2]), ("MSET b 2".to_owned(), vec![1])];
        assert_eq!(parts("MSET {a}1 1 b 2 {a}2 3"), expected);
        let expected = [("MSETEX 1 a 1 EX 5".to_owned(), vec![0]), ("MSETEX 1 b 2 EX 5".to_owned(), vec![1])];
        assert_eq!(parts("MSETEX 2 a 1 b 2 EX 5"), expected);
    }

    #[test]
    fn of_a_command_that_servers_refuse_for_its_form_one_node_gets_what_is_wrong() {
        assert_eq!(parts("MSET a 1 b"), [("MSET b".to_owned(), vec![1])]);
        assert_eq!(parts("MSET {b}1 1 a 2 b"), [("MSET {b}1 1 b".to_owned(), vec![0, 2])]);
        assert_eq!(parts("MSETEX 2 a 1 b"), [("MSETEX 1 b".to_owned(), vec![1])]);
        for whole in ["MSETEX +2 a 1 b 2", "MSETEX 02 a 1 b 2 EX 5"] {
            assert_eq!(parts(whole), [(whole.to_owned(), vec![0, 1])]);
        }
    }

    #[test]
    fn parts_come_in_the_order_in_which_their_slots_first_come() {
        let keys: Vec<_> = (0..4000).map(|key| format!("k{}", key % 3000)).collect();
        let parts = parts(&format!("MGET {}", keys.join(" ")));
        let mut firsts = Vec::new();
        let mut all = Vec::new();
        for (line, places) in parts {
            let expected: Vec<_> = places.iter().map(|place| keys[*place].as_str()).collect();
            assert_eq!(line, format!("MGET {}", expected.join(" ")));
            assert!(places.is_sorted(), "{places:?}");
            firsts.push((places[0], slot_of(expected[0].as_bytes())));
            all.extend(places);
        }
        assert!(firsts.is_sorted_by_key(|(place, _)| *place), "{firsts:?}");
        let slots: HashSet<_> = firsts.iter().map(|(_, slot)| slot).collect();
        assert_eq!(slots.len(), firsts.len(), "a slot has two parts");
        all.sort_unstable();
        assert!(all.into_iter().eq(0..keys.len()));
    }

    #[test]
    fn a_command_whose_keys_are_not_evenly_apart_is_not_split() {
        let command = Command::from_args(["MOD.SET", "a", "b", "x", "c"]);
        for positions in [&[2, 1][..], &[1, 1], &[1, 2, 4], &[1, 4, 2]] {
            let one = |at: &usize| KeySpec {
                begin: Begin::Index(*at),
                find: Find::Range { last: 0, step: 1, limit: 0 },
            };
            let specs: Vec<_> = positions.iter().map(one).collect();
            let description = Description {
                name: "MOD.SET",
                access: Access::Write,
                keys: KeyRule::Specs(&specs),
                request: Request::MultiShard,
                response: Response::Default,
                subcommands: &[],
            };
            let error = split(&command, &description).err().expect("refused");
            assert!(matches!(error, ClusterError::CrossSlot { .. }), "{positions:?}: {error}");
        }
    }
}
