//! What a run will take, for the user to read before it begins.

use std::time::Duration;

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use valkey_rdma_client::Endpoint;
use valkey_rdma_program::plural;

use crate::run::{Cell, PREFIX, keyspace_bytes, most_in_flight};

/// Time, and memory of both sides.
pub(super) fn text(cells: &[Cell], rounds: u32, turn: Duration, endpoint: &Endpoint) -> String {
    let time: Duration = cells.iter().map(|cell| cell.time(rounds, turn)).sum();
    let config = endpoint.transport_config();
    let pinned = cells.iter().map(|cell| (cell.pinned(&config), cell.name)).max_by_key(|(bytes, _)| *bytes);
    let (pinned, pins_most) = pinned.unwrap_or_default();
    let (in_flight, moves_most) = most_in_flight(cells).unwrap_or_default();
    format!(
        "evidence: {}, {} of {} s on each side and one more to warm up: about {}\n\
         note: writes up to 1000 keys that begin with {PREFIX}, {} at the server; its buffers hold up to {} more in {moves_most}\n\
         note: this process pins up to {} in {pins_most}; its limit (ulimit -l) is {}",
        plural(cells.len(), "cell"),
        plural(rounds as usize, "round"),
        turn.as_secs_f64(),
        humantime::format_duration(Duration::from_secs(time.as_secs().max(1))),
        bytes(keyspace_bytes(cells)),
        bytes(in_flight),
        bytes(pinned),
        limit(),
    )
}

/// What this process may pin.
fn limit() -> String {
    match getrlimit(Resource::RLIMIT_MEMLOCK) {
        Ok((RLIM_INFINITY, _)) => "unlimited".to_owned(),
        Ok((most, _)) => bytes(most),
        Err(_) => "not known".to_owned(),
    }
}

fn bytes(count: u64) -> String {
    match count {
        0..10_000_000 => format!("{:.1} MB", count as f64 / 1e6),
        _ => format!("{:.0} MB", count as f64 / 1e6),
    }
}
