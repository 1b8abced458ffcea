//! A server that the programs of a row share: started, and killed at the end.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use crate::contender::ServerKind;
use crate::host;
use crate::place::Place;
use crate::programs::Programs;

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
        let mut command = call(programs, kind, place, port, emulated);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|error| format!("cannot start {command:?}: {error}"))?;
        let stdout = child.stdout.take();
        let server = Self { kind, port, emulated, child };
        let sign = match (kind, place) {
            // RDMA is ready last, and the reference's clients crash when nobody listens.
            (ServerKind::Valkey, Place::Lab) => "Ready to accept connections rdma",
            (ServerKind::Valkey, Place::Host) => "Ready to accept connections tcp",
            (ServerKind::Mock | ServerKind::BusyMock, _) => "ready valkey://",
        };
        let mut lines = stdout.into_iter().flat_map(|stdout| BufReader::new(stdout).lines());
        if !lines.any(|line| line.is_ok_and(|line| line.contains(sign))) {
            return Err(format!("{command:?} ended before it was ready"));
        }
        // Read on, or a talkative server would block.
        std::thread::spawn(move || lines.for_each(drop));
        Ok(server)
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

impl Drop for Server {
    fn drop(&mut self) {
        // That it has ended by itself has shown in its clients.
        let _ = self.child.kill();
        let _ = self.child.wait();
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
