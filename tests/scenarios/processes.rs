//! The mock and the load tool as separate programs, over the emulated device. Neither needs an adapter for that, nor
//! knows which link carries its connections.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

/// A program of the workspace. `cargo test --workspace` has built it; otherwise it is built now.
fn program(name: &str, package: &str) -> PathBuf {
    let deps = std::env::current_exe().expect("a test binary has a path");
    let target = deps.parent().and_then(|deps| deps.parent()).expect("target/PROFILE/deps");
    let path = target.join(name);
    if !path.exists() {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--no-default-features", "--package", package]);
        cargo.args(path.parent().is_some_and(|dir| dir.ends_with("release")).then_some("--release"));
        let built = cargo
            .args(["--manifest-path", concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml")])
            .status();
        assert!(built.expect("cargo runs").success(), "{name} does not build");
    }
    path
}

/// The mock in a process of its own.
struct Mock {
    child: Child,
    url: String,
}

impl Mock {
    fn start() -> Self {
        let mut command = Command::new(program("valkey-rdma-mock", "valkey-rdma-mock"));
        command.args(["--device", "emulated", "--port", "0"]).env_remove("RUST_LOG");
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the mock starts");
        let mut line = String::new();
        let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        stdout.read_line(&mut line).expect("the mock says where it is");
        let url = line.trim().strip_prefix("ready ").expect("`ready URL`").to_owned();
        Self { child, url }
    }
}

impl Drop for Mock {
    fn drop(&mut self) {
        // Gone already, where a test kills it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn benchmark(url: &str, flags: &[&str]) -> Output {
    let mut command = Command::new(program("valkey-rdma-benchmark", "valkey-rdma-benchmark"));
    command.args(["--url", url]).args(flags).env_remove("RUST_LOG").output().expect("the load tool runs")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

#[test]
fn the_load_tool_reaches_a_mock_in_another_process_and_every_reply_is_right() {
    let mock = Mock::start();
    assert!(mock.url.starts_with("emulated://127.0.0.1:"), "{}", mock.url);
    let flags = ["-t", "set,get", "-n", "2000", "-c", "5", "-d", "5000", "-P", "4"];
    let output = benchmark(&mock.url, &flags);
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    // Every test's row ends in how many replies were right, and how many were not.
    let report = text(&output.stdout);
    for test in ["SET", "GET"] {
        let row = report.lines().find(|line| line.starts_with(test)).expect("a row");
        let counts: Vec<&str> = row.split_whitespace().rev().take(2).collect();
        assert_eq!(counts, ["0", "2000"], "{report}");
    }
    assert!(report.contains("device tcp"), "{report}");
}

#[test]
fn a_mock_that_is_killed_is_a_lost_connection() {
    let mut mock = Mock::start();
    let tool = program("valkey-rdma-benchmark", "valkey-rdma-benchmark");
    let mut command = Command::new(tool);
    command
        .args(["--url", &mock.url, "-t", "get", "-n", "100000000", "-c", "2", "-q"])
        .env_remove("RUST_LOG");
    let running = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the load tool runs");
    mock.child.kill().expect("the mock is killed");
    let output = running.wait_with_output().expect("the load tool ends");
    assert!(!output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    assert!(!output.stderr.is_empty(), "{}", text(&output.stdout));
}
