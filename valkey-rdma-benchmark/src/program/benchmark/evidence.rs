//! `--evidence`: RDMA beside TCP of one server in cells that are the same everywhere, and one file to publish.

mod announce;
mod facts;
mod files;
mod hidden;

use std::path::Path;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

use valkey_rdma_client::{Client, Endpoint, Transport};
use valkey_rdma_program::{Interrupt, error_chain};

use super::{Outcome, RunError};
use crate::drive::{Arrivals, DialError, Limit, Pace, Target, dial_client};
use crate::measure::{CellFound, Comparison, Evidence, TestResult};
use crate::program::args::Args;
use crate::program::console::Console;
use crate::report::{ComparisonTable, write_evidence_head, write_labelled_ratios};
use crate::run::{CELLS, Cell, Progress, Session, Way, Whole, compare};
use crate::workload::Script;
use files::Files;
use hidden::Hidden;

/// How long a round takes on either side unless `--duration` says: long enough for the server's CPU time, short enough for the machine not
/// to change meanwhile.
const TURN: Duration = Duration::from_secs(1);
/// The fixed rate of a cell, as a share of what the slower side reaches: both can keep it.
const SHARE: f64 = 0.5;

/// Measures the cells on `target`, and over TCP on `other` or at the same host and port. Writes `path` and a page beside it.
pub(crate) async fn evidence(
    args: &Args,
    path: &Path,
    target: &Target,
    other: Option<Target>,
    console: &mut Console<'_>,
    interrupt: &Interrupt,
) -> Result<Outcome, RunError> {
    let tcp = tcp_side(target, other)?;
    let files = Files::new(path)?;
    let cells = args.cells.clone().unwrap_or_else(|| CELLS.to_vec());
    let turn = args.duration.map_or(TURN, |time| time / args.rounds);
    let Some((rdma, asks)) = connect(target, &tcp, interrupt).await? else { return Ok(Outcome::Interrupted) };
    facts::check_same_server(&rdma, &asks).await?;
    let hidden = Hidden::new(args.with_addresses, &[&target.endpoint, &tcp.endpoint]).await;
    console.say(&announce::text(&cells, args.rounds, turn, &target.endpoint));
    let about = facts::about(args, turn, &target.endpoint, (&rdma, &asks), &hidden).await;
    // It has pinned memory, which the cells may need.
    drop(rdma);
    write_evidence_head(console.out, &about, console.style)?;
    let table = table(&cells, console);
    table.write_head(console.out)?;
    console.out.flush()?;

    let mut evidence = Evidence { about, cells: Vec::new(), chosen: cells.len(), interrupted: false };
    let run = Run { args, target, tcp: &tcp, asks, turn, interrupt, hidden: &hidden };
    let whole = Whole::start(cells.iter().map(|cell| cell.time(args.rounds, turn)).sum());
    for (number, cell) in cells.iter().enumerate() {
        whole.step(cell.name, (number + 1, cells.len()), cell.time(args.rounds, turn));
        let found = run.cell(cell, &mut |text| whole.beside(|| console.say(text))).await;
        evidence.interrupted = interrupt.is_asked();
        if let Some(found) = found {
            whole.beside(|| write_cell(&table, console, &found))?;
            evidence.cells.push(found);
        }
        // Each time, so that whatever ends this process leaves what was found.
        if !evidence.cells.is_empty() {
            files.write(&evidence)?;
        }
        if evidence.interrupted {
            break;
        }
    }
    drop(whole);
    conclude(&evidence, &files, console)
}

/// The same server over TCP.
fn tcp_side(target: &Target, other: Option<Target>) -> Result<Target, RunError> {
    let refuse = |reason: String| Err(RunError::Refused(reason));
    let endpoint = &target.endpoint;
    if !target.is_device() {
        let over = endpoint.transport();
        return refuse(format!(
            "--evidence compares RDMA with TCP, but this server is reached over {over}: give -u rdma://HOST:PORT"
        ));
    }
    match other {
        Some(other) if other.endpoint.transport() == Transport::Tcp => Ok(other),
        Some(other) => refuse(format!(
            "--compare: with --evidence it is the same server over TCP, not over {}: give valkey://HOST:PORT",
            other.endpoint.transport()
        )),
        None if endpoint.transport() == Transport::Emulated => refuse(
            "--evidence: the emulated device has ports of its own: give the server's TCP port, --compare valkey://HOST:PORT"
                .to_owned(),
        ),
        None => {
            let mut tcp = Endpoint::new(Transport::Tcp, endpoint.host(), endpoint.port())
                .with_login_of(endpoint)
                .with_database(endpoint.database())
                .with_protocol(endpoint.protocol())
                .with_timeout(endpoint.timeout());
            if let Some(tls) = endpoint.tls() {
                tcp = tcp.with_tls(tls.clone());
            }
            Ok(Target::new(tcp))
        }
    }
}

/// One connection of each kind, before anything is measured. `None`: the user interrupted.
async fn connect(
    target: &Target,
    tcp: &Target,
    interrupt: &Interrupt,
) -> Result<Option<(Client, Client)>, DialError> {
    let both = async { Ok((dial_client(target).await?, dial_client(tcp).await?)) };
    tokio::select! {
        both = both => both.map(Some),
        () = interrupt.asked() => Ok(None),
    }
}

fn table(cells: &[Cell], console: &Console<'_>) -> ComparisonTable {
    // The longest title of a test: "GET at 1234567/s".
    let width = cells.iter().map(|cell| cell.name.len()).max().unwrap_or(0) + 17;
    ComparisonTable::new(width, ["direct", "tcp"], true, console.style)
}

fn write_cell(table: &ComparisonTable, console: &mut Console<'_>, found: &CellFound) -> std::io::Result<()> {
    for compared in &found.comparisons {
        table.write_rows(console.out, &found.label(&compared.title), found.names(), compared)?;
    }
    for (title, reason) in &found.failed {
        writeln!(console.out, "{}: {reason}", found.label(title))?;
    }
    console.out.flush()
}

/// Writes the ratios, and where the files are.
fn conclude(evidence: &Evidence, files: &Files, console: &mut Console<'_>) -> Result<Outcome, RunError> {
    let labelled: Vec<(String, &Comparison)> =
        evidence.comparisons().map(|(cell, compared)| (cell.label(&compared.title), compared)).collect();
    if !labelled.is_empty() {
        write_labelled_ratios(console.out, ["RDMA", "TCP"], &labelled, console.style)?;
        console.out.flush()?;
    }
    if evidence.interrupted {
        console.say("interrupted: only complete rounds are reported, and cells are missing");
    }
    if !evidence.cells.is_empty() {
        console.say(&format!("wrote {files}"));
    }
    Ok(if evidence.interrupted {
        Outcome::Interrupted
    } else if !labelled.is_empty() && evidence.results().all(TestResult::is_right) {
        Outcome::Right
    } else {
        Outcome::Wrong
    })
}

/// What all cells share.
struct Run<'a> {
    args: &'a Args,
    target: &'a Target,
    tcp: &'a Target,
    /// Asks the server for its CPU time, over TCP.
    asks: Client,
    turn: Duration,
    interrupt: &'a Interrupt,
    hidden: &'a Hidden,
}

impl Run<'_> {
    /// Measures one cell. `None`: the user interrupted before a round was whole.
    async fn cell(&self, cell: &Cell, say: &mut dyn FnMut(&str)) -> Option<CellFound> {
        let mut found = CellFound {
            name: cell.name,
            way: cell.way.name(),
            published: cell.published,
            sides: Vec::new(),
            comparisons: Vec::new(),
            failed: Vec::new(),
        };
        let one = self.session(self.target, cell, cell.way, say).await;
        let two = match &one {
            Ok(Some(_)) => self.session(self.tcp, cell, Way::Ring, say).await,
            _ => Ok(None),
        };
        match (one, two) {
            (Ok(Some(one)), Ok(Some(two))) => self.measure(cell, [one, two], &mut found).await,
            (Err(reason), _) => found.failed.push(("not measured".to_owned(), reason)),
            (_, Err(reason)) => found.failed.push(("not measured, tcp".to_owned(), reason)),
            // Interrupted.
            _ => return None,
        }
        (!found.comparisons.is_empty() || !found.failed.is_empty()).then_some(found)
    }

    /// The connections of one side, or why there are none.
    async fn session(
        &self,
        target: &Target,
        cell: &Cell,
        way: Way,
        say: &mut dyn FnMut(&str),
    ) -> Result<Option<Session>, String> {
        let cpus = available_parallelism().map_or(1, usize::from);
        let mut plan = cell.plan(way, cpus, self.turn);
        plan.reply_timeout = self.args.reply_timeout();
        let opened = Session::open(target.clone(), plan, self.interrupt, say).await;
        let mut session = opened.map_err(|error| self.hidden.text(&error_chain(&error)))?;
        if let Some(session) = &mut session {
            session.ask_over(self.asks.clone());
        }
        Ok(session)
    }

    async fn measure(&self, cell: &Cell, mut sessions: [Session; 2], found: &mut CellFound) {
        for session in &sessions {
            found.sides.push(self.hidden.run(session.info().await));
        }
        for script in sessions[0].plan().scripts.clone() {
            let compared = self.compare(&mut sessions, &script, script.title.clone(), found).await;
            let is_last = script.title == "GET";
            if !compared || !is_last || !cell.at_a_rate {
                continue;
            }
            let slower = found.comparisons.last().into_iter().flat_map(|compared| &compared.sides);
            let slower = slower.map(|side| side.median(|round| round.rate)).fold(f64::INFINITY, f64::min);
            let rate = (slower * SHARE).round().max(1.0);
            sessions
                .iter_mut()
                .for_each(|session| session.set_pace(Pace::Open { rate, arrivals: Arrivals::Constant }));
            self.compare(&mut sessions, &script, format!("{} at {rate}/s", script.title), found).await;
        }
    }

    /// Compares both sides in one test. Returns whether all rounds were measured, and every reply was right.
    async fn compare(
        &self,
        sessions: &mut [Session; 2],
        script: &Arc<Script>,
        title: String,
        found: &mut CellFound,
    ) -> bool {
        if self.interrupt.is_asked() {
            return false;
        }
        let (turn, rounds) = (Limit::Time(self.turn), self.args.rounds as usize);
        let mut failed = Vec::new();
        let quiet = &mut |_: &str| {};
        let compared =
            compare(sessions, script, turn, rounds, Progress::Hidden, self.interrupt, &mut failed, quiet);
        let compared = compared.await.map(|compared| Comparison { title: title.clone(), ..compared });
        let names = found.names();
        let wrong = |side: usize, result: &TestResult| {
            // The first is what it led to, the next why.
            let faults: Vec<String> =
                result.faults().first().iter().take(2).map(ToString::to_string).collect();
            (title.clone(), self.hidden.text(&format!("{}: {}", names[side], faults.join("; "))))
        };
        found.failed.extend(failed.iter().map(|(side, result)| wrong(*side, result)));
        let Some(mut compared) = compared else { return false };
        for (number, side) in compared.sides.iter_mut().enumerate() {
            side.total.tally.faults.rewrite(|text| self.hidden.text(text));
            if !side.total.is_right() {
                found.failed.push(wrong(number, &side.total));
            }
        }
        let whole = compared.sides[0].rounds.len() == rounds && compared.faults().next().is_none();
        found.comparisons.push(compared);
        whole
    }
}
