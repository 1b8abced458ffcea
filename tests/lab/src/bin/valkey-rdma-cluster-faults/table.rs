//! The table that the program prints.

use std::fmt::Write;
use std::time::Duration;

use valkey_rdma_program::millis;

use crate::events::{Effect, Event};
use crate::load::{Kind, Seen};
use crate::servers::SHARDS;

/// The titles of the columns.
pub(crate) fn head() -> String {
    format!(
        "{:<10}{:>9}{:>14}{:>14}{:>11}{:>8}{:>9}{:>7}{:>6}{:>6}{:>6}",
        "event",
        "commands",
        "affected [ms]",
        "healthy [ms]",
        "slowest",
        "not run",
        "may have",
        "lost",
        "wrong",
        "hung",
        "twice"
    )
}

/// One event: the longest time without a success of an affected shard and of a healthy one, and what went wrong.
pub(crate) fn row(event: Event, effect: &Effect, seen: &Seen) -> String {
    let longest = |is_affected: bool| {
        let shards = (0..SHARDS).filter(|shard| effect.affected.contains(shard) == is_affected);
        shards.map(|shard| seen.gaps[shard]).max().map_or("-".to_owned(), ms)
    };
    let mut text = format!(
        "{event:<10}{:>9}{:>14}{:>14}{:>11}{:>8}{:>9}{:>7}{:>6}{:>6}{:>6}",
        seen.commands,
        longest(true),
        longest(false),
        ms(seen.slowest),
        seen.count(Kind::NotRun),
        seen.count(Kind::MayHaveRun),
        seen.lost,
        seen.count(Kind::Wrong),
        seen.count(Kind::Hung),
        seen.count(Kind::Twice),
    );
    if effect.repeats > 0 {
        let _ = write!(text, "\n    {:>6} x begun anew by the operator: NOREPLICAS", effect.repeats);
    }
    for ((kind, error), count) in &seen.errors {
        let _ = write!(text, "\n    {count:>6} x {kind}: {error}");
    }
    text
}

fn ms(time: Duration) -> String {
    format!("{:.0}", millis(time))
}
