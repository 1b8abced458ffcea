//! Random and mutated input of hostile clients, beside clients whose every reply is checked: what one sends changes nothing for others
//! (clauses G-1 to G-6 of docs/gateway.md).
//!
//! Small under `cargo test`, in front of mock servers. The long form runs for a time, and in front of real servers:
//!
//! ```console
//! $ VALKEY_RDMA_GATEWAY_FUZZ_SECONDS=600 VALKEY_RDMA_GATEWAY_FUZZ_SERVERS="valkey://127.0.0.1:6379 cluster:valkey://127.0.0.1:7000" \
//!       cargo test -p valkey-rdma-gateway --features emulated --test hostile -- --nocapture
//! ```
//!
//! A failure prints the seed of its case, and the smallest part of the case that still fails. `VALKEY_RDMA_GATEWAY_FUZZ_SEED` begins with that
//! case, and `VALKEY_RDMA_GATEWAY_FUZZ_CASES=1` ends after it. The servers are for the test alone: it writes keys, and makes a user `witness`.

#![cfg(feature = "emulated")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "the long form says how far it has come")]

#[path = "hostile/case.rs"]
mod case;
#[path = "hostile/generate.rs"]
mod generate;
#[path = "gateway/support.rs"]
#[allow(dead_code, reason = "shared with the other tests, which use all of it")]
mod support;
#[path = "hostile/witness.rs"]
mod witness;

use std::time::{Duration, Instant};

use valkey_rdma_gateway::{Config, Limits, Share};
use valkey_rdma_mock::{Mock, MockCluster};

use case::{Case, run, shrink};
use support::{cluster_config, config, mock_with, start};
use witness::{Witness, state_of};

/// Cases in front of each server, if no time is set: a few seconds.
const CASES: u64 = 150;
const SEED: u64 = 1;

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

/// Limits that are small, so that random input meets them.
fn limits() -> Limits {
    let mut limits = Limits::default();
    limits.command_bytes = 4 << 10;
    limits.cluster_command_bytes = 64 << 10;
    limits.commands_in_flight = 64;
    limits.unread_bytes = 1 << 20;
    limits.slow_reader_ms = 200;
    limits
}

/// Runs cases until the time is over, or as many as there are without one. Panics with a small case if one fails.
async fn fuzz(name: &str, config: impl Fn() -> Config) {
    let seconds = setting("VALKEY_RDMA_GATEWAY_FUZZ_SECONDS").map(Duration::from_secs);
    let cases = setting("VALKEY_RDMA_GATEWAY_FUZZ_CASES").unwrap_or(CASES);
    let first = setting("VALKEY_RDMA_GATEWAY_FUZZ_SEED").unwrap_or(SEED);
    let begin = Instant::now();
    let mut gateway = start(&config()).await;
    Witness::prepare(&gateway).await;
    let mut witness = Witness::new(&gateway).await;
    let mut done = 0;
    while seconds.map_or(done < cases, |limit| begin.elapsed() < limit) {
        let seed = first + done;
        let case = Case::of(seed);
        if let Err(why) = run(&gateway, &mut witness, &case).await {
            let state = state_of(&gateway).await;
            let small = shrink(&config, case).await;
            panic!("{name}, seed {seed}: {why}\n{state}\n{small}");
        }
        done += 1;
        if done % 1000 == 0 {
            println!("{name}: {done} cases, {} replies checked", witness.checked);
            // Another one begins with other connections.
            gateway.gateway.shutdown().await;
            gateway = start(&config()).await;
            let checked = witness.checked;
            witness = Witness::new(&gateway).await;
            witness.checked = checked;
        }
    }
    let checked = witness.checked;
    println!(
        "{name}: seeds {first} to {}, {checked} replies checked in {:?}",
        first + done - 1,
        begin.elapsed()
    );
    assert!(checked > done, "{name}: {checked}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_input_of_one_client_changes_what_another_receives_g3() {
    if let Ok(servers) = std::env::var("VALKEY_RDMA_GATEWAY_FUZZ_SERVERS") {
        for url in servers.split_whitespace() {
            let config = || match url.strip_prefix("cluster:") {
                Some(node) => cluster_config(vec![node.to_owned()], limits()),
                None => config(url, Share::Auto, limits()),
            };
            fuzz(url, config).await;
        }
        return;
    }
    let (_server, rdma, tcp) = mock_with(Mock::new().requirepass("right")).await;
    let mocks = MockCluster::start(3).await.expect("free ports");
    let with_login = |url: &String| url.replace("://", "://:right@");
    let [rdma, tcp] = [&rdma, &tcp].map(with_login);
    fuzz("one server over TCP", || config(&tcp, Share::Auto, limits())).await;
    fuzz("one server over the emulated device", || config(&rdma, Share::Auto, limits())).await;
    let open = start(&cluster_config(mocks.urls(), limits())).await;
    assert_eq!(open.client().await.say("CONFIG SET requirepass right").await, "OK");
    let urls: Vec<_> = mocks.urls().iter().map(with_login).collect();
    fuzz("a cluster", || cluster_config(urls.clone(), limits())).await;
}
