//! Where the programs are, and how one is run to its end.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use clap::Args;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::time::timeout;
use valkey_rdma_testkit::describe;

use crate::case::ServerProgram;

/// Where the programs are.
#[derive(Debug, Clone, Args)]
pub(crate) struct Programs {
    /// The lab's folder, with the real Valkeys in valkey/9.1 and valkey/8.1
    #[arg(long, value_name = "DIR", env = "VALKEY_RDMA_LAB_DIR", default_value = ".lab")]
    lab: PathBuf,

    /// Folder with our programs (default: that of this one)
    #[arg(long, value_name = "DIR")]
    ours: Option<PathBuf>,
}

impl Programs {
    /// One of our programs.
    pub(crate) fn ours(&self, name: &str) -> PathBuf {
        match &self.ours {
            Some(dir) => dir.join(name),
            None => std::env::current_exe().unwrap_or_default().with_file_name(name),
        }
    }

    /// The folder of a real Valkey's programs; `None` for our mock.
    pub(crate) fn valkey(&self, program: ServerProgram) -> Option<PathBuf> {
        let line = match program {
            ServerProgram::Valkey91 => "9.1",
            ServerProgram::Valkey81 => "8.1",
            ServerProgram::Mock => return None,
        };
        Some(self.lab.join("valkey").join(line))
    }

    /// One of the real clients; only 9.1's speak RDMA.
    pub(crate) fn valkey_client(&self, name: &str) -> PathBuf {
        self.lab.join("valkey/9.1").join(name)
    }
}

/// What a program printed before it ended with success.
pub(crate) struct Output {
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
}

/// Runs a program to its end, with `input` as its standard input.
/// It fails, too, if it takes longer than `limit`, and is then killed.
pub(crate) async fn run(command: &mut Command, input: &[u8], limit: Duration) -> Result<Output, String> {
    let name = name_of(command);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().map_err(|error| format!("cannot start {name}: {error}"))?;
    let stdin = child.stdin.take();
    let feed = async {
        if let Some(mut stdin) = stdin {
            // A program that ends early reports why with its status. That it stopped reading adds nothing.
            let _ = stdin.write_all(input).await;
        }
    };
    let (output, ()) = timeout(limit, async { tokio::join!(child.wait_with_output(), feed) })
        .await
        .map_err(|_| format!("{name} was killed after {} seconds", limit.as_secs()))?;
    let output = output.map_err(|error| format!("cannot wait for {name}: {error}"))?;
    if !output.status.success() {
        let last_words = [tail(&output.stdout), tail(&output.stderr)].concat();
        return Err(format!("{name}: {}\n{last_words}", describe(output.status)));
    }
    Ok(Output { stdout: output.stdout, stderr: output.stderr })
}

/// The last lines of what a program printed, indented.
pub(crate) fn tail(printed: &[u8]) -> String {
    const LINES: usize = 12;
    const WIDTH: usize = 200;
    let text = String::from_utf8_lossy(printed);
    let lines: Vec<&str> = text.split(['\n', '\r']).filter(|line| !line.trim().is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(LINES)..];
    last.iter().map(|line| format!("    {}\n", line.chars().take(WIDTH).collect::<String>())).collect()
}

pub(crate) fn name_of(command: &Command) -> String {
    let path = Path::new(command.as_std().get_program());
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}
