//! Nothing of a connection is left when its endpoints are dropped. One test for a binary of its own, because it counts
//! what the whole process has, and on an RDMA device what the machine has.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use super::device_peer::{accept, connect, device, listen, open};
use valkey_rdma_transport::{BufferPool, DeviceKind};

const CONNECTIONS: usize = 200;

pub(crate) async fn connections_leave_nothing_behind() {
    let mut listener = listen().await;
    // Once for what libraries open on first use and keep.
    drop(connect(listener.as_mut()).await);
    let idle = async {
        while tasks() > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), idle).await.expect("a connection's tasks end with it");
    let before = in_use();
    let pool = BufferPool::new(1, 100_000).expect("a usable pool");
    for round in 0..CONNECTIONS {
        let (mut active, mut passive) = connect(listener.as_mut()).await;
        active.endpoint.register_send_memory(&pool.memory()).expect("memory");
        active.send(1, b"on the way while it ends");
        // Every way to end.
        match round % 4 {
            0 => drop((active, passive)),
            1 => drop((passive, active)),
            2 => {
                active.endpoint.disconnect();
                passive.cm_event().await;
                passive.endpoint.disconnect();
            }
            _ => {
                let mut unanswered = open(listener.local_addr()).await;
                unanswered.endpoint.establish().expect("asks");
                drop(accept(listener.as_mut()).await);
            }
        }
    }
    // Sockets close when both ends have said good-bye, which takes its time.
    let baseline = async {
        while in_use() != before {
            tokio::task::yield_now().await;
        }
    };
    if tokio::time::timeout(Duration::from_secs(60), baseline).await.is_err() {
        assert_eq!(in_use(), before, "after {CONNECTIONS} connections");
    }
    print(&before);
}

/// How many tasks there are beside the test itself.
fn tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

/// How many tasks and descriptors this process has, and how many objects of each kind its RDMA devices have.
fn in_use() -> BTreeMap<String, usize> {
    let descriptors = std::fs::read_dir("/proc/self/fd").expect("the list of descriptors").count();
    let mut counts = BTreeMap::from([("descriptors".to_owned(), descriptors), ("tasks".to_owned(), tasks())]);
    if device() == DeviceKind::Verbs {
        let output = Command::new("rdma").args(["resource", "show"]).output().expect("iproute2's `rdma`");
        let text = String::from_utf8(output.stdout).expect("text");
        // One line per device: `0: rxe0: pd 1 cq 1 qp 1 cm_id 0 mr 0 ctx 0 srq 0`.
        for line in text.lines() {
            let words = line.split_whitespace().collect::<Vec<_>>();
            for pair in words[2..].chunks_exact(2) {
                counts.insert(format!("{} {}", words[1], pair[0]), pair[1].parse().expect("a count"));
            }
        }
        assert!(counts.len() > 1, "`rdma resource show` lists no device");
    }
    counts
}

#[expect(clippy::print_stderr, reason = "the figures are worth seeing")]
fn print(counts: &BTreeMap<String, usize>) {
    eprintln!("before and after {CONNECTIONS} connections: {counts:?}");
}
