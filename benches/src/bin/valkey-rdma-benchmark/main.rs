//! The load tool of Valkey over RDMA: `valkey-rdma-benchmark --help`.

use std::io::{self, Write};
use std::process::ExitCode;

use tokio::runtime::{Builder, Runtime};
use tracing_subscriber::EnvFilter;
use valkey_rdma_benches::args::{Args, Instead};
use valkey_rdma_benches::benchmark::{Outcome, RunError, benchmark};
use valkey_rdma_benches::demo::{Pace, demo};
use valkey_rdma_benches::interrupt::Interrupt;
use valkey_rdma_benches::progress::Progress;
use valkey_rdma_benches::report::{Format, Style, story, write_demo, write_demo_faults};
use valkey_rdma_benches::target;

/// Exit status if a reply was wrong, or the server could not be reached.
const FAILED: u8 = 1;
/// Exit status if the flags make no sense.
const REFUSED: u8 = 2;

fn main() -> ExitCode {
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
    let endpoint = target::endpoint(args)?;
    log_if_asked()?;
    let runtime = match runtime(args.threads.into()) {
        Ok(runtime) => runtime,
        Err(error) => {
            complain(&format!("no threads could be started: {error}"));
            return Ok(ExitCode::from(FAILED));
        }
    };
    let outcome = runtime.block_on(async {
        let interrupt = Interrupt::listen();
        if args.demo {
            show(&interrupt).await
        } else {
            let (mut out, mut err) = (io::stdout(), io::stderr());
            let (format, err_style) = (format(args), Style::of(&err));
            benchmark(args, &endpoint, &mut out, format, &mut err, err_style, &interrupt).await
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
            complain(&story(&error));
            ExitCode::from(FAILED)
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
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).init();
    Ok(())
}

/// Runs the demo and writes its table.
async fn show(interrupt: &Interrupt) -> Result<Outcome, RunError> {
    let comparisons = demo(Pace::default(), Progress::Terminal, interrupt).await?;
    write_demo(&mut io::stdout(), &comparisons, Style::of(&io::stdout()))?;
    write_demo_faults(&mut io::stderr(), &comparisons, Style::of(&io::stderr()))?;
    Ok(if interrupt.is_asked() {
        Outcome::Interrupted
    } else if comparisons.iter().any(|comparison| comparison.faults().next().is_some()) {
        Outcome::Wrong
    } else {
        Outcome::Right
    })
}

/// The form of results; `--csv` wins over `-q`, as in valkey-benchmark.
fn format(args: &Args) -> Format {
    match (args.csv, args.quiet) {
        (true, _) => Format::Csv,
        (false, true) => Format::Quiet,
        (false, false) => Format::Table(Style::of(&io::stdout())),
    }
}

fn runtime(threads: usize) -> io::Result<Runtime> {
    match threads {
        0 | 1 => Builder::new_current_thread().enable_all().build(),
        _ => Builder::new_multi_thread().worker_threads(threads).enable_all().build(),
    }
}

/// Prints one line on standard error, whatever the message holds.
fn complain(message: &str) {
    let line: Vec<&str> = message.split_whitespace().collect();
    let style = Style::of(&io::stderr());
    let _ = writeln!(io::stderr(), "{} {}", style.red("error:"), line.join(" "));
}
