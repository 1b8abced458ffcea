//! Other processes: this program again, in a role, and the commands that change devices.

use std::net::SocketAddr;
use std::process::Command;

use valkey_rdma_testkit::{self as testkit, describe};

use crate::outcome::{LIMIT, Outcome, bounded, ensure};

/// This program in a role. It is killed when dropped.
///
/// Waiting for it blocks the calling thread, which is the one that runs the proof. Connections run on the runtime's
/// workers.
pub(crate) struct Child(testkit::Child);

impl Child {
    /// Starts this program with `role`, behind the commands of `under`.
    pub(crate) fn start(under: &[&str], role: &[&str]) -> Outcome<Self> {
        let program = std::env::current_exe()?;
        let program = program.to_str().ok_or("the path of this program is not text")?;
        let mut words = under.iter().copied().chain([program]).chain(role.iter().copied());
        let mut command = Command::new(words.next().unwrap_or(program));
        Ok(Self(testkit::Child::start(command.args(words))?))
    }

    /// Waits for the line `text`.
    pub(crate) fn wait_for(&self, text: &str) -> Outcome {
        self.0.line_with(text, LIMIT)?;
        Ok(())
    }

    /// The address in its line `ready ADDRESS`.
    pub(crate) fn ready(&self) -> Outcome<SocketAddr> {
        Ok(self.0.ready(LIMIT)?.parse()?)
    }

    /// Kills it.
    pub(crate) fn kill(mut self) {
        self.0.kill();
    }

    /// Waits until it ends with success. Returns what it printed.
    pub(crate) fn finish(mut self) -> Outcome<Vec<String>> {
        let status = self.0.wait(LIMIT)?;
        ensure(status.success(), format!("a process {}:\n{}", describe(status), self.0.tail()))?;
        Ok(self.0.stdout().lines().map(str::to_owned).collect())
    }
}

/// Runs a command, which must succeed.
pub(crate) async fn run(words: &[&str]) -> Outcome {
    let output = tokio::process::Command::new(words[0]).args(&words[1..]).kill_on_drop(true).output();
    let output = bounded(&words.join(" "), output).await??;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure(output.status.success(), format!("{}: {}", words.join(" "), stderr.trim_end()))
}
