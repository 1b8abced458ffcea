//! The load tool of Valkey over RDMA: `valkey-rdma-benchmark --help`.

use std::io::{self, Write};
use std::process::ExitCode;

use tokio::runtime::{Builder, Runtime};
use valkey_rdma_benches::args::{Args, Instead};
use valkey_rdma_benches::benchmark::{self, Outcome, RunError};
use valkey_rdma_benches::interrupt::Interrupt;
use valkey_rdma_benches::report::{Format, Style};
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
    let style = Style::of(&io::stdout());
    let format = match (args.csv, args.quiet) {
        (true, _) => Format::Csv,
        (false, true) => Format::Quiet,
        (false, false) => Format::Table(style),
    };
    let runtime = match runtime(args.threads.into()) {
        Ok(runtime) => runtime,
        Err(error) => {
            complain(&format!("no threads could be started: {error}"));
            return Ok(ExitCode::from(FAILED));
        }
    };
    let outcome = runtime.block_on(async {
        let interrupt = Interrupt::listen();
        let (mut out, mut err) = (io::stdout(), io::stderr());
        let err_style = Style::of(&err);
        benchmark::benchmark(args, &endpoint, &mut out, format, &mut err, err_style, &interrupt).await
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
            complain(&error.to_string());
            ExitCode::from(FAILED)
        }
    })
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
