//! A program that takes part: which one, with which settings.

use std::fmt;

use crate::figures::{self, Figures};

/// How a program reaches its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Rdma,
    Tcp,
    Emulated,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    /// Our load tool. Without tasks, streams are driven directly; with them, through the client library.
    Ours {
        connections: u32,
        tasks: Option<u32>,
        pipeline: u32,
        busy: bool,
        pool: bool,
    },
    ValkeyBenchmark {
        clients: u32,
        pipeline: u32,
    },
    /// Tasks that share a connection of a client library, on a runtime of `threads` threads.
    Library {
        library: Library,
        tasks: u32,
        threads: u32,
    },
    /// perftest's server and client at once.
    Perftest {
        tool: Perftest,
        message_len: u32,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Library {
    Ours,
    RedisRs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Perftest {
    /// `ib_write_bw`: what the device itself carries.
    WriteBandwidth,
    /// `ib_write_lat`: both sides read their memory until the other's write arrives.
    WriteLatency,
    /// `ib_send_lat`: both sides poll their completion queue, as a receiver of messages must.
    SendLatency,
}

impl Perftest {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::WriteBandwidth => "ib_write_bw",
            Self::WriteLatency => "ib_write_lat",
            Self::SendLatency => "ib_send_lat",
        }
    }
}

/// Which server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerKind {
    /// The real one.
    Valkey,
    /// Ours.
    Mock,
    /// Ours, busy-polling.
    BusyMock,
}

/// One program with its settings.
#[derive(Clone, Debug)]
pub(crate) struct Contender {
    pub(crate) program: Program,
    pub(crate) transport: Transport,
    pub(crate) test: &'static str,
    pub(crate) server: ServerKind,
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
        let program = Program::Ours { connections, tasks: Some(tasks), pipeline, busy: false, pool: false };
        Self::new(program, transport, test)
    }

    /// Our streams without the client library, as valkey-benchmark works without one: a request at a time on each.
    pub(crate) fn our_streams(
        transport: Transport,
        test: &'static str,
        connections: u32,
        pipeline: u32,
    ) -> Self {
        let program = Program::Ours { connections, tasks: None, pipeline, busy: false, pool: false };
        Self::new(program, transport, test)
    }

    pub(crate) fn valkey_benchmark(
        transport: Transport,
        test: &'static str,
        clients: u32,
        pipeline: u32,
    ) -> Self {
        Self::new(Program::ValkeyBenchmark { clients, pipeline }, transport, test)
    }

    /// A client library as an application uses it.
    pub(crate) fn library(
        library: Library,
        transport: Transport,
        test: &'static str,
        tasks: u32,
        threads: u32,
    ) -> Self {
        Self::new(Program::Library { library, tasks, threads }, transport, test)
    }

    pub(crate) fn perftest(tool: Perftest, message_len: u32) -> Self {
        Self::new(Program::Perftest { tool, message_len }, Transport::Rdma, tool.name())
    }

    /// The same towards another server.
    pub(crate) fn at(mut self, server: ServerKind) -> Self {
        self.server = server;
        self
    }

    /// The same with busy-polling, if it is ours.
    pub(crate) fn busy_polling(mut self) -> Self {
        if let Program::Ours { busy, .. } = &mut self.program {
            *busy = true;
        }
        self
    }

    /// The same with values in memory registered for them, if it is ours.
    pub(crate) fn with_a_pool(mut self) -> Self {
        if let Program::Ours { pool, .. } = &mut self.program {
            *pool = true;
        }
        self
    }

    fn new(program: Program, transport: Transport, test: &'static str) -> Self {
        Self { program, transport, test, server: ServerKind::Valkey }
    }

    /// The server it needs, if any.
    pub(crate) fn needs(&self) -> Option<ServerKind> {
        (!matches!(self.program, Program::Perftest { .. })).then_some(self.server)
    }

    /// The fewest requests that give each of its callers something to do.
    pub(crate) fn fewest(&self) -> u64 {
        u64::from(match self.program {
            Program::Ours { connections, tasks, pipeline, .. } => connections * tasks.unwrap_or(1) * pipeline,
            Program::ValkeyBenchmark { clients, pipeline } => clients * pipeline,
            Program::Library { tasks, .. } => tasks,
            Program::Perftest { .. } => 5,
        })
    }

    /// Reads the figures in its output.
    pub(crate) fn read(&self, printed: &str) -> Result<Figures, String> {
        match self.program {
            Program::Perftest { tool: Perftest::WriteBandwidth, message_len } => {
                figures::read_bandwidth(printed, message_len)
            }
            Program::Perftest { message_len, .. } => figures::read_latency(printed, message_len),
            _ => figures::read_csv(printed),
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
            Program::Ours { connections, tasks, busy, pool, .. } => {
                match tasks {
                    Some(tasks) => write!(f, "ours, {transport}, {connections} x {tasks}")?,
                    None => write!(f, "our streams, {transport}, {connections}")?,
                }
                f.write_str(if busy { ", busy" } else { "" })?;
                f.write_str(if pool { ", from a pool" } else { "" })?;
            }
            Program::ValkeyBenchmark { clients, .. } => {
                write!(f, "valkey-benchmark, {transport}, {clients}")?
            }
            Program::Library { library, tasks, threads } => {
                let library = match library {
                    Library::Ours => "ours",
                    Library::RedisRs => "redis-rs",
                };
                write!(f, "{library}, {transport}, 1 x {tasks}")?;
                if threads > 1 {
                    write!(f, ", {threads} threads")?;
                }
            }
            Program::Perftest { tool, .. } => f.write_str(tool.name())?,
        }
        match self.needs() {
            Some(ServerKind::Mock | ServerKind::BusyMock) => f.write_str(", at our mock"),
            _ => Ok(()),
        }
    }
}
