//! Tests any server or client of Valkey over RDMA from outside, rule by rule.

mod args;

use std::path::Path;
use std::process::ExitCode;

use args::{Args, ClientArgs, Mode, ReportArgs, ServerArgs};
use valkey_rdma_client::Endpoint;
use valkey_rdma_conformance::client::Subject;
use valkey_rdma_conformance::report::{self, Table};
use valkey_rdma_conformance::server::Target;
use valkey_rdma_conformance::{Case, Known, Record, client, server};
use valkey_rdma_program::{Interrupt, LevelFilter, ReservedFile, refuse, shown, start};

#[tokio::main]
async fn main() -> ExitCode {
    let args: Args = match start(LevelFilter::OFF) {
        Ok(args) => args,
        Err(status) => return status,
    };
    let outcome = match args.mode {
        Mode::Server(args) => test_server(&args).await,
        Mode::Client(args) => test_client(&args).await,
    };
    outcome.unwrap_or_else(|error| refuse(&error))
}

async fn test_server(args: &ServerArgs) -> Result<ExitCode, String> {
    let Some(url) = args.url.as_deref().filter(|_| !args.report.list) else {
        let cases = select(server::cases(), &args.report.only)?;
        return Ok(list(&table(&cases), &cases));
    };
    let target = Target::parse(url, args.login.login()?).await?;
    let cases = select(target.cases(), &args.report.only)?;
    let table = table(&cases);
    let options = server::Options {
        target,
        patience: args.patience,
        hostile: args.hostile,
        spawn: args.spawn.clone(),
        log: args.server_log.clone(),
    };
    if args.hostile {
        table.print("note: --hostile includes cases that published servers die of");
    }
    let known = known(&args.report, &server::cases().map(|case| case.id).collect::<Vec<_>>())?;
    let run = async |report: &mut dyn FnMut(&Record)| {
        server::run(cases.iter().copied(), &options, report).await.map(drop)
    };
    test(&subject(url), &cases, &known, &table, &args.report, run).await
}

/// The server, as reports name it: its endpoint, with its options. [`Target`] accepts none that is secret.
fn subject(url: &str) -> String {
    let options = url.find('?').map_or("", |at| &url[at..]);
    url.parse::<Endpoint>()
        .map_or_else(|_| shown(url).into_owned(), |endpoint| format!("{endpoint}{options}"))
}

async fn test_client(args: &ClientArgs) -> Result<ExitCode, String> {
    let cases = select(client::CASES.iter(), &args.report.only)?;
    let table = table(&cases);
    if args.report.list {
        return Ok(list(&table, &cases));
    }
    let options = client::Options {
        device: args.device,
        bind: args.bind,
        subject: Subject::Command(args.command.clone()),
        patience: args.patience,
    };
    let known = known(&args.report, &client::CASES.iter().map(|case| case.id).collect::<Vec<_>>())?;
    let run = async |report: &mut dyn FnMut(&Record)| {
        client::run(cases.iter().copied(), &options, report).await.map(drop)
    };
    test(&args.command.join(" "), &cases, &known, &table, &args.report, run).await
}

/// Runs the cases, and reports what came of them. An interrupt drops `run`, which ends the server or client that it has
/// started; the cases that are left are not run.
async fn test<C>(
    subject: &str,
    cases: &[&'static Case<C>],
    known: &Known,
    table: &Table,
    args: &ReportArgs,
    run: impl AsyncFnOnce(&mut dyn FnMut(&Record)) -> Result<(), String>,
) -> Result<ExitCode, String> {
    let files = args.json.iter().chain(&args.junit);
    let _reserved = files.map(|file| reserve(file)).collect::<Result<Vec<_>, _>>()?;
    let interrupt = Interrupt::listen();
    let mut records = Vec::new();
    let mut report = |record: &Record| {
        let record = known.mark(record);
        table.print(&table.line(&record));
        records.push(record);
    };
    let interrupted = tokio::select! {
        ended = run(&mut report) => ended.map(|()| false)?,
        () = interrupt.asked() => true,
    };
    let left = &cases[records.len()..];
    records.extend(left.iter().map(|case| Record::not_run(case, "interrupted")));
    finish(subject, &records, known, table, args)?;
    if interrupted {
        return Ok(ExitCode::from(Interrupt::EXIT_STATUS));
    }
    if !report::any_ran(&records) {
        return Err("no case was run: the lines above give the reason of each".to_owned());
    }
    Ok(if report::all_well(&records) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn select<C>(
    cases: impl Iterator<Item = &'static Case<C>>,
    only: &[String],
) -> Result<Vec<&'static Case<C>>, String> {
    let wanted = |case: &&Case<C>| only.is_empty() || only.iter().any(|name| case.id.contains(name.as_str()));
    let cases: Vec<_> = cases.filter(wanted).collect();
    if cases.is_empty() {
        let names = only.join("` or `");
        return Err(format!(
            "no case has `{names}` in its name: see --list, and give --only once for each name"
        ));
    }
    Ok(cases)
}

fn table<C>(cases: &[&Case<C>]) -> Table {
    Table::new(cases.iter().map(|case| (case.id, case.clause)))
}

fn list<C>(table: &Table, cases: &[&Case<C>]) -> ExitCode {
    for case in cases {
        table.print(&table.listed(case.id, case.clause, case.hostile, case.stimulus, case.expected));
    }
    ExitCode::SUCCESS
}

/// The baseline; an empty one if there is none.
fn known(args: &ReportArgs, cases: &[&str]) -> Result<Known, String> {
    let Some(file) = &args.known else { return Ok(Known::default()) };
    let named = |error: String| format!("--known {}: {error}", file.display());
    let text = std::fs::read_to_string(file).map_err(|error| named(error.to_string()))?;
    Known::read(&text, cases).map_err(named)
}

/// Prints the summary, and writes the reports.
fn finish(
    subject: &str,
    records: &[Record],
    known: &Known,
    table: &Table,
    args: &ReportArgs,
) -> Result<(), String> {
    table.print(&report::summary(records));
    let passed = known.passed(records);
    if !passed.is_empty() {
        table.print(&format!("note: known to fail, but passed: {}", passed.join(", ")));
    }
    if let Some(file) = &args.json {
        save(file, &format!("{:#}\n", report::json(subject, records)))?;
    }
    if let Some(file) = &args.junit {
        save(file, &report::junit(subject, records))?;
    }
    Ok(())
}

/// Makes sure before the first case that a report can be written.
fn reserve(file: &Path) -> Result<ReservedFile, String> {
    ReservedFile::new(file).map_err(|error| format!("cannot write {}: {error}", file.display()))
}

fn save(file: &Path, text: &str) -> Result<(), String> {
    std::fs::write(file, text).map_err(|error| format!("cannot write {}: {error}", file.display()))
}
