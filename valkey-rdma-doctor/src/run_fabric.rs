//! `listen`, `check` and `--mesh`.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use futures_util::future::try_join_all;
use serde_json::json;
use valkey_rdma_doctor::Style;
use valkey_rdma_doctor::fabric::{self, Found, Matrix, Options, Service};
use valkey_rdma_program::{Interrupt, ReservedFile, complain, fail, print, printable, refuse, shown};
use valkey_rdma_transport::address::{self, AddressError};

use crate::args::CheckArgs;
use crate::progress::Bar;

/// Answers checks until Ctrl-C.
pub(crate) async fn listen(addr: &str, options: &Options, corrupt: bool, interrupt: Interrupt) -> ExitCode {
    let addr = match resolve(addr).await {
        Ok(addr) => addr,
        Err(error) => return error.report(),
    };
    let service = match Service::bind(addr, options).await {
        Ok(service) => service.corrupt(corrupt),
        Err(error) => return fail(&error.to_string()),
    };
    print(&format!("ready {}\n", service.local_addr()));
    let report = |ended: &fabric::Ended| {
        print(&match &ended.outcome {
            Ok(steps) => format!("{}: done, {steps} steps\n", ended.peer),
            Err(error) => format!("{}: {}\n", ended.peer, printable(&error.to_string())),
        });
    };
    tokio::select! {
        Err(error) = service.run(&report) => fail(&error.to_string()),
        () = interrupt.asked() => ExitCode::SUCCESS,
    }
}

/// Checks the fabric to each address in turn.
pub(crate) async fn check(args: &CheckArgs, interrupt: Interrupt) -> ExitCode {
    let plots: Vec<_> =
        (0..args.addrs.len()).filter_map(|number| Some(plot_of(args.plot.as_deref()?, number))).collect();
    let _reserved = match plots.iter().map(|file| reserve(file)).collect::<Result<Vec<_>, _>>() {
        Ok(reserved) => reserved,
        Err(error) => return refuse(&error),
    };
    // Before anything is measured: a wrong name must not cost the results of the peers before it.
    let addrs = match try_join_all(args.addrs.iter().map(|text| resolve(text))).await {
        Ok(addrs) => addrs,
        Err(error) => return error.report(),
    };
    let options = args.options();
    let mut works = true;
    let mut documents = Vec::new();
    for (number, addr) in addrs.into_iter().enumerate() {
        let mut found = Found::default();
        let outcome = {
            let bar = Bar::new();
            let progress = |done, of, what: &str| bar.show(done, of, what);
            tokio::select! {
                outcome = fabric::check(addr, &options, &mut found, &progress) => Some(outcome),
                () = interrupt.asked() => None,
            }
        };
        if args.json {
            let error = outcome.as_ref().and_then(|outcome| outcome.as_ref().err().map(ToString::to_string));
            documents.push(json!({"peer": addr, "complete": matches!(outcome, Some(Ok(()))), "error": error, "found": found}));
        } else {
            if args.addrs.len() > 1 {
                print(&format!("{}{addr}\n", if number > 0 { "\n" } else { "" }));
            }
            print(&fabric::table(&found, Style::of(&io::stdout())));
        }
        if let Some(file) = plots.get(number)
            && let Err(error) = plot(&found, file)
        {
            complain(&format!("--plot {}: {error}", file.display()));
            works = false;
        }
        works &= found.differences.is_empty();
        match outcome {
            Some(Ok(())) => {}
            Some(Err(error)) => {
                complain(&error.to_string());
                works = false;
            }
            None => {
                print_documents(args.json, documents, false);
                complain("interrupted: what was measured until then is above");
                return ExitCode::from(Interrupt::EXIT_STATUS);
            }
        }
    }
    print_documents(args.json, documents, works);
    if works { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn print_documents(wanted: bool, documents: Vec<serde_json::Value>, works: bool) {
    if wanted {
        let document = json!({
            "format": 1, "doctor": env!("CARGO_PKG_VERSION"), "subject": "fabric", "works": works, "checks": documents,
        });
        print(&format!("{document:#}\n"));
    }
}

/// Takes part in a mesh.
pub(crate) async fn mesh(
    list: &[String],
    options: &Options,
    wait: Duration,
    json: bool,
    interrupt: Interrupt,
) -> ExitCode {
    let mut nodes: Vec<SocketAddr> = Vec::new();
    for text in list {
        match resolve(text).await {
            Ok(addr) if nodes.contains(&addr) => {
                return refuse(&format!("--mesh: {addr} is in the list twice"));
            }
            Ok(addr) => nodes.push(addr),
            Err(error) => return error.report(),
        }
    }
    if nodes.len() < 2 {
        return refuse("--mesh: give at least two addresses, separated by commas");
    }
    let node = match fabric::Node::join(&nodes, options).await {
        Ok(node) => node,
        Err(error) => return fail(&error.to_string()),
    };
    let number = node.number();
    let mut matrix = Matrix::new(nodes);
    let outcome = {
        let bar = Bar::new();
        let progress = |done, of, what: &str| bar.show(done, of, what);
        tokio::select! {
            outcome = node.run(wait, &mut matrix, &progress) => Some(outcome),
            () = interrupt.asked() => None,
        }
    };
    // What was checked before an interrupt or an error is shown too.
    let works = matches!(outcome, Some(Ok(()))) && matrix.works();
    if json {
        let document = json!({
            "format": 1, "doctor": env!("CARGO_PKG_VERSION"), "subject": "mesh", "works": works,
            "nodes": matrix.nodes, "links": matrix.links,
        });
        print(&format!("{document:#}\n"));
    } else if outcome.as_ref().is_some_and(Result::is_ok) || !matrix.links.is_empty() {
        print(&matrix.text());
    }
    match outcome {
        None if number == 0 => {
            complain("interrupted: this is the first machine of the list, so the mesh ends");
            ExitCode::from(Interrupt::EXIT_STATUS)
        }
        None => {
            complain("interrupted: the other machines report this one as missing");
            ExitCode::from(Interrupt::EXIT_STATUS)
        }
        Some(Err(error)) => fail(&error.to_string()),
        Some(Ok(())) if works => ExitCode::SUCCESS,
        Some(Ok(())) => ExitCode::FAILURE,
    }
}

/// Why a text of the command line leads to no address.
enum NoAddress {
    /// The command line is wrong.
    Malformed(String),
    /// This machine has no such name or interface.
    Unknown(String),
}

impl NoAddress {
    fn report(&self) -> ExitCode {
        match self {
            Self::Malformed(reason) => refuse(reason),
            Self::Unknown(reason) => fail(reason),
        }
    }
}

/// The address that a text stands for: `10.0.0.1:7000`, `[fd00::1]:7000`, `[fe80::1%eth0]:7000` or `store:7000`.
async fn resolve(text: &str) -> Result<SocketAddr, NoAddress> {
    use NoAddress::{Malformed, Unknown};
    if shown(text) != text {
        let reason = format!("{} is not ADDRESS:PORT or NAME:PORT: a server's URL is for --url", shown(text));
        return Err(Malformed(reason));
    }
    let found = address::resolve_text(text).await.map_err(|error| match AddressError::within(&error) {
        Some(AddressError::Form) => Malformed(format!("{text:?} is not ADDRESS:PORT or NAME:PORT")),
        Some(error) => Unknown(error.to_string()),
        None => Unknown(format!("{text:?} does not resolve ({error})")),
    })?;
    let first = found.first().copied().ok_or_else(|| Unknown(format!("{text:?} has no address")))?;
    address::check_interface(first).map_err(|error| Unknown(error.to_string()))?;
    Ok(first)
}

/// Draws what was found, if anything was measured.
fn plot(found: &Found, file: &Path) -> Result<(), String> {
    if found.rows.is_empty() {
        return Ok(());
    }
    std::fs::write(file, fabric::draw(found)).map_err(|error| error.to_string())
}

/// The file of each peer's plot: FILE.svg, FILE.1.svg, FILE.2.svg.
fn plot_of(file: &Path, number: usize) -> PathBuf {
    if number == 0 { file.to_owned() } else { file.with_extension(format!("{number}.svg")) }
}

/// Makes sure that a plot can be written before anything is measured.
fn reserve(file: &Path) -> Result<ReservedFile, String> {
    if file.extension().is_none_or(|extension| !extension.eq_ignore_ascii_case("svg")) {
        return Err(format!("--plot draws SVG: {} must end in .svg", file.display()));
    }
    let reserved = ReservedFile::new(file);
    reserved.map_err(|error| format!("--plot: {} cannot be written: {error}", file.display()))
}
