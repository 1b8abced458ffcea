//! A server under test: started, watched, stopped.

use std::process::Command;
use std::time::Duration;

use valkey_rdma_lab::valkey;
use valkey_rdma_testkit::{Child, Signal, describe};

use crate::case::{ServerKind, ServerProgram};
use crate::programs::Programs;

/// The address of the lab's RDMA device.
pub(crate) const ADDRESS: &str = "10.0.0.1";
/// Where every server of the suite listens, RDMA and TCP.
pub(crate) const PORT: &str = "6379";

const START_LIMIT: Duration = Duration::from_secs(300);
const STOP_LIMIT: Duration = Duration::from_secs(300);

/// A running server. Dropping it kills it.
pub(crate) struct Server {
    program: ServerProgram,
    child: Child,
    /// Lines that the last check has seen.
    checked: usize,
}

impl Server {
    /// Starts a server and waits until it accepts RDMA connections.
    pub(crate) fn start(programs: &Programs, kind: ServerKind) -> Result<Self, String> {
        let child = Child::start(&mut command(programs, kind))?;
        let sign = match kind.program {
            ServerProgram::Mock => "ready rdma://",
            _ => valkey::READY,
        };
        child.line_with(sign, START_LIMIT)?;
        Ok(Self { program: kind.program, child, checked: 0 })
    }

    /// Fails if the server has ended, or has printed a complaint since the last check.
    pub(crate) fn check(&mut self) -> Result<(), String> {
        if let Some(status) = self.child.exit_status() {
            return Err(format!("{} {}", self.program, describe(status)));
        }
        let printed = self.child.printed();
        let new = printed.iter().skip(self.checked);
        let complaint = new.into_iter().find(|line| complains(self.program, line));
        self.checked = printed.len();
        complaint.map_or(Ok(()), |line| Err(format!("{} complained: {line}", self.program)))
    }

    /// Gives up on it. Returns the failure's text with the last lines it printed.
    pub(crate) fn abandon(self, failure: String) -> String {
        format!("{}\n  {} printed last:\n{}", failure.trim_end(), self.program, self.child.tail())
    }

    /// Asks it to end, which it must do in good order and without complaints.
    pub(crate) fn stop(mut self) -> Result<(), String> {
        self.check()?;
        self.child.signal(Signal::TERM);
        let status = self.child.wait(STOP_LIMIT)?;
        if !status.success() {
            return Err(self.abandon(format!("the server {}", describe(status))));
        }
        match self.child.printed().iter().find(|line| complains(self.program, line)) {
            Some(line) => Err(format!("{} complained while it ended: {line}", self.program)),
            None => Ok(()),
        }
    }
}

fn command(programs: &Programs, kind: ServerKind) -> Command {
    let rx_size = kind.rx_size.map(|len| len.to_string());
    match programs.valkey(kind.program) {
        Some(dir) => {
            let mut command = valkey::server(&dir, ADDRESS, PORT);
            command.args(rx_size.iter().flat_map(|len| ["--rdma-rx-size", len]));
            command
        }
        None => {
            let mut command = Command::new(programs.ours("valkey-rdma-mock"));
            command.args(["--bind", ADDRESS, "--port", PORT, "--device", "verbs", "--tcp-port", PORT]);
            command.args(rx_size.iter().flat_map(|len| ["--rx-size", len]));
            command
        }
    }
}

/// Whether a line of a server's log reports something that must not happen.
fn complains(program: ServerProgram, line: &str) -> bool {
    const CRASHES: [&str; 4] = ["ASSERTION FAILED", "BUG REPORT", "panicked at", "crashed by signal"];
    let warning = match program {
        ServerProgram::Mock => line.contains(" WARN ") || line.contains(" ERROR "),
        // Valkey marks warnings with '#'; those about the machine's settings are not ours.
        _ => line.contains(" # ") && line.contains("RDMA"),
    };
    warning || CRASHES.iter().any(|crash| line.contains(crash))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_about_rdma_are_complaints_and_other_warnings_are_not() {
        let complaint = "9:M 20 Nov 2026 21:54:40.853 # RDMA: FATAL error, recv corrupted cmd";
        let machine = "9:M 20 Nov 2026 21:54:40.853 # WARNING Memory overcommit must be enabled!";
        let notice = "9:M 20 Nov 2026 21:54:40.853 * Ready to accept connections rdma";
        assert!(complains(ServerProgram::Valkey91, complaint));
        assert!(!complains(ServerProgram::Valkey91, machine));
        assert!(!complains(ServerProgram::Valkey91, notice));
    }

    #[test]
    fn a_crash_is_a_complaint_of_any_server() {
        assert!(complains(ServerProgram::Valkey81, "=== VALKEY BUG REPORT START: Cut & paste ==="));
        assert!(complains(ServerProgram::Mock, "thread 'main' panicked at src/main.rs:1:1:"));
    }
}
