//! Direct transfers (spec, area D), against a server of the test's own that keeps the rules, or breaks one of them.

mod calls;
mod ends;
mod lies;
mod server;

use std::future::Future;
use std::ops::Range;
use std::time::Duration;

use valkey_rdma_client::{Client, DirectMemory, DirectSlice};

/// Fails the test where it would hang otherwise.
async fn bounded<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), work).await.expect("done within the deadline")
}

async fn connect(url: &str) -> Client {
    Client::connect(url).await.expect("connected")
}

fn memory(len: usize) -> DirectMemory {
    DirectMemory::allocate(len).expect("a length")
}

/// A range whose bytes are all the same.
fn filled(memory: &DirectMemory, range: Range<usize>, byte: u8) -> DirectSlice {
    let mut slice = memory.take(range).expect("free");
    slice.fill(byte);
    slice
}

/// Waits until the server can no longer reach a range, and nothing else has it.
async fn free_again(memory: &DirectMemory, range: Range<usize>) -> DirectSlice {
    bounded(memory.take_when_free(range)).await.expect("inside")
}

async fn until(condition: impl Fn() -> bool) {
    bounded(async {
        while !condition() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// Bytes that show where they belong.
fn pattern(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|n| ((n ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}
