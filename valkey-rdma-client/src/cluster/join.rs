//! [`join`]: one reply from the replies of several nodes.

use bytes::Bytes;
use valkey_rdma_resp::{UnexpectedReply, Value};

use crate::command::table::Response;
use crate::error::{ClusterError, Error, Fate};

/// Joins the replies of nodes, each with the node's address, as the command's description says. An error of one node is
/// an error, unless one success is enough.
pub(super) fn join(replies: Vec<(String, Result<Value, Error>)>, response: Response) -> Result<Value, Error> {
    if response == Response::OneSucceeded {
        return one_succeeded(replies);
    }
    if let Some(error) = failure(replies.iter().map(|(_, reply)| reply)) {
        return Err(error);
    }
    let mut values = Vec::with_capacity(replies.len());
    for (node, reply) in replies {
        values.push((node, reply?));
    }
    let numbers = |pick: fn(i64, i64) -> i64| {
        let mut joined: Option<Value> = None;
        for (_, value) in &values {
            joined = Some(match joined {
                None => value.clone(),
                Some(before) => combine(&before, value, pick)?,
            });
        }
        Ok(joined.unwrap_or(Value::Nil))
    };
    match response {
        Response::Sum => numbers(i64::saturating_add),
        Response::Min => numbers(i64::min),
        Response::Max => numbers(i64::max),
        Response::And => numbers(|one, other| i64::from(one != 0 && other != 0)),
        Response::Or => numbers(|one, other| i64::from(one != 0 || other != 0)),
        Response::AllSucceeded => Ok(values.into_iter().next().map_or(Value::Nil, |(_, value)| value)),
        Response::Default
            if values.iter().all(|(_, value)| matches!(value, Value::Array(_) | Value::Set(_))) =>
        {
            let items = values.into_iter().flat_map(|(_, value)| match value {
                Value::Array(items) | Value::Set(items) => items,
                other => vec![other],
            });
            Ok(Value::Array(items.collect()))
        }
        Response::Default | Response::Special | Response::OneSucceeded => {
            let text = |text: String| Value::Bulk(Bytes::from(text));
            Ok(Value::Map(values.into_iter().map(|(node, value)| (text(node), value)).collect()))
        }
    }
}

/// The error of a command, if a part of it failed. An answer, and "not sent", must not stand for parts that ran: only "may have run" says
/// enough.
fn failure<'a>(replies: impl Iterator<Item = &'a Result<Value, Error>> + Clone) -> Option<Error> {
    let failures = || replies.clone().filter_map(|reply| reply.as_ref().err());
    let first = failures().next()?;
    let (failed, parts) = (failures().count(), replies.clone().count());
    let with = |fate: Fate| failures().find(|failure| failure.fate() == fate);
    if let Some(unknown) = with(Fate::MayHaveRun) {
        return Some(unknown.clone());
    }
    if failed == parts && failures().all(|failure| failure.fate() == first.fate()) {
        return Some(first.clone());
    }
    let first = with(Fate::NotSent).unwrap_or(first);
    Some(ClusterError::Partial { failed, parts, first: Box::new(first.clone()) }.into())
}

/// Numbers, or arrays of as many numbers.
fn combine(one: &Value, other: &Value, pick: fn(i64, i64) -> i64) -> Result<Value, Error> {
    match (one, other) {
        (Value::Array(these), Value::Array(those)) if these.len() == those.len() => {
            let pairs = these.iter().zip(those);
            Ok(Value::Array(pairs.map(|(one, other)| combine(one, other, pick)).collect::<Result<_, _>>()?))
        }
        _ => match (one.as_int(), other.as_int()) {
            (Some(one), Some(other)) => Ok(Value::Int(pick(one, other))),
            _ => {
                let got = format!("{} and {}", one.describe(), other.describe());
                Err(UnexpectedReply::new("numbers from all nodes", got).into())
            }
        },
    }
}

/// The first success; without one, an error. NOTBUSY says least, and what may have run must not be hidden.
fn one_succeeded(replies: Vec<(String, Result<Value, Error>)>) -> Result<Value, Error> {
    let weight = |error: &Error| match error.fate() {
        Fate::MayHaveRun => 2,
        Fate::NotSent => 1,
        Fate::Answered => i32::from(!is_not_busy(error)),
    };
    let mut failure: Option<Error> = None;
    for (_, reply) in replies {
        match reply {
            Ok(value) => return Ok(value),
            Err(error) if failure.as_ref().is_none_or(|known| weight(&error) > weight(known)) => {
                failure = Some(error);
            }
            Err(_) => {}
        }
    }
    failure.map_or(Ok(Value::Nil), Err)
}

fn is_not_busy(error: &Error) -> bool {
    error.server().is_some_and(|error| error.code == "NOTBUSY")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use valkey_rdma_resp::ServerError;

    use super::*;
    use crate::error::{LostCause, LostConnection};

    fn joined(replies: impl IntoIterator<Item = Value>, response: Response) -> Result<Value, Error> {
        let named = replies.into_iter().enumerate().map(|(at, value)| (format!("n{at}"), Ok(value)));
        join(named.collect(), response)
    }

    fn ints(numbers: impl IntoIterator<Item = i64>) -> Value {
        Value::Array(numbers.into_iter().map(Value::Int).collect())
    }

    #[test]
    fn numbers_are_added_and_compared() {
        let numbers = || [3, 4, 2].map(Value::Int);
        assert_eq!(joined(numbers(), Response::Sum).expect("a sum"), Value::Int(9));
        assert_eq!(joined(numbers(), Response::Min).expect("a minimum"), Value::Int(2));
        assert_eq!(joined(numbers(), Response::Max).expect("a maximum"), Value::Int(4));
        let flags = [ints([1, 0, 1]), ints([1, 1, 0])];
        assert_eq!(joined(flags.clone(), Response::And).expect("flags"), ints([1, 0, 0]));
        assert_eq!(joined(flags, Response::Or).expect("flags"), ints([1, 1, 1]));
        assert!(joined([Value::Int(1), Value::Nil], Response::Sum).is_err());
    }

    #[test]
    fn arrays_are_joined_and_other_replies_listed_by_node() {
        let lists = [ints([1]), ints([]), ints([2])];
        assert_eq!(joined(lists, Response::Default).expect("a list"), ints([1, 2]));
        let listed = joined([Value::Int(1), Value::Int(2)], Response::Special).expect("a map");
        assert_eq!(listed.as_map().map(<[_]>::len), Some(2));
    }

    /// A retry of what ran on one node would run it twice there.
    #[test]
    fn what_was_not_sent_to_one_node_may_have_run_on_another() {
        let unsent = || Err(ClusterError::Uncovered { slot: Some(7) }.into());
        let refused = || Err(ServerError::from_reply(b"OOM x").into());
        let lost = || Err(LostConnection::new("n1".into(), Arc::new(LostCause::Closed), true).into());
        let fate = |replies: Vec<Result<Value, Error>>| {
            let replies = replies.into_iter().map(|reply| (String::new(), reply)).collect();
            join(replies, Response::AllSucceeded).expect_err("one failed").fate()
        };
        assert_eq!(fate(vec![unsent(), Ok(Value::Int(1))]), Fate::MayHaveRun);
        assert_eq!(fate(vec![Ok(Value::Int(1)), unsent()]), Fate::MayHaveRun);
        assert_eq!(fate(vec![unsent(), refused()]), Fate::MayHaveRun);
        assert_eq!(fate(vec![unsent(), unsent()]), Fate::NotSent);
        assert_eq!(fate(vec![refused(), Ok(Value::Int(1))]), Fate::Answered);
        assert_eq!(fate(vec![refused(), refused()]), Fate::Answered);
        assert_eq!(fate(vec![refused(), lost()]), Fate::MayHaveRun, "the answer of one node hides nothing");
    }

    /// MSET of two slots whose second node is out of memory: the first has the new value.
    #[test]
    fn an_error_of_one_part_says_that_others_ran() {
        let error = |replies: Vec<Result<Value, Error>>| {
            let replies = replies.into_iter().map(|reply| (String::new(), reply)).collect();
            join(replies, Response::AllSucceeded).expect_err("one failed")
        };
        let refused = || Err(ServerError::from_reply(b"OOM no memory").into());
        let partial = error(vec![Ok(Value::Int(1)), refused()]);
        assert!(
            matches!(&partial, Error::Cluster(ClusterError::Partial { failed: 1, parts: 2, .. })),
            "{partial:?}"
        );
        assert!(partial.to_string().contains("1 of the command's 2 parts failed"), "{partial}");
        assert!(partial.to_string().contains("OOM no memory"), "{partial}");
        let all = error(vec![refused(), refused()]);
        assert!(all.server().is_some_and(|error| error.code == "OOM"), "none ran: {all:?}");
    }

    #[test]
    fn one_error_is_the_answer_unless_one_success_is_enough() {
        let error = |text: &str| Err(ServerError::from_reply(text.as_bytes()).into());
        let replies = || vec![("a".into(), error("NOTBUSY x")), ("b".into(), Ok(Value::Int(1)))];
        assert!(join(replies(), Response::AllSucceeded).is_err());
        assert_eq!(join(replies(), Response::OneSucceeded).expect("one"), Value::Int(1));
        let failed = vec![("a".into(), error("UNKILLABLE x")), ("b".into(), error("NOTBUSY x"))];
        let error = join(failed, Response::OneSucceeded).expect_err("none");
        assert!(error.server().is_some_and(|error| error.code == "UNKILLABLE"), "{error}");
    }
}
