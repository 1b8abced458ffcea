//! What calls do when nothing goes wrong, and where the server offers nothing.

use valkey_rdma_client::transport::emulated::{Device, Link};
use valkey_rdma_client::transport::{Config as TransportConfig, FeatureSet};
use valkey_rdma_client::{Client, DirectSlice, Error, Fate, NotDirect, Purpose, Way};

use super::server::{Conduct, Server};
use super::{bounded, connect, filled, free_again, memory, pattern};

/// The purposes of the connections that are not shared.
fn others(client: &Client) -> Vec<Purpose> {
    client.connections().iter().skip(1).map(|connection| connection.purpose).collect()
}

/// The bytes of slices, one after the other.
fn joined(slices: &[DirectSlice]) -> Vec<u8> {
    slices.iter().flat_map(|slice| slice.iter().copied()).collect()
}

#[tokio::test]
async fn values_of_all_sizes_are_placed_and_read_where_they_lie_d3() {
    let server = Server::start().await;
    let client = connect(&server.url()).await;
    const ROOM: usize = 3 << 20;
    let memory = memory(ROOM + 2 * 64);
    let guards = [filled(&memory, 0..64, 0xee), filled(&memory, ROOM + 64..ROOM + 128, 0xee)];
    for (seed, len) in [1, 7, 4096, 65_536, 65_537, 1 << 20, ROOM].into_iter().enumerate() {
        let value = pattern(seed as u64, len);
        let mut slice = memory.take(64..64 + len).expect("free");
        slice.copy_from_slice(&value);
        let stored = bounded(client.set_direct("k", [slice])).await.expect("stored");
        assert!(matches!(stored.way, Way::Direct) && stored.len == Some(len), "{stored:?}");
        assert!(server.value("k").expect("stored") == value);
        drop(stored);
        let slice = filled(&memory, 64..64 + ROOM, 0);
        let placed = bounded(client.get_direct("k", [slice])).await.expect("placed");
        assert!(matches!(placed.way, Way::Direct), "{placed:?}");
        assert_eq!((placed.len, placed.crc32c), (Some(len), Some(7)));
        assert!(placed.slices[0][..len] == value && placed.slices[0][len..].iter().all(|byte| *byte == 0));
    }
    assert!(guards.iter().all(|guard| guard.iter().all(|byte| *byte == 0xee)));
    assert_eq!((server.accepted(), others(&client)), (2, vec![Purpose::Bulk]));
}

#[tokio::test]
async fn a_value_may_lie_in_several_slices_and_memories() {
    let server = Server::start().await;
    let client = connect(&server.url()).await;
    let (one, two) = (memory(1000), memory(1000));
    let value = pattern(3, 1200);
    let mut slices = [one.take(900..1000), two.take(0..0), two.take(100..1000), one.take(0..200)]
        .map(|slice| slice.expect("free"));
    let mut rest = &value[..];
    for slice in &mut slices {
        let (piece, later) = rest.split_at(slice.len());
        slice.copy_from_slice(piece);
        rest = later;
    }
    let stored = bounded(client.set_direct("k", slices)).await.expect("stored");
    assert!(server.value("k").expect("stored") == value);
    let mut slices = stored.slices;
    slices.iter_mut().for_each(|slice| slice.fill(0));
    let placed = bounded(client.get_direct("k", slices)).await.expect("placed");
    assert!(joined(&placed.slices) == value && matches!(placed.way, Way::Direct));
}

#[tokio::test]
async fn a_key_that_does_not_exist_has_no_length_and_a_value_that_does_not_fit_is_refused() {
    let server = Server::start().await;
    let client = connect(&server.url()).await;
    let memory = memory(100);
    let placed = bounded(client.get_direct("none", [filled(&memory, 0..100, 1)])).await.expect("a reply");
    assert_eq!((placed.len, placed.slices[0].len()), (None, 100));
    drop(placed);
    server.set("k", vec![9; 101]);
    let error = bounded(client.get_direct("k", [filled(&memory, 0..100, 1)])).await.expect_err("too long");
    assert_eq!((error.to_string(), error.fate()), ("ERR the value does not fit".to_owned(), Fate::Answered));
    // At once: the server has answered.
    assert!(memory.take(0..100).expect("free").iter().all(|byte| *byte == 1));
    assert_eq!(server.accepted(), 2);
}

/// Puts and gets a value over the stream, into two slices.
async fn goes_over_the_stream(server: &Server, client: &Client) -> NotDirect {
    let memory = memory(300_000);
    let value = pattern(1, 250_000);
    let mut slices = [memory.take(100_000..200_000), memory.take(0..100_000), memory.take(200_000..250_000)]
        .map(|slice| slice.expect("free"));
    slices[0].copy_from_slice(&value[..100_000]);
    slices[1].copy_from_slice(&value[100_000..200_000]);
    slices[2].copy_from_slice(&value[200_000..]);
    let stored = bounded(client.set_direct("k", slices)).await.expect("stored");
    assert!(server.value("k").expect("stored") == value);
    let mut slices = stored.slices;
    slices.iter_mut().for_each(|slice| slice.fill(0));
    slices.push(filled(&memory, 250_000..300_000, 5));
    let placed = bounded(client.get_direct("k", slices)).await.expect("placed");
    assert!(joined(&placed.slices[..3]) == value && placed.slices[3].iter().all(|byte| *byte == 5));
    assert_eq!(placed.len, Some(250_000));
    drop(placed.slices);
    let missing = bounded(client.get_direct("none", [filled(&memory, 0..1, 0)])).await.expect("a reply");
    assert_eq!(missing.len, None);
    drop(missing);
    let error = bounded(client.get_direct("k", [filled(&memory, 0..10, 0)])).await.expect_err("too long");
    let text = "GET: expected a value that fits, got a string of 250000 bytes for slices of 10";
    assert_eq!(error.to_string(), text);
    assert!(memory.take(0..300_000).is_ok());
    match placed.way {
        Way::Stream(reason) => reason,
        way => panic!("{way}"),
    }
}

#[tokio::test]
async fn a_server_that_offers_nothing_gets_values_over_the_stream_and_is_asked_once() {
    let any = "127.0.0.1:0".parse().expect("an address");
    let server = Server::at(any, FeatureSet::NONE).await;
    let client = connect(&server.url()).await;
    let reason = goes_over_the_stream(&server, &client).await;
    assert!(matches!(reason, NotDirect::NotOffered), "{reason}");
    // The shared one, the question, and one for the values.
    assert_eq!((server.accepted(), server.asked()), (3, 0));
    assert!(!others(&client).contains(&Purpose::Bulk));
}

#[tokio::test]
async fn a_caller_with_a_way_of_its_own_gets_the_slices_back_and_no_connection_is_made() {
    let any = "127.0.0.1:0".parse().expect("an address");
    let server = Server::at(any, FeatureSet::NONE).await;
    let client = connect(&server.url()).await;
    let memory = memory(100);
    for _ in 0..3 {
        let get = bounded(client.try_get_direct("k", [filled(&memory, 0..100, 1)])).await.expect("decided");
        let (reason, slices) = get.expect_err("not offered");
        assert!(matches!(reason, NotDirect::NotOffered) && joined(&slices) == [1; 100], "{reason}");
        let (reason, _) =
            bounded(client.try_set_direct("k", slices)).await.expect("decided").expect_err("not offered");
        assert!(matches!(reason, NotDirect::NotOffered), "{reason}");
    }
    // The shared one, and the question.
    assert_eq!((server.accepted(), server.value("k")), (2, None));

    let server = Server::start().await;
    let client = connect(&server.url()).await;
    let placed =
        bounded(client.try_set_direct("k", [filled(&memory, 0..100, 1)])).await.expect("carried out");
    assert!(matches!(placed.expect("direct").way, Way::Direct));
    assert_eq!(server.accepted(), 2);
}

#[tokio::test]
async fn over_tcp_values_go_over_the_stream() {
    let server = Server::over_tcp().await;
    let client = connect(&format!("valkey://{}?protocol=resp2", server.address)).await;
    let reason = goes_over_the_stream(&server, &client).await;
    assert!(matches!(reason, NotDirect::NotRdma), "{reason}");
}

#[tokio::test]
async fn an_empty_value_goes_over_the_stream() {
    let server = Server::start().await;
    let client = connect(&server.url()).await;
    let memory = memory(1);
    let stored = bounded(client.set_direct("k", [memory.take(0..0).expect("inside")])).await.expect("stored");
    assert!(matches!(stored.way, Way::Stream(NotDirect::NoBytes)) && stored.len == Some(0));
    assert!(server.value("k").expect("stored").is_empty());
    let placed = bounded(client.get_direct("k", None)).await.expect("placed");
    assert_eq!(placed.len, Some(0));
    // Directly, too, where there is room.
    let placed = bounded(client.get_direct("k", [filled(&memory, 0..1, 3)])).await.expect("placed");
    assert!(matches!(placed.way, Way::Direct) && placed.len == Some(0) && placed.slices[0][0] == 3);
}

#[tokio::test]
async fn memory_that_cannot_be_pinned_goes_over_the_stream() {
    let device = Device::new(Link::InProcess);
    let config = TransportConfig::default().device(device.name()).offers(FeatureSet::DIRECT);
    let server = Server::with("127.0.0.1:0".parse().expect("an address"), config).await;
    let client = connect(&format!("{}&device={}", server.url(), device.name())).await;
    let memory = memory(1000);
    // The connections pin memory of their own, at both ends.
    server.set("k", vec![1; 1000]);
    bounded(client.get_direct("none", None)).await.expect("a reply");
    bounded(client.get_direct("k", [filled(&memory, 0..1000, 0)])).await.expect("a reply");
    device.refuse_memory(true);
    let stored = bounded(client.set_direct("k", [filled(&memory, 0..1000, 7)])).await.expect("stored");
    assert!(matches!(stored.way, Way::Stream(NotDirect::NotRegistered(_))), "{}", stored.way);
    assert!(server.value("k").expect("stored") == vec![7; 1000]);
    // For gets it is registered.
    let placed = bounded(client.get_direct("k", stored.slices)).await.expect("placed");
    assert!(matches!(placed.way, Way::Direct), "{}", placed.way);
    device.refuse_memory(false);
    let stored = bounded(client.set_direct("k", placed.slices)).await.expect("stored");
    assert!(matches!(stored.way, Way::Direct), "{}", stored.way);
}

#[tokio::test]
async fn what_the_server_cannot_do_directly_goes_over_the_stream_d7() {
    let server = Server::start().await;
    let client = connect(&server.url()).await;
    server.conduct(Conduct::Says("-NODIRECT no memory for it\r\n"));
    let reason = goes_over_the_stream(&server, &client).await;
    assert_eq!(reason.to_string(), "the server cannot do it directly: NODIRECT no memory for it");
    // It is asked again.
    assert!(server.asked() > 1);
}

#[tokio::test]
async fn a_server_without_the_commands_is_an_error_that_says_so() {
    let server = Server::start().await;
    let client = connect(&(server.url() + "&direct_prefix=LOB")).await;
    let memory = memory(10);
    let error =
        bounded(client.get_direct("k", [filled(&memory, 0..10, 0)])).await.expect_err("no such command");
    assert!(matches!(&error, Error::Server(_)), "{error:?}");
    let text = "ERR unknown command; the server offers direct transfers, but not by LOB.GET and LOB.SET: set direct_prefix= in the URL";
    assert_eq!(error.to_string(), text);
    assert!(memory.take(0..10).is_ok());
}

#[tokio::test]
async fn calls_at_the_same_time_share_one_connection() {
    let server = Server::start().await;
    let client = connect(&server.url()).await;
    let memory = memory(64 * 10_000);
    let calls = (0..64_usize).map(|n| {
        let (client, memory) = (client.clone(), memory.clone());
        tokio::spawn(async move {
            let (key, value) = (format!("k{n}"), pattern(n as u64, 10_000));
            let mut slice = memory.take(n * 10_000..(n + 1) * 10_000).expect("free");
            slice.copy_from_slice(&value);
            let mut slices = client.set_direct(&key, [slice]).await.expect("stored").slices;
            slices[0].fill(0);
            let placed = client.get_direct(&key, slices).await.expect("placed");
            assert!(placed.slices[0][..] == value);
        })
    });
    for call in calls.collect::<Vec<_>>() {
        bounded(call).await.expect("no panic");
    }
    assert_eq!((server.accepted(), server.asked()), (2, 128));
    drop(free_again(&memory, 0..64 * 10_000).await);
}

/// Only then does a call cost no turn of another task before its command leaves.
#[tokio::test]
async fn a_call_that_finds_nothing_in_flight_sends_its_command_itself_and_others_leave_it_to_the_task() {
    let server = Server::start().await;
    let client = connect(&server.url()).await;
    let memory = memory(500);
    server.set("k", vec![7; 100]);
    bounded(client.get_direct("k", [filled(&memory, 0..100, 0)])).await.expect("placed");
    settle().await;
    let doorbells = || {
        let connections = client.connections();
        let mut bulk = connections.iter().filter(|connection| connection.purpose == Purpose::Bulk);
        bulk.next().expect("open").stats.expect("a device").device.doorbells
    };
    let before = doorbells();
    let get = |n: usize| Box::pin(client.get_direct("k", [filled(&memory, n * 100..n * 100 + 100, 0)]));
    let mut first = get(0);
    assert!(futures_util::poll!(&mut first).is_pending());
    assert_eq!(doorbells(), before + 1);
    let mut others = [get(1), get(2), get(3)];
    for other in &mut others {
        assert!(futures_util::poll!(other).is_pending());
    }
    assert_eq!(doorbells(), before + 1);
    let (placed, others) =
        bounded(futures_util::future::join(first, futures_util::future::join_all(others))).await;
    assert!(others.into_iter().chain([placed]).all(|placed| placed.expect("placed").slices[0][99] == 7));
}

/// Lets the connection's task run until it sleeps.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_closed_client_begins_no_transfers() {
    let server = Server::start().await;
    let client = connect(&server.url()).await;
    let memory = memory(10);
    server.conduct(Conduct::Says("$-1\r\n"));
    bounded(client.get_direct("k", [filled(&memory, 0..10, 0)])).await.expect("a reply");
    bounded(client.close()).await;
    let error = bounded(client.get_direct("k", [filled(&memory, 0..10, 0)])).await.expect_err("closed");
    assert!(matches!(&error, Error::Lost(_)) && error.fate() == Fate::NotSent, "{error:?}");
    assert!(memory.take(0..10).is_ok());
}

#[cfg(feature = "blocking")]
#[test]
fn the_blocking_client_waits_for_direct_calls() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let server = runtime.block_on(Server::start());
    let client = valkey_rdma_client::blocking::Client::connect(server.url().as_str()).expect("connected");
    let memory = memory(100);
    let set = client.client().set_direct("k", [filled(&memory, 0..100, 7)]);
    let stored = client.wait(set).expect("stored");
    let placed = client.wait(client.client().get_direct("k", stored.slices)).expect("placed");
    assert!(matches!(placed.way, Way::Direct) && placed.slices[0].iter().all(|byte| *byte == 7));
}
