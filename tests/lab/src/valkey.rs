//! A real valkey-server's command line.

use std::path::Path;
use std::process::Command;

/// What a real server prints once it accepts RDMA connections. Its line about TCP comes earlier, and the real clients crash
/// while nothing listens on RDMA.
pub const READY: &str = "Ready to accept connections rdma";

/// The valkey-server in `folder`, listening on `port` over TCP.
///
/// Verbose, so that a failure shows why the server closed a connection.
pub fn tcp_server(folder: &Path, port: &str) -> Command {
    let mut command = Command::new(folder.join("valkey-server"));
    command.args(["--protected-mode", "no", "--save", "", "--port", port, "--loglevel", "verbose"]);
    command
}

/// The same, listening over RDMA too, on `port` of `address`.
pub fn server(folder: &Path, address: &str, port: &str) -> Command {
    let mut command = tcp_server(folder, port);
    command.arg("--loadmodule").arg(folder.join("valkey-rdma.so"));
    command.args(["--rdma-bind", address, "--rdma-port", port]);
    command
}
