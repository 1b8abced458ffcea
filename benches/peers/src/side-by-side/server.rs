//! A server that the programs of a row share: started, and killed at the end.

use std::process::{Command, Stdio};
use std::time::Duration;

use valkey_rdma_testkit::Child;

use crate::contender::ServerKind;
use crate::host;
use crate::place::Place;
use crate::programs::Programs;

/// How long a server may take to start.
const START: Duration = Duration::from_secs(60);

/// A running server; dropping it kills it.
pub(crate) struct Server {
    pub(crate) kind: ServerKind,
    /// RDMA, where there is a device, and TCP.
    pub(crate) port: u16,
    /// The emulated device, at the mock only.
    pub(crate) emulated: u16,
    child: Child,
}

impl Server {
    /// Starts it and waits until it accepts.
    pub(crate) fn start(programs: &Programs, kind: ServerKind, place: Place) -> Result<Self, String> {
        let (port, emulated) = match kind {
            ServerKind::Valkey => (6391, 0),
            ServerKind::Mock => (6392, 6393),
            ServerKind::BusyMock => (6394, 6395),
        };
        let child = Child::start(&mut call(programs, kind, place, port, emulated))?;
        let sign = match (kind, place) {
            // RDMA is ready last, and the reference's clients crash without a listener.
            (ServerKind::Valkey, Place::Lab) => "Ready to accept connections rdma",
            (ServerKind::Valkey, Place::Host) => "Ready to accept connections tcp",
            (ServerKind::Mock | ServerKind::BusyMock, _) => "ready valkey://",
        };
        child.line_with(sign, START)?;
        Ok(Self { kind, port, emulated, child })
    }

    /// Writes the key that valkey-benchmark's GET reads, so that it reads a value and not nothing.
    pub(crate) fn fill(&self, programs: &Programs, value_len: u32) -> Result<(), String> {
        let mut command = Command::new(programs.valkey.join("valkey-benchmark"));
        command.args(["-h", &programs.address, "-p", &self.port.to_string(), "-d", &value_len.to_string()]);
        command.args(["-c", "1", "-n", "1", "-t", "set", "-q"]);
        match command.stdin(Stdio::null()).output() {
            Ok(output) if output.status.success() => Ok(()),
            outcome => Err(format!("cannot write a key: {command:?}: {outcome:?}")),
        }
    }

    /// Processor time it has used, in seconds.
    pub(crate) fn cpu(&self) -> f64 {
        host::cpu_of(self.child.id())
    }
}

fn call(programs: &Programs, kind: ServerKind, place: Place, port: u16, emulated: u16) -> Command {
    let (address, port) = (&programs.address, port.to_string());
    match kind {
        ServerKind::Valkey => {
            let mut command = Command::new(programs.valkey.join("valkey-server"));
            command.args(["--protected-mode", "no", "--save", "", "--port", &port, "--bind", address]);
            if place == Place::Lab {
                command.arg("--loadmodule").arg(programs.valkey.join("valkey-rdma.so"));
                command.args(["--rdma-bind", address, "--rdma-port", &port]);
            }
            command
        }
        ServerKind::Mock | ServerKind::BusyMock => {
            let mut command = Command::new(programs.ours("valkey-rdma-mock"));
            match place {
                Place::Lab => command.args(["--device", "verbs", "--port", &port]),
                Place::Host => command.args(["--device", "emulated", "--port", &emulated.to_string()]),
            };
            command.args(["--bind", address, "--tcp-port", &port]);
            if kind == ServerKind::BusyMock {
                command.args(["--poll", "busy"]);
            }
            command
        }
    }
}
