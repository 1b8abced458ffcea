//! Direct transfers are plain, so the client does not ask for them beside TLS (clause D-1).

use valkey_rdma_client::{Client, DirectMemory, NotDirect, Placed, Way};

use crate::{Encrypted, connect};

/// Puts a value and gets it again. Returns the get.
async fn there_and_back(client: &Client) -> Placed {
    let memory = DirectMemory::allocate(100_000).expect("a length");
    let mut slice = memory.take(0..100_000).expect("free");
    slice.fill(7);
    let mut slices = client.set_direct("k", [slice]).await.expect("stored").slices;
    slices[0].fill(0);
    let placed = client.get_direct("k", slices).await.expect("placed");
    assert!(placed.len == Some(100_000) && placed.slices[0].iter().all(|byte| *byte == 7));
    placed
}

#[tokio::test]
async fn over_tls_values_go_over_the_encrypted_stream_d1() {
    let encrypted = Encrypted::start().await;
    let client = connect(&encrypted.urls("")[1]).await.expect("connected");
    let way = there_and_back(&client).await.way;
    assert!(matches!(way, Way::Stream(NotDirect::Encrypted)), "{way}");
    assert!(client.connections().iter().all(|connection| connection.info.tls.is_some()));
}
