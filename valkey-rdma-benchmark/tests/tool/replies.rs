//! Right replies end with status 0; any wrong one is detected, counted and reported, and ends with status 1.

use crate::scripted::{Keyspace, Script, Server, bulk, right, stderr, stdout, tool_at};

#[test]
fn right_replies_succeed_in_every_shape() {
    let server = Server::start(right);
    for (requests, shape) in [
        (1000, "-c 1"),
        (20, "-c 50"),
        (1000, "-c 5 -P 16"),
        (1000, "-c 1 --tasks-per-connection 50"),
        (1000, "-c 3 --tasks-per-connection 7 -P 9"),
        (5000, "-c 4 -P 1000 --threads 2"),
        (100, "-c 2 -r 30 -d 100000 -P 4"),
    ] {
        let output =
            tool_at(server.addr, &format!("-n {requests} {shape} -t ping_mbulk,set,get --verify full --csv"));
        assert_eq!((output.status.code(), stderr(&output)), (Some(0), ""), "{shape}");
        let lines: Vec<&str> = stdout(&output).lines().collect();
        assert_eq!(lines.len(), 4, "{shape}");
        for (line, title) in lines[1..].iter().zip(["PING_MBULK", "SET", "GET"]) {
            let cells: Vec<&str> = line.split(',').map(|cell| cell.trim_matches('"')).collect();
            assert_eq!((cells[0], cells[9], cells[10]), (title, &*requests.to_string(), "0"), "{shape}");
        }
    }
}

#[test]
fn a_get_test_writes_no_keys_unless_asked() {
    let server = Server::start(right);
    let output = tool_at(server.addr, "-t get -r 40 -n 1000 -c 3 -q");
    assert_eq!(output.status.code(), Some(1));
    let printed = stderr(&output);
    assert!(
        printed.contains("keys to read do not exist") && printed.contains("--populate missing"),
        "{printed}"
    );
    assert!(server.keys.lock().unwrap().is_empty());
}

#[test]
fn keys_with_values_of_another_length_are_counted_once_and_need_new_values() {
    let server = Server::start(right);
    let written = tool_at(server.addr, "-t set -d 3 -n 10 -c 1 -q");
    assert_eq!(written.status.code(), Some(0), "{}", stderr(&written));
    let output = tool_at(server.addr, "-t get -d 100 -n 10 -c 1 -q");
    let printed = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{printed}");
    assert!(printed.starts_with("error: GET: 10 wrong (wrong length 10)"), "{printed}");
    assert!(
        printed.contains("... and 9 more") && printed.contains("write them with --populate all,"),
        "{printed}"
    );
}

#[test]
fn missing_keys_are_written_and_others_are_not_touched() {
    let server = Server::start(right);
    let theirs = (b"key:000000000007".to_vec(), b"abc".to_vec());
    server.keys.lock().unwrap().extend([theirs.clone()]);
    let output = tool_at(server.addr, "-t get --populate missing -r 40 -n 1000 -c 3 -q");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stderr(&output).contains("writes the missing ones of 40 keys"), "{}", stderr(&output));
    let keys = server.keys.lock().unwrap();
    assert_eq!((keys.len(), &keys[&theirs.0]), (40, &theirs.1));
    assert!(keys.contains_key(&b"key:000000000039"[..]));
}

#[test]
fn a_get_test_over_a_large_keyspace_writes_only_what_it_reads() {
    for which in ["missing", "all"] {
        let server = Server::start(right);
        let flags = format!("-t get --populate {which} -r 1000000000000 -n 100 -c 3 -q --seed 5");
        let output = tool_at(server.addr, &flags);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert_eq!(server.keys.lock().unwrap().len(), 100);
    }
}

#[test]
fn a_timed_get_test_reads_what_the_set_test_before_it_wrote() {
    let server = Server::start(right);
    let output = tool_at(server.addr, "-t set,get -r 1000000000000 --duration 0.05 -c 3 -q --seed 5");
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), ""));
}

#[test]
fn a_warm_up_reads_only_keys_that_were_written() {
    let server = Server::start(right);
    let output =
        tool_at(server.addr, "-t get --populate all -r 1000000000000 -n 100 -c 3 -q --seed 5 --warmup 0.05");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

/// Runs 100 GETs of 8 bytes, one of whose replies a script spoils, and returns the report.
fn report_of(script: Script) -> String {
    let server = Server::start(script);
    let output =
        tool_at(server.addr, "-t get --populate all -r 100 -n 1000 -c 2 -P 4 -d 8 --verify full --csv");
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert_eq!(stdout(&output).lines().count(), 2, "the result is reported all the same");
    stderr(&output).lines().filter(|line| !line.contains("--populate")).collect::<Vec<_>>().join("\n")
}

fn is_get_of_7(command: &[Vec<u8>]) -> bool {
    command[0] == b"GET" && command[1] == b"key:000000000007"
}

fn one_wrong_byte(command: &[Vec<u8>], keys: &Keyspace) -> Option<Vec<u8>> {
    let mut reply = right(command, keys)?;
    if is_get_of_7(command) {
        reply["$8\r\n".len() + 5] ^= 0xff;
    }
    Some(reply)
}

#[test]
fn one_wrong_byte_is_seen() {
    let printed = report_of(one_wrong_byte);
    assert!(printed.starts_with("error: GET: ") && printed.contains("(wrong bytes "), "{printed}");
    assert!(printed.contains("GET key:000000000007: byte 5 is "), "{printed}");
}

fn short_value(command: &[Vec<u8>], keys: &Keyspace) -> Option<Vec<u8>> {
    if is_get_of_7(command) {
        return Some(bulk(&keys.lock().unwrap()[&command[1]][..7]));
    }
    right(command, keys)
}

#[test]
fn a_short_value_is_seen() {
    let printed = report_of(short_value);
    assert!(printed.contains("GET key:000000000007: 7 bytes, expected 8"), "{printed}");
}

fn value_of_another_key(command: &[Vec<u8>], keys: &Keyspace) -> Option<Vec<u8>> {
    if is_get_of_7(command) {
        return right(&[b"GET".to_vec(), b"key:000000000008".to_vec()], keys);
    }
    right(command, keys)
}

#[test]
fn the_value_of_another_key_is_seen() {
    let printed = report_of(value_of_another_key);
    assert!(
        printed.contains("(wrong bytes ") && printed.contains("GET key:000000000007: byte 0 is "),
        "{printed}"
    );
}

fn error_reply(command: &[Vec<u8>], keys: &Keyspace) -> Option<Vec<u8>> {
    if is_get_of_7(command) {
        return Some(b"-OOM command not allowed\r\n".to_vec());
    }
    right(command, keys)
}

#[test]
fn an_error_reply_is_counted_under_its_code_and_the_test_goes_on() {
    let printed = report_of(error_reply);
    assert!(printed.contains("(server error OOM "), "{printed}");
    assert!(printed.contains("GET key:000000000007: OOM command not allowed"), "{printed}");
}

fn refused_writes(command: &[Vec<u8>], keys: &Keyspace) -> Option<Vec<u8>> {
    if command[0] == b"SET" {
        return Some(b"-READONLY You can't write against a read only replica.\r\n".to_vec());
    }
    right(command, keys)
}

#[test]
fn keys_that_cannot_be_written_are_reported_and_not_read() {
    let printed = report_of(refused_writes);
    assert!(
        printed.contains("keys not written 1") && printed.contains("server error READONLY 100"),
        "{printed}"
    );
}

fn closes_on_get(command: &[Vec<u8>], keys: &Keyspace) -> Option<Vec<u8>> {
    if command[0] == b"GET" { None } else { right(command, keys) }
}

#[test]
fn a_server_that_hangs_up_is_connected_to_again_for_every_request() {
    let printed = report_of(closes_on_get);
    assert!(printed.contains("(connection lost 1000)") && printed.contains("connections lost"), "{printed}");
    assert!(printed.contains("GET key:0000") && printed.contains("closed the connection"), "{printed}");
}

#[test]
fn with_fail_fast_the_first_wrong_reply_ends_the_run() {
    let server = Server::start(pings_wrongly);
    let output = tool_at(server.addr, "-n 100000 -c 1 -t ping_mbulk,set --fail-fast -q");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(stdout(&output).lines().count(), 1, "no test after it");
    assert!(stderr(&output).starts_with("error: PING_MBULK: 1 wrong (wrong reply 1)"), "{}", stderr(&output));
}

#[test]
fn by_default_lengths_are_checked_and_bytes_are_not() {
    let server = Server::start(one_wrong_byte);
    let output = tool_at(server.addr, "-t get --populate all -r 100 -n 1000 -c 2 -d 8 -q");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let server = Server::start(short_value);
    let output = tool_at(server.addr, "-t get --populate all -r 100 -n 1000 -c 2 -d 8 -q");
    assert!(stderr(&output).contains("7 bytes, expected 8"), "{}", stderr(&output));
}

fn pings_wrongly(command: &[Vec<u8>], keys: &Keyspace) -> Option<Vec<u8>> {
    if command.len() == 1 && command[0] == b"PING" {
        Some(b"+PONX\r\n".to_vec())
    } else {
        right(command, keys)
    }
}

#[test]
fn faults_of_one_test_do_not_hide_the_other_tests() {
    let server = Server::start(pings_wrongly);
    let output = tool_at(server.addr, "-n 10 -c 2 -t ping_mbulk,set,get -q");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(stdout(&output).lines().count(), 3);
    let printed = stderr(&output);
    assert!(printed.starts_with("error: PING_MBULK: 10 wrong (wrong reply 10)"), "{printed}");
    assert!(
        printed.contains("expected PONG, got the status \"PONX\"") && printed.contains("... and 9 more"),
        "{printed}"
    );
}

fn closes_at_the_last(command: &[Vec<u8>], keys: &Keyspace) -> Option<Vec<u8>> {
    if command[0] == b"LAST" { None } else { right(command, keys) }
}

#[test]
fn each_reply_of_a_sequence_counts_when_it_comes() {
    let server = Server::start(closes_at_the_last);
    // Through the client library, and directly.
    for tasks in ["--tasks-per-connection 1", ""] {
        let output = tool_at(server.addr, &format!("-n 1 -c 1 {tasks} --csv FIRST ; LAST"));
        let row = stdout(&output).lines().nth(1).unwrap_or_default();
        assert!(row.contains(r#","1","1","tcp","1""#), "a reply and an error: {row}");
    }
}
