//! The program `valkey-rdma-conformance` with a server that it starts itself. Needs the workspace: the programs of other crates are not in
//! a package.

use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

use valkey_rdma_testkit::{Child, Signal, wait_until};

/// Longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(300);

#[test]
fn an_interrupt_ends_the_server_and_writes_what_was_run() {
    let mock = valkey_rdma_testkit::program("valkey-rdma-mock", "valkey-rdma-mock");
    let port = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("it").port();
    let spawn = format!("{} --device emulated --port {port}", mock.display());
    let file = std::env::temp_dir().join(format!("valkey-rdma-interrupted-{}", std::process::id()));
    let json = file.to_str().expect("a name");
    let url = format!("emulated://127.0.0.1:{port}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_valkey-rdma-conformance"));
    command.args(["server", &url, "--spawn", &spawn, "--json", json]);
    // A password of the environment would be sent to the server, which has none.
    for variable in ["VALKEY_RDMA_PASSWORD", "VALKEYCLI_AUTH", "REDISCLI_AUTH"] {
        command.env_remove(variable);
    }
    let mut suite = Child::start(&mut command).expect("starts");
    suite.lines("passed", 1, LIMIT).expect("a case");
    suite.signal(Signal::INT);
    assert_eq!(suite.wait(LIMIT).expect("it ends").code(), Some(130), "{}", suite.tail());
    let report = std::fs::read_to_string(&file).expect("a report");
    std::fs::remove_file(file).expect("removed");
    assert!(report.contains("\"passed\"") && report.contains("\"interrupted\""), "{report}");
    wait_until("the server is gone", LIMIT, || TcpStream::connect(("127.0.0.1", port)).is_err());
}
