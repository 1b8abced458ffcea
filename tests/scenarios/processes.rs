//! The mock and the load tool as separate programs, over the emulated device. Neither needs an RDMA adapter for that.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use valkey_rdma_testkit::{Child, program, wait_until};

/// Longer than anything takes here unless it hangs.
const LIMIT: Duration = Duration::from_secs(120);

/// The mock in its own process, on the emulated device and on TCP.
struct Mock {
    child: Child,
    url: String,
    tcp: String,
}

impl Mock {
    fn start() -> Self {
        let mut command = Command::new(program("valkey-rdma-mock", "valkey-rdma-mock"));
        command.args(["--device", "emulated", "--tcp-port", "0"]);
        // As mocks in tests do, see `MockServer`.
        match std::env::var_os("VALKEY_RDMA_MOCK_TLS").map(PathBuf::from) {
            None => command.args(["--port", "0"]),
            Some(folder) => command
                .args(["--tls-rdma-port", "0", "--tls-cert"])
                .arg(folder.join("server.crt"))
                .arg("--tls-key")
                .arg(folder.join("server.key")),
        };
        let child = Child::start(&mut command).expect("the mock starts");
        let mut urls = child.lines("ready ", 2, LIMIT).expect("the mock is ready").into_iter();
        let (url, tcp) = (urls.next().expect("a URL"), urls.next().expect("another"));
        let tcp = tcp.strip_prefix("valkey://").expect("the URL of the TCP port").to_owned();
        Self { child, url, tcp }
    }

    /// The number of commands it has served, without this one.
    fn commands(&self) -> u64 {
        let mut stream = TcpStream::connect(&self.tcp).expect("connects");
        stream.set_read_timeout(Some(LIMIT)).expect("sets the limit");
        stream.write_all(b"INFO stats\r\n").expect("writes");
        let mut lines = BufReader::new(stream).lines().map(|line| line.expect("reads"));
        let count = lines.find_map(|line| line.strip_prefix("total_commands_processed:").map(str::to_owned));
        count.expect("INFO has the count").trim().parse().expect("a number")
    }
}

fn benchmark(url: &str, flags: &[&str]) -> Child {
    let mut command = Command::new(program("valkey-rdma-benchmark", "valkey-rdma-benchmark"));
    command.args(["--url", url]).args(flags);
    Child::start(&mut command).expect("the load tool starts")
}

#[test]
fn the_load_tool_reaches_a_mock_in_another_process_and_every_reply_is_right() {
    let mock = Mock::start();
    assert!(mock.url.starts_with("emulated"), "{}", mock.url);
    let flags = ["-t", "set,get", "-n", "2000", "-c", "5", "-d", "5000", "-P", "4"];
    let mut tool = benchmark(&mock.url, &flags);
    let status = tool.wait(LIMIT).expect("the load tool ends");
    assert!(status.success(), "{}", tool.tail());
    // Every test's row ends in the number of right replies, and of wrong ones.
    let report = tool.stdout();
    for test in ["SET", "GET"] {
        let row = report.lines().find(|line| line.starts_with(test)).expect("a row");
        let counts: Vec<&str> = row.split_whitespace().rev().take(2).collect();
        assert_eq!(counts, ["0", "2000"], "{report}");
    }
    assert!(report.contains("device tcp"), "{report}");
}

#[test]
fn a_mock_that_is_killed_under_load_is_a_lost_connection() {
    let mut mock = Mock::start();
    let mut tool =
        benchmark(&mock.url, &["-t", "ping", "-n", "100000000", "-c", "2", "-q", "--reply-timeout", "2"]);
    // Connected, logged in and under load.
    wait_until("the load", LIMIT, || mock.commands() > 1000);
    mock.child.kill();
    let status = tool.wait(LIMIT).expect("the load tool ends");
    assert_eq!(status.code(), Some(1), "{}", tool.tail());
    assert!(tool.stderr().contains("connection lost"), "{}", tool.stderr());
}
