//! Unions, intersections and differences of sorted sets; a plain set counts as one whose scores are all 1.

use std::collections::HashMap;

use bytes::Bytes;

use super::sets::counted_and_limit;
use super::sorted_sets::scored;
use super::{Context, Failure, Outcome, count};
use crate::args::{Options, float, lowercase};
use crate::store::{Database, Expiry, Kind, SortedSet, Value};
use valkey_rdma_server::Command;
use valkey_rdma_server::Reply;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Algebra {
    Union,
    Intersection,
    Difference,
}

pub(super) fn zunion(context: &mut Context<'_>, command: &Command) -> Outcome {
    show(context, command, Algebra::Union, "zunion")
}

pub(super) fn zinter(context: &mut Context<'_>, command: &Command) -> Outcome {
    show(context, command, Algebra::Intersection, "zinter")
}

pub(super) fn zdiff(context: &mut Context<'_>, command: &Command) -> Outcome {
    show(context, command, Algebra::Difference, "zdiff")
}

pub(super) fn zunionstore(context: &mut Context<'_>, command: &Command) -> Outcome {
    store(context, command, Algebra::Union, "zunionstore")
}

pub(super) fn zinterstore(context: &mut Context<'_>, command: &Command) -> Outcome {
    store(context, command, Algebra::Intersection, "zinterstore")
}

pub(super) fn zdiffstore(context: &mut Context<'_>, command: &Command) -> Outcome {
    store(context, command, Algebra::Difference, "zdiffstore")
}

/// `ZINTERCARD numkeys key [key ...] [LIMIT limit]`
pub(super) fn zintercard(context: &mut Context<'_>, command: &Command) -> Outcome {
    let (keys, limit) = counted_and_limit(command)?;
    let plan =
        Plan { keys, weights: vec![1.0; keys.len()], combine: |one, other| one + other, with_scores: false };
    let len = plan.run(context.database(), Algebra::Intersection)?.len();
    Ok(count(if limit == 0 { len } else { len.min(limit) }))
}

fn show(context: &mut Context<'_>, command: &Command, algebra: Algebra, name: &str) -> Outcome {
    let plan = Plan::parse(command.args(), algebra, true, name)?;
    let protocol = context.client().protocol;
    let result = plan.run(context.database(), algebra)?;
    Ok(scored(result.iter(), plan.with_scores, protocol))
}

fn store(context: &mut Context<'_>, command: &Command, algebra: Algebra, name: &str) -> Outcome {
    let plan = Plan::parse(&command.args()[1..], algebra, false, name)?;
    let database = context.database();
    let result = plan.run(database, algebra)?;
    let len = result.len();
    if len == 0 {
        database.remove(&command.args()[0]);
    } else {
        database.set(&command.args()[0], result.into_value(), Expiry::Never);
    }
    Ok(Reply::Integer(i64::try_from(len).unwrap_or(i64::MAX)))
}

struct Plan<'a> {
    keys: &'a [Bytes],
    weights: Vec<f64>,
    combine: fn(f64, f64) -> f64,
    with_scores: bool,
}

impl<'a> Plan<'a> {
    /// `numkeys key [key ...] [WEIGHTS weight ...] [AGGREGATE SUM | MIN | MAX] [WITHSCORES]`
    fn parse(
        args: &'a [Bytes],
        algebra: Algebra,
        may_show_scores: bool,
        name: &str,
    ) -> Result<Self, Failure> {
        let number = valkey_rdma_resp::integer::parse(&args[0]).ok_or(Failure::NOT_AN_INTEGER)?;
        let number = usize::try_from(number).ok().filter(|number| *number > 0);
        let number = number.ok_or_else(|| {
            Failure::from(format!("ERR at least 1 input key is needed for '{name}' command"))
        })?;
        if number > args.len() - 1 {
            return Err(Failure::SYNTAX);
        }
        let (keys, options) = args[1..].split_at(number);
        let mut plan = Self { keys, weights: vec![1.0; number], combine: add, with_scores: false };
        let mut options = Options::new(options);
        while let Some(option) = options.next() {
            match lowercase(option).as_str() {
                "weights" if algebra != Algebra::Difference && options.len() >= number => {
                    for weight in &mut plan.weights {
                        *weight = float(options.value()?)
                            .map_err(|_| Failure::new("ERR weight value is not a float"))?;
                    }
                }
                "aggregate" if algebra != Algebra::Difference && options.len() >= 1 => {
                    plan.combine = match lowercase(options.value()?).as_str() {
                        "sum" => add,
                        "min" => f64::min,
                        "max" => f64::max,
                        _ => return Err(Failure::SYNTAX),
                    };
                }
                "withscores" if may_show_scores => plan.with_scores = true,
                _ => return Err(Failure::SYNTAX),
            }
        }
        Ok(plan)
    }

    fn run(&self, database: &Database, algebra: Algebra) -> Result<SortedSet, Failure> {
        let mut sources = Vec::with_capacity(self.keys.len());
        for (key, weight) in self.keys.iter().zip(&self.weights) {
            let members: HashMap<&Bytes, f64> = match database.value(key) {
                None => HashMap::new(),
                Some(Value::SortedSet(set)) => {
                    set.iter().map(|(name, score)| (name, weighted(score, *weight))).collect()
                }
                Some(Value::Set(set)) => set.iter().map(|name| (name, weighted(1.0, *weight))).collect(),
                Some(_) => return Err(Failure::WRONG_TYPE),
            };
            sources.push(members);
        }
        let mut result = SortedSet::default();
        let combined = |one: f64, other: f64| {
            let sum = (self.combine)(one, other);
            // The sum of opposite infinities.
            if sum.is_nan() { 0.0 } else { sum }
        };
        match algebra {
            Algebra::Union => {
                for (member, score) in sources.iter().flatten() {
                    let score = result.score(member).map_or(*score, |old| combined(old, *score));
                    result.set(member, score);
                }
            }
            Algebra::Intersection => {
                for (member, score) in &sources[0] {
                    let mut others = sources[1..].iter().map(|other| other.get(member));
                    let score = others.try_fold(*score, |sum, other| Some(combined(sum, *other?)));
                    if let Some(score) = score {
                        result.set(member, score);
                    }
                }
            }
            Algebra::Difference => {
                for (member, score) in &sources[0] {
                    if !sources[1..].iter().any(|other| other.contains_key(member)) {
                        result.set(member, *score);
                    }
                }
            }
        }
        Ok(result)
    }
}

fn add(one: f64, other: f64) -> f64 {
    one + other
}

/// Infinity times nothing is nothing.
fn weighted(score: f64, weight: f64) -> f64 {
    let product = score * weight;
    if product.is_nan() { 0.0 } else { product }
}
