//! Calls that are dropped, that get no reply in time, and whose server ends in the middle, and when the slices come back (D-5, D-6).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::task::yield_now;
use tokio::time::sleep;
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

/// Lets time pass until the task is done. A paused clock would run on its own while only sockets are waited for.
async fn pass_time_until<T>(task: tokio::task::JoinHandle<T>) -> T {
    while !task.is_finished() {
        tokio::time::advance(Duration::from_millis(10)).await;
        for _ in 0..1000 {
            yield_now().await;
        }
    }
    task.await.expect("no panic")
}

/// Time stands still but for waits.
#[tokio::test(start_paused = true)]
async fn a_call_has_its_time_from_the_reply_before_it_on() {
    let server = Server::start().await;
    let config = Config::default().command_timeout(LIMIT);
    let client = Client::connect_with(server.url().as_str(), &config).await.expect("connected");
    let memory = memory(400);
    bounded(client.get_direct("k", [filled(&memory, 0..100, 0)])).await.expect("a reply");
    server.conduct(Conduct::Slow(LIMIT * 2 / 3));
    let slices: Vec<_> = (0..4).map(|n| filled(&memory, n * 100..n * 100 + 100, 0)).collect();
    let caller = client.clone();
    let calls = tokio::spawn(async move {
        let calls = slices.into_iter().map(|slice| caller.get_direct("k", [slice]));
        futures_util::future::join_all(calls).await
    });
    for done in pass_time_until(calls).await {
        done.expect("a reply in time");
    }
    server.conduct(Conduct::Slow(LIMIT * 2));
    let error = bounded(client.get_direct("k", [filled(&memory, 0..100, 0)])).await.expect_err("too late");
    assert!(matches!(error, Error::TimedOut(_)), "{error:?}");
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

#[tokio::test]
async fn closing_the_client_ends_a_call_that_gets_no_reply() {
    let server = Server::start().await;
    let config = Config::default().command_timeout(None).close_timeout(Duration::from_millis(100));
    let client = Client::connect_with(server.url().as_str(), &config).await.expect("connected");
    let memory = memory(200);
    server.conduct(Conduct::Silent);
    let call = client.get_direct("k", [filled(&memory, 0..100, 0)]);
    let (done, ()) = tokio::join!(bounded(call), async {
        until(|| server.asked() == 1).await;
        bounded(client.close()).await;
    });
    let error = done.expect_err("no reply");
    assert!(matches!(error, Error::Lost(_)) && error.fate() == Fate::MayHaveRun, "{error:?}");
    drop(free_again(&memory, 0..200).await);
}

#[tokio::test]
async fn closing_the_client_waits_for_the_reply_of_a_call() {
    let server = Server::start().await;
    let config = Config::default().close_timeout(None);
    let client = Client::connect_with(server.url().as_str(), &config).await.expect("connected");
    let memory = memory(8 << 20);
    server.set("k", pattern(1, 8 << 20));
    let call = client.get_direct("k", [filled(&memory, 0..8 << 20, 0)]);
    let (done, ()) = tokio::join!(bounded(call), async {
        until(|| server.asked() == 1).await;
        bounded(client.close()).await;
    });
    assert!(done.expect("placed").slices[0][..] == pattern(1, 8 << 20));
}

#[tokio::test]
async fn push_messages_without_end_do_not_hide_a_time_limit() {
    let server = Server::start().await;
    let config = Config::default().command_timeout(LIMIT);
    let url = server.url().replace("resp2", "resp3");
    let client = Client::connect_with(url.as_str(), &config).await.expect("connected");
    let memory = memory(100);
    server.conduct(Conduct::Floods);
    let error = bounded(client.get_direct("k", [filled(&memory, 0..100, 0)])).await.expect_err("no reply");
    assert!(matches!(error, Error::TimedOut(_)), "{error:?}");
    server.conduct(Conduct::Fair);
    drop(free_again(&memory, 0..100).await);
}

/// Time stands still but for waits, so this one measures them.
#[tokio::test(start_paused = true)]
async fn calls_that_need_a_server_that_is_away_wait_together() {
    let server = Server::start().await;
    let url = server.url() + "&timeout=5s";
    let config = Config::default().offline_timeout(Duration::ZERO);
    let client = Client::connect_with(url.as_str(), &config).await.expect("connected");
    let memory = memory(800);
    server.conduct(Conduct::Deaf);
    let began = tokio::time::Instant::now();
    let calls = (0..8).map(|n| client.get_direct("k", [filled(&memory, n * 100..n * 100 + 100, 0)]));
    for done in futures_util::future::join_all(calls).await {
        let error = done.expect_err("no server");
        assert!(matches!(error, Error::Connect(_)) && error.fate() == Fate::NotSent, "{error:?}");
    }
    assert!(began.elapsed() < 2 * LIMIT, "{:?}", began.elapsed());
    assert_eq!(server.accepted(), 2);
    drop(free_again(&memory, 0..800).await);
}

/// Time stands still but for waits, until the server is back: then a busy machine may take long to connect.
#[tokio::test(start_paused = true)]
async fn a_call_that_joins_others_waits_for_the_server_as_long_as_they_do() {
    let server = Server::start().await;
    let patience = Duration::from_secs(50);
    let config = Config::default().offline_timeout(patience).command_timeout(None);
    let client = Client::connect_with(server.url().as_str(), &config).await.expect("connected");
    let memory = memory(200);
    let address = server.address;
    drop(server);
    while client.is_connected() {
        sleep(Duration::from_millis(1)).await;
    }
    let call = |range: std::ops::Range<usize>| {
        let (client, slice) = (client.clone(), filled(&memory, range, 0));
        tokio::spawn(async move { client.get_direct("k", [slice]).await })
    };
    let first = call(0..100);
    sleep(patience * 3 / 4).await;
    let second = call(100..200);
    bounded(first).await.expect("no panic").expect_err("no server");
    tokio::time::resume();
    let server = bounded(Server::at(address, FeatureSet::DIRECT)).await;
    server.set("k", vec![7; 100]);
    let placed = bounded(second).await.expect("no panic").expect("placed");
    assert!(placed.slices[0].iter().all(|byte| *byte == 7) && matches!(placed.way, Way::Direct));
}

#[tokio::test]
async fn a_call_dropped_while_another_waits_for_the_connection_gives_its_slices_back_d5() {
    let server = Server::start().await;
    let url = server.url() + "&timeout=600s";
    let client = Client::connect_with(url.as_str(), &Config::default().command_timeout(None)).await;
    let client = client.expect("connected");
    let memory = memory(200);
    server.conduct(Conduct::Deaf);
    let waits = client.get_direct("k", [filled(&memory, 0..100, 0)]);
    let dropped = client.get_direct("k", [filled(&memory, 100..200, 0)]);
    let (mut waits, mut dropped) = (Box::pin(waits), Box::pin(dropped));
    tokio::select! {
        done = &mut waits => panic!("{done:?}"),
        done = &mut dropped => panic!("{done:?}"),
        () = until(|| server.accepted() == 2) => {}
    }
    drop(dropped);
    drop(free_again(&memory, 100..200).await);
    drop(waits);
    drop(free_again(&memory, 0..200).await);
}

#[tokio::test]
async fn over_the_stream_the_time_limit_holds_for_the_connect() {
    let server = Server::over_tcp().await;
    let url = format!("valkey://{}?protocol=resp2&timeout=600s", server.address);
    let config = Config::default().command_timeout(Duration::from_millis(100));
    let client = Client::connect_with(url.as_str(), &config).await.expect("connected");
    let memory = memory(100);
    server.conduct(Conduct::Deaf);
    let error = bounded(client.get_direct("k", [filled(&memory, 0..100, 0)])).await.expect_err("no server");
    assert!(matches!(error, Error::TimedOut(_)) && error.fate() == Fate::NotSent, "{error:?}");
    drop(free_again(&memory, 0..100).await);
}
