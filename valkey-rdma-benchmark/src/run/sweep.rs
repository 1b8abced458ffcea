//! `--sweep`: the highest rate that the server sustains.

use std::sync::Arc;
use std::time::Duration;

use super::{Progress, Session};
use crate::drive::{Arrivals, Limit, Pace};
use crate::measure::{Sweep, SweepStep, TestResult, Verdict};
use crate::workload::Script;
use valkey_rdma_program::Interrupt;

/// The rates that are tried, as shares of the closed loop's.
const STEPS: [f64; 10] = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0];
/// How often the interval between a good and a bad rate is halved.
const HALVINGS: usize = 4;
/// Without a target, a p99 is acceptable up to this multiple of the lightest load's.
const KNEE: f64 = 5.0;

/// Finds the highest good rate of a test, in runs of `each`. Fewer steps if the user interrupts.
#[expect(clippy::too_many_arguments, reason = "each is one part of a run")]
pub(crate) async fn sweep(
    session: &mut Session,
    script: &Arc<Script>,
    arrivals: Arrivals,
    each: Duration,
    target: Option<Duration>,
    progress: Progress,
    interrupt: &Interrupt,
    say: &mut dyn FnMut(&str),
) -> Result<Sweep, Box<TestResult>> {
    let limited = (Limit::Time(each), session.prepare(script, progress, say).await?);
    let closed = session.measure(script, limited, Pace::Closed, progress).await;
    let most = closed.rate();
    let mut sweep = Sweep {
        title: script.title.clone(),
        closed,
        steps: Vec::new(),
        limit: target,
        targeted: target.is_some(),
        interrupted: false,
    };
    let (mut good, mut bad) = (0.0, None);
    let mut rates = STEPS.map(|share| share * most).to_vec();
    rates.reverse();
    let mut halvings = HALVINGS;
    while !interrupt.is_asked() && most > 0.0 {
        let rate = match (rates.pop(), bad) {
            (Some(rate), None) => rate,
            (_, Some(bad)) if halvings > 0 => {
                halvings -= 1;
                (good + bad) / 2.0
            }
            _ => break,
        };
        let pace = Pace::Open { rate, arrivals };
        let result = session.measure(script, limited, pace, progress).await;
        if interrupt.is_asked() {
            break; // Not whole.
        }
        let p99 = result.latencies().quantile(0.99);
        let limit = *sweep.limit.get_or_insert(p99.mul_f64(KNEE));
        let verdict = Verdict::of(&result, each, limit);
        if verdict == Verdict::Good {
            good = rate;
        } else {
            bad = Some(rate);
        }
        sweep.steps.push(SweepStep { rate, result, verdict });
    }
    sweep.interrupted = interrupt.is_asked();
    Ok(sweep)
}
