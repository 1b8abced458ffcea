//! The program: `valkey-rdma-doctor --help`.

#![forbid(unsafe_code)]

mod args;
mod progress;
mod run_fabric;

use std::io;
use std::path::Path;
use std::process::ExitCode;

use valkey_rdma_client::{Endpoint, Transport};
use valkey_rdma_doctor::fabric;
use valkey_rdma_doctor::machine::{self, Root, Wishes};
use valkey_rdma_doctor::{Report, Style, probe, server};

use args::{Args, Command};
use valkey_rdma_program::{Interrupt, LevelFilter, fail, print, refuse, runtime, shown, start};

fn main() -> ExitCode {
    let args: Args = match start(LevelFilter::OFF) {
        Ok(args) => args,
        Err(status) => return status,
    };
    // Before any thread is started: what those call counts too.
    if args.counts_system_calls()
        && let Err(reason) = fabric::count_system_calls()
    {
        return fail(&format!("--system-calls: {reason}"));
    }
    let runtime = match runtime(1) {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error),
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
        // As the gateway's `--listen` writes it. With `//`, it is a URL.
        let path = url.strip_prefix("unix:").filter(|path| !path.starts_with("//"));
        let endpoint = match (path, url.parse().map_err(|error| format!("--url: {error}; see --help"))) {
            (Some(_), _) => with_login(args, server::socket_endpoint()),
            // Not by clap, which would repeat the password.
            (None, parsed) => parsed.and_then(one_server).and_then(|endpoint| with_login(args, endpoint)),
        };
        let endpoint = match endpoint {
            Ok(endpoint) => endpoint,
            Err(error) => return refuse(&error),
        };
        let of_url = (endpoint.transport() == Transport::Unix).then(|| endpoint.host());
        if let Some(path) = path.or(of_url).map(Path::new) {
            let report = server::examine_socket(path, &endpoint).await;
            return show(&report, "server", &server::socket_conclusion(&report, path), args.json);
        }
        let report = server::examine(&endpoint).await;
        return show(&report, "server", &server::conclusion(&report, &endpoint), args.json);
    }
    if let Some(host) = args.host.as_deref().filter(|host| shown(host) != *host) {
        return refuse(&format!("--host: {} is not a host: a server's URL is for --url", shown(host)));
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
    if endpoint.has_login() {
        return match args.login.user.is_some() || args.login.password_file.is_some() {
            true => Err("--url has a login: leave it out, or --user and --password-file".to_owned()),
            false => Ok(endpoint),
        };
    }
    Ok(match args.login.login()? {
        Some(login) => endpoint.with_login(login.user, login.password),
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
    if report.works() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
