//! A short soak: whatever goes wrong between client and server, the neighbour's replies are right, and no memory is lost.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dhat::{Alloc, HeapStats, Profiler};
use tokio::sync::Mutex;
use valkey_rdma_lab::soak::{Memory, Options, run};
use valkey_rdma_transport::DeviceKind;

#[global_allocator]
static ALLOC: Alloc = Alloc;

/// One test at a time: the heap is that of the whole process.
static ALONE: Mutex<()> = Mutex::const_new(());

fn options(rounds: u64, memory: Memory) -> Options {
    let bind = "127.0.0.1".parse().expect("an address");
    Options { device: DeviceKind::Emulated, bind, duration: Duration::ZERO, rounds, seed: 1, memory }
}

/// The fewest live heap bytes seen while everything in the background ends. What ends there waits for the clock, which is
/// paused and jumps, and for sockets, which need a little real time.
async fn live() -> usize {
    let mut fewest = usize::MAX;
    for _ in 0..300 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        std::thread::sleep(Duration::from_millis(2));
        fewest = fewest.min(HeapStats::get().curr_bytes);
    }
    fewest
}

/// The same rounds twice: what a connection of the second run leaves behind exceeds the limit.
#[tokio::test(start_paused = true)]
async fn random_faults_harm_no_neighbour_and_leave_no_memory_behind() {
    let _alone = ALONE.lock().await;
    let _profiler = Profiler::builder().testing().build();
    let mut after = Vec::new();
    for _ in 0..2 {
        let summary = run(&options(4, Memory::default()), |_| {}).await.expect("no harm is done");
        assert!(summary.faults > 0 && summary.replies > 0 && !summary.errors.is_empty(), "{summary:?}");
        assert_eq!(summary.neighbour, summary.rounds * 6 * 40, "{summary:?}");
        after.push(live().await);
    }
    println!("live heap bytes after each run: {after:?}");
    assert!(after[1] < after[0] + 32 * 1024, "live heap bytes after each run: {after:?}");
}

#[tokio::test(start_paused = true)]
async fn memory_that_keeps_growing_ends_a_soak() {
    /// 100 KiB more each time.
    fn growing() -> Option<u64> {
        static MEASURED: AtomicU64 = AtomicU64::new(0);
        Some(MEASURED.fetch_add(100, Ordering::Relaxed))
    }
    let _alone = ALONE.lock().await;
    let memory = Memory { measure: growing, growth: 256 };
    let error = run(&options(20, memory), |_| {}).await.expect_err("it grows");
    assert!(error.contains("memory grew from 900 to 1200 KiB"), "{error}");
}
