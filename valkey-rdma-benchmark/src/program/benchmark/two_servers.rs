//! A run that measures two servers in turns.

use std::time::Duration;

use valkey_rdma_client::Polling;

use super::{Bench, RunError};
use crate::drive::{Choice, Limit, Target};
use crate::report;
use crate::run::compare;

impl Bench<'_, '_> {
    /// Measures two servers in turns.
    pub(super) async fn compare(&mut self, other: Target) -> Result<(), RunError> {
        let rounds = self.args.rounds as usize;
        if [self.target, &other]
            .iter()
            .any(|side| side.is_device() && side.endpoint.polling() == Polling::Busy)
        {
            self.console.say(
                "poll=busy: while one server is measured, the connections to the other one still busy-poll",
            );
        }
        let turn = match self.plan.limit {
            Limit::Requests(_) if self.args.requests.is_none() => Limit::Time(TURN),
            Limit::Requests(requests) => Limit::Requests((requests / rounds as u64).max(1)),
            Limit::Time(time) => Limit::Time(time / self.args.rounds),
        };
        let mut plan = self.plan.clone();
        plan.limit = turn;
        let target = self.target.clone();
        let Some(mut one) = self.session(target, plan.clone()).await? else { return Ok(()) };
        let other_plan = self.args.compare_with.as_ref().map_or_else(|| plan.clone(), |side| side.of(&plan));
        let Some(mut two) = self.session(other.clone(), other_plan).await? else { return Ok(()) };
        one.ask().await;
        two.ask().await;
        let runs = vec![one.info().await, two.info().await];
        report::write_compare_head(self.console.out, &runs, self.console.style)?;
        self.console.out.flush()?;
        let mut sessions = [one, two];
        let mut failed = Vec::new();
        let mut comparisons = Vec::new();
        for script in self.plan.scripts.clone() {
            if self.interrupt.is_asked() {
                break;
            }
            let console = &mut *self.console;
            let say = &mut |text: &str| console.say(text);
            let compared = compare(
                &mut sessions,
                &script,
                turn,
                rounds,
                self.progress,
                self.interrupt,
                &mut failed,
                say,
            )
            .await;
            if let Some(comparison) = compared {
                for total in comparison.faults() {
                    report::write_faults(self.console.err, total, self.console.err_style)?;
                }
                comparisons.push(comparison);
            }
        }
        for (side, result) in failed {
            report::write_faults(self.console.err, &result, self.console.err_style)?;
            self.found.tests.push((runs[side].clone(), result));
        }
        let transports = [runs[0].transport.as_str(), runs[1].transport.as_str()];
        let libraries =
            [&runs[0], &runs[1]].map(|run| run.shape.library.as_ref().map_or("ours", Choice::name));
        let names = [libraries, transports].into_iter().find(|[one, other]| one != other);
        let names = names.unwrap_or(["this", "other"]);
        report::write_comparisons(self.console.out, names, &comparisons, self.console.style)?;
        report::write_ratios(self.console.out, names, &comparisons, self.console.style)?;
        self.found.comparisons.extend(comparisons);
        self.found.compared = runs;
        if self.interrupt.is_asked() {
            self.console.say("interrupted: only complete rounds are reported");
        }
        Ok(())
    }
}

/// How long a turn of a comparison takes unless `-n` or `--duration` says: long enough to measure, short enough for the
/// machine not to change meanwhile.
const TURN: Duration = Duration::from_millis(300);
