//! How the programs are called.

use std::process::Command;

use crate::contender::{Contender, Library, Perftest, Program, Transport};
use crate::programs::Programs;
use crate::server::Server;

impl Programs {
    /// The command line that makes a contender send `requests`, with values of `value_len` bytes.
    pub(crate) fn call(
        &self,
        contender: &Contender,
        requests: u64,
        value_len: u32,
        server: Option<&Server>,
    ) -> Command {
        let (transport, test) = (contender.transport, contender.test);
        let port = server.map_or(0, |server| match transport {
            Transport::Emulated => server.emulated,
            _ => server.port,
        });
        let [requests, len] = [requests.to_string(), value_len.to_string()];
        let what = ["-n", &requests, "-d", &len, "-t", test];
        match contender.program {
            Program::Ours { connections, tasks, pipeline, busy, pool } => {
                let mut command = Command::new(self.ours("valkey-rdma-benchmark"));
                command.args(["--url", &self.url(transport, port)]).args(["-c", &connections.to_string()]);
                if let Some(tasks) = tasks {
                    command.args(["--tasks-per-connection", &tasks.to_string()]);
                }
                if busy {
                    command.args(["--poll", "busy"]);
                }
                command.args(pool.then_some("--pool"));
                command.args(["-P", &pipeline.to_string()]).args(what).arg("--csv");
                command
            }
            Program::ValkeyBenchmark { clients, pipeline } => {
                let mut command = Command::new(self.valkey.join("valkey-benchmark"));
                command.args((transport == Transport::Rdma).then_some("--rdma"));
                command.args(["-h", &self.address, "-p", &port.to_string(), "-c", &clients.to_string()]);
                command.args(["-P", &pipeline.to_string()]).args(what).arg("--csv");
                command
            }
            Program::Library { library, tasks, threads } => {
                let (name, url) = match library {
                    Library::Ours => ("valkey-rdma", self.url(transport, port)),
                    Library::RedisRs => ("redis-rs", format!("redis://{}:{port}", self.address)),
                };
                let mut command = Command::new(self.ours("client-load"));
                command.args(["--library", name, "--url", &url]).args(["--tasks", &tasks.to_string()]);
                command.args(["--threads", &threads.to_string()]).args(what);
                command
            }
            Program::Perftest { tool, message_len } => {
                // Latencies with the message inside of the request, as small messages travel.
                let inline = if tool == Perftest::WriteBandwidth { "" } else { "-I 64 " };
                let program = tool.name();
                let call = format!("{program} -F -s {message_len} {inline}-n {requests} -m 1024");
                // Its server half is started by the shell that runs both; the client half prints the figure.
                let mut command = Command::new("sh");
                command.arg("-c").arg(format!(
                    "command -v {program} >/dev/null || {{ echo '{program} (package perftest) is not installed' >&2; exit 1; }}; \
                     {call} >/dev/null 2>&1 & tries=0; until {call} {} 2>/dev/null; do \
                     tries=$((tries + 1)); [ $tries -lt 100 ] || {{ kill $!; exit 1; }}; sleep 0.1; done; wait",
                    self.address
                ));
                command
            }
        }
    }

    fn url(&self, transport: Transport, port: u16) -> String {
        let scheme = match transport {
            Transport::Rdma => "rdma",
            Transport::Tcp => "valkey",
            Transport::Emulated => "emulated",
        };
        format!("{scheme}://{}:{port}?protocol=resp2", self.address)
    }
}
