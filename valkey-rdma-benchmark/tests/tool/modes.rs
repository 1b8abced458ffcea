//! What the tool does beside plain tests: commands of the user's own, schedules, comparisons, matrices, files.

use std::net::SocketAddr;
use std::process::Output;

use tokio::runtime::Runtime;
use valkey_rdma_mock::{Mock, Server};
use valkey_rdma_testkit::{Folder, csv_column};

use crate::scripted::{stderr, stdout, tool, tool_at};

/// A mock on TCP, and the runtime that it lives in.
pub(crate) struct Running {
    // Fields are dropped in this order: the server lives in the runtime.
    _server: Server,
    _runtime: Runtime,
    pub(crate) addr: SocketAddr,
}

pub(crate) fn mock() -> Running {
    let runtime = Runtime::new().unwrap();
    let loopback: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let server = runtime.block_on(Server::builder(Mock::new()).tcp(loopback).start()).unwrap();
    let addr = server.listening()[0].addr;
    Running { _server: server, _runtime: runtime, addr }
}

pub(crate) fn right(output: &Output) -> &str {
    let notices: Vec<&str> = stderr(output).lines().filter(|line| !line.contains("--populate")).collect();
    assert_eq!((output.status.code(), notices.as_slice()), (Some(0), [].as_slice()));
    stdout(output)
}

fn column(csv: &str, name: &str) -> Vec<String> {
    csv_column(csv, name).expect("the column")
}

#[test]
fn every_test_sends_what_it_says_and_counts_every_reply() {
    let mock = mock();
    for (flags, replies) in [
        ("-t ping -n 30 -c 3 -P 7", ["30", "30"].as_slice()),
        ("-t set,get -n 200 -c 3 -r 50 -d 64:10,1024-4096:1 --key-dist zipf:0.99", &["200", "200"]),
        ("-t set,get -n 200 -c 3 -r 50 --sequential --seed 4", &["200", "200"]),
        ("-t set -n 20 -c 4 -k 0", &["20"]),
        ("-t set -n 20 -c 4 --threads 3", &["20"]),
        ("-t set -n 20 -c 2 --warmup 0.01", &["20"]),
        ("-t set,get -n 6 -c 2 -d 3000000", &["6", "6"]),
        ("--ratio 1:3 --populate all -r 40 -n 100 -c 2", &["100"]),
        ("--ratio set:1,get:2,ping_mbulk:1 --populate missing -r 40 -n 100 -c 2 -P 5", &["100"]),
    ] {
        let output = tool_at(mock.addr, &format!("{flags} --verify full --csv"));
        assert_eq!(column(right(&output), "replies"), replies, "{flags}");
    }
}

#[test]
fn each_command_of_a_sequence_counts_and_the_last_sequence_is_sent_whole() {
    let mock = mock();
    let url = format!("valkey://{}", mock.addr);
    for shape in [["-c", "2"], ["--tasks-per-connection", "3"]] {
        let flags = ["-u", &url, "-n", "38", "-r", "5", "-P", "2", "--csv", shape[0], shape[1], "--"];
        let command = ["set", "k:__rand_1st__", "__data__", ";", "3", "get", "k:__rand_1st__"];
        let output = tool(&[&flags[..], &command[..]].concat());
        assert_eq!(column(right(&output), "replies"), ["40"]);
        assert_eq!(column(right(&output), "test"), ["set k:__rand_1st__ __data__ ; 3 get k:__rand_1st__"]);
    }
}

#[test]
fn a_schedule_is_kept_and_reported() {
    let mock = mock();
    for flags in
        ["--rps 20000", "--rps 20000 --arrivals poisson --threads 2", "--rps 20000 --tasks-per-connection 4"]
    {
        let output = tool_at(mock.addr, &format!("-t ping_mbulk -n 400 -c 4 {flags} --csv"));
        let csv = right(&output);
        assert_eq!(
            (column(csv, "replies"), column(csv, "intended_rps")),
            (vec!["400".to_owned()], vec!["20000.00".to_owned()])
        );
    }
    let table = tool_at(mock.addr, "-t ping_mbulk -n 40 -c 4 --rps 20000");
    assert!(right(&table).contains("  service time"), "{}", stdout(&table));
}

#[test]
fn a_matrix_has_a_row_for_every_combination() {
    let mock = mock();
    let url = format!("valkey://{}", mock.addr);
    let output = tool(&["-u", &url, "-t", "set", "-n", "20", "--csv", "--matrix", "c=1,2 P=1,3 tasks=0,2"]);
    let csv = right(&output);
    assert_eq!(column(csv, "connections"), ["1", "1", "1", "1", "2", "2", "2", "2"]);
    assert_eq!(column(csv, "pipeline"), ["1", "1", "3", "3", "1", "1", "3", "3"]);
    assert_eq!(column(csv, "tasks_per_connection"), ["", "2", "", "2", "", "2", "", "2"]);
}

#[test]
fn each_line_of_a_matrix_says_where_it_was_measured() {
    let mock = mock();
    let url = format!("valkey://{}", mock.addr);
    let output = tool(&["-u", &url, "-t", "set,incr", "-n", "20", "-q", "--matrix", "c=1,2 P=3"]);
    let names: Vec<&str> = right(&output).lines().filter_map(|line| line.split(": ").next()).collect();
    assert_eq!(names, ["c=1 P=3 SET", "c=1 P=3 INCR", "c=2 P=3 SET", "c=2 P=3 INCR"]);
}

#[test]
fn a_comparison_has_both_servers_and_files_for_programs_and_people() {
    let (one, other, folder) = (mock(), mock(), Folder::new("compare"));
    let (json, plot) = (folder.file("out.json"), folder.file("out.svg"));
    let flags = format!(
        "-t ping_mbulk,set -n 40 -c 2 --rounds 2 --compare valkey://{} --json {json} --plot {plot}",
        other.addr
    );
    let output = tool_at(one.addr, &flags);
    let table = right(&output);
    assert!(table.contains("this to other, 95 % intervals") && table.contains("2 of 2"), "{table}");
    let json: serde_json::Value = serde_json::from_str(&folder.read("out.json")).unwrap();
    let comparisons = json["comparisons"].as_array().unwrap();
    assert_eq!(comparisons.len(), 2);
    for comparison in comparisons {
        assert!(comparison["ratios"]["requests_per_second"]["ratio"].as_f64().unwrap() > 0.0);
        for side in comparison["sides"].as_array().unwrap() {
            assert_eq!(
                (side["replies"].as_u64(), side["rounds"].as_array().map(Vec::len)),
                (Some(40), Some(2))
            );
        }
    }
    assert_eq!(json["servers"].as_array().map(Vec::len), Some(2));
    let svg = folder.read("out.svg");
    assert!(svg.starts_with("<svg") && svg.contains("this to other: Requests per second, ratio"), "{svg}");
}

#[test]
fn results_are_written_for_the_tools_of_hdrhistogram() {
    let (mock, folder) = (mock(), Folder::new("hdr"));
    let (hdr, json) = (folder.file("lat"), folder.file("out.json"));
    let output = tool_at(mock.addr, &format!("-t ping_mbulk -n 300 -c 2 --hdr {hdr} --json {json} -q"));
    right(&output);
    let percentiles = folder.read("lat.PING_MBULK.hgrm");
    assert!(
        percentiles.contains("TotalCount") && percentiles.contains("Total count    =          300]"),
        "{percentiles}"
    );

    let json: serde_json::Value = serde_json::from_str(&folder.read("out.json")).unwrap();
    let test = &json["tests"][0];
    assert_eq!((test["replies"].as_u64(), test["run"]["transport"].as_str()), (Some(300), Some("tcp")));
    assert!(test["run"]["environment"]["kernel"].is_string());
    assert!(test["run"]["environment"]["started"].as_str().unwrap().ends_with('Z'), "{test}");
    assert_eq!(json["interrupted"], false);
}

#[test]
fn a_sweep_shows_a_rate_for_each_step() {
    let mock = mock();
    let output = tool_at(mock.addr, "-t ping_mbulk -c 2 --sweep --duration 0.02 --target-p99 60000");
    assert!(stdout(&output).contains("p99 within 60000.000 ms"), "{}", stdout(&output));
    assert!(stdout(&output).contains("intended/s"));
    assert!(!stdout(&output).contains("CPU us"), "no columns of another table: {}", stdout(&output));
}
