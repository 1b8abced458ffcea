//! MGET, MSET, DEL and the like with keys of several slots: split by slot, sent in parallel, joined.

use futures_util::future::join_all;
use valkey_rdma_resp::{UnexpectedReply, Value};

use super::aggregate::join;
use super::client::ClusterClient;
use super::route::slot_of;
use crate::error::Error;
use crate::resp::Command;
use crate::resp::command_table::{Description, Response, for_each_key};

/// A part of a command: keys of one slot.
struct Part {
    slot: u16,
    command: Command,
    /// Which keys of the whole these are, counted from 0.
    places: Vec<usize>,
}

impl ClusterClient {
    /// Runs a command with keys of several slots. The parts run independently of each other: if one fails, the others may
    /// have run.
    pub(super) async fn execute_split(
        &self,
        command: Command,
        description: &Description<'_>,
    ) -> Result<Value, Error> {
        let parts = split(&command, description);
        let limit = self.core.config.node.limit(&command);
        let count = parts.iter().map(|part| part.places.len()).sum();
        let access = description.access;
        let (places, sent): (Vec<_>, Vec<_>) = parts
            .into_iter()
            .map(|Part { slot, command, places }| (places, self.to_slot(command, slot, access, limit)))
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
fn split(command: &Command, description: &Description<'_>) -> Vec<Part> {
    let mut keys = Vec::new();
    for_each_key(command, description.keys, &mut |at, key| {
        keys.push((at, slot_of(key)));
        true
    });
    let words: Vec<_> = command.words().collect();
    let step = keys.windows(2).map(|pair| pair[1].0 - pair[0].0).min().unwrap_or(1);
    let first = keys.first().map_or(1, |(at, _)| *at);
    let end = keys.last().map_or(words.len(), |(at, _)| at + step);
    let options = words.get(end..).unwrap_or_default();
    let counted = first > 1;
    let mut groups: Vec<(u16, Vec<usize>)> = Vec::new();
    for (place, (_, slot)) in keys.iter().enumerate() {
        match groups.iter_mut().find(|(of, _)| of == slot) {
            Some((_, places)) => places.push(place),
            None => groups.push((*slot, vec![place])),
        }
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
    parts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::command_table::find;

    fn parts(line: &str) -> Vec<(String, Vec<usize>)> {
        let command = Command::from_args(line.split(' '));
        let parts = split(&command, find(&command).expect("known"));
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
}
