//! The program `valkey-rdma-conformance`: exit status 2 and one line of error if nothing can be run.

use std::process::{Command, Output};

use valkey_rdma_mock::{DeviceKind, Mock, Server, TransportConfig};

fn run(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_valkey-rdma-conformance")).args(args).output().expect("it runs")
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
fn a_server_that_cannot_be_reached_has_no_verdict() {
    // A port that was free a moment ago, and that no listener may take: it is outside of the ephemeral range.
    let error = error_of(&["server", "emulated://127.0.0.1:1", "--patience", "1"]);
    assert!(error.contains("cannot connect to emulated://127.0.0.1:1"), "{error}");
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
