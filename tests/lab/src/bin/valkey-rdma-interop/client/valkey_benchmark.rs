//! valkey-benchmark --rdma: it counts replies but does not read them, so the value is read back at the end.

use tokio::process::Command;

use super::{Rates, valkey_cli};
use crate::case::{Case, Test};
use crate::programs::{self, Programs, tail};
use crate::server::{ADDRESS, PORT};

/// The key it uses unless configured to vary it.
const KEY: &str = "key:__rand_int__";

pub(super) async fn run(programs: &Programs, case: &Case) -> Result<Rates, String> {
    let Test::SetGet(len) = case.load.test else {
        return Err("valkey-benchmark is used for set and get only".to_owned());
    };
    let shape = case.load.shape;
    let mut command = Command::new(programs.valkey_client("valkey-benchmark"));
    command.args(["--rdma", "-h", ADDRESS, "-p", PORT, "-t", "set,get", "-d", &len.to_string()]);
    command.args(["-n", &case.load.requests.to_string()]);
    command.args(["-c", &shape.connections.to_string(), "-P", &shape.pipeline.to_string()]);
    let output = programs::run(&mut command, &[], case.limit()).await?;
    let text = String::from_utf8_lossy(&output.stdout);
    let rates = verify(&text, case)
        .map_err(|failure| format!("{failure}\n{}", [tail(&output.stdout), tail(&output.stderr)].concat()))?;

    let value = valkey_cli::get(programs, KEY, case.limit()).await?;
    // Its values are letters from '0' to 'o'.
    let sound = value.len() == len && value.iter().all(|byte| (b'0'..=b'o').contains(byte));
    if sound {
        Ok(rates)
    } else {
        Err(format!("the value read back is not the one it set ({} bytes)", value.len()))
    }
}

/// Every test is reported, complete.
fn verify(text: &str, case: &Case) -> Result<Rates, String> {
    if text.contains("Error") {
        return Err("valkey-benchmark reports an error".to_owned());
    }
    let complete = format!("{} requests completed in", case.load.requests);
    let completed = text.lines().filter(|line| line.trim_start().starts_with(&complete)).count();
    let tests = case.load.test.names().len();
    if completed != tests {
        return Err(format!("valkey-benchmark completed {completed} of {tests} tests"));
    }
    let rates = text.lines().filter_map(|line| {
        let rate = line.trim().strip_prefix("throughput summary: ")?.strip_suffix(" requests per second")?;
        rate.parse().ok()
    });
    Ok(rates.collect())
}
