//! A short soak: whatever goes wrong between client and server, the neighbour's replies are all right.

use std::time::Duration;

use valkey_rdma_lab::soak::{Options, run};
use valkey_rdma_mock::DeviceKind;

#[tokio::test(start_paused = true)]
async fn random_faults_harm_no_neighbour_and_both_ends_live_on() {
    let options = Options {
        device: DeviceKind::Emulated,
        bind: "127.0.0.1".parse().expect("an address"),
        // Its rounds for warming up, and one more.
        duration: Duration::ZERO,
        seed: 1,
    };
    let story = run(&options, |_| {}).await.expect("nobody is harmed");
    assert!(story.faults > 0 && story.replies > 0 && !story.errors.is_empty(), "{story:?}");
    assert_eq!(story.neighbour, story.rounds * 6 * 40, "{story:?}");
}
