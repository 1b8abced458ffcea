//! The program `valkey-rdma-conformance`: exit status 2 and one line of error if nothing can be run.

use std::process::{Command, Output};

use valkey_rdma_conformance::{Known, server};
use valkey_rdma_mock::faults::Faults;
use valkey_rdma_mock::{DeviceKind, Mock, Server, TransportConfig};
use valkey_rdma_transport::{Listener, device};

/// Variables from which the program takes a password.
const PASSWORDS: [&str; 3] = ["VALKEY_RDMA_PASSWORD", "VALKEYCLI_AUTH", "REDISCLI_AUTH"];

fn program(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_valkey-rdma-conformance"));
    command.args(args);
    for variable in PASSWORDS {
        command.env_remove(variable);
    }
    command
}

fn run(args: &[&str]) -> Output {
    program(args).output().expect("it runs")
}

/// The error, of a run that must end with status 2 and print no verdict.
fn error_of(args: &[&str]) -> String {
    let output = run(args);
    let (stdout, stderr) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr).into_owned());
    assert_eq!(output.status.code(), Some(2), "{args:?}: {stdout}{stderr}");
    assert_eq!(stdout, "", "{args:?}");
    assert!(stderr.starts_with("error: ") && stderr.lines().count() == 1, "{args:?}: {stderr}");
    stderr
}

#[test]
fn without_arguments_it_shows_its_help() {
    let output = run(&[]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("Usage:") && !stderr.contains("error:"), "{stderr}");
}

#[test]
fn a_wrong_flag_is_refused() {
    let error = error_of(&["server", "emulated://127.0.0.1:1", "--nosuch"]);
    assert!(error.contains("unexpected argument '--nosuch'"), "{error}");
}

#[test]
fn a_server_that_cannot_be_reached_has_no_verdict() {
    // A port that was free a moment ago, and that no listener may take: it is outside of the ephemeral range.
    let error = error_of(&["server", "emulated://127.0.0.1:1", "--patience", "1"]);
    assert!(error.contains("cannot connect to emulated://127.0.0.1:1"), "{error}");
    assert!(error.contains("refused the connection (emulated): nothing listens there"), "{error}");
}

#[test]
fn names_that_no_case_has_are_quoted_one_by_one() {
    let error =
        error_of(&["server", "emulated://127.0.0.1:1", "--only", "fill-exactly,quit", "--only", "nosuch"]);
    assert!(error.contains("no case has `fill-exactly,quit` or `nosuch` in its name"), "{error}");
}

#[test]
fn a_client_that_cannot_be_started_has_no_verdict() {
    let error = error_of(&["client", "--device", "emulated", "--", "/nonexistent"]);
    assert!(error.contains("cannot start `/nonexistent`: No such file"), "{error}");
}

#[test]
fn a_server_command_that_does_not_start_has_no_verdict() {
    let error = error_of(&["server", "emulated://127.0.0.1:1", "--spawn", "false"]);
    assert!(error.contains("`false` ended with exit status 1"), "{error}");
}

#[test]
fn url_options_that_the_suite_does_not_use_are_refused_by_name() {
    for option in ["rx_size=65536", "timeout=1s", "poll=busy", "protocol=resp2", "fallback=tcp"] {
        let error = error_of(&["server", &format!("rdma://127.0.0.1:1?{option}")]);
        let name = option.split('=').next().unwrap_or_default();
        assert!(error.contains(&format!("`{name}`")), "{option}: {error}");
    }
}

#[tokio::test]
async fn the_device_of_the_url_is_used() {
    let any = "127.0.0.1:0".parse().expect("an address");
    let config = TransportConfig::default();
    let server = Server::builder(Mock::new()).rdma(DeviceKind::Emulated, any, &config);
    let server = server.start().await.expect("serves");
    let url = format!("{}?device=mlx5_9", server.listening()[0]);
    let error = tokio::task::spawn_blocking(move || error_of(&["server", &url, "--only", "no-features"]));
    let error = error.await.expect("joins");
    assert!(error.contains("mlx5_9"), "{error}");
}

/// A server that breaks one rule, and its URL.
async fn planted(faults: &str) -> (Server, String) {
    let config = TransportConfig::default();
    let any = "127.0.0.1:0".parse().expect("an address");
    let device = device::listen(DeviceKind::Emulated, any, &config.device_options()).await.expect("listens");
    let faults: Faults = faults.parse().expect("a script");
    let device = faults.listener(device);
    let url = format!("emulated://{}", device.local_addr());
    let server = Server::builder(Mock::new()).listener(Listener::over(device, &config));
    (server.start().await.expect("starts"), url)
}

#[tokio::test]
async fn a_failure_that_the_baseline_names_does_not_fail_the_run() {
    let (_server, url) = planted("answer-missing,seed=1").await;
    let baseline = std::env::temp_dir().join(format!("valkey-rdma-known-{}", std::process::id()));
    std::fs::write(&baseline, "# a server of ours\nfeature-answer  never answers\nquit it passes\n")
        .expect("written");
    let file = baseline.to_str().expect("a name").to_owned();
    let outputs = tokio::task::spawn_blocking(move || {
        let args = ["server", &url, "--only", "feature-answer", "--only", "quit", "--patience", "2"];
        (run(&args), run(&[&args[..], &["--known", &file]].concat()))
    });
    let (without, with) = outputs.await.expect("joins");
    std::fs::remove_file(baseline).expect("removed");
    let text = |output: &Output| String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(without.status.code(), Some(1), "{}", text(&without));
    assert!(text(&without).contains("\n    clause    F-1: "), "{}", text(&without));
    assert!(text(&without).contains("\n    level     MUST ("), "{}", text(&without));
    assert_eq!(with.status.code(), Some(0), "{}", text(&with));
    assert!(text(&with).contains("1 passed, 0 failed, 1 known to fail"), "{}", text(&with));
    assert!(text(&with).contains("note: known to fail, but passed: quit"), "{}", text(&with));
}

#[tokio::test]
async fn a_run_needs_a_case_that_ran_and_known_failures_are_enough() {
    let (_server, url) = planted("answer-missing,seed=1").await;
    let baseline = std::env::temp_dir().join(format!("valkey-rdma-only-known-{}", std::process::id()));
    std::fs::write(&baseline, "feature-answer never answers\n").expect("written");
    let file = baseline.to_str().expect("a name").to_owned();
    let hostile = server::cases().find(|case| case.hostile).expect("a hostile case").id;
    let outputs = tokio::task::spawn_blocking(move || {
        let known = ["server", &url, "--only", "feature-answer", "--patience", "2", "--known", &file];
        (run(&known), run(&["server", &url, "--only", hostile]))
    });
    let (known, none) = outputs.await.expect("joins");
    std::fs::remove_file(baseline).expect("removed");
    assert_eq!(known.status.code(), Some(0), "{known:?}");
    assert_eq!(none.status.code(), Some(2), "{none:?}");
    assert_eq!(
        String::from_utf8_lossy(&none.stderr),
        "error: no case was run: the lines above give the reason of each\n"
    );
}

#[test]
fn a_report_that_cannot_be_written_is_known_before_the_first_case() {
    for report in ["--json", "--junit"] {
        let error = error_of(&["server", "emulated://127.0.0.1:1", report, "/nowhere/at/all"]);
        assert!(error.contains("cannot write /nowhere/at/all"), "{error}");
    }
    let file = std::env::temp_dir().join(format!("valkey-rdma-no-report-{}", std::process::id()));
    error_of(&["server", "emulated://127.0.0.1:1", "--json", file.to_str().expect("a name")]);
    assert!(!file.exists(), "an empty report is left");
}

/// A server with the password `s@cret`: its address.
async fn protected() -> (Server, String) {
    let any = "127.0.0.1:0".parse().expect("an address");
    let config = TransportConfig::default();
    let server = Server::builder(Mock::new().requirepass("s@cret")).rdma(DeviceKind::Emulated, any, &config);
    let server = server.start().await.expect("serves");
    let address = server.listening()[0].addr.to_string();
    (server, address)
}

#[tokio::test]
async fn a_password_comes_from_the_url_or_the_environment_and_is_in_no_report() {
    let (_server, address) = protected().await;
    let reports = std::env::temp_dir().join(format!("valkey-rdma-reports-{}", std::process::id()));
    let file = reports.to_str().expect("a name").to_owned();
    let outputs = tokio::task::spawn_blocking(move || {
        let mut outputs = Vec::new();
        for login in [":s%40cret@", "default:s%40cret@"] {
            let url = format!("emulated://{login}{address}");
            for report in ["--json", "--junit"] {
                let output = run(&["server", &url, "--only", "no-features", report, &file]);
                outputs.push((output, std::fs::read_to_string(&file).expect("a report")));
            }
        }
        let users: [&[&str]; 3] = [&[], &["--user", "default"], &[]];
        for (variable, user) in PASSWORDS.into_iter().zip(users) {
            let url = format!("emulated://{address}");
            let mut command = program(&[&["server", &url, "--only", "no-features"], user].concat());
            outputs.push((command.env(variable, "s@cret").output().expect("it runs"), String::new()));
        }
        outputs
    });
    for (output, report) in outputs.await.expect("joins") {
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        for text in [String::from_utf8_lossy(&output.stdout).as_ref(), &report] {
            assert!(!text.contains("s@cret") && !text.contains("s%40cret"), "{text}");
        }
    }
    std::fs::remove_file(reports).expect("removed");
}

#[tokio::test]
async fn a_login_that_is_missing_or_refused_has_no_verdict() {
    let (_server, address) = protected().await;
    let errors = tokio::task::spawn_blocking(move || {
        let logins = ["", ":other@", "stranger:s%40cret@"];
        let refused = logins.map(|login| error_of(&["server", &format!("emulated://{login}{address}")]));
        (refused, error_of(&["server", &format!("emulated://{address}"), "--user", "stranger"]))
    });
    let ([missing, wrong, unknown], no_password) = errors.await.expect("joins");
    assert!(missing.contains("asks for a password") && missing.contains("VALKEY_RDMA_PASSWORD"), "{missing}");
    for error in [wrong, unknown] {
        assert!(error.contains("refuses the login: WRONGPASS"), "{error}");
        assert!(!error.contains("other") && !error.contains("s%40cret"), "{error}");
    }
    assert!(no_password.contains("--user needs a password"), "{no_password}");
}

#[test]
fn a_baseline_that_names_no_case_is_refused() {
    let baseline = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/program.rs");
    let url = "emulated://127.0.0.1:1";
    let error = error_of(&["server", url, "--known", baseline]);
    assert!(error.contains("program.rs: line 1: no case is called"), "{error}");
}

#[test]
fn the_baselines_of_valkey_name_cases_that_exist() {
    let cases: Vec<&str> = server::cases().map(|case| case.id).collect();
    for file in ["valkey-9.1-server.txt", "valkey-8.1-server.txt"] {
        let path = format!("{}/known/{file}", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(&path).expect("a file");
        assert_ne!(Known::read(&text, &cases).expect("valid"), Known::default(), "{file}");
    }
}

#[test]
fn what_the_server_prints_is_kept() {
    let log = std::env::temp_dir().join(format!("valkey-rdma-server-log-{}", std::process::id()));
    let file = log.to_str().expect("a name");
    let spawn = ["--spawn", "sh -c 'echo to out; echo to err >&2; exit 3'", "--server-log", file];
    error_of(&[&["server", "emulated://127.0.0.1:1"], &spawn[..]].concat());
    let kept = std::fs::read_to_string(&log).expect("a log");
    std::fs::remove_file(log).expect("removed");
    assert!(kept.starts_with("== started: sh -c 'echo to out"), "{kept}");
    assert!(kept.ends_with("to out\nto err\n"), "{kept}");
}
