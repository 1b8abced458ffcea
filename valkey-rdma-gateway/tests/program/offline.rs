//! The flag that says how long commands wait for a server that is away.

use tokio::net::UnixStream;
use valkey_rdma_mock::Mock;
use valkey_rdma_testkit::{Child, Signal};

use crate::program;
use crate::support::{Client, PATIENCE, Reserved, socket_path, text};

/// As a client that has its own time limit and keeps its connection: GLIDE.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_its_client_gave_up_in_an_outage_does_not_run_after_it() {
    let reserved = Reserved::new();
    let socket = socket_path();
    let (listen, server) = (format!("unix:{}", socket.display()), reserved.url());
    let args = ["--listen", &listen, "--server", &server, "--offline-ms", "100"];
    let mut child = Child::start(&mut program(&args)).unwrap();
    child.line_with("ready ", PATIENCE).unwrap();
    // The reply to INCR. `None` if the client was closed.
    let count = async || {
        let mut client = Client::new(UnixStream::connect(&socket).await.unwrap());
        client.command("INCR counter").await;
        client.try_reply().await.map(|reply| text(&reply))
    };
    for is_reloaded in [false, true] {
        if is_reloaded {
            child.signal(Signal::HUP);
            child.line_with("there is no configuration file", PATIENCE).unwrap();
        }
        for _ in 0..5 {
            assert_eq!(count().await, None);
        }
    }
    let started = reserved.serve(Mock::new()).await;
    // The time limit may end before the attempt to connect.
    let counter = loop {
        if let Some(counter) = count().await {
            break counter;
        }
    };
    assert_eq!(counter, ":1");
    child.signal(Signal::TERM);
    assert!(child.wait(PATIENCE).unwrap().success());
    drop(started);
}

#[test]
fn the_flag_has_the_range_of_the_file() {
    let plain = ["--listen", "unix:/run/vrg", "--server", "valkey://127.0.0.1:1", "--check"];
    let checked = |value: &str| {
        let output = program(&plain).args(["--offline-ms", value]).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    assert_eq!(checked("100").0, Some(0));
    let (code, text) = checked("99");
    assert!(code == Some(2) && text.contains("--offline-ms") && text.contains("99"), "{text}");
    let help = program(&["--help"]).output().unwrap();
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    let about = help.split("--offline-ms").nth(1).unwrap();
    assert!(about.contains("at least 100") && about.contains("[default: 10000]"), "{help}");
    let both = program(&["--config", "x.toml", "--offline-ms", "100"]).output().unwrap();
    assert_eq!(both.status.code(), Some(2), "a file has its own");
}
