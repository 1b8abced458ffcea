//! Which command lines are accepted, and what the others are told.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use valkey_rdma_benches::args::{Args, Instead, Transport};
use valkey_rdma_benches::workload::Test;

fn parse(line: &str) -> Result<Args, Instead> {
    Args::from_command_line(std::iter::once("valkey-rdma-benchmark").chain(line.split_whitespace()))
}

fn refusal(line: &str) -> String {
    match parse(line) {
        Err(Instead::Refuse(reason)) => reason,
        other => panic!("{line:?} was not refused: {other:?}"),
    }
}

#[test]
fn the_defaults_are_those_of_valkey_benchmark() {
    let args = parse("").unwrap();
    assert_eq!((args.host.as_str(), args.port), ("127.0.0.1", 6379));
    assert_eq!((args.clients, args.requests, args.value_len, args.pipeline), (50, 100_000, 3, 1));
    assert_eq!(
        (args.keyspace(), args.dbnum, args.resp3, args.quiet, args.csv),
        (None, 0, false, false, false)
    );
    assert_eq!(args.tests.iter().collect::<Vec<_>>(), Test::ALL);
    assert_eq!((args.transport, args.tasks_per_connection), (Transport::Rdma, 1));
}

#[test]
fn flags_have_the_meaning_of_valkey_benchmark() {
    let line = "-h server -p 7000 -a secret --user app --dbnum 3 -3 -c 8 -n 5 -d 10 -P 16 -r 1000 -t set -q --csv --seed 9 --threads 2";
    let args = parse(line).unwrap();
    assert_eq!((args.host.as_str(), args.port, args.dbnum, args.resp3), ("server", 7000, 3, true));
    assert_eq!(
        (args.password.as_ref().map(|password| password.as_str()), args.user.as_deref()),
        (Some("secret"), Some("app"))
    );
    assert_eq!((args.clients, args.requests, args.value_len, args.pipeline), (8, 5, 10, 16));
    assert_eq!((args.keyspace().map(|keys| keys.get()), args.seed, args.threads), (Some(1000), 9, 2));
    assert_eq!(args.tests.iter().collect::<Vec<_>>(), [Test::Set]);
    assert!(args.quiet && args.csv);
    assert!(!format!("{args:?}").contains("secret"));

    for (url, shown) in [
        ("rdma://app:secret@server:7000/3?timeout=2s", "\"rdma://***@server:7000/3?timeout=2s\""),
        ("valkey://:se@cret/@server", "\"valkey://***@server\""),
        ("secret@server", "\"***@server\""),
        ("rdma://server", "\"rdma://server\""),
    ] {
        let args = parse(&format!("--url {url}")).unwrap();
        assert_eq!(format!("{:?}", args.url.as_ref().unwrap()), shown);
        assert!(format!("{args:?}").contains(shown), "{args:?}");
    }
}

#[test]
fn tests_run_once_each_and_in_the_fixed_order() {
    let args = parse("-t GET,ping_mbulk,set,get,ping").unwrap();
    assert_eq!(args.tests.iter().collect::<Vec<_>>(), [Test::Ping, Test::Set, Test::Get]);
}

#[test]
fn our_own_flags_are_read() {
    let args = parse("--url emulated://host:1234 --tasks-per-connection 50 --rx-size 65536").unwrap();
    assert_eq!(args.url.as_ref().map(|url| url.as_str()), Some("emulated://host:1234"));
    assert_eq!((args.tasks_per_connection, args.rx_size), (50, Some(65536)));
    assert!(parse("--demo").unwrap().demo);
}

#[test]
fn bad_command_lines_are_refused_in_one_line_that_names_the_flag() {
    for (line, said) in [
        ("-t ping_inline", "RESP arrays only; use ping_mbulk"),
        ("-t lpush", "there is no test \"lpush\""),
        ("-t set,", "there is no test \"\""),
        ("-c 0", "0 is not in 1..=10000"),
        ("-c 10001", "-c <CLIENTS>"),
        ("-n 0", "-n <REQUESTS>"),
        ("-n abc", "-n <REQUESTS>"),
        ("-d 0", "-d <SIZE>"),
        ("-d 536870913", "-d <SIZE>"),
        ("-P 0", "-P <NUMREQ>"),
        ("-r 0", "-r <KEYSPACE>"),
        ("-r 1000000000001", "-r <KEYSPACE>"),
        ("-p 65536", "-p <PORT>"),
        ("-p 0", "-p <PORT>"),
        ("--tasks-per-connection 0", "--tasks-per-connection <N>"),
        ("--threads 513", "--threads <NUM>"),
        ("--rx-size 65535", "--rx-size <BYTES>"),
        ("--rx-size 16777217", "16777217 is not in 65536..=16777216"),
        ("--rx-size 4294967295", "4294967295 is not in 65536..=16777216"),
        ("--transport udp", "rdma, tcp, emulated"),
        ("--transport tcp --rx-size 65536", "means nothing with --transport tcp"),
        ("--user app", "-a <PASSWORD>"),
        ("--url rdma://server -h server", "cannot be used with '-h <HOST>'"),
        ("--url rdma://server -p 1", "cannot be used with '-p <PORT>'"),
        ("--url rdma://server --transport tcp", "cannot be used with '--transport <KIND>'"),
        ("--url rdma://server -a secret", "cannot be used with '-a <PASSWORD>'"),
        ("--demo -n 10", "--demo"),
        ("--no-such-flag", "--no-such-flag"),
        ("lpush list value", "lpush"),
        ("-c", "-c <CLIENTS>"),
    ] {
        let reason = refusal(line);
        assert!(reason.contains(said), "{line:?} was refused with {reason:?}");
        assert_eq!(reason.lines().count(), 1, "{line:?} was refused with {reason:?}");
    }
}

#[test]
fn the_readme_has_every_flag_of_the_help_and_no_other() {
    let Err(Instead::Print(help)) = parse("--help") else { panic!("--help prints") };
    let mut flags: Vec<&str> = help
        .lines()
        .filter(|line| line.trim_start().starts_with('-'))
        .flat_map(|line| line.split_whitespace().take_while(|word| word.starts_with('-')))
        .map(|flag| flag.trim_end_matches(','))
        .collect();
    let table = include_str!("../README.md").lines().filter(|line| line.starts_with("| `-"));
    let mut told: Vec<&str> = table
        .filter_map(|row| row.split(" | ").next())
        .flat_map(|flags| flags.split([' ', '`', ',']))
        .filter(|word| word.starts_with('-'))
        .collect();
    flags.sort_unstable();
    told.sort_unstable();
    assert_eq!(told, flags);
}

#[test]
fn help_and_version_are_printed_and_h_is_the_host() {
    let Err(Instead::Print(help)) = parse("--help") else { panic!("--help prints") };
    assert!(help.contains("--tasks-per-connection"), "{help}");
    assert!(help.contains("emulated is software, not RDMA"), "{help}");
    assert!(
        matches!(parse("--version"), Err(Instead::Print(text)) if text.starts_with("valkey-rdma-benchmark "))
    );
    assert!(matches!(parse("-h --help"), Err(Instead::Refuse(_))));
}
