//! Runs that measure one server.

use std::sync::Arc;
use std::time::Duration;

use super::{Bench, RunError};
use crate::drive::Fleet;
use crate::program::matrix::{Axis, Matrix, point_text};
use crate::report;
use crate::run::{STEP, Session, sweep};

impl Bench<'_, '_> {
    /// Runs the tests, at every point of the matrix if there is one.
    pub(super) async fn tests(&mut self) -> Result<(), RunError> {
        let points = self.args.matrix.as_ref().map_or(vec![Vec::new()], Matrix::combinations);
        for (number, point) in points.iter().enumerate() {
            if self.interrupt.is_asked() {
                break;
            }
            let mut target = self.target.clone();
            if let Some((_, bytes)) = point.iter().find(|(axis, _)| *axis == Axis::RxSize) {
                if !target.is_device() {
                    let over = target.endpoint.transport();
                    return Err(RunError::Refused(format!(
                        "--matrix: rx sets the RDMA receive window, but this server is reached over {over}"
                    )));
                }
                target.endpoint = target.endpoint.with_rx_size(*bytes as u32);
            }
            let plan = self.plan.at(point);
            let Some(mut session) = self.session(target, plan).await? else { return Ok(()) };
            self.tests_on(&mut session, number > 0, &point_text(point)).await?;
        }
        if self.interrupt.is_asked() {
            self.console.say("interrupted: the last test is not complete");
        }
        Ok(())
    }

    /// Runs the tests on the connections of one session, at this point of the matrix; empty without one.
    async fn tests_on(&mut self, session: &mut Session, again: bool, point: &str) -> Result<(), RunError> {
        let run = session.info().await;
        let format = self.console.format;
        if !again || matches!(format.form, report::Form::Table(_)) {
            if again {
                writeln!(self.console.out)?;
            }
            format.write_head(self.console.out, &run)?;
            self.console.out.flush()?;
        }
        let (mut results, mut gave_up) = (Vec::new(), false);
        loop {
            for script in self.plan.scripts.clone() {
                if self.interrupt.is_asked() {
                    break;
                }
                let result = {
                    let console = &mut *self.console;
                    let say = &mut |text: &str| console.say(text);
                    session.test(&script, self.progress, say).await
                };
                if self.interrupt.is_asked() && result.replies() == 0 {
                    break;
                }
                // A line says nothing else of the point; a table has a head, and CSV has columns.
                if format.form == report::Form::Quiet && !point.is_empty() {
                    write!(self.console.out, "{point} ")?;
                }
                format.write_test(self.console.out, &run, &result)?;
                self.console.out.flush()?;
                report::write_faults(self.console.err, &result, self.console.err_style)?;
                gave_up = result.gave_up;
                let stop = gave_up || self.args.fail_fast && !result.is_right();
                results.push(result);
                if stop {
                    break;
                }
            }
            let wrong = results.iter().any(|result| !result.is_right());
            if gave_up || !self.args.forever || self.interrupt.is_asked() || self.args.fail_fast && wrong {
                break;
            }
            let kept = results.iter().position(|result| !result.is_right());
            // Endless runs must not fill memory: of what was right, the last is enough.
            if let Some(wrong) = kept {
                results.swap(0, wrong);
            }
            results.truncate(1);
        }
        format.write_tail(self.console.out, &results)?;
        self.found.tests.extend(results.into_iter().map(|result| (run.clone(), result)));
        Ok(())
    }

    /// Opens the connections and waits.
    pub(super) async fn idle(&mut self) -> Result<(), RunError> {
        let console = &mut self.console;
        let say = &mut |text: &str| console.say(text);
        let fleet = Fleet::open(self.target.clone(), &self.plan.shape, self.interrupt, say).await?;
        if let Some(fleet) = &fleet {
            let (count, time) = (self.plan.shape.connections, fleet.opened().time);
            let ms = time.as_secs_f64() * 1e3;
            writeln!(
                self.console.out,
                "{count} idle connections to {}, open after {ms:.3} ms; Ctrl-C ends",
                self.target
            )?;
            self.console.out.flush()?;
            self.interrupt.asked().await;
        }
        Ok(())
    }

    /// Finds the highest good rate of every test.
    pub(super) async fn sweep(&mut self) -> Result<(), RunError> {
        let (target, plan) = (self.target.clone(), self.plan.clone());
        let Some(mut session) = self.session(target, plan).await? else { return Ok(()) };
        let run = session.info().await;
        self.console.format.write_setup(self.console.out, &run)?;
        writeln!(self.console.out)?;
        let each = self.args.duration.unwrap_or(STEP);
        let limit = self.args.target_p99.map(|ms| Duration::from_secs_f64(ms / 1e3));
        for script in self.plan.scripts.clone() {
            if self.interrupt.is_asked() {
                break;
            }
            self.console.out.flush()?;
            let script = Arc::clone(&script);
            let console = &mut *self.console;
            let say = &mut |text: &str| console.say(text);
            let (arrivals, progress) = (self.args.arrivals, self.progress);
            let swept =
                sweep(&mut session, &script, arrivals, each, limit, progress, self.interrupt, say).await;
            match swept {
                Ok(sweep) => {
                    report::write_sweep(self.console.out, &run, &sweep, self.console.style)?;
                    for result in sweep.steps.iter().map(|step| &step.result).chain([&sweep.closed]) {
                        report::write_faults(self.console.err, result, self.console.err_style)?;
                        if !result.is_right_or_late() {
                            self.found.tests.push((run.clone(), result.clone()));
                        }
                    }
                    self.found.sweeps.push((run.clone(), sweep));
                }
                Err(result) => {
                    report::write_faults(self.console.err, &result, self.console.err_style)?;
                    self.found.tests.push((run.clone(), *result));
                }
            }
        }
        if self.interrupt.is_asked() {
            self.console.say("interrupted: not all rates were tried");
        }
        Ok(())
    }
}
