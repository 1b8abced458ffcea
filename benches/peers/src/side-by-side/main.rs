//! Our client and our server beside existing ones, in interleaved rounds: ratios of rate, latency and processor time.
//!
//! `./dev bench` builds everything and starts this, in the lab for RDMA and on the host for the rest. Times differ from
//! machine to machine; what counts are ratios within one run, and their spread over the rounds.

mod call;
mod contender;
mod figures;
mod host;
mod matrix;
mod measure;
mod place;
mod plot;
mod programs;
mod ratio;
mod record;
mod report;
mod sample;
mod server;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

use matrix::Row;
use place::Place;
use programs::Programs;
use record::{Earlier, JsonFile};

/// Runs workloads side by side: this project's programs and the reference's, in turn, several rounds.
///
/// Exit status: 0 if every program did its work, whatever the ratios; 1 if one failed; 2 for a wrong flag.
#[derive(Debug, Parser)]
#[command(name = "valkey-rdma-side-by-side", version)]
struct Args {
    /// Print the rows, run nothing
    #[arg(long)]
    list: bool,

    /// Run only the rows whose line in --list contains this text
    #[arg(long, value_name = "SUBSTRING", default_value = "", hide_default_value = true)]
    only: String,

    /// Where this is: `lab` has an RDMA device, `host` needs none
    #[arg(long, value_enum, default_value_t = Place::Host)]
    place: Place,

    /// Rounds, each running every program of a row once
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,

    /// Requests of one run, in percent of what the row asks for
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    percent: u32,

    /// Run everything on one processor, to compare what a request costs client and server together, without the
    /// effects of scheduling
    #[arg(long)]
    one_cpu: bool,

    /// Write the results here too, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// The JSON of an earlier run: prints each ratio next to its earlier value
    #[arg(long, value_name = "FILE")]
    before: Option<PathBuf>,

    /// Draw the ratios here too, as SVG
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,

    #[command(flatten)]
    programs: Programs,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let rows: Vec<Row> = matrix::rows(args.place)
        .into_iter()
        .filter(|row| row.to_string().contains(&args.only))
        .map(|row| row.scaled(args.percent))
        .collect();
    if args.list {
        rows.iter().for_each(report::list);
        return ExitCode::SUCCESS;
    }
    match run(&args, &rows) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            report::failure(&failure);
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args, rows: &[Row]) -> Result<(), String> {
    if rows.is_empty() {
        return Err(format!("no row contains {:?}: --list shows them", args.only));
    }
    if args.one_cpu {
        host::stay_on_one_processor()?;
    }
    let earlier = args.before.as_deref().map(Earlier::read).transpose()?;
    let mut json = args.json.as_deref().map(JsonFile::create).transpose()?;
    let environment = host::Environment::read();
    report::head(&environment, args.rounds);
    let mut results = Vec::new();
    for row in rows {
        let result = measure::row(&args.programs, args.place, row, args.rounds)?;
        report::row(row, &result, earlier.as_ref());
        results.push((row, result));
    }
    if let Some(file) = &mut json {
        file.write(&environment, &results)?;
    }
    args.plot.as_deref().map_or(Ok(()), |path| plot::write(path, &results))
}
