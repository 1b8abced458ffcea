//! The program: its command line, its modes, its files, and what it prints.

mod args;
mod benchmark;
mod console;
mod demo;
mod matrix;
mod other_side;
mod output;
mod plan;

#[cfg(test)]
mod tests;

use std::io::{self, Write};
use std::process::ExitCode;

use crate::drive::Libraries;
use crate::measure::Comparison;
use crate::report::{Form, Format, Style, write_comparisons, write_faults, write_ratios};
use crate::run::Progress;
use args::{Args, DemoForm, Instead};
use benchmark::{Outcome, RunError, benchmark};
use console::Console;
use demo::{Pace, VALUE_LEN, demo, screen};
use valkey_rdma_program::{
    Interrupt, LevelFilter, error_chain, fail, generate, log_to_stderr, print, refuse, runtime,
};

/// Runs the program on its command line, up to its exit status.
pub(crate) fn main(libraries: &Libraries) -> ExitCode {
    if let Some(status) = generate(Args::flags(libraries)) {
        return status;
    }
    let instead = match Args::read(std::env::args_os(), libraries) {
        Ok(args) => match measure(args) {
            Ok(status) => return status,
            Err(instead) => instead,
        },
        Err(instead) => instead,
    };
    match instead {
        Instead::Print(text) => {
            print(&text);
            ExitCode::SUCCESS
        }
        Instead::Refuse(reason) => refuse(&reason),
    }
}

/// Runs what `args` ask for, up to the exit status.
fn measure(mut args: Args) -> Result<ExitCode, Instead> {
    let target = args.target()?;
    log_to_stderr(LevelFilter::OFF).map_err(Instead::Refuse)?;
    for unverified in args.unverified()? {
        // Nothing can be done if standard error is closed.
        let _ = writeln!(io::stderr(), "warning: {unverified}: {UNVERIFIED}");
    }
    // Before signals are received: until then, Ctrl-C and SIGTERM end the wait for input.
    args.read_stdin()?;
    let args = &args;
    let runtime = match runtime(1) {
        Ok(runtime) => runtime,
        Err(error) => return Ok(fail(&error)),
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
        Ok(Outcome::Wrong) => ExitCode::FAILURE,
        Ok(Outcome::Interrupted) => ExitCode::from(Interrupt::EXIT_STATUS),
        // The reader has seen enough, as in `valkey-rdma-benchmark | head`.
        Err(RunError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::FAILURE,
        Err(error) if error.is_refusal() => refuse(&args.in_flags(error_chain(&error))),
        Err(error) => fail(&args.in_flags(error_chain(&error))),
    })
}

/// The client would log it for each connection, and the tool does not show that log.
const UNVERIFIED: &str = "the server's certificate is not verified (--insecure, verify=none): anybody between may read and change everything";

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
