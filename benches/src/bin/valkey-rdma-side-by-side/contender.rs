//! A program that takes part: how it is called, and how its figures are read.

use std::fmt;
use std::path::PathBuf;
use std::process::Command;

use clap::Args;

use crate::server::{Server, ServerKind};

/// Where the programs are.
#[derive(Clone, Debug, Args)]
pub(crate) struct Programs {
    /// Folder with a real Valkey: valkey-server, valkey-benchmark, and valkey-rdma.so in the lab
    #[arg(long, value_name = "DIR")]
    pub(crate) valkey: PathBuf,

    /// Address that the servers listen on; in the lab that of the RDMA device
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub(crate) address: String,
}

impl Programs {
    /// One of our programs, beside this one.
    pub(crate) fn ours(&self, name: &str) -> PathBuf {
        std::env::current_exe().unwrap_or_default().with_file_name(name)
    }
}

/// How a program reaches its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Rdma,
    Tcp,
    Emulated,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Program {
    /// Without tasks, streams are driven directly; with them, through the client library.
    Ours {
        connections: u32,
        tasks: Option<u32>,
        pipeline: u32,
    },
    ValkeyBenchmark {
        clients: u32,
        pipeline: u32,
    },
    RedisRs {
        tasks: u32,
    },
    WriteBandwidth {
        message_len: u32,
    },
}

/// One program with its settings.
#[derive(Clone, Debug)]
pub(crate) struct Contender {
    program: Program,
    transport: Transport,
    test: &'static str,
    pub(crate) server: ServerKind,
}

/// What one run told.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Told {
    /// Requests per second; for a bandwidth test, messages per second.
    pub(crate) rate: f64,
    /// Latencies in milliseconds, where the program measures them.
    pub(crate) p50: Option<f64>,
    pub(crate) p99: Option<f64>,
}

impl Contender {
    /// Our client library: tasks that share connections.
    pub(crate) fn ours(
        transport: Transport,
        test: &'static str,
        connections: u32,
        tasks: u32,
        pipeline: u32,
    ) -> Self {
        Self::new(Program::Ours { connections, tasks: Some(tasks), pipeline }, transport, test)
    }

    /// Our streams without the client library, as valkey-benchmark works without one: a request at a time on each.
    pub(crate) fn our_streams(
        transport: Transport,
        test: &'static str,
        connections: u32,
        pipeline: u32,
    ) -> Self {
        Self::new(Program::Ours { connections, tasks: None, pipeline }, transport, test)
    }

    pub(crate) fn valkey_benchmark(
        transport: Transport,
        test: &'static str,
        clients: u32,
        pipeline: u32,
    ) -> Self {
        Self::new(Program::ValkeyBenchmark { clients, pipeline }, transport, test)
    }

    pub(crate) fn redis_rs(test: &'static str, tasks: u32) -> Self {
        Self::new(Program::RedisRs { tasks }, Transport::Tcp, test)
    }

    /// `ib_write_bw` with messages of this length: what the device itself carries.
    pub(crate) fn write_bandwidth(message_len: u32) -> Self {
        Self::new(Program::WriteBandwidth { message_len }, Transport::Rdma, "write")
    }

    /// The same towards another server.
    pub(crate) fn at(mut self, server: ServerKind) -> Self {
        self.server = server;
        self
    }

    fn new(program: Program, transport: Transport, test: &'static str) -> Self {
        Self { program, transport, test, server: ServerKind::Valkey }
    }

    /// The server it needs, if any.
    pub(crate) fn needs(&self) -> Option<ServerKind> {
        (!matches!(self.program, Program::WriteBandwidth { .. })).then_some(self.server)
    }

    /// The call that makes it send so many requests, with values of so many bytes.
    pub(crate) fn command(
        &self,
        programs: &Programs,
        requests: u64,
        value_len: u32,
        server: Option<&Server>,
    ) -> Command {
        let port = server.map_or_else(String::new, |server| server.port.to_string());
        let (requests, len) = (requests.to_string(), value_len.to_string());
        match self.program {
            Program::Ours { connections, tasks, pipeline } => {
                let mut command = Command::new(programs.ours("valkey-rdma-benchmark"));
                let scheme = match self.transport {
                    Transport::Rdma => "rdma",
                    Transport::Tcp => "valkey",
                    Transport::Emulated => "emulated",
                };
                let port = match self.transport {
                    Transport::Emulated => {
                        server.map_or_else(String::new, |server| server.emulated.to_string())
                    }
                    _ => port,
                };
                command.arg("--url").arg(format!("{scheme}://{}:{port}?protocol=resp2", programs.address));
                command.args(["-c", &connections.to_string()]);
                if let Some(tasks) = tasks {
                    command.args(["--tasks-per-connection", &tasks.to_string()]);
                }
                command.args([
                    "-P",
                    &pipeline.to_string(),
                    "-n",
                    &requests,
                    "-d",
                    &len,
                    "-t",
                    self.test,
                    "--csv",
                ]);
                command
            }
            Program::ValkeyBenchmark { clients, pipeline } => {
                let mut command = Command::new(programs.valkey.join("valkey-benchmark"));
                command.args((self.transport == Transport::Rdma).then_some("--rdma"));
                command.args(["-h", &programs.address, "-p", &port, "-c", &clients.to_string()]);
                command.args([
                    "-P",
                    &pipeline.to_string(),
                    "-n",
                    &requests,
                    "-d",
                    &len,
                    "-t",
                    self.test,
                    "--csv",
                ]);
                command
            }
            Program::RedisRs { tasks } => {
                let mut command = Command::new(programs.ours("redis-rs-load"));
                command.arg("--url").arg(format!("redis://{}:{port}", programs.address));
                command.args(["--tasks", &tasks.to_string(), "-n", &requests, "-d", &len, "-t", self.test]);
                command
            }
            Program::WriteBandwidth { message_len } => {
                // Its server half is started by the shell that runs both; the client half prints the figure.
                let mut command = Command::new("sh");
                let call = format!("ib_write_bw -F -s {message_len} -n {requests} -m 1024");
                command.arg("-c").arg(format!(
                    "command -v ib_write_bw >/dev/null || {{ echo 'ib_write_bw (package perftest) is not installed' >&2; exit 1; }}; \
                     {call} >/dev/null 2>&1 & tries=0; until {call} {} 2>/dev/null; do \
                     tries=$((tries + 1)); [ $tries -lt 100 ] || {{ kill $!; exit 1; }}; sleep 0.1; done; wait",
                    programs.address
                ));
                command
            }
        }
    }

    /// The fewest requests that give each of its callers something to do.
    pub(crate) fn fewest(&self) -> u64 {
        u64::from(match self.program {
            Program::Ours { connections, tasks, pipeline } => connections * tasks.unwrap_or(1) * pipeline,
            Program::ValkeyBenchmark { clients, pipeline } => clients * pipeline,
            Program::RedisRs { tasks } => tasks,
            Program::WriteBandwidth { .. } => 5,
        })
    }

    /// The figures in what it printed.
    pub(crate) fn read(&self, printed: &str) -> Result<Told, String> {
        match self.program {
            Program::WriteBandwidth { message_len } => read_perftest(printed, message_len),
            _ => read_csv(printed),
        }
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let transport = match self.transport {
            Transport::Rdma => "rdma",
            Transport::Tcp => "tcp",
            Transport::Emulated => "emulated",
        };
        match self.program {
            Program::Ours { connections, tasks: Some(tasks), .. } => {
                write!(f, "ours, {transport}, {connections} x {tasks}")?
            }
            Program::Ours { connections, .. } => write!(f, "our streams, {transport}, {connections}")?,
            Program::ValkeyBenchmark { clients, .. } => {
                write!(f, "valkey-benchmark, {transport}, {clients}")?
            }
            Program::RedisRs { tasks } => write!(f, "redis-rs, tcp, 1 x {tasks}")?,
            Program::WriteBandwidth { .. } => f.write_str("ib_write_bw")?,
        }
        match self.needs() {
            Some(ServerKind::Mock) => f.write_str(", at our mock"),
            _ => Ok(()),
        }
    }
}

/// valkey-benchmark's CSV, which ours begins with: a header, then one line a test.
fn read_csv(printed: &str) -> Result<Told, String> {
    let rows: Vec<Vec<&str>> = printed
        .lines()
        .filter(|line| line.starts_with('"'))
        .map(|line| line.split(',').map(|cell| cell.trim_matches('"')).collect())
        .collect();
    let [head, values] = &rows[..] else {
        return Err(format!("a header and one line of CSV are expected, not {printed:?}"));
    };
    let column = |name| {
        let place = head.iter().position(|&cell| cell == name)?;
        values.get(place)?.parse::<f64>().ok()
    };
    let rate = column("rps").ok_or_else(|| format!("no rate in {printed:?}"))?;
    Ok(Told { rate, p50: column("p50_latency_ms"), p99: column("p99_latency_ms") })
}

/// perftest's table: message length, iterations, peak and average MiB/s.
fn read_perftest(printed: &str, message_len: u32) -> Result<Told, String> {
    let cells = printed
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .find(|cells| cells.first() == Some(&&*message_len.to_string()))
        .ok_or_else(|| format!("no line for {message_len} bytes in {printed:?}"))?;
    let average: f64 = cells.get(3).and_then(|cell| cell.parse().ok()).ok_or("no average bandwidth")?;
    Ok(Told { rate: average * f64::from(1 << 20) / f64::from(message_len), p50: None, p99: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_columns_of_csv_are_found_by_name() {
        let printed = "\"test\",\"rps\",\"p50_latency_ms\",\"p99_latency_ms\"\n\"GET\",\"1000.50\",\"0.100\",\"0.300\"\n";
        let told = read_csv(printed).unwrap_or_else(|story| panic!("{story}"));
        assert_eq!((told.rate, told.p50, told.p99), (1000.5, Some(0.1), Some(0.3)));
    }

    #[test]
    fn output_without_figures_is_an_error() {
        assert!(read_csv("\"test\",\"rps\"\n").is_err());
        assert!(read_csv("Could not connect\n").is_err());
        assert!(read_perftest("Couldn't connect", 65_536).is_err());
    }

    #[test]
    fn perftest_tells_messages_per_second() {
        let printed = " #bytes  #iterations BW peak[MB/sec] BW average[MB/sec] MsgRate[Mpps]\n 65536 1000 70.00 64.00 0.001024\n";
        let told = read_perftest(printed, 65_536).unwrap_or_else(|story| panic!("{story}"));
        assert!((told.rate - 1024.0).abs() < 0.01);
    }
}
