//! Other processes: this program again, in a role.

use std::net::SocketAddr;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{self, ChildStdout, Command};

use crate::{Outcome, bounded, ensure};

/// A running process, killed if dropped.
pub(crate) struct Child {
    process: process::Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Child {
    /// Starts this program with `role`, behind the commands of `under`.
    pub(crate) fn start(under: &[&str], role: &[&str]) -> Outcome<Self> {
        let program = std::env::current_exe()?;
        let program = program.to_str().ok_or("a path that is text")?;
        let mut words = under.iter().copied().chain([program]).chain(role.iter().copied());
        let mut command = Command::new(words.next().unwrap_or(program));
        command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut process = command.spawn()?;
        let stdout = process.stdout.take().ok_or("its standard output")?;
        Ok(Self { process, lines: BufReader::new(stdout).lines() })
    }

    /// The next line that it prints.
    pub(crate) async fn line(&mut self) -> Outcome<String> {
        let line = bounded("a line from a process", self.lines.next_line()).await??;
        Ok(line.ok_or("a process ended before it said what it was to say")?)
    }

    /// The address in its line `ready ADDRESS`.
    pub(crate) async fn ready(&mut self) -> Outcome<SocketAddr> {
        let line = self.line().await?;
        Ok(line.strip_prefix("ready ").ok_or_else(|| format!("not ready: {line}"))?.parse()?)
    }

    /// Ends it without asking.
    pub(crate) async fn kill(mut self) -> Outcome {
        Ok(self.process.kill().await?)
    }

    /// Waits for its end, which is to be a success. Returns what it still printed.
    pub(crate) async fn finish(mut self) -> Outcome<Vec<String>> {
        let mut rest = Vec::new();
        let reading = async {
            while let Some(line) = self.lines.next_line().await? {
                rest.push(line);
            }
            self.process.wait().await
        };
        let status = bounded("the end of a process", reading).await??;
        ensure(status.success(), format!("{status}: {}", rest.join("; ")))?;
        Ok(rest)
    }
}

/// Runs a command that is to succeed.
pub(crate) async fn run(words: &[&str]) -> Outcome {
    let output = Command::new(words[0]).args(&words[1..]).kill_on_drop(true).output();
    let output = bounded(&words.join(" "), output).await??;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure(output.status.success(), format!("{}: {}", words.join(" "), said.trim_end()))
}
