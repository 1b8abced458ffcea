//! A whole run, from flags to results.

mod evidence;
mod one_server;
mod two_servers;

use std::io;

use valkey_rdma_program::Interrupt;

use crate::drive::{Background, DialError, FleetError, Target, complete};
use crate::measure::{Found, TestResult};
use crate::program::args::{Args, Instead};
use crate::program::console::Console;
use crate::program::demo::DemoError;
use crate::program::output::Outputs;
use crate::run::{Plan, Progress, Session};
use evidence::evidence;

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
    let outcome = match &args.evidence {
        Some(path) => evidence(args, path, target, other, console, interrupt).await,
        None => measure(args, target, other, console, interrupt).await,
    };
    if over_device {
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
    let mut outputs = Outputs::new(args)?;
    let progress = if args.live { Progress::Live } else { Progress::Line };
    let plan = Plan::new(args)?;
    let titles: Vec<_> = plan.scripts.iter().map(|script| script.title.as_str()).collect();
    outputs.reserve_distributions(&titles)?;
    if let Some(notice) = plan.writes.as_ref().filter(|_| !args.idle) {
        console.say(notice);
    }
    let mut bench = Bench { args, target, plan, console, interrupt, progress, found: Found::default() };
    let ended = match other {
        Some(other) => bench.compare(other).await,
        _ if args.idle => bench.idle().await,
        _ if args.sweep => bench.sweep().await,
        _ => bench.tests().await,
    };
    let Bench { mut found, console, .. } = bench;
    found.interrupted = interrupt.is_asked();
    // What was measured before an error is written. A run that ended early and measured nothing leaves older files alone.
    let ended_early = ended.is_err() || interrupt.is_asked();
    let written = if ended_early && found.is_empty() { Ok(()) } else { outputs.write(&found) };
    // The first error counts.
    ended?;
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
    found: Found,
}

impl Bench<'_, '_> {
    async fn session(&mut self, target: Target, plan: Plan) -> Result<Option<Session>, RunError> {
        let console = &mut self.console;
        Ok(Session::open(target, plan, self.interrupt, &mut |text| console.say(text)).await?)
    }
}
