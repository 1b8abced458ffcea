//! The client's calls `get_direct` and `set_direct`, at a gateway.

use valkey_rdma_client::{Client, DirectMemory, NotDirect, Way};
use valkey_rdma_gateway::{Activation, Limits, Share};
use valkey_rdma_mock::{MockCluster, MockServer};

use super::{bounded, connect, filled, gateway_with, joined, pattern};
use crate::support::{config, start};

#[tokio::test]
async fn values_of_all_sizes_pass_through_the_gateway_d3() {
    let mock = MockServer::start().await;
    for url in [mock.url(), mock.tcp_url()] {
        let (gateway, addr) = gateway_with(url, |_| {}).await;
        let client = connect(addr).await;
        let memory = DirectMemory::allocate(33 << 20).unwrap();
        for len in [1, 7, 4097, 64 << 10, (1 << 20) + 1, 32 << 20] {
            let value = pattern(len);
            let stored = bounded(client.set_direct("k", [filled(&memory, 0..len, &value)])).await.unwrap();
            assert!(matches!(stored.way, Way::Direct) && stored.len == Some(len), "{stored:?}");
            drop(stored);
            assert!(mock.get("k").is_some_and(|stored| stored == value), "{len} bytes, {url}");
            let slices = [filled(&memory, 0..len + 100, &[])];
            let placed = bounded(client.get_direct("k", slices)).await.unwrap();
            assert!(matches!(placed.way, Way::Direct), "{placed:?}");
            assert_eq!((placed.len, placed.crc32c), (Some(len), Some(crc32c::crc32c(&value))));
            let (written, rest) = placed.slices[0].split_at(len);
            assert!(written == value && rest.iter().all(|byte| *byte == 0xee), "{len} bytes, {url}");
        }
        mock.set("k", "");
        let placed = bounded(client.get_direct("k", [filled(&memory, 0..1, &[])])).await.unwrap();
        assert_eq!((placed.len, placed.crc32c, placed.slices[0][0]), (Some(0), Some(0), 0xee));
        assert_eq!(
            gateway.info("gateway_direct_pinned_bytes").await,
            1 << 20,
            "whatever the length of values"
        );
        assert_eq!(gateway.info("gateway_direct_sets").await, 6);
        assert_eq!(gateway.info("gateway_direct_gets").await, 7);
        let bytes = 1 + 7 + 4097 + (64 << 10) + (1 << 20) + 1 + (32 << 20);
        assert_eq!(gateway.info("gateway_direct_get_bytes").await, bytes);
        assert_eq!(gateway.info("gateway_direct_set_bytes").await, bytes);
        client.close().await;
        gateway.until("gateway_direct_pinned_bytes", |bytes| bytes == 0).await;
    }
}

#[tokio::test]
async fn a_value_straddles_ranges_of_any_length() {
    let mock = MockServer::start().await;
    let (_gateway, addr) = gateway_with(mock.tcp_url(), |config| config.limits.direct_bytes = 64 << 10).await;
    let client = connect(addr).await;
    let memory = DirectMemory::allocate(1 << 20).unwrap();
    // Not in the order of addresses. More pieces than are moved together, and pieces longer than a half.
    let mut ranges = vec![500_000..600_000, 0..1, 100..40_000];
    ranges.extend((0..200).map(|at| 700_000 + 8 * at..700_003 + 8 * at));
    let value = pattern(ranges.iter().map(ExactSizeIterator::len).sum::<usize>() - 2);
    let mut rest = &value[..];
    let mut slices = Vec::new();
    for range in &ranges {
        let (part, later) = rest.split_at(range.len().min(rest.len()));
        slices.push(filled(&memory, range.clone(), part));
        rest = later;
    }
    let mut all = value.clone();
    all.extend([0xee; 2]);
    let stored = bounded(client.set_direct("k", slices)).await.unwrap();
    assert!(mock.get("k").unwrap() == all);
    let mut slices = stored.slices;
    slices.iter_mut().for_each(|slice| slice.fill(0xee));
    mock.set("k", value.clone());
    let placed = bounded(client.get_direct("k", slices)).await.unwrap();
    assert_eq!(placed.len, Some(value.len()));
    assert!(joined(&placed.slices) == all);
}

#[tokio::test]
async fn what_a_get_cannot_place_is_answered_and_the_connection_goes_on() {
    let mock = MockServer::start().await;
    for url in [mock.url(), mock.tcp_url()] {
        let (gateway, addr) = gateway_with(url, |_| {}).await;
        let client = connect(addr).await;
        let memory = DirectMemory::allocate(1000).unwrap();
        let placed = bounded(client.get_direct("none", [filled(&memory, 0..10, &[])])).await.unwrap();
        assert_eq!((placed.len, placed.way.to_string()), (None, "direct".to_owned()));
        assert_eq!(gateway.info("gateway_direct_pinned_bytes").await, 0, "there was no value to move");
        drop(placed);
        client.command(["RPUSH", "list", "a"]).await.unwrap();
        let error = client.get_direct("list", [filled(&memory, 0..10, &[])]).await.unwrap_err();
        assert!(error.to_string().starts_with("WRONGTYPE"), "{error}");
        let connects = gateway.info("gateway_connects").await;
        // One that has arrived as a whole, and one of which most is still to come.
        for len in [11, 3 << 20] {
            mock.set("k", pattern(len));
            let error = bounded(client.get_direct("k", [filled(&memory, 0..10, &[])])).await.unwrap_err();
            assert_eq!(error.to_string(), format!("ERR the value has {len} bytes, and the ranges have 10"));
            assert!(
                memory.take_when_free(0..10).await.unwrap().iter().all(|byte| *byte == 0xee),
                "nothing is written"
            );
        }
        mock.set("k", "0123456789");
        let placed = bounded(client.get_direct("k", [filled(&memory, 0..10, &[])])).await.unwrap();
        assert_eq!(placed.slices[0][..], *b"0123456789");
        let same = "a value is read to its end, and its connection is used again";
        assert_eq!(gateway.info("gateway_connects").await, connects, "{same}");
        client.command(["DEL", "list"]).await.unwrap();
    }
}

#[tokio::test]
async fn in_front_of_a_cluster_values_go_to_the_nodes_of_their_keys() {
    let mocks = MockCluster::start(3).await.expect("free ports");
    let (gateway, addr) = gateway_with("", |config| {
        (config.routes[0].servers, config.routes[0].cluster) = (mocks.urls(), true);
    })
    .await;
    let client = connect(addr).await;
    let memory = DirectMemory::allocate(2 << 20).unwrap();
    // Keys of all three nodes.
    for key in ["a", "b", "c", "d"] {
        let value = pattern((1 << 20) + key.len());
        let stored =
            bounded(client.set_direct(key, [filled(&memory, 0..value.len(), &value)])).await.unwrap();
        assert_eq!(stored.way.to_string(), "direct");
        drop(stored);
        let placed = bounded(client.get_direct(key, [filled(&memory, 0..1 << 20, &[])])).await;
        assert!(placed.unwrap_err().to_string().contains("and the ranges have 1048576"));
        let placed = bounded(client.get_direct(key, [filled(&memory, 0..2 << 20, &[])])).await.unwrap();
        assert_eq!((placed.len, placed.crc32c), (Some(value.len()), Some(crc32c::crc32c(&value))));
        assert!(placed.slices[0][..value.len()] == value);
    }
    let placed = bounded(client.get_direct("none", [filled(&memory, 0..10, &[])])).await.unwrap();
    assert_eq!(placed.len, None);
    assert_eq!(gateway.info("gateway_direct_gets").await, 4);
}

#[tokio::test]
async fn where_the_gateway_offers_none_calls_go_over_the_stream_and_say_why() {
    let mock = MockServer::start().await;
    for off in [true, false] {
        let (gateway, addr) = gateway_with(mock.tcp_url(), |config| {
            let route = &mut config.routes[0];
            match off {
                true => route.direct = false,
                // Its commands are not read.
                false => route.share = Share::Never,
            }
        })
        .await;
        let client = connect(addr).await;
        let memory = DirectMemory::allocate(100).unwrap();
        let stored = bounded(client.set_direct("k", [filled(&memory, 0..10, b"0123456789")])).await.unwrap();
        assert!(matches!(stored.way, Way::Stream(NotDirect::NotOffered)), "{stored:?}");
        assert_eq!(mock.get("k").unwrap(), b"0123456789"[..]);
        let placed = bounded(client.get_direct("k", stored.slices)).await.unwrap();
        assert!(matches!(placed.way, Way::Stream(NotDirect::NotOffered)), "{placed:?}");
        drop(gateway);
    }
}

#[tokio::test]
async fn a_reload_to_share_never_is_refused_where_direct_transfers_were_offered() {
    let mock = MockServer::start().await;
    let mut config = config(mock.tcp_url(), Share::Auto, Limits::default());
    config.routes[0].listen.push("emulated:127.0.0.1:0".parse().unwrap());
    let mut running = start(&config).await;
    config.routes[0].share = Share::Never;
    let error = running.gateway.reload(&config, &Activation::default()).await.unwrap_err();
    assert!(error.to_string().contains("share = \"never\" needs a restart"), "{error}");
    config.routes[0].listen.pop();
    running.gateway.reload(&config, &Activation::default()).await.expect("other listeners may change");
}

#[tokio::test]
async fn while_others_pin_all_there_may_be_calls_go_over_the_stream_and_say_why_d7() {
    let mock = MockServer::start().await;
    let (_gateway, addr) =
        gateway_with(mock.tcp_url(), |config| config.limits.direct_bytes_total = 1 << 20).await;
    let memory = DirectMemory::allocate(100).unwrap();
    let mut ways = Vec::new();
    let clients = [connect(addr).await, connect(addr).await];
    for client in &clients {
        let stored = bounded(client.set_direct("k", [filled(&memory, 0..10, &[])])).await.unwrap();
        ways.push(stored.way.to_string());
    }
    let limit =
        "NODIRECT direct transfers of other clients take up limits.direct_bytes_total = 1048576 bytes";
    assert!(
        ways[0] == "direct" && ways[1].starts_with("over the stream") && ways[1].ends_with(limit),
        "{ways:?}"
    );
}

#[tokio::test]
async fn another_prefix_is_that_of_the_url() {
    let mock = MockServer::start().await;
    let (_gateway, addr) =
        gateway_with(mock.tcp_url(), |config| config.routes[0].direct_prefix = "VALUE".to_owned()).await;
    let client = Client::connect(format!("emulated://{addr}?direct_prefix=VALUE")).await.unwrap();
    let memory = DirectMemory::allocate(100).unwrap();
    let stored = bounded(client.set_direct("k", [filled(&memory, 0..10, &[])])).await.unwrap();
    assert!(matches!(stored.way, Way::Direct), "{stored:?}");
}
