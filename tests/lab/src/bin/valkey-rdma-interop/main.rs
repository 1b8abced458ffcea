//! Our programs with real Valkeys and with each other over kernel verbs: one case per combination, each verified.
//!
//! Runs inside the lab (`./dev lab` builds it and starts it there): the device answers to 10.0.0.1.

mod case;
mod client;
mod plan;
mod programs;
mod refusals;
mod report;
mod server;

use std::process::ExitCode;

use clap::Parser;

use case::Case;
use plan::Extent;
use programs::Programs;
use report::Report;
use server::Server;

/// Runs every client against every server over RDMA and verifies every reply.
///
/// Exit status: 0 if every case passed, 1 if not, 2 for a wrong flag.
#[derive(Debug, Parser)]
#[command(name = "valkey-rdma-interop", version)]
struct Args {
    /// Print the cases, run nothing
    #[arg(long)]
    list: bool,

    /// Run only the cases whose line in --list contains this text
    #[arg(long, value_name = "SUBSTRING", default_value = "", hide_default_value = true)]
    only: String,

    /// Each value and each shape with every server, but not each value in each shape: less than half of the cases
    #[arg(long)]
    brief: bool,

    #[command(flatten)]
    programs: Programs,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let args = Args::parse();
    let extent = if args.brief { Extent::Brief } else { Extent::Every };
    let cases: Vec<Case> =
        plan::cases(extent).into_iter().filter(|case| case.to_string().contains(&args.only)).collect();
    let refusals: Vec<String> =
        refusals::names().into_iter().filter(|name| name.contains(&args.only)).collect();
    if args.list {
        report::list(&cases);
        report::list(&refusals);
        return ExitCode::SUCCESS;
    }
    let mut report = Report::start();
    // Cases with the same server stand together and share one.
    for group in cases.chunk_by(|one, other| one.server == other.server) {
        run_group(&args.programs, group, &mut report).await;
    }
    // They end with the device taken away, so they come last, and all together.
    if !refusals.is_empty() {
        refusals::run_all(&args.programs, &mut report).await;
    }
    report.finish()
}

/// Runs the cases on one server; after a failure the next case gets a fresh one.
async fn run_group(programs: &Programs, cases: &[Case], report: &mut Report) {
    let mut running: Option<Server> = None;
    for case in cases {
        report.begin(case);
        let server = match running.take() {
            Some(server) => Ok(server),
            None => Server::start(programs, case.server),
        };
        let result = match server {
            Ok(mut server) => {
                // A server that has died is the better explanation of a client that failed.
                match (client::run(programs, case).await, server.check()) {
                    (Ok(rates), Ok(())) => {
                        running = Some(server);
                        Ok(rates)
                    }
                    (Err(failure), Ok(())) | (Ok(_), Err(failure)) => Err(server.abandon(failure)),
                    (Err(failure), Err(death)) => Err(server.abandon(format!("{death}\n  {failure}"))),
                }
            }
            Err(failure) => Err(failure),
        };
        report.end(case, result);
    }
    // What the last clients left behind may show only when the server ends.
    if let Some(server) = running {
        report.end_of_server(cases[0].server, server.stop());
    }
}
