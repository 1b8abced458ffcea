//! A server under test: started, watched, stopped.

use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;

use crate::case::{ServerKind, ServerProgram};
use crate::programs::{Programs, describe};

/// The address of the lab's RDMA device.
pub(crate) const ADDRESS: &str = "10.0.0.1";
/// Where every server of the suite listens, RDMA and TCP.
pub(crate) const PORT: &str = "6379";

const START_LIMIT: Duration = Duration::from_secs(60);
const STOP_LIMIT: Duration = Duration::from_secs(60);

/// A running server; dropping it kills it.
pub(crate) struct Server {
    program: ServerProgram,
    child: Child,
    /// What it printed since it was last checked.
    lines: UnboundedReceiver<String>,
    /// All it printed, for the story of a failure.
    printed: Vec<String>,
}

impl Server {
    /// Starts a server and waits until it accepts RDMA connections.
    pub(crate) async fn start(programs: &Programs, kind: ServerKind) -> Result<Self, String> {
        let mut child = command(programs, kind)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| format!("cannot start {}: {error}", kind.program))?;
        let (sender, lines) = unbounded_channel();
        forward(child.stdout.take(), sender.clone());
        forward(child.stderr.take(), sender);
        let mut server = Self { program: kind.program, child, lines, printed: Vec::new() };
        match timeout(START_LIMIT, server.ready()).await {
            Ok(true) => Ok(server),
            Ok(false) => Err(server.abandon(format!("{} ended at once", kind.program))),
            Err(_) => Err(server.abandon(format!("{} was not ready in time", kind.program))),
        }
    }

    /// Reads on until it says that it accepts; `false` if it ends before.
    async fn ready(&mut self) -> bool {
        let sign = match self.program {
            ServerProgram::Mock => "ready rdma://",
            // "tcp" is not enough: the real clients crash when nobody listens on RDMA.
            _ => "Ready to accept connections rdma",
        };
        while let Some(line) = self.lines.recv().await {
            let ready = line.contains(sign);
            self.printed.push(line);
            if ready {
                return true;
            }
        }
        false
    }

    /// Whether it lives and has not complained.
    pub(crate) fn check(&mut self) -> Result<(), String> {
        let ended =
            self.child.try_wait().map_err(|error| format!("cannot look after the server: {error}"))?;
        if let Some(status) = ended {
            return Err(format!("{} {}", self.program, describe(status)));
        }
        self.complaint().map_or(Ok(()), |line| Err(format!("{} complained: {line}", self.program)))
    }

    /// Gives up on it: the story, with the last lines it printed.
    pub(crate) fn abandon(mut self, story: String) -> String {
        const LINES: usize = 12;
        let _ = self.complaint();
        let last = &self.printed[self.printed.len().saturating_sub(LINES)..];
        let last: String = last.iter().map(|line| format!("    {line}\n")).collect();
        format!("{}\n  {} printed last:\n{last}", story.trim_end(), self.program)
    }

    /// Asks it to end; an orderly end without complaints is success.
    pub(crate) async fn stop(mut self) -> Result<(), String> {
        self.check()?;
        terminate(&self.child);
        let Ok(status) = timeout(STOP_LIMIT, self.child.wait()).await else {
            return Err(self.abandon("the server did not end when asked to".to_owned()));
        };
        // Its output ends with it.
        while let Some(line) = self.lines.recv().await {
            self.printed.push(line);
        }
        match status {
            Ok(status) if status.success() => {}
            Ok(status) => {
                let story = describe(status);
                return Err(self.abandon(format!("the server {story}")));
            }
            Err(error) => return Err(format!("cannot wait for the server: {error}")),
        }
        match self.printed.iter().find(|line| complains(self.program, line)) {
            Some(line) => Err(format!("{} complained while it ended: {line}", self.program)),
            None => Ok(()),
        }
    }

    /// The first complaint since the last call.
    fn complaint(&mut self) -> Option<String> {
        let mut first = None;
        while let Ok(line) = self.lines.try_recv() {
            if first.is_none() && complains(self.program, &line) {
                first = Some(line.clone());
            }
            self.printed.push(line);
        }
        first
    }
}

fn command(programs: &Programs, kind: ServerKind) -> Command {
    let rx_size = kind.rx_size.map(|len| len.to_string());
    match programs.valkey(kind.program) {
        Some(dir) => {
            let mut command = Command::new(dir.join("valkey-server"));
            // Verbose, so that the story of a failure tells why the server closed a connection.
            command.args(["--protected-mode", "no", "--save", "", "--port", PORT, "--loglevel", "verbose"]);
            command.arg("--loadmodule").arg(dir.join("valkey-rdma.so"));
            command.args(["--rdma-bind", ADDRESS, "--rdma-port", PORT]);
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

/// Whether a line of a server's log tells of something that must not happen.
fn complains(program: ServerProgram, line: &str) -> bool {
    const CRASHES: [&str; 4] = ["ASSERTION FAILED", "BUG REPORT", "panicked at", "crashed by signal"];
    let warning = match program {
        ServerProgram::Mock => line.contains(" WARN ") || line.contains(" ERROR "),
        // Valkey marks warnings with '#'; those about the machine's settings are not ours.
        _ => line.contains(" # ") && line.contains("RDMA"),
    };
    warning || CRASHES.iter().any(|crash| line.contains(crash))
}

/// Sends each line on, as long as somebody wants it.
fn forward(output: Option<impl AsyncRead + Unpin + Send + 'static>, lines: UnboundedSender<String>) {
    let Some(output) = output else { return };
    tokio::spawn(async move {
        let mut reader = BufReader::new(output).lines();
        while let Ok(Some(line)) = reader.next_line().await {
            if lines.send(line).is_err() {
                break;
            }
        }
    });
}

fn terminate(child: &Child) {
    // The child is not yet waited for, so its id is still its own.
    let id = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    if let Some(id) = id {
        // That it has just ended by itself is seen when it is waited for.
        let _ = kill_process(id, Signal::TERM);
    }
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
