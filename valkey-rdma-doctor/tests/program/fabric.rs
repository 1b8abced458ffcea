//! `listen` and `check`.

use std::fs;

use valkey_rdma_testkit::Signal;

use crate::{LIMIT, listen, run};

/// A check that is soon done.
fn brief<'a>(addr: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["check", addr, "--device", "emulated", "--time", "2ms", "--sizes", "1,4K"], more].concat()
}

#[test]
fn buffers_match_and_every_exchange_has_its_line() {
    let (mut listener, addr) = listen(&[]);
    let plot = format!("{}/check.svg", env!("CARGO_TARGET_TMPDIR"));
    let (status, out, err) = run(&brief(&addr, &["--queue-pairs", "3", "--plot", &plot]));
    assert_eq!((status, err.as_str()), (Some(0), ""), "{out}");
    // Two sizes, three queue pairs, both ways, three comparisons each.
    assert!(out.contains("buffers match: 36 compared"), "{out}");
    assert!(out.contains("The emulated device is software, not RDMA"), "{out}");
    for size in ["1 B", "4 KiB"] {
        for operation in ["SEND", "WRITE+imm", "WRITE", "READ"] {
            for wait in ["event", "busy"] {
                for way in ["->", "<-"] {
                    let start = format!("{size:>8}  {operation:<9}  {wait:<5}  {way}");
                    let line = out.lines().find(|line| line.starts_with(&start));
                    let line = line.unwrap_or_else(|| panic!("no line {start:?} in\n{out}"));
                    assert!(!line.contains(" - "), "every figure is there: {line}");
                }
            }
        }
        assert!(out.contains(&format!("{size:>8}  TCP        epoll  ->")), "{out}");
    }
    assert!(fs::read_to_string(plot).unwrap().starts_with("<svg"));
    assert!(listener.line_with("done, 84 steps", LIMIT).is_ok());
    listener.signal(Signal::INT);
    assert_eq!(listener.wait(LIMIT).unwrap().code(), Some(0));
}

#[test]
fn a_corrupted_buffer_is_found() {
    let (_listener, addr) = listen(&["--corrupt"]);
    let (status, out, _) = run(&brief(&addr, &["--operations", "send", "--polling", "event", "--one-way"]));
    assert_eq!(status, Some(1), "{out}");
    assert!(out.contains("BUFFERS DIFFER: 2 of 6"), "{out}");
    assert!(out.contains("  WRITE and READ back of 1 B on queue pair 0: byte 0 is 0x"), "{out}");
    assert!(out.contains("  WRITE and READ back of 4 KiB on queue pair 0: byte 2048 is 0x"), "{out}");
}

#[test]
fn json_has_the_same_findings() {
    let (_listener, addr) = listen(&["--corrupt"]);
    let (status, out, _) = run(&brief(&addr, &["--json", "--operations", "read", "--polling", "event"]));
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((status, &json["works"], &json["format"]), (Some(1), &false.into(), &1.into()));
    let check = &json["checks"][0];
    assert_eq!((check["peer"].as_str(), &check["complete"]), (Some(addr.as_str()), &true.into()));
    assert_eq!(check["found"]["differences"].as_array().map(Vec::len), Some(2));
    // Two sizes, two ways, READ and TCP, latency and rate.
    assert_eq!(check["found"]["rows"].as_array().map(Vec::len), Some(16));
    assert_eq!(check["found"]["rows"][0]["run"]["operation"], "read");
}

#[test]
fn several_peers_are_checked_one_after_the_other() {
    let (_one, first) = listen(&[]);
    let (_other, second) = listen(&[]);
    let few = ["--sizes", "64", "--operations", "send", "--polling", "event", "--no-tcp", "--one-way"];
    let args = [&["check", &first, &second, "--device", "emulated", "--time", "1ms"], &few[..]].concat();
    let (status, out, err) = run(&args);
    assert_eq!((status, err.as_str()), (Some(0), ""), "{out}");
    assert!(out.starts_with(&first) && out.contains(&format!("\n{second}\n")), "{out}");
    assert_eq!(out.matches("buffers match: 3 compared").count(), 2, "{out}");
}

#[test]
fn a_name_that_does_not_resolve_is_reported_before_anything_is_measured() {
    let (mut listener, addr) = listen(&[]);
    let (status, out, err) = run(&["check", &addr, "nowhere.invalid:1", "--device", "emulated"]);
    assert_eq!((status, out.as_str()), (Some(1), ""), "{err}");
    assert!(err.contains("nowhere.invalid"), "{err}");
    listener.signal(Signal::INT);
    listener.wait(LIMIT).unwrap();
    assert_eq!(listener.stdout().lines().count(), 1, "no peer came: {}", listener.stdout());
}

#[test]
fn system_calls_are_counted_or_the_reason_is_said() {
    let (_listener, addr) = listen(&[]);
    let (status, out, err) = run(&brief(&addr, &["--system-calls", "--operations", "send", "--one-way"]));
    if status == Some(0) {
        assert_eq!(err, "");
        let counts = |line: &str| {
            let [.., here, there] = line.split_whitespace().collect::<Vec<_>>()[..] else { return false };
            here.parse::<f64>().is_ok_and(|calls| calls > 0.0) && there == "-"
        };
        // Over TCP every message takes at least a share of a call.
        assert!(out.lines().filter(|line| line.contains("  TCP ")).all(counts), "{out}");
    } else {
        assert_eq!((status, out.as_str()), (Some(1), ""), "{err}");
        assert!(err.starts_with("error: --system-calls: ") && err.contains("this takes root"), "{err}");
    }
}
