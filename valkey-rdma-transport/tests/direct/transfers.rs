//! Values arrive whole, in their place, and before the reply (area D).

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use valkey_rdma_transport::raw::Access;
use valkey_rdma_transport::{BufferPool, TransportError};

use super::peers::{direct_pair, expose, hear, memory, say};
use super::stream_pair::{bounded, defaults, pair, pattern};

const MIB: usize = 1 << 20;

/// More than can be in flight at once: `VALKEY_RDMA_TEST_BYTES`, or 32 MiB.
fn longest() -> usize {
    let bytes = std::env::var("VALKEY_RDMA_TEST_BYTES").ok();
    bytes.map_or(32 * MIB, |bytes| bytes.parse().expect("VALKEY_RDMA_TEST_BYTES is a number"))
}

/// Nothing, the border of what is sent in place, odd, whole pieces, and the longest.
fn sizes() -> [usize; 7] {
    [0, 1, 8191, 8192, 300_001, MIB, longest()]
}

#[tokio::test]
async fn values_of_every_size_are_written_in_their_place_and_nowhere_else_d2() {
    let (mut client, mut server, direct) = direct_pair().await;
    let memory = memory(longest() + 2 * GUARD);
    let pinned = client.stats().pinned_bytes;
    for len in sizes() {
        let value = pattern(len as u64, len);
        let guards = [0..GUARD, GUARD + len..len + 2 * GUARD].map(|range| {
            let mut guard = memory.take(range).expect("free");
            guard.fill(0xa5);
            guard
        });
        let exposed = expose(&client, &memory, GUARD..GUARD + len, 0, Access::RemoteWrite);
        bounded(direct.write(exposed.remote(), value.clone())).await.expect("written");
        say(&mut server, 1).await;
        assert_eq!(hear(&mut client).await, 1);
        assert!(exposed.withdraw()[..] == value, "{len} bytes differ");
        assert!(guards.iter().all(|guard| guard.iter().all(|byte| *byte == 0xa5)), "{len}: beyond its place");
    }
    assert_eq!(client.stats().pinned_bytes - pinned, memory.len() as u64, "registered once");
}

#[tokio::test]
async fn memory_that_a_server_has_registered_is_pinned_once_whatever_passes_through_it() {
    let (client, server, direct) = direct_pair().await;
    let (theirs, ours) = (memory(100_000), memory(100_000));
    let before = server.stats().pinned_bytes;
    direct.register(&ours).expect("registered");
    let exposed = expose(&client, &theirs, 0..100_000, 3, Access::RemoteReadWrite);
    for len in [1, 8191, 100_000] {
        let mut slice = ours.take(0..len).expect("free");
        slice.fill(7);
        bounded(direct.write(exposed.remote(), slice.freeze())).await.expect("written");
        let slice = bounded(ours.take_when_free(0..len)).await.expect("inside");
        let slice = bounded(direct.read(exposed.remote(), slice)).await.expect("read");
        assert!(slice.iter().all(|byte| *byte == 7));
    }
    direct.register(&ours).expect("as before");
    assert_eq!(server.stats().pinned_bytes - before, 100_000);
    assert_eq!(server.stats().device.copied_in, 0);
}

/// Around each value.
const GUARD: usize = 4096;

#[tokio::test]
async fn values_of_every_size_are_read_d4() {
    let (client, _server, direct) = direct_pair().await;
    let (source, target) = (memory(longest()), memory(longest() + 1));
    for len in sizes() {
        let value = pattern(len as u64, len);
        let mut slice = source.take(0..len).expect("free");
        slice.copy_from_slice(&value);
        let exposed = client.expose(slice, Access::RemoteRead).expect("exposed");
        let into = target.take(1..1 + len).expect("free");
        let read = bounded(direct.read(exposed.remote(), into)).await.expect("read");
        assert!(read[..] == value, "{len} bytes differ");
        drop(exposed.withdraw());
    }
}

#[tokio::test]
async fn bytes_are_there_when_the_reply_is_read_d3() {
    let (mut client, mut server, direct) = direct_pair().await;
    let memory = memory(100_000);
    let pool = BufferPool::new(4, 50_000).expect("a usable pool");
    let answering = tokio::spawn(async move {
        let writes = |len: usize, n: u64| {
            let pool = pool.clone();
            async move {
                let mut buffer = pool.take().await;
                buffer[..len].copy_from_slice(&pattern(n, len));
                buffer.freeze().slice(..len)
            }
        };
        for n in 0..1000u64 {
            let mut named = [0; 12];
            bounded(server.read_exact(&mut named)).await.expect("a command");
            let addr = u64::from_be_bytes(named[..8].try_into().expect("8 bytes"));
            let rkey = u32::from_be_bytes(named[8..].try_into().expect("4 bytes"));
            let remote = valkey_rdma_transport::RemoteRange { addr, rkey, len: 50_000 };
            let value = writes(length(n), n).await;
            // The reply does not wait for the transfer.
            let mut transfer = Box::pin(direct.write(remote, value));
            assert!(poll_once(transfer.as_mut()).await.is_none_or(|written| written.is_ok()));
            say(&mut server, n as u8).await;
        }
        server
    });
    for n in 0..1000u64 {
        let exposed = expose(&client, &memory, 0..50_000, 0, Access::RemoteWrite);
        let remote = exposed.remote();
        let named = [&remote.addr.to_be_bytes()[..], &remote.rkey.to_be_bytes()].concat();
        bounded(client.write_all(&named)).await.expect("writes");
        assert_eq!(hear(&mut client).await, n as u8);
        assert!(exposed.withdraw()[..length(n)] == pattern(n, length(n)), "round {n}");
    }
    bounded(answering).await.expect("answers");
}

/// From the border of what is sent in place.
fn length(n: u64) -> usize {
    8192 + (n as usize * 7919) % 40_000
}

/// Polls once.
async fn poll_once<F: Future>(mut future: std::pin::Pin<&mut F>) -> Option<F::Output> {
    std::future::poll_fn(|cx| match future.as_mut().poll(cx) {
        std::task::Poll::Ready(output) => std::task::Poll::Ready(Some(output)),
        std::task::Poll::Pending => std::task::Poll::Ready(None),
    })
    .await
}

#[tokio::test]
async fn a_value_is_spread_over_several_ranges_d2() {
    let (client, _server, direct) = direct_pair().await;
    let memories = [memory(70_000), memory(5), memory(200_000)];
    let value = pattern(1, 200_000);
    let exposed: Vec<_> = memories
        .iter()
        .map(|memory| expose(&client, memory, 1..memory.len() - 1, 0, Access::RemoteWrite))
        .collect();
    let mut at = 0;
    for exposed in &exposed {
        let len = (value.len() - at).min(exposed.remote().len as usize);
        bounded(direct.write(exposed.remote(), value[at..at + len].to_vec())).await.expect("written");
        at += len;
    }
    assert_eq!(at, value.len());
    let found: Vec<u8> = exposed.into_iter().flat_map(|exposed| exposed.withdraw().to_vec()).collect();
    assert!(found[..value.len()] == value);
}

#[tokio::test]
async fn a_value_in_registered_memory_leaves_from_where_it_is_by_one_doorbell_d3() {
    let (client, server, direct) = direct_pair().await;
    let (memory, staging) = (memory(MIB), memory(MIB));
    let exposed = expose(&client, &memory, 0..MIB, 0, Access::RemoteWrite);
    for round in 0..3 {
        let mut slice = staging.take(0..MIB).expect("free again");
        slice.copy_from_slice(&pattern(round, MIB));
        let before = server.stats();
        bounded(direct.write(exposed.remote(), slice.freeze())).await.expect("written");
        let after = server.stats();
        assert_eq!(after.device.copied_in, before.device.copied_in);
        assert_eq!(after.device.lent - before.device.lent, MIB as u64);
        assert_eq!(after.device.doorbells - before.device.doorbells, 1);
        assert_eq!(after.protocol.work_requests - before.protocol.work_requests, 4, "256 KiB each");
        assert_eq!(after.protocol.bytes_transferred - before.protocol.bytes_transferred, MIB as u64);
        assert_eq!(after.pinned_bytes - before.pinned_bytes, if round == 0 { MIB as u64 } else { 0 });
        bounded(tokio::task::yield_now()).await;
    }
    assert!(exposed.withdraw()[..] == pattern(2, MIB));
}

#[tokio::test]
async fn the_last_bytes_of_a_value_and_the_reply_leave_by_one_doorbell_d3() {
    let (mut client, server, direct) = direct_pair().await;
    let mut server = server.driven();
    let (memory, staging) = (memory(100_000), memory(100_000));
    direct.register(&staging).expect("registered");
    for (round, in_place) in [true, false, true, false].into_iter().enumerate() {
        let value = pattern(round as u64, 100_000);
        let exposed = expose(&client, &memory, 0..100_000, 0, Access::RemoteWrite);
        let bytes = match in_place {
            true => {
                // The completion of the write before may not have come yet.
                let mut slice = tokio::select! {
                    slice = bounded(staging.take_when_free(0..100_000)) => slice.expect("inside"),
                    read = server.read_u8() => panic!("the client has written nothing: {read:?}"),
                };
                slice.copy_from_slice(&value);
                slice.freeze()
            }
            false => value.clone().into(),
        };
        let before = server.stats();
        bounded(direct.start_last_write(exposed.remote(), bytes, ())).await.expect("started");
        assert_eq!(server.stats().device.doorbells, before.device.doorbells, "it waits for the reply");
        say(&mut server, 1).await;
        let after = server.stats();
        assert_eq!(after.device.doorbells - before.device.doorbells, 1);
        assert_eq!(after.protocol.work_requests - before.protocol.work_requests, 2);
        tokio::select! {
            said = hear(&mut client) => assert_eq!(said, 1),
            read = server.read_u8() => panic!("the client has written nothing: {read:?}"),
        }
        assert!(exposed.withdraw()[..] == value, "round {round}");
    }
}

#[tokio::test]
async fn bytes_that_are_held_back_for_a_reply_leave_without_one_when_the_stream_is_driven() {
    for driven in [true, false] {
        let (client, server, direct) = direct_pair().await;
        let mut server = if driven { server.driven() } else { server };
        let memory = memory(100_000);
        let exposed = expose(&client, &memory, 0..100_000, 0, Access::RemoteWrite);
        let (guard, gone) = tokio::sync::oneshot::channel::<()>();
        let started = direct.start_last_write(exposed.remote(), pattern(1, 100_000), guard);
        bounded(started).await.expect("started");
        // The guard is dropped when the client's device has acknowledged it.
        tokio::select! {
            read = server.read_u8() => panic!("the client has written nothing: {read:?}"),
            dropped = bounded(gone) => assert!(dropped.is_err()),
        }
        assert!(exposed.withdraw()[..] == pattern(1, 100_000), "driven: {driven}");
    }
}

#[tokio::test]
async fn what_was_read_is_passed_on_from_where_it_is_without_another_registration() {
    let (client, server, direct) = direct_pair().await;
    let (memory, staging) = (memory(2 * MIB), memory(MIB));
    let source = expose(&client, &memory, 0..MIB, 7, Access::RemoteRead);
    let target = expose(&client, &memory, MIB..2 * MIB, 0, Access::RemoteWrite);
    let into = staging.take(0..MIB).expect("free");
    let read = bounded(direct.read(source.remote(), into)).await.expect("read");
    let pinned = server.stats().pinned_bytes;
    bounded(direct.write(target.remote(), read.freeze())).await.expect("written");
    assert_eq!(server.stats().pinned_bytes, pinned);
    assert!(target.withdraw().iter().all(|byte| *byte == 7));
}

/// As a server's connection does, which runs a command and notices meanwhile that its client is gone.
#[tokio::test]
async fn the_owner_of_a_driven_stream_awaits_transfers_with_a_read_pending() {
    let (client, server, direct) = direct_pair().await;
    let mut server = server.driven();
    let memory = memory(4 * MIB);
    let exposed = expose(&client, &memory, 0..3 * MIB, 0, Access::RemoteWrite);
    for round in 0..10 {
        tokio::select! {
            read = server.read_u8() => panic!("the client has written nothing: {read:?}"),
            written = bounded(direct.write(exposed.remote(), pattern(round, 3 * MIB))) => written.expect("written"),
        }
    }
    assert!(exposed.withdraw()[..] == pattern(9, 3 * MIB));
}

#[tokio::test]
async fn many_tasks_transfer_at_once() {
    let (client, server, direct) = direct_pair().await;
    let memory = memory(16 * 400_000);
    let exposed: Vec<_> = (0..16)
        .map(|n| expose(&client, &memory, n * 400_000..(n + 1) * 400_000, 0, Access::RemoteWrite))
        .collect();
    let tasks: Vec<_> = exposed
        .iter()
        .enumerate()
        .map(|(n, exposed)| {
            let (direct, remote) = (direct.clone(), exposed.remote());
            tokio::spawn(async move { direct.write(remote, pattern(n as u64, 400_000)).await })
        })
        .collect();
    for task in tasks {
        bounded(task).await.expect("no panic").expect("written");
    }
    for (n, exposed) in exposed.into_iter().enumerate() {
        assert!(exposed.withdraw()[..] == pattern(n as u64, 400_000), "{n}");
    }
    drop(server);
}

#[tokio::test]
async fn without_the_feature_neither_side_has_transfers_d1() {
    let (client, server) = pair(&defaults(), &defaults()).await;
    assert!(server.direct().is_none() && client.direct().is_none());
    let slice = memory(10).take(0..10).expect("free");
    let error = client.expose(slice, Access::RemoteWrite).expect_err("not agreed");
    assert!(matches!(error, TransportError::DirectOff), "{error}");
    let (client, server, _direct) = direct_pair().await;
    assert!(client.direct().is_none(), "a client starts no transfer");
    let slice = memory(10).take(0..10).expect("free");
    let error = server.expose(slice, Access::RemoteWrite).expect_err("a server exposes nothing");
    assert!(matches!(error, TransportError::DirectOff), "{error}");
}
