//! Calls that are dropped, that get no reply in time, and whose server ends in the middle, and when the slices come back (D-5, D-6).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::task::yield_now;
use valkey_rdma_client::transport::FeatureSet;
use valkey_rdma_client::{Client, Config, Error, Fate, Purpose, Way};

use super::server::{Conduct, Server};
use super::{bounded, connect, filled, free_again, memory, pattern, until};

#[tokio::test]
async fn a_thousand_dropped_calls_cost_neither_the_connection_nor_memory_d5() {
    let server = Server::start().await;
    let client = connect(&server.url()).await;
    const LEN: usize = 20_000;
    let memory = memory(LEN + 2 * 64);
    let guards = [filled(&memory, 0..64, 0xee), filled(&memory, LEN + 64..LEN + 128, 0xee)];
    server.set("k", pattern(0, LEN));
    drop(bounded(client.get_direct("k", [free_again(&memory, 64..LEN + 64).await])).await.expect("placed"));
    for n in 0..1000 {
        let slice = free_again(&memory, 64..LEN + 64).await;
        let polls = async {
            for _ in 0..n % 7 {
                yield_now().await;
            }
        };
        let call = async {
            match n % 2 {
                0 => client.get_direct("k", [slice]).await,
                _ => client.set_direct("other", [slice]).await,
            }
        };
        tokio::select! {
            biased;
            () = polls => {}
            done = call => drop(done.expect("carried out")),
        }
    }
    let slice = free_again(&memory, 64..LEN + 64).await;
    let placed = bounded(client.get_direct("k", [slice])).await.expect("placed");
    assert!(placed.slices[0][..] == pattern(0, LEN) && matches!(placed.way, Way::Direct));
    assert!(guards.iter().all(|guard| guard.iter().all(|byte| *byte == 0xee)));
    assert_eq!(server.accepted(), 2);
}

/// The limit is for the connects too.
const LIMIT: Duration = Duration::from_secs(5);

#[tokio::test]
async fn a_call_whose_time_is_up_ends_the_connection_and_the_next_one_makes_another_d5() {
    let server = Server::start().await;
    let config = Config::default().command_timeout(LIMIT);
    let client = Client::connect_with(server.url().as_str(), &config).await.expect("connected");
    let memory = memory(200);
    server.set("k", vec![7; 100]);
    bounded(client.get_direct("k", [filled(&memory, 0..100, 0)])).await.expect("placed");

    server.conduct(Conduct::Silent);
    let dropped = client.get_direct("k", [filled(&memory, 100..200, 0)]);
    tokio::select! { done = dropped => panic!("{done:?}"), () = until(|| server.asked() == 2) => {} }
    assert!(memory.take(199..200).is_err(), "the server may write to it");
    let late = client.set_direct("k", [filled(&memory, 0..100, 0)]);
    let error = bounded(late).await.expect_err("no reply");
    // The first of the two to be late ends the connection of both.
    assert!(matches!(error, Error::TimedOut(_) | Error::Lost(_)), "{error:?}");
    assert_eq!(error.fate(), Fate::MayHaveRun);
    drop(free_again(&memory, 0..200).await);

    server.conduct(Conduct::Fair);
    let placed = bounded(client.get_direct("k", [filled(&memory, 0..100, 0)])).await.expect("placed");
    assert!(placed.slices[0].iter().all(|byte| *byte == 7) && matches!(placed.way, Way::Direct));
    assert_eq!(server.accepted(), 3);
}

#[tokio::test]
async fn a_server_that_ends_under_load_gives_every_slice_back_and_the_next_one_is_used_d6() {
    const LEN: usize = 1 << 20;
    let mut server = Server::start().await;
    let client = connect(&server.url()).await;
    let memory = memory(8 * LEN);
    for round in 0..3 {
        server.set("k", pattern(round, LEN));
        let stopped = Arc::new(AtomicBool::new(false));
        let calls = (0..8_usize).map(|n| {
            let (client, memory, stopped) = (client.clone(), memory.clone(), stopped.clone());
            tokio::spawn(async move {
                let mut slices = vec![memory.take(n * LEN..(n + 1) * LEN).expect("free")];
                while !stopped.load(Ordering::Relaxed) {
                    let placed = match n % 2 {
                        0 => client.get_direct("k", slices).await?,
                        _ => client.set_direct(format!("own:{n}"), slices).await?,
                    };
                    slices = placed.slices;
                }
                Ok::<_, Error>(())
            })
        });
        let calls: Vec<_> = calls.collect();
        until(|| server.asked() >= 20).await;
        let address = server.address;
        drop(server);
        server = bounded(Server::at(address, FeatureSet::DIRECT)).await;
        stopped.store(true, Ordering::Relaxed);
        let mut lost = 0;
        for call in calls {
            // Those that were between two calls wait for the next server.
            if let Err(error) = bounded(call).await.expect("no panic") {
                assert!(matches!(error, Error::Lost(_)), "{error:?}");
                lost += 1;
            }
        }
        assert!(lost > 0);
        drop(free_again(&memory, 0..8 * LEN).await);
        server.set("k", pattern(round, LEN));
        let placed = bounded(client.get_direct("k", [filled(&memory, 0..LEN, 0)])).await.expect("placed");
        assert!(placed.slices[0][..] == pattern(round, LEN));
    }
    let bulk = client.connections().iter().filter(|connection| connection.purpose == Purpose::Bulk).count();
    assert_eq!(bulk, 1);
}
