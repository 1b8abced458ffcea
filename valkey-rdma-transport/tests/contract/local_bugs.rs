//! What only a bug on this side asks for.

use super::super::device_peer::{WINDOW, pair};

#[tokio::test]
#[should_panic(expected = "range")]
async fn filling_beyond_a_region_is_a_bug() {
    let (mut active, _passive) = pair().await;
    active.stage(WINDOW - 1, &[0; 2]);
}

/// The peer could be writing the slice.
#[tokio::test]
#[should_panic(expected = "a peer may write")]
async fn filling_what_a_peer_may_write_is_a_bug() {
    let (mut active, _passive) = pair().await;
    active.endpoint.write_local(active.window.id, 0..1, &mut |room| room.fill(1));
}

#[tokio::test]
#[should_panic(expected = "range")]
async fn copying_beyond_a_region_is_a_bug() {
    let (mut active, _passive) = pair().await;
    active.endpoint.copy_in(active.staging.id, WINDOW as usize - 1, &[0; 2]);
}

#[tokio::test]
#[should_panic(expected = "range")]
async fn copying_from_beyond_a_region_is_a_bug() {
    let (active, _passive) = pair().await;
    active.read_window(WINDOW as usize..WINDOW as usize + 1);
}
