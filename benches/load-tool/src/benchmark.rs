//! A whole run, from flags to results.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use valkey_rdma_client::Polling;

use crate::args::{Args, Instead, Selection};
use crate::bytestream::{self, Direction};
use crate::compare::compare;
use crate::demo::DemoError;
use crate::found::Found;
use crate::generator::{Background, DialError, Fleet, FleetError, Limit, Target, complete};
use crate::matrix::{Axis, Matrix};
use crate::output::Outputs;
use crate::plan::{Plan, STEP};
use crate::progress::Progress;
use crate::report::{self, Format, IntervalLog, Style};
use crate::result::TestResult;
use crate::session::Session;
use crate::sweep::sweep;
use valkey_rdma_program::Interrupt;

/// How long a turn of a comparison takes unless `-n` or `--duration` says: long enough to measure, short enough for the
/// machine not to change meanwhile.
const TURN: Duration = Duration::from_millis(300);

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Every reply was right.
    Right,
    /// Some reply was not, or did not come.
    Wrong,
    /// The user stopped it.
    Interrupted,
}

/// Why a run could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum RunError {
    #[error(transparent)]
    Fleet(#[from] FleetError),
    #[error(transparent)]
    Dial(#[from] DialError),
    #[error("{0}")]
    Refused(String),
    #[error(transparent)]
    Bytestream(#[from] bytestream::Error),
    #[error(transparent)]
    Demo(#[from] DemoError),
    #[error("the results could not be written")]
    Output(#[from] io::Error),
}

impl RunError {
    /// Whether the flags are wrong, or the server does not speak RESP.
    pub(crate) fn is_refusal(&self) -> bool {
        match self {
            RunError::Fleet(FleetError::Dial(error)) | RunError::Dial(error) => error.is_not_valkey(),
            RunError::Refused(_) => true,
            _ => false,
        }
    }
}

impl From<Instead> for RunError {
    fn from(instead: Instead) -> RunError {
        match instead {
            Instead::Print(text) | Instead::Refuse(text) => RunError::Refused(text),
        }
    }
}

/// Where a run writes.
pub(crate) struct Console<'a> {
    /// Results.
    pub(crate) out: &'a mut dyn Write,
    /// Their form.
    pub(crate) format: Format,
    /// Whether comparisons and sweeps have colour.
    pub(crate) style: Style,
    /// What went wrong, and what the user should know.
    pub(crate) err: &'a mut dyn Write,
    /// Whether that has colour.
    pub(crate) err_style: Style,
}

impl Console<'_> {
    fn say(&mut self, text: &str) {
        // A reader that has gone away must not end a wait.
        let _ = writeln!(self.err, "{text}");
    }
}

/// Measures `target` as `args` say.
pub(crate) async fn benchmark(
    args: &Args,
    target: &Target,
    console: &mut Console<'_>,
    interrupt: &Interrupt,
) -> Result<Outcome, RunError> {
    // Connects that are given up on this runtime; the load threads look after their own.
    let background = Background::from_now();
    let other = args.other_target()?;
    let over_device = target.is_device() || other.as_ref().is_some_and(Target::is_device);
    let outcome = measure(args, target, other, console, interrupt).await;
    if over_device && args.serve_echo.is_none() {
        complete(background, interrupt, |text| {
            let _ = writeln!(console.err, "{text}");
        })
        .await;
    }
    outcome
}

async fn measure(
    args: &Args,
    target: &Target,
    other: Option<Target>,
    console: &mut Console<'_>,
    interrupt: &Interrupt,
) -> Result<Outcome, RunError> {
    let outputs = Outputs::new(args)?;
    let progress = if args.live { Progress::Live } else { Progress::Line };
    if let Some(addr) = args.serve_echo {
        let config = target.endpoint.transport_config();
        bytestream::serve(addr, args.transport, &config, console.out, interrupt).await?;
        return Ok(Outcome::Interrupted);
    }
    let plan = Plan::new(args)?;
    let sends_commands = !args.idle && !matches!(args.tests, Some(Selection::Stream | Selection::Echo));
    if let Some(notice) = plan.writes.as_ref().filter(|_| sends_commands) {
        console.say(notice);
    }
    let log = outputs.interval_log();
    let mut bench = Bench { args, target, plan, console, interrupt, progress, log, found: Found::default() };
    let ended = match (&args.tests, other) {
        (Some(Selection::Stream), other) => bench.bytestream(Direction::OneWay, other).await,
        (Some(Selection::Echo), other) => bench.bytestream(Direction::Both, other).await,
        (_, Some(other)) => bench.compare(other).await,
        _ if args.idle => bench.idle().await,
        _ if args.sweep => bench.sweep().await,
        _ => bench.tests().await,
    };
    let Bench { found, console, log, .. } = bench;
    let logged = log.map_or(Ok(()), IntervalLog::finish);
    // What was measured before an error is written. A run that ended early and measured nothing leaves older files alone.
    let ended_early = ended.is_err() || interrupt.is_asked();
    let written = if ended_early && found.is_empty() { Ok(()) } else { outputs.write(&found) };
    // The first error counts.
    ended?;
    logged?;
    written?;
    console.out.flush()?;
    let all = found.tests.iter().map(|(_, result)| result);
    let compared =
        found.comparisons.iter().flat_map(|comparison| comparison.sides.iter().map(|side| &side.total));
    Ok(if interrupt.is_asked() {
        Outcome::Interrupted
    } else if all.chain(compared).all(TestResult::is_right) {
        Outcome::Right
    } else {
        Outcome::Wrong
    })
}

struct Bench<'a, 'b> {
    args: &'a Args,
    target: &'a Target,
    plan: Plan,
    console: &'a mut Console<'b>,
    interrupt: &'a Interrupt,
    progress: Progress,
    log: Option<IntervalLog>,
    found: Found,
}

impl Bench<'_, '_> {
    async fn session(&mut self, target: Target, plan: Plan) -> Result<Option<Session>, RunError> {
        let console = &mut self.console;
        Ok(Session::open(target, plan, self.interrupt, &mut |text| console.say(text)).await?)
    }

    /// Runs the tests, at every point of the matrix if there is one.
    async fn tests(&mut self) -> Result<(), RunError> {
        let points = self.args.matrix.as_ref().map_or(vec![Vec::new()], Matrix::combinations);
        for (number, point) in points.iter().enumerate() {
            if self.interrupt.is_asked() {
                break;
            }
            let mut target = self.target.clone();
            if let Some((_, bytes)) = point.iter().find(|(axis, _)| *axis == Axis::RxSize) {
                if !target.is_device() {
                    let reason =
                        "--matrix: rx sets the RDMA receive window, but this server is reached over TCP";
                    return Err(RunError::Refused(reason.to_owned()));
                }
                target.endpoint = target.endpoint.with_rx_size(*bytes as u32);
            }
            let plan = self.plan.at(point);
            let Some(mut session) = self.session(target, plan).await? else { return Ok(()) };
            self.tests_on(&mut session, number > 0).await?;
        }
        if self.interrupt.is_asked() {
            self.console.say("interrupted: the last test is not complete");
        }
        Ok(())
    }

    /// Runs the tests on the connections of one session.
    async fn tests_on(&mut self, session: &mut Session, again: bool) -> Result<(), RunError> {
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
                    session.test(&script, self.progress, self.log.as_mut(), say).await
                };
                if self.interrupt.is_asked() && result.replies() == 0 {
                    break;
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
    async fn idle(&mut self) -> Result<(), RunError> {
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

    /// Measures two servers in turns.
    async fn compare(&mut self, other: Target) -> Result<(), RunError> {
        let rounds = self.args.rounds as usize;
        if [self.target, &other]
            .iter()
            .any(|side| side.is_device() && side.endpoint.polling() == Polling::Busy)
        {
            self.console.say(
                "poll=busy: while one server is measured, the connections to the other one still busy-poll",
            );
        }
        let turn = match (self.args.requests, self.args.duration) {
            (Some(requests), _) => Limit::Requests((requests / rounds as u64).max(1)),
            (None, Some(time)) => Limit::Time(time / self.args.rounds),
            (None, None) => Limit::Time(TURN),
        };
        let mut plan = self.plan.clone();
        plan.limit = turn;
        let target = self.target.clone();
        let Some(one) = self.session(target, plan.clone()).await? else { return Ok(()) };
        let Some(two) = self.session(other.clone(), plan).await? else { return Ok(()) };
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
        let names = [runs[0].transport.as_str(), runs[1].transport.as_str()];
        let names = if names[0] == names[1] { ["this", "other"] } else { names };
        report::write_comparisons(self.console.out, names, &comparisons, self.console.style)?;
        report::write_ratios(self.console.out, names, &comparisons, self.console.style)?;
        self.found.comparisons.extend(comparisons);
        self.found.compared = runs;
        if self.interrupt.is_asked() {
            self.console.say("interrupted: only complete rounds are reported");
        }
        Ok(())
    }

    /// Finds the highest good rate of every test.
    async fn sweep(&mut self) -> Result<(), RunError> {
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
                    report::write_sweep(self.console.out, &sweep, self.console.style)?;
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
        Ok(())
    }

    /// Measures the byte stream, without RESP.
    async fn bytestream(&mut self, direction: Direction, other: Option<Target>) -> Result<(), RunError> {
        if other.is_some() {
            let reason = "-t stream and echo measure one server: run them once for each";
            return Err(RunError::Refused(reason.to_owned()));
        }
        let message = self.args.sizes.single().ok_or_else(|| {
            RunError::Refused("-t stream and echo send messages of one size: give -d one number".to_owned())
        })?;
        let ends = bytestream::Ends {
            connections: self.args.clients as usize,
            message,
            limit: self.plan.limit,
            reply_timeout: self.args.reply_timeout(),
        };
        let result = bytestream::measure(self.target, direction, &ends, self.interrupt).await?;
        result.write(self.console.out, self.target, &ends)?;
        bytestream::write_reference(self.console.out, self.target, direction, message).await?;
        Ok(())
    }
}
