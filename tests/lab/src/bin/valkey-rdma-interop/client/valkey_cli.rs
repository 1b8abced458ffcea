//! valkey-cli --rdma: sets values of all bytes there are, reads them back and compares.

use std::time::Duration;

use tokio::process::Command;
use tokio::task::JoinSet;

use super::Rates;
use crate::case::{Case, Test};
use crate::programs::{self, Programs};
use crate::server::{ADDRESS, PORT};

/// Runs one per connection of the case, all at once, each with its own key.
pub(super) async fn run(programs: &Programs, case: &Case) -> Result<Rates, String> {
    let Test::SetGet(len) = case.load.test else {
        return Err("valkey-cli is used for set and get only".to_owned());
    };
    let limit = case.limit();
    let mut clients = JoinSet::new();
    for number in 0..case.load.shape.connections {
        let programs = programs.clone();
        clients.spawn(async move { set_and_get(&programs, number, len, limit).await });
    }
    while let Some(result) = clients.join_next().await {
        result.map_err(|error| format!("a client's task failed: {error}"))??;
    }
    Ok(Rates::new())
}

async fn set_and_get(programs: &Programs, number: usize, len: usize, limit: Duration) -> Result<(), String> {
    let key = format!("cli:{number}");
    let wanted = value(number, len);
    let reply = programs::run(cli(programs).args(["-x", "SET", &key]), &wanted, limit).await?.stdout;
    if reply != b"OK\n" {
        return Err(format!("SET {key}: the reply is {:?}", String::from_utf8_lossy(&reply)));
    }
    let got = get(programs, &key, limit).await?;
    if got == wanted {
        return Ok(());
    }
    let at = got.iter().zip(&wanted).position(|(one, other)| one != other).unwrap_or(got.len().min(len));
    Err(format!("GET {key}: {} bytes for {len}, and they differ from byte {at} on", got.len()))
}

/// The value of a key.
pub(super) async fn get(programs: &Programs, key: &str, limit: Duration) -> Result<Vec<u8>, String> {
    let mut printed = programs::run(cli(programs).args(["GET", key]), &[], limit).await?.stdout;
    // It ends what it prints with a line feed.
    match printed.pop() {
        Some(b'\n') => Ok(printed),
        _ => Err(format!("GET {key}: valkey-cli printed no whole line")),
    }
}

fn cli(programs: &Programs) -> Command {
    let mut command = Command::new(programs.valkey_client("valkey-cli"));
    command.args(["--rdma", "-h", ADDRESS, "-p", PORT, "-e"]);
    command
}

/// Every byte value comes up, no two keys have the same value, and no two pages of a value are alike.
fn value(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| ((at + at / 251 + 31 * number) % 256) as u8).collect()
}
