//! The load tool of Valkey over RDMA: `valkey-rdma-benchmark --help`.
//!
//! The tool reads its [command line](args), makes a [plan] of it, opens its connections, and lets the [generator] send
//! one [workload] after the other: as a [session] of tests, in [turns](compare) with another server, or at
//! [rising rates](sweep). Every [reply] is checked, every command [measured](mod@measure) to the last byte of its reply, what
//! went wrong counted ([faults], [outage]), and the [result] [reported](report).

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a panic is how a test fails"))]
#![forbid(unsafe_code)]

mod args;
mod benchmark;
mod bytestream;
mod compare;
mod console;
mod counters;
mod demo;
mod environment;
mod faults;
mod file;
mod found;
mod generator;
mod matrix;
mod measure;
mod outage;
mod output;
mod plan;
mod progress;
mod reply;
mod report;
mod result;
mod session;
mod statistics;
mod sweep;
mod workload;

#[cfg(test)]
mod tests;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::CommandFactory;

use args::{Args, DemoForm, Instead};
use benchmark::{Outcome, RunError, benchmark};
use compare::Comparison;
use console::Console;
use demo::{Pace, VALUE_LEN, demo, screen};
use progress::Progress;
use report::{Form, Format, Style, write_comparisons, write_faults, write_ratios};
use tokio::runtime::Builder;
use tracing_subscriber::EnvFilter;
use valkey_rdma_program::{Interrupt, complain, error_chain};

/// Exit status if a reply was wrong, or the server could not be reached.
const FAILED: u8 = 1;
/// Exit status if the flags make no sense.
const REFUSED: u8 = 2;

fn main() -> ExitCode {
    if let Some(status) = valkey_rdma_program::generate(Args::command()) {
        return status;
    }
    let instead = match Args::from_command_line(std::env::args_os()) {
        Ok(args) => match measure(&args) {
            Ok(status) => return status,
            Err(instead) => instead,
        },
        Err(instead) => instead,
    };
    match instead {
        Instead::Print(text) => {
            let _ = io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Instead::Refuse(reason) => {
            complain(&reason);
            ExitCode::from(REFUSED)
        }
    }
}

/// Runs what `args` ask for, up to the exit status.
fn measure(args: &Args) -> Result<ExitCode, Instead> {
    let target = args.target()?;
    log_if_asked()?;
    let runtime = match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            complain(&format!("no threads could be started: {error}"));
            return Ok(ExitCode::from(FAILED));
        }
    };
    let outcome = runtime.block_on(async {
        let interrupt = Interrupt::listen();
        if let Some(form) = args.demo {
            show(form, &interrupt).await
        } else {
            let (mut out, mut err) = (io::stdout(), io::stderr());
            let (style, err_style) = (Style::of(&out), Style::of(&err));
            let mut console =
                Console { out: &mut out, format: format(args), style, err: &mut err, err_style };
            benchmark(args, &target, &mut console, &interrupt).await
        }
    });
    // Connections that hang must not keep the process.
    runtime.shutdown_background();
    Ok(match outcome {
        Ok(Outcome::Right) => ExitCode::SUCCESS,
        Ok(Outcome::Wrong) => ExitCode::from(FAILED),
        Ok(Outcome::Interrupted) => ExitCode::from(Interrupt::EXIT_STATUS),
        // The reader has seen enough, as in `valkey-rdma-benchmark | head`.
        Err(RunError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::from(FAILED),
        Err(error) => {
            complain(&error_chain(&error));
            ExitCode::from(if error.is_refusal() { REFUSED } else { FAILED })
        }
    })
}

/// Logs to standard error if `RUST_LOG` says what; otherwise nothing is logged, nor costs anything.
fn log_if_asked() -> Result<(), Instead> {
    if std::env::var_os(EnvFilter::DEFAULT_ENV).is_none() {
        return Ok(());
    }
    let filter =
        EnvFilter::try_from_default_env().map_err(|error| Instead::Refuse(format!("RUST_LOG: {error}")))?;
    let colours = Style::of(&io::stderr()) == Style::Terminal;
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colours).with_writer(io::stderr).init();
    Ok(())
}

/// Runs the demo and writes its screen, or its tables.
async fn show(form: DemoForm, interrupt: &Interrupt) -> Result<Outcome, RunError> {
    let shown = demo(Pace::default(), Progress::Line, interrupt).await?;
    let (mut out, style) = (io::stdout(), Style::of(&io::stdout()));
    if form == DemoForm::Screen {
        out.write_all(screen(&shown).as_bytes())?;
    } else {
        write_tables(&mut out, &shown.comparisons, style)?;
    }
    for result in shown.faults() {
        write_faults(&mut io::stderr(), result, Style::of(&io::stderr()))?;
    }
    Ok(if interrupt.is_asked() {
        Outcome::Interrupted
    } else if shown.is_right() {
        Outcome::Right
    } else {
        Outcome::Wrong
    })
}

/// Writes all figures of the demo.
fn write_tables(out: &mut io::Stdout, comparisons: &[Comparison], style: Style) -> io::Result<()> {
    const NAMES: [&str; 2] = ["emulated", "tcp"];
    writeln!(
        out,
        "The mock server and the client in this process, values of {VALUE_LEN} bytes: the emulated device beside TCP loopback.\n"
    )?;
    write_comparisons(out, NAMES, comparisons, style)?;
    write_ratios(out, NAMES, comparisons, style)?;
    write!(
        out,
        "The emulated device is software in this process, not RDMA: absolute times are noise, ratios are what to read.\n\
         Next, a real server: valkey-rdma-benchmark --url rdma://HOST:6379\n"
    )
}

/// The form of results; `--csv` wins over `-q`, as in valkey-benchmark.
fn format(args: &Args) -> Format {
    let form = match (args.csv, args.quiet) {
        (true, _) => Form::Csv,
        (false, true) => Form::Quiet,
        (false, false) => Form::Table(Style::of(&io::stdout())),
    };
    Format { form, precision: args.precision, percentiles: args.percentiles }
}
