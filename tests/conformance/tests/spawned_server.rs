//! The program `valkey-rdma-conformance` with a server that it starts itself. Needs the workspace: the programs of other crates are not in
//! a package.

use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use valkey_rdma_testkit::{Child, Folder, ReservedPort, Signal, wait_until};

/// Longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(300);

/// The suite against a mock that it starts. The command of the mock ends with `flags`.
fn suite(login: &str, port: u16, flags: &str) -> Command {
    let mock = valkey_rdma_testkit::program("valkey-rdma-mock", "valkey-rdma-mock");
    let spawn = format!("{} --device emulated --port {port} {flags}", mock.display());
    let mut command = Command::new(env!("CARGO_BIN_EXE_valkey-rdma-conformance"));
    command.args(["server", &format!("emulated://{login}127.0.0.1:{port}"), "--spawn", &spawn]);
    // A password of the environment would be sent to the server.
    for variable in ["VALKEY_RDMA_PASSWORD", "VALKEYCLI_AUTH", "REDISCLI_AUTH"] {
        command.env_remove(variable);
    }
    command
}

#[test]
fn a_wrong_password_is_not_taken_for_a_server_that_does_not_start() {
    let reserved = ReservedPort::new();
    let port = reserved.addr().port();
    let output = suite(":other@", port, "--requirepass right").output().expect("it runs");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let error = String::from_utf8_lossy(&output.stderr);
    let expected = format!("error: emulated://127.0.0.1:{port} refuses the login: WRONGPASS");
    assert!(error.starts_with(&expected) && error.lines().count() == 1, "{error}");
    wait_until("the server is gone", LIMIT, || TcpStream::connect(("127.0.0.1", port)).is_err());
}

/// Also one that breaks a clause on every connection.
#[test]
fn a_server_that_breaks_a_clause_has_started() {
    let reserved = ReservedPort::new();
    let port = reserved.addr().port();
    let only = ["--only", "register-first", "--only", "quit"];
    let output = suite("", port, "--faults reserved,seed=1").args(only).output().expect("it runs");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let report = String::from_utf8_lossy(&output.stdout);
    let found =
        "the server does not serve the connection before the case: reserved bytes are not zero (clause M-2)";
    assert!(report.contains(&format!("    found     {found}\n")), "{report}");
    assert!(!report.contains("cannot connect"), "{report}");
}

#[test]
fn an_interrupt_ends_the_server_and_writes_what_was_run() {
    let reserved = ReservedPort::new();
    let port = reserved.addr().port();
    let folder = Folder::new("interrupted");
    let json = folder.file("report.json");
    let mut suite = Child::start(suite("", port, "").args(["--json", &json])).expect("starts");
    suite.lines("passed", 1, LIMIT).expect("a case");
    suite.signal(Signal::INT);
    assert_eq!(suite.wait(LIMIT).expect("it ends").code(), Some(130), "{}", suite.tail());
    let report = folder.read("report.json");
    assert!(report.contains("\"passed\"") && report.contains("\"interrupted\""), "{report}");
    wait_until("the server is gone", LIMIT, || TcpStream::connect(("127.0.0.1", port)).is_err());
}
