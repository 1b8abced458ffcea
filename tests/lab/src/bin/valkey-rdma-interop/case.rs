//! One combination of server, client and load.

use std::fmt;
use std::time::Duration;

/// A case of the suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Case {
    pub(crate) server: ServerKind,
    pub(crate) client: ClientKind,
    pub(crate) load: Load,
}

/// Which server, with which receive window in bytes (`None`: its default).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ServerKind {
    pub(crate) program: ServerProgram,
    pub(crate) rx_size: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServerProgram {
    Valkey91,
    Valkey81,
    Mock,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientKind {
    /// valkey-rdma-benchmark
    Ours,
    /// valkey-benchmark --rdma
    ValkeyBenchmark,
    /// valkey-cli --rdma
    ValkeyCli,
}

/// What the client does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) test: Test,
    pub(crate) shape: Shape,
    /// Requests per test, over all connections.
    pub(crate) requests: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Test {
    Ping,
    /// SET, then GET, of values of this many bytes.
    SetGet(usize),
}

/// How many requests are in flight at once, and over how many connections and tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) connections: usize,
    /// Tasks that share each connection.
    pub(crate) tasks: usize,
    /// Requests that a task sends before it waits for their replies.
    pub(crate) pipeline: usize,
}

impl Case {
    /// The cells of its line: server, window, client, test, value, connections, tasks, pipeline, requests.
    pub(crate) fn cells(&self) -> [String; 9] {
        let Load { test, shape, requests } = self.load;
        let (test, value) = match test {
            Test::Ping => ("ping", "-".to_owned()),
            Test::SetGet(len) => ("set,get", size(len)),
        };
        [
            self.server.program.to_string(),
            format!("rx={}", self.server.rx_size.map_or("default".to_owned(), |len| size(len as usize))),
            self.client.to_string(),
            test.to_owned(),
            value,
            format!("c{}", shape.connections),
            format!("t{}", shape.tasks),
            format!("P{}", shape.pipeline),
            format!("n{requests}"),
        ]
    }

    /// How long its client may take. An emulated processor moves about 50 MB/s, and shares the machine.
    pub(crate) fn limit(&self) -> Duration {
        const SLOWEST_BYTES_PER_SECOND: usize = 8_000_000;
        let bytes = match self.load.test {
            Test::Ping => 0,
            Test::SetGet(len) => 2 * len * self.load.requests,
        };
        Duration::from_secs(60 + (bytes / SLOWEST_BYTES_PER_SECOND) as u64)
    }
}

impl Test {
    /// The tests' names in valkey-benchmark's reports.
    pub(crate) fn names(self) -> &'static [&'static str] {
        match self {
            Test::Ping => &["PING_MBULK"],
            Test::SetGet(_) => &["SET", "GET"],
        }
    }
}

impl Shape {
    /// Requests in flight at most.
    pub(crate) fn in_flight(self) -> usize {
        self.connections * self.tasks * self.pipeline
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.cells().join(" "))
    }
}

impl fmt::Display for ServerProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ServerProgram::Valkey91 => "valkey-9.1",
            ServerProgram::Valkey81 => "valkey-8.1",
            ServerProgram::Mock => "mock",
        })
    }
}

impl fmt::Display for ClientKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ClientKind::Ours => "ours",
            ClientKind::ValkeyBenchmark => "valkey-benchmark",
            ClientKind::ValkeyCli => "valkey-cli",
        })
    }
}

fn size(bytes: usize) -> String {
    const KIB: usize = 1 << 10;
    const MIB: usize = 1 << 20;
    if bytes >= MIB && bytes.is_multiple_of(MIB / 2) {
        format!("{}MiB", bytes as f64 / MIB as f64)
    } else if bytes >= KIB && bytes.is_multiple_of(KIB) {
        format!("{}KiB", bytes / KIB)
    } else {
        format!("{bytes}B")
    }
}
