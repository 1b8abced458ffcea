//! What perftest measures between the same machines.

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use tokio::process::Command;

use super::Direction;
use crate::generator::Target;

/// What perftest's programs measure between the same machines, where they are installed: the reference for what the
/// hardware can do. Their server must run on the other machine; if it does not, the output says how to start it.
pub(crate) async fn write_reference(
    out: &mut dyn Write,
    target: &Target,
    direction: Direction,
    message: usize,
) -> io::Result<()> {
    if !target.is_device() {
        return Ok(());
    }
    let program = match direction {
        Direction::OneWay => "ib_write_bw",
        Direction::Both => "ib_write_lat",
    };
    let Some(path) = installed(program) else {
        return writeln!(out, "no physical reference: {program} (package perftest) is not installed here");
    };
    let host = target.endpoint.host();
    let run = Command::new(path).args(["-R", "-s", &message.to_string(), host]).kill_on_drop(true).output();
    let output = tokio::time::timeout(Duration::from_secs(20), run).await;
    match output {
        Ok(Ok(output)) if output.status.success() => {
            writeln!(out, "physical reference, {program} -R -s {message}:")?;
            let text = String::from_utf8_lossy(&output.stdout);
            text.lines()
                .filter(|line| line.contains("#bytes") || line.trim_start().starts_with(char::is_numeric))
                .try_for_each(|line| writeln!(out, "  {}", line.trim()))
        }
        _ => writeln!(out, "no physical reference: start {program} -R -s {message} on {host} to have one"),
    }
}

fn installed(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}
