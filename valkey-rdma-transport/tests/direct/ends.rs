//! Who has the memory when a transfer or a connection ends early.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use valkey_rdma_transport::raw::{Access, FailureStatus};
use valkey_rdma_transport::{CloseReason, DirectMemory, FeatureSet, Stream, TransportError};

use super::peers::{direct_config, direct_pair, expose, hear, memory, say};
use super::stream_pair::{bounded, listen, pattern};

const MIB: usize = 1 << 20;

/// More than a piece of a transfer.
const LEN: usize = 300_000;

/// Waits until the range can be taken.
async fn free_again(memory: &DirectMemory, range: std::ops::Range<usize>) {
    drop(bounded(memory.take_when_free(range)).await.expect("inside"));
}

#[tokio::test]
async fn a_range_that_is_dropped_while_exposed_is_not_given_back_before_the_device_is_gone_d5() {
    let (mut client, mut server, direct) = direct_pair().await;
    let memory = memory(1000);
    let exposed = expose(&client, &memory, 100..200, 0, Access::RemoteWrite);
    let remote = exposed.remote();
    drop(exposed);
    assert!(memory.take(150..151).is_err());
    // The server does not know, and is not in the wrong.
    bounded(direct.write(remote, vec![7; 100])).await.expect("written");
    say(&mut server, 1).await;
    assert_eq!(hear(&mut client).await, 1);
    assert!(memory.take(150..151).is_err(), "nothing says that the server is done");
    let others = memory.take(200..1000).expect("was not exposed");
    assert!(others.iter().all(|byte| *byte == 0));
    drop(server);
    assert_eq!(bounded(client.read(&mut [0])).await.expect("ends"), 0);
    drop(client);
    free_again(&memory, 0..200).await;
    assert_eq!(memory.take(99..101).expect("free")[..], [0, 7]);
}

#[tokio::test]
async fn a_range_that_is_recalled_comes_back_by_the_end_of_its_connection_d5() {
    let (mut client, mut server, _direct) = direct_pair().await;
    let (mut bystander, mut other_server, _other) = direct_pair().await;
    let memory = memory(1000);
    let exposed = expose(&client, &memory, 100..200, 0, Access::RemoteWrite);
    let of_bystander = expose(&bystander, &memory, 200..300, 0, Access::RemoteWrite);
    memory.recall(0..100);
    memory.recall(300..1000);
    say(&mut server, 1).await;
    assert_eq!(hear(&mut client).await, 1, "nothing of that was lent");
    drop(exposed);
    memory.recall(0..200);
    assert_eq!(bounded(client.read(&mut [0])).await.expect("ends"), 0);
    assert_eq!(bounded(server.read(&mut [0])).await.expect("ends"), 0);
    drop(client);
    free_again(&memory, 0..200).await;
    say(&mut other_server, 2).await;
    assert_eq!(hear(&mut bystander).await, 2);
    drop(of_bystander.withdraw());
    memory.recall(0..1000);
    say(&mut other_server, 3).await;
    assert_eq!(hear(&mut bystander).await, 3, "it has nothing any more");
}

#[tokio::test]
async fn a_range_that_outlives_its_connection_is_free_when_it_is_dropped_d5() {
    let (client, server, _direct) = direct_pair().await;
    let memory = memory(100);
    let exposed = expose(&client, &memory, 0..100, 3, Access::RemoteRead);
    let monitor = client.monitor();
    drop((client, server));
    bounded(async {
        while monitor.stats().pinned_bytes > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(memory.take(0..1).is_err());
    drop(exposed);
    free_again(&memory, 0..100).await;
}

#[tokio::test]
async fn a_thousand_cancelled_transfers_complete_and_give_everything_back_d5() {
    let (client, server, direct) = direct_pair().await;
    let (remote_memory, local) = (memory(2 * LEN), memory(2 * LEN));
    let source = expose(&client, &remote_memory, 0..LEN, 7, Access::RemoteRead);
    let target = expose(&client, &remote_memory, LEN..2 * LEN, 0, Access::RemoteWrite);
    for n in 0..1000 {
        let mut slice = bounded(local.take_when_free(0..LEN)).await.expect("inside");
        if n % 2 == 0 {
            let read = direct.read(source.remote(), slice);
            tokio::select! { biased; read = read => drop(read.expect("read")), () = std::future::ready(()) => {} }
        } else {
            slice[0] = 9;
            let write = direct.write(target.remote(), slice.freeze());
            tokio::select! { biased; written = write => written.expect("written"), () = std::future::ready(()) => {} }
        }
    }
    free_again(&local, 0..2 * LEN).await;
    // Both directions still work, and every transfer was carried out.
    let written = bounded(direct.write(target.remote(), pattern(5, LEN))).await;
    written.expect("written");
    assert_eq!(server.stats().protocol.bytes_transferred, 1001 * LEN as u64);
    assert!(target.withdraw()[..] == pattern(5, LEN));
}

/// The ways a client leaves.
async fn leave(client: Stream, way: usize) {
    match way % 2 {
        0 => drop(client),
        _ => {
            let mut client = client;
            let _ = client.shutdown().await;
        }
    }
}

#[tokio::test]
async fn a_client_that_leaves_in_the_middle_ends_transfers_and_frees_memory_on_both_sides_d6() {
    let mut listener = listen(&direct_config()).await;
    let value = bytes::Bytes::from(pattern(2, 32 * MIB));
    for way in 0..4 {
        let (client, mut server) = super::stream_pair::connect(&mut listener, &direct_config()).await;
        assert_eq!(bounded(server.agreed()).await.expect("agreed"), FeatureSet::DIRECT);
        let direct = server.direct().expect("agreed");
        let (theirs, ours) = (memory(32 * MIB), memory(32 * MIB));
        let exposed = expose(&client, &theirs, 0..32 * MIB, 1, Access::RemoteReadWrite);
        let remote = exposed.remote();
        let into = ours.take(0..32 * MIB).expect("free");
        let (first, second, value) = (direct.clone(), direct.clone(), value.clone());
        let read = tokio::spawn(async move { first.read(remote, into).await.map(drop) });
        let write = tokio::spawn(async move { second.write(remote, value).await });
        leave(client, way).await;
        drop(exposed);
        let ended = [bounded(read).await.expect("no panic"), bounded(write).await.expect("no panic")];
        // In a process of its own, all may have been transferred before.
        for error in ended.into_iter().filter_map(Result::err) {
            assert!(matches!(error, TransportError::Lost(_)), "{error:?}");
        }
        assert_eq!(server.read(&mut [0]).await.unwrap_or(0), 0);
        let error = bounded(direct.write(remote, vec![1])).await.expect_err("ended");
        assert!(matches!(error, TransportError::Lost(_)), "{error:?}");
        drop(server);
        free_again(&theirs, 0..32 * MIB).await;
        free_again(&ours, 0..32 * MIB).await;
    }
}

#[tokio::test]
async fn an_orderly_close_delivers_transfers_that_have_started_d6() {
    let (client, mut server, direct) = direct_pair().await;
    let memory = memory(4 * MIB);
    let staging = super::peers::memory(4 * MIB);
    let exposed = expose(&client, &memory, 0..4 * MIB, 0, Access::RemoteWrite);
    let mut slice = staging.take(0..4 * MIB).expect("free");
    slice.copy_from_slice(&pattern(8, 4 * MIB));
    let write = direct.write(exposed.remote(), slice.freeze());
    tokio::select! { biased; written = write => written.expect("written"), () = std::future::ready(()) => {} }
    bounded(server.shutdown()).await.expect("closes in order");
    let lost = server.close_error().expect("ended");
    assert!(matches!(lost, TransportError::Lost(CloseReason::Local)), "{lost:?}");
    assert!(exposed.withdraw()[..] == pattern(8, 4 * MIB));
}

#[tokio::test]
async fn thousands_of_registrations_leave_nothing_behind() {
    let mut listener = listen(&direct_config()).await;
    let ours = memory(1000);
    for _ in 0..20 {
        let (client, mut server) = super::stream_pair::connect(&mut listener, &direct_config()).await;
        bounded(server.agreed()).await.expect("agreed");
        let direct = server.direct().expect("agreed");
        let before = client.stats().pinned_bytes;
        for _ in 0..100 {
            let theirs = memory(1000);
            let exposed = expose(&client, &theirs, 0..1000, 1, Access::RemoteRead);
            let into = bounded(ours.take_when_free(0..1000)).await.expect("inside");
            bounded(direct.read(exposed.remote(), into)).await.expect("read");
            drop(exposed.withdraw());
            // What was registered before is not any more, because nothing uses it.
            assert_eq!(client.stats().pinned_bytes - before, 1000);
        }
        let monitors = [client.monitor(), server.monitor()];
        drop((client, server, direct));
        bounded(async {
            while monitors.iter().any(|monitor| monitor.stats().pinned_bytes > 0) {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
    assert!(bounded(ours.take_when_free(0..1000)).await.is_ok());
}

#[tokio::test]
async fn memory_that_something_uses_stays_registered() {
    let (client, _server, direct) = direct_pair().await;
    let (first, second) = (memory(1000), memory(1000));
    let before = client.stats().pinned_bytes;
    let exposed = expose(&client, &first, 0..1000, 1, Access::RemoteWrite);
    let key = exposed.remote();
    // The peer may still write to it, although nothing else knows of it.
    drop((exposed, first));
    let other = expose(&client, &second, 0..1000, 1, Access::RemoteWrite);
    assert_eq!(client.stats().pinned_bytes - before, 2000);
    bounded(direct.write(key, pattern(1, 1000))).await.expect("written");
    drop(other.withdraw());
}

/// The memory is there, but not for this connection any more.
#[tokio::test]
async fn a_key_of_memory_that_is_not_used_any_more_opens_nothing_d2() {
    let (client, _server, direct) = direct_pair().await;
    let first = memory(1000);
    let exposed = expose(&client, &first, 0..1000, 1, Access::RemoteWrite);
    let key = exposed.remote();
    drop((exposed.withdraw(), first));
    let second = memory(1000);
    let other = expose(&client, &second, 0..1000, 1, Access::RemoteWrite);
    let refused = bounded(direct.write(key, pattern(1, 1000))).await.expect_err("no such key");
    assert!(
        matches!(refused, TransportError::Lost(CloseReason::Failed(FailureStatus::RemoteAccess))),
        "{refused:?}"
    );
    drop(other);
}
