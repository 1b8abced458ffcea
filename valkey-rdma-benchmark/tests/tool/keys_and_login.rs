//! What a run writes and under which names, the login, and the percentiles of the table.

use std::net::SocketAddr;
use std::process::{Command, Output};

use tokio::runtime::Runtime;
use valkey_rdma_mock::{Mock, Server};

use crate::modes::{mock, right};
use crate::scripted::{stderr, stdout, tool_at};

/// The notes on standard error, which come before anything is sent.
fn notes(output: &Output) -> Vec<&str> {
    let text = std::str::from_utf8(&output.stderr).unwrap();
    text.lines().filter(|line| line.starts_with("note: ")).collect()
}

#[test]
fn a_run_that_writes_names_its_keys_and_one_that_only_reads_does_not() {
    let mock = mock();
    for (flags, written) in [
        ("-t set,get,incr,lpush,mset", Some("key:*, counter:*, mylist;")),
        ("-t set,sadd --key-prefix app:", Some("app:key:*, app:myset;")),
        ("--ratio 1:1 --populate all", Some("key:*;")),
        ("-t fcall", Some("the function library benchlib;")),
        ("-t ping_mbulk", None),
        ("-- set a b", None),
    ] {
        let output = tool_at(mock.addr, &format!("-n 20 -c 2 -q {flags}"));
        let expected =
            written.map(|keys| format!("note: writes {keys} --key-prefix gives its keys other names"));
        assert_eq!(notes(&output), expected.as_deref().into_iter().collect::<Vec<_>>(), "{flags}");
    }
}

#[test]
fn keys_with_a_prefix_are_apart_from_those_without() {
    let mock = mock();
    for flags in [
        "-t set",
        "-t get",
        "-t mset",
        "-t mget",
        "-t get --populate all -r 100",
        "-t zadd,fcall,lpush,lrange_100",
    ] {
        right(&tool_at(mock.addr, &format!("-n 300 -c 2 -q --key-prefix app: {flags}")));
    }
    let without = tool_at(mock.addr, "-n 20 -c 2 -q -t get");
    assert_eq!(without.status.code(), Some(1), "{}", stdout(&without));
    assert!(stderr(&without).contains("the keys to read do not exist"), "{}", stderr(&without));
}

#[test]
fn the_table_has_the_percentiles_that_were_asked_for() {
    let mock = mock();
    let output = tool_at(mock.addr, "-n 50 -c 2 -t ping_mbulk --percentiles 25,99.99,100");
    let head = right(&output).lines().find(|line| line.starts_with("test")).unwrap();
    let names: Vec<&str> = head.split_whitespace().filter(|word| word.starts_with('p')).collect();
    assert_eq!(names, ["p25", "p99.99", "p100"]);
    let refused = tool_at(mock.addr, "-n 50 --percentiles 0");
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("50,99,99.9"), "{}", stderr(&refused));
}

/// A mock with a password, and what the tool says with these variables in its environment.
fn with_environment(addr: SocketAddr, variables: &[(&str, &str)], flags: &[&str]) -> Output {
    let (host, port) = (addr.ip().to_string(), addr.port().to_string());
    let mut command = Command::new(env!("CARGO_BIN_EXE_valkey-rdma-benchmark"));
    command.args(["-t", "ping_mbulk", "-n", "20", "-c", "2", "-q"]);
    if !flags.contains(&"-u") {
        command.args(["-h", &host, "-p", &port]);
    }
    command.args(flags).envs(variables.iter().copied()).output().unwrap()
}

#[test]
fn the_password_comes_from_the_environment_unless_it_is_given() {
    let runtime = Runtime::new().unwrap();
    let loopback: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let server = Server::builder(Mock::new().requirepass("secret")).tcp(loopback).start();
    let server = runtime.block_on(server).unwrap();
    let addr = server.listening()[0].addr;
    let url = format!("valkey://{addr}");
    let ours = "VALKEY_RDMA_PASSWORD";
    for (variables, flags, status) in [
        (&[][..], &[][..], 1),
        (&[(ours, "secret")], &[], 0),
        (&[("VALKEYCLI_AUTH", "secret")], &[], 0),
        (&[("REDISCLI_AUTH", "secret")], &[], 0),
        (&[(ours, "secret"), ("REDISCLI_AUTH", "other")], &[], 0),
        (&[(ours, ""), ("REDISCLI_AUTH", "secret")], &[], 0),
        (&[(ours, "other")], &["-a", "secret"], 0),
        (&[(ours, "secret")], &["-u", &url], 0),
        (&[(ours, "secret")], &["--user", "default"], 0),
        (&[], &["--user", "default"], 2),
    ] {
        let output = with_environment(addr, variables, flags);
        assert_eq!(output.status.code(), Some(status), "{variables:?} {flags:?}: {}", stderr(&output));
        assert!(!stderr(&output).contains("secret"), "{}", stderr(&output));
    }
}
