//! Two servers, or one over two transports, measured in alternating rounds.
//!
//! The machine's speed varies from one second to the next. Rounds are therefore short, the order alternates, and the ratio
//! is taken within each round. Its interval says how reliable it is.

use std::sync::Arc;

use super::{Progress, Session};
use crate::drive::Limit;
use crate::measure::{Comparison, Side, TestResult};
use crate::workload::Script;
use valkey_rdma_program::Interrupt;

/// Runs one test in `rounds` rounds, each of which ends at `turn` on either server. `None` if the user interrupted before
/// the first round was whole, or the test could not be prepared: then its result is in `failed`, with the number of its side.
#[expect(clippy::too_many_arguments, reason = "each is one part of a run")]
pub(crate) async fn compare(
    sessions: &mut [Session; 2],
    script: &Arc<Script>,
    turn: Limit,
    rounds: usize,
    progress: Progress,
    interrupt: &Interrupt,
    failed: &mut Vec<(usize, TestResult)>,
    say: &mut dyn FnMut(&str),
) -> Option<Comparison> {
    let mut numbers = [None; 2];
    for (side, (session, numbers)) in sessions.iter_mut().zip(&mut numbers).enumerate() {
        match session.prepare(script, progress, say).await {
            Ok(limited) => *numbers = limited,
            Err(result) => {
                failed.push((side, *result));
                return None;
            }
        }
    }
    let mut sides = [Side::new(&script.title), Side::new(&script.title)];
    // The round before the first warms up and does not count.
    for number in 0..=rounds {
        let first = number % 2;
        let mut results = [None, None];
        for turn_of in [first, 1 - first] {
            let session = &mut sessions[turn_of];
            let (limit, pace) = ((turn, numbers[turn_of]), session.plan().pace);
            results[turn_of] = Some(session.measure(script, limit, pace, progress).await);
        }
        if interrupt.is_asked() {
            break; // The round is not whole.
        }
        let results = results.map(|result| result.unwrap_or_else(|| TestResult::empty(&script.title)));
        let wrong = results.iter().any(|result| !result.is_right());
        let gave_up = results.iter().any(|result| result.gave_up);
        if number > 0 {
            for (side, result) in sides.iter_mut().zip(results) {
                side.add(result);
            }
        } else if wrong {
            failed.extend(results.into_iter().enumerate().filter(|(_, result)| !result.is_right()));
        }
        if gave_up || wrong && sessions[0].plan().fail_fast {
            break;
        }
    }
    let shape = sessions[0].plan().shape.clone();
    (!sides[0].rounds.is_empty()).then(|| Comparison { title: script.title.clone(), shape, sides })
}
