//! Peers that vanish, in each phase, and peers that are something else.

use std::cell::Cell;
use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use tokio::runtime::Builder;
use valkey_rdma_doctor::fabric::{self, FabricError, Found, Options};
use valkey_rdma_testkit::{Signal, wait_until};
use valkey_rdma_transport::DeviceKind;

use crate::{LIMIT, listen, run, start};

/// Checks `addr`, and calls `at` with the name of each step before it begins.
fn check(addr: &str, options: &Options, found: &mut Found, at: &dyn Fn(&str)) -> Result<(), FabricError> {
    let addr: SocketAddr = addr.parse().unwrap();
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(fabric::check(addr, options, found, &|_, _, what| at(what)))
}

fn options() -> Options {
    Options {
        kind: DeviceKind::Emulated,
        sizes: vec![64, 4096],
        // Longer than the test takes: what ends it is the peer.
        time: Duration::from_millis(20),
        ..Options::default()
    }
}

#[test]
fn a_peer_killed_in_any_phase_is_one_line_and_what_was_measured_stays() {
    for phase in [
        "comparing 4 KiB",
        "SEND of 64 B, latency",
        "WRITE of 64 B, rate",
        "READ of 4 KiB, rate",
        "TCP of 64 B, rate",
    ] {
        let (listener, addr) = listen(&[]);
        let seen = Cell::new(false);
        let mut found = Found::default();
        let error = check(&addr, &options(), &mut found, &|what| {
            if what == phase && !seen.replace(true) {
                listener.signal(Signal::KILL);
            }
        });
        let text = error.expect_err(phase).to_string();
        assert!(seen.get() && text.contains(&addr) && text.contains("vanished during"), "{phase}: {text}");
        assert_eq!(text.lines().count(), 1);
        assert_eq!(
            found.rows.is_empty(),
            phase.starts_with("comparing") || phase.starts_with("SEND"),
            "{phase}"
        );
    }
}

#[test]
fn a_leader_that_vanishes_is_a_line_of_the_listener_which_goes_on() {
    let (listener, addr) = listen(&[]);
    for phase in ["comparing 64 B", "SEND of 64 B, rate", "READ of 64 B, latency"] {
        let addr = addr.parse().unwrap();
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let (begun, mut seen) = tokio::sync::mpsc::unbounded_channel();
        runtime.block_on(async {
            let mut found = Found::default();
            let options = options();
            let progress = |_: usize, _: usize, what: &str| {
                if what == phase {
                    let _ = begun.send(());
                }
            };
            // Dropped in the middle of the phase.
            tokio::select! {
                biased;
                _ = seen.recv() => {}
                outcome = fabric::check(addr, &options, &mut found, &progress) => panic!("{outcome:?}"),
            }
        });
    }
    wait_until("three lines", LIMIT, || {
        let lines = listener.printed();
        lines.iter().filter(|line| line.contains("vanished during") || line.contains("done, ")).count() == 3
    });
    let (status, out, err) = run(&["check", &addr, "--device", "emulated", "--time", "1ms", "--sizes", "64"]);
    assert_eq!((status, err.as_str()), (Some(0), ""), "{out}");
}

#[test]
fn a_peer_that_is_something_else_or_silent_is_one_line() {
    let stranger = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = stranger.local_addr().unwrap().to_string();
    let check = ["check", &addr, "--device", "emulated", "--patience", "300ms"];
    let child = start(&check);
    let (mut stream, _) = stranger.accept().unwrap();
    stream.write_all(b"220 mail ESMTP\r\n").unwrap();
    child.line_with(&format!("error: {addr} is not a valkey-rdma-doctor of this version"), LIMIT).unwrap();

    let mut child = start(&check);
    let _silent = stranger.accept().unwrap();
    child.line_with(&format!("error: {addr} is silent since 300ms during the greeting"), LIMIT).unwrap();
    assert_eq!(child.wait(LIMIT).unwrap().code(), Some(1));
}

#[test]
fn ctrl_c_ends_a_check() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = silent.local_addr().unwrap().to_string();
    let mut child = start(&["check", &addr, "--device", "emulated", "--patience", "60s"]);
    let _stream = silent.accept().unwrap();
    child.signal(Signal::INT);
    assert_eq!(child.wait(LIMIT).unwrap().code(), Some(130));
    assert_eq!(child.stderr(), "error: interrupted: what was measured until then is above\n");
}

#[test]
fn a_stranger_does_not_end_a_listener() {
    let (listener, addr) = listen(&[]);
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"{}\n", &[0xff; 2 << 20], b""] {
        let mut stream = std::net::TcpStream::connect(&addr).unwrap();
        // It may be closed before all of it is sent.
        let _ = stream.write_all(bytes);
    }
    wait_until("four lines", LIMIT, || listener.printed().len() == 5);
    let (status, ..) = run(&["check", &addr, "--device", "emulated", "--time", "1ms", "--sizes", "64"]);
    assert_eq!(status, Some(0));
}
