//! The program: `valkey-rdma-doctor --help`.

#![forbid(unsafe_code)]

mod args;
mod login;
mod progress;
mod run_fabric;

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use valkey_rdma_client::Endpoint;
use valkey_rdma_doctor::fabric;
use valkey_rdma_doctor::machine::{self, Root, Wishes};
use valkey_rdma_doctor::{Report, Style, probe, server};

use args::{Args, Command};
use login::Login;
use valkey_rdma_program::{Interrupt, shown};

/// Exit status if RDMA cannot work, or a check failed.
const FAILED: u8 = 1;
/// Exit status if the command line makes no sense.
const REFUSED: u8 = 2;

fn main() -> ExitCode {
    let args: Args = match valkey_rdma_program::parse() {
        Ok(args) => args,
        Err(status) => return status,
    };
    // Before any thread is started: what those call counts too.
    if args.counts_system_calls()
        && let Err(reason) = fabric::count_system_calls()
    {
        complain(&format!("--system-calls: {reason}"));
        return ExitCode::from(FAILED);
    }
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return complain(&format!("the runtime cannot start: {error}")),
    };
    let status = runtime.block_on(run(&args));
    runtime.shutdown_background();
    status
}

async fn run(args: &Args) -> ExitCode {
    match &args.command {
        Some(Command::Listen { addr, corrupt, device, .. }) => {
            run_fabric::listen(addr, &args::device_options(device), *corrupt, Interrupt::listen()).await
        }
        Some(Command::Check(check)) => run_fabric::check(check, Interrupt::listen()).await,
        None if !args.mesh.is_empty() => {
            let options = args.device.options();
            run_fabric::mesh(&args.mesh, &options, args.wait, args.json, Interrupt::listen()).await
        }
        None => examine(args).await,
    }
}

/// Examines this machine, or a server.
async fn examine(args: &Args) -> ExitCode {
    if let Some(url) = &args.url {
        let socket =
            url.strip_prefix("unix:").map(|path| path.strip_prefix("//").unwrap_or(path)).map(Path::new);
        let endpoint = match (socket, url.parse().map_err(|error| format!("--url: {error}; see --help"))) {
            (Some(_), _) => with_login(args, server::socket_endpoint()),
            // Not by clap, which would repeat the password.
            (None, parsed) => parsed.and_then(one_server).and_then(|endpoint| with_login(args, endpoint)),
        };
        let endpoint = match endpoint {
            Ok(endpoint) => endpoint,
            Err(error) => {
                complain(&error);
                return ExitCode::from(REFUSED);
            }
        };
        if let Some(path) = socket {
            let report = server::examine_socket(path, &endpoint).await;
            return show(&report, "server", &server::socket_conclusion(&report, path), args.json);
        }
        let report = server::examine(&endpoint).await;
        return show(&report, "server", &server::conclusion(&report, &endpoint), args.json);
    }
    if let Some(host) = args.host.as_deref().filter(|host| shown(host) != *host) {
        complain(&format!("--host: {} is not a host: a server's URL is for --url", shown(host)));
        return ExitCode::from(REFUSED);
    }
    let root = Root::of_this_machine();
    let probes = probe::this_machine(&root, args.host.as_deref()).await;
    let report = machine::examine(&root, &probes, Wishes { connections: args.connections });
    show(&report, "machine", &machine::conclusion(&report), args.json)
}

/// Each server has its own answers: of several, one must be named.
fn one_server(endpoint: Endpoint) -> Result<Endpoint, String> {
    match endpoint.is_cluster() || endpoint.sentinels().is_some() {
        true => Err("--url: give the URL of one server, without +cluster or +sentinel".to_owned()),
        false => Ok(endpoint),
    }
}

/// The server with the login beside the URL, unless the URL has one.
fn with_login(args: &Args, endpoint: Endpoint) -> Result<Endpoint, String> {
    let (user, file) = (args.user.as_deref(), args.password_file.as_deref());
    if endpoint.password().is_some() {
        return match user.is_some() || file.is_some() {
            true => Err("--url has a login: leave it out, or --user and --password-file".to_owned()),
            false => Ok(endpoint),
        };
    }
    let login = Login::find(user, file, |name| std::env::var(name).ok())?;
    Ok(match login {
        Some(login) => login.apply(endpoint),
        None => endpoint,
    })
}

/// Prints a report; its verdict is the exit status.
fn show(report: &Report, subject: &str, conclusion: &str, json: bool) -> ExitCode {
    let style = Style::of(&io::stdout());
    let text = if json {
        format!("{}\n", report.json(subject))
    } else {
        format!("{}{conclusion}\n", report.text(style))
    };
    print(&text);
    if report.works() { ExitCode::SUCCESS } else { ExitCode::from(FAILED) }
}

/// Prints on standard output. A reader that has seen enough, such as `head`, changes nothing about the verdict.
fn print(text: &str) {
    let mut out = io::stdout();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Reports an error in one line.
fn complain(message: &str) -> ExitCode {
    valkey_rdma_program::complain(message);
    ExitCode::from(FAILED)
}
