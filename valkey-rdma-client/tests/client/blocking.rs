//! The client without async.

use std::sync::mpsc;
use std::thread;

use tokio::runtime::{Builder, Handle, RuntimeFlavor};
use tokio::spawn;
use tokio::sync::oneshot;
use tokio::task::{block_in_place, spawn_blocking};
use valkey_rdma_client::Command;
use valkey_rdma_client::blocking::Client;

use crate::executor::without_a_runtime;
use crate::target::target;

#[test]
fn threads_share_a_connection_without_a_runtime_of_their_own() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime for the mock");
    let target = runtime.block_on(target());
    let client = Client::connect(target.url.as_str()).expect("connected");
    let threads: Vec<_> = (0..8)
        .map(|n| {
            let (client, key) = (client.clone(), target.key(&n.to_string()));
            thread::spawn(move || {
                for _ in 0..100 {
                    client.command(["INCR", &key]).expect("a reply");
                }
                client.command(["GET", &key]).expect("a reply").convert::<i64>().expect("a number")
            })
        })
        .collect();
    for thread in threads {
        assert_eq!(thread.join().expect("no panic"), 100);
    }
    let replies = client.pipeline([Command::new("PING"), Command::new("NOSUCHCOMMAND")]).expect("replies");
    assert!(replies[0].is_ok() && replies[1].is_err());
    let key = target.key("0");
    let mut buffer = [0; 8];
    assert_eq!(client.get_into(&key, &mut buffer).expect("a reply"), Some(3));
    assert_eq!(&buffer[..3], b"100");
    client.close();

    runtime.block_on(async { drop(client) });
}

/// A caller that has the connection for itself sends on its own thread, whatever that is.
#[test]
fn other_executors_can_run_what_the_async_client_returns() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime for client and mock");
    let target = runtime.block_on(target());
    let client = runtime.block_on(target.client());
    let key = target.key("from outside");
    // More than a send buffer takes at once.
    let value = vec![7; 5 << 20];
    for _ in 0..3 {
        without_a_runtime(client.command(["PING"])).expect("a reply");
        without_a_runtime(client.command(Command::new("SET").arg(&key).arg(&value))).expect("a reply");
        let got = without_a_runtime(client.command(["GET", &key])).expect("a reply");
        assert!(got.as_bytes() == Some(&value[..]));
    }
    without_a_runtime(client.command(["DEL", &key])).expect("a reply");
    runtime.block_on(async { drop(client) });
}

/// Both flavours, and each of their threads that runs futures.
#[test]
fn a_call_inside_a_runtime_panics_and_one_on_its_blocking_threads_does_not() {
    for mut builder in [Builder::new_multi_thread(), Builder::new_current_thread()] {
        let runtime = builder.enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let target = target().await;
            let url = target.url.clone();
            let connect = move || Client::connect(url.as_str());
            let in_a_task = connect.clone();
            let panics = spawn(async move { in_a_task() }).await.expect_err("within a task");
            assert!(panics.is_panic());

            let client = spawn_blocking(connect).await.expect("no panic").expect("connected");
            let ping = move || client.command(["PING"]);
            let in_a_task = ping.clone();
            let panics = spawn(async move { in_a_task() }).await.expect_err("within a task");
            assert!(panics.is_panic());

            let pong = spawn_blocking(ping.clone()).await.expect("no panic").expect("a reply");
            assert_eq!(pong.as_str(), Some("PONG"));
            if let RuntimeFlavor::MultiThread = Handle::current().runtime_flavor() {
                assert!(block_in_place(ping).is_ok());
            }
        });
    }
}

/// Whether this thread blocks SIGTERM.
fn blocks_the_signal() -> bool {
    let status = std::fs::read_to_string("/proc/thread-self/status").expect("a thread has a status");
    let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).expect("a mask");
    u64::from_str_radix(blocked.trim(), 16).expect("a number") & (1 << (15 - 1)) != 0
}

#[test]
fn signals_are_for_the_threads_of_the_program() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime for the mock");
    let target = runtime.block_on(target());
    let client = Client::connect(target.url.as_str()).expect("connected");
    let (begin, begins) = oneshot::channel();
    let (says, said) = mpsc::channel();
    let waits = async {
        spawn(async move {
            begins.await.expect("sent below");
            says.send(blocks_the_signal()).expect("waited for below");
        });
        // That which resolves names.
        Ok(spawn_blocking(blocks_the_signal).await.expect("no panic"))
    };
    assert!(client.wait(waits).expect("no error"));
    // The background thread drives now.
    begin.send(()).expect("the task waits");
    assert!(said.recv().expect("the task runs"));
    assert!(!blocks_the_signal(), "the caller's thread takes signals as before");
}
