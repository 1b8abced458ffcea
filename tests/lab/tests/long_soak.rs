//! A soak as long as the caller likes. Its allocator is the ordinary one, so that threads do not wait for each other.

use std::time::{Duration, Instant};

use valkey_rdma_lab::soak::{Memory, Options, run};
use valkey_rdma_transport::DeviceKind;

/// For `VALKEY_RDMA_TEST_SECONDS`, on the device `VALKEY_RDMA_TEST_DEVICE` at `VALKEY_RDMA_TEST_ADDR`, with the seed `VALKEY_RDMA_TEST_SEED`.
/// Without them: a minute, the emulated device at 127.0.0.1, and a seed by chance.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes a minute, or VALKEY_RDMA_TEST_SECONDS"]
async fn a_long_soak() {
    let variable = |name: &str| std::env::var(format!("VALKEY_RDMA_TEST_{name}")).ok();
    let seed = variable("SEED").map_or_else(|| fastrand::u64(..), |text| text.parse().expect("a number"));
    let seconds = variable("SECONDS").map_or(60, |text| text.parse().expect("a number"));
    let options = Options {
        device: variable("DEVICE").map_or(DeviceKind::Emulated, |name| name.parse().expect("a device")),
        bind: variable("ADDR").unwrap_or("127.0.0.1".to_owned()).parse().expect("an address"),
        duration: Duration::from_secs(seconds),
        rounds: 20,
        seed,
        memory: Memory::default(),
    };
    println!("seed {seed}");
    let mut next = Instant::now();
    let summary = run(&options, |summary| {
        if Instant::now() >= next {
            next = Instant::now() + Duration::from_secs(10);
            println!("{summary:?}");
        }
    });
    println!("{:?}", summary.await.expect("no harm is done"));
}
