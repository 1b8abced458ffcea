//! A server that the suite starts, and starts again after a case has killed it.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep};

use super::{Context, Target};

/// A running server, started by a shell command.
#[derive(Debug)]
pub struct Spawned {
    command: String,
    child: Child,
}

impl Spawned {
    /// Starts `command` with `sh -c exec`, and waits until a client can connect at `target`. What it prints is appended to `log`.
    ///
    /// # Errors
    /// A text for people, if the log cannot be written, or if no client can connect within a minute.
    pub async fn start(
        command: &str,
        target: &Target,
        patience: Duration,
        log: Option<&Path>,
    ) -> Result<Self, String> {
        let [out, err] = outputs(command, log)?;
        let child = Command::new("sh")
            .args(["-c", &format!("exec {command}")])
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| format!("cannot start `{command}`: {error}"))?;
        let mut spawned = Self { command: command.to_owned(), child };
        let deadline = Instant::now() + START_LIMIT;
        loop {
            if let Some(death) = spawned.death() {
                return Err(format!("`{command}` {death} before it accepted connections"));
            }
            // Only a connection shows from outside that it has started. The cases judge what the server does on it.
            let mut context = Context::new(target.clone(), patience);
            match context.peer().await {
                Ok(mut peer) => {
                    peer.disconnect();
                    if let Some(death) = spawned.death() {
                        return Err(format!("`{command}` {death}, and another server answers at {target}"));
                    }
                    return Ok(spawned);
                }
                Err(finding) if Instant::now() > deadline => {
                    return Err(format!("`{command}` takes no connections at {target}: {finding}"));
                }
                Err(_) => sleep(Duration::from_millis(100)).await,
            }
        }
    }

    /// How the process ended. `None` if it runs.
    pub fn death(&mut self) -> Option<String> {
        use std::os::unix::process::ExitStatusExt;
        let status = self.child.try_wait().ok().flatten()?;
        Some(match (status.code(), status.signal()) {
            (Some(code), _) => format!("ended with exit status {code}"),
            (None, Some(signal)) => format!("was killed by signal {signal}"),
            (None, None) => "ended".to_owned(),
        })
    }

    /// Kills it and waits until it is gone.
    pub async fn stop(mut self) {
        // It may have ended already.
        let _ = self.child.kill().await;
    }

    /// The command that started it.
    pub fn command(&self) -> &str {
        &self.command
    }
}

/// Where standard output and standard error go: to the log, with a line at each start, or nowhere.
fn outputs(command: &str, log: Option<&Path>) -> Result<[Stdio; 2], String> {
    let Some(path) = log else { return Ok([Stdio::null(), Stdio::null()]) };
    let open = || -> std::io::Result<[File; 2]> {
        let mut file = OpenOptions::new().create(true).append(true).open(path)?;
        writeln!(file, "== started: {command}")?;
        Ok([file.try_clone()?, file])
    };
    open()
        .map(|files| files.map(Stdio::from))
        .map_err(|error| format!("cannot write {}: {error}", path.display()))
}

const START_LIMIT: Duration = Duration::from_secs(60);
