//! `--evidence`, against mocks on the emulated device and TCP.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::process::{Command, Output};
use std::time::Duration;

use serde_json::Value;
use tokio::runtime::Runtime;
use valkey_rdma_mock::{Address, DeviceKind, Mock, MockServer, Reply, Server, TransportConfig};
use valkey_rdma_testkit::{Child, Folder, Signal};

use crate::page::assert_self_contained;
use crate::scripted::{stderr, stdout, tool};

/// Longer than any wait here takes.
const DEADLINE: Duration = Duration::from_secs(300);

/// On a busy machine, connecting can take long.
fn patient(url: &str) -> String {
    format!("{url}?timeout=300s")
}

fn run(url: &str, tcp: &str, folder: &Folder, flags: &str) -> Output {
    let (url, tcp, file) = (&patient(url), &patient(tcp), folder.file("out.json"));
    let first = ["-u", url, "--compare", tcp, "--evidence", &file, "--rounds", "2", "--duration", "0.04"];
    tool(&first.into_iter().chain(flags.split_whitespace()).collect::<Vec<_>>())
}

fn read(folder: &Folder) -> Value {
    assert_self_contained(&folder.read("out.html"));
    serde_json::from_str(&folder.read("out.json")).unwrap()
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[test]
fn a_cell_has_both_transports_with_the_processor_time_of_both_sides() {
    let (runtime, folder) = (Runtime::new().unwrap(), Folder::new("evidence"));
    let mock = runtime.block_on(MockServer::start());
    let names = ["c1-3B", "c1-t16-64B", "c1-100K", "c1-64K-direct", "c1-1M-direct"];
    let output = run(mock.url(), mock.tcp_url(), &folder, &format!("--cells {}", names.join(",")));
    assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
    assert!(stderr(&output).contains("5 cells, 2 rounds of 0.02 s on each side"), "{}", stderr(&output));
    assert!(stdout(&output).contains("server us"), "{}", stdout(&output));

    let found = read(&folder);
    assert_eq!((text(&found["kind"]), &found["interrupted"]), ("evidence", &Value::Bool(false)));
    let cells = array(&found["cells"]);
    assert_eq!(cells.iter().map(|cell| text(&cell["cell"])).collect::<Vec<_>>(), names);
    let mut server_cpu = false;
    for cell in cells {
        let name = text(&cell["cell"]);
        assert!(array(&cell["failed"]).is_empty(), "{name}: {}", cell["failed"]);
        let tests: Vec<_> =
            array(&cell["comparisons"]).iter().map(|compared| text(&compared["test"])).collect();
        assert_eq!(tests, ["SET", "GET"], "{name}");
        let way = if name.ends_with("-direct") { "direct" } else { "stream" };
        for compared in array(&cell["comparisons"]) {
            for (side, transport, way) in [(0, "emulated", way), (1, "tcp", "stream")] {
                assert_eq!(text(&cell["servers"][side]["transport"]), transport, "{name}");
                let side = &compared["sides"][side];
                assert_eq!((text(&side["way"]), array(&side["rounds"]).len()), (way, 2), "{name}");
                // A busy machine may answer INFO too late.
                server_cpu |= side["server_cpu_us_per_request"].as_f64() > Some(0.0);
                assert!(
                    side["client_cores"].is_number() && side["latency_ms"]["p99_9"].is_number(),
                    "{name}"
                );
            }
            for ratio in
                ["requests_per_second", "p50", "p99", "client_cpu_per_request", "server_cpu_per_request"]
            {
                assert!(compared["ratios"].get(ratio).is_some(), "{name}: no {ratio}");
            }
        }
    }
    assert!(server_cpu, "{found:#}");
    assert!(text(&cells[0]["published"]["source"]).starts_with("arxiv.org/"), "{}", cells[0]);
    assert!(
        found["client"]["kernel"].is_string() && found["server"]["valkey_version"].is_string(),
        "{found:#}"
    );
    let sections: HashSet<_> =
        array(&found["machine"]["sections"]).iter().map(|one| text(&one["name"])).collect();
    assert!(
        ["libraries", "kernel", "limits", "cpu"].iter().all(|name| sections.contains(name)),
        "{sections:?}"
    );
    let page = folder.read("out.html");
    assert!(page.contains("c1-1M-direct GET, direct") && page.contains("Every reply was right"), "{page}");
    // It writes to a file beside it first.
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
}

#[test]
fn both_sides_get_the_same_rate_so_that_cores_can_be_compared() {
    let (runtime, folder) = (Runtime::new().unwrap(), Folder::new("evidence-rate"));
    let mock = runtime.block_on(MockServer::start());
    run(mock.url(), mock.tcp_url(), &folder, "--cells c1-t64-64B");
    let found = read(&folder);
    let cell = &found["cells"][0];
    // A busy machine may not keep the rate, and then says so.
    let failed = array(&cell["failed"]).iter().any(|failed| text(&failed["test"]).starts_with("GET at "));
    let rated =
        array(&cell["comparisons"]).iter().find(|compared| text(&compared["test"]).starts_with("GET at "));
    match rated {
        Some(rated) => {
            let rate = |side: usize| rated["sides"][side]["open_loop"]["requests_per_second"].as_f64();
            assert!(rate(0).unwrap() >= 1.0 && rate(0) == rate(1), "{rated:#}");
        }
        None => assert!(failed, "{cell:#}"),
    }
}

#[test]
fn the_file_has_neither_passwords_nor_addresses_unless_asked() {
    let (runtime, folder) = (Runtime::new().unwrap(), Folder::new("evidence-secret"));
    let mock = runtime.block_on(MockServer::start_with(Mock::new().requirepass("s3cr3t"))).unwrap();
    let with_login = |url: &str| url.replace("://", "://default:s3cr3t@");
    for (flags, has_address) in [("--cells c1-3B", false), ("--cells c1-3B --with-addresses", true)] {
        let output = run(&with_login(mock.url()), &with_login(mock.tcp_url()), &folder, flags);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let found = read(&folder);
        for name in ["out.json", "out.html"] {
            let written = folder.read(name);
            assert!(!written.contains("s3cr3t"), "{name}: {written}");
            assert!(has_address || !written.contains("127.0.0.1"), "{name}: {written}");
        }
        let command = text(&found["command"]);
        assert!(command.contains("--url ...") || command.contains("-u ..."), "{command}");
        assert!(command.contains("--cells c1-3B") && command.contains("--rounds 2"), "{command}");
        let server = text(&found["cells"][0]["servers"][0]["server"]);
        assert_eq!(server == "emulated://SERVER", !has_address, "{server}");
    }
}

#[test]
fn a_cell_that_cannot_run_has_its_reason_and_the_others_run() {
    let (runtime, folder) = (Runtime::new().unwrap(), Folder::new("evidence-stock"));
    let loopback: SocketAddr = "127.0.0.1:0".parse().unwrap();
    // As Valkey, which offers no direct transfers.
    let rdma = Address::rdma(DeviceKind::Emulated, loopback, &TransportConfig::default());
    let stock = Server::builder(Mock::new()).listen(rdma).tcp(loopback).start();
    let stock = runtime.block_on(stock).unwrap();
    let urls: Vec<String> = stock.urls().collect();
    let output = run(&urls[0], &urls[1], &folder, "--cells c1-3B,c1-64K-direct,c1-64K");
    assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
    let found = read(&folder);
    let of = |name: &str| array(&found["cells"]).iter().find(|cell| text(&cell["cell"]) == name).unwrap();
    for (name, measured) in [("c1-3B", 2), ("c1-64K-direct", 0), ("c1-64K", 2)] {
        assert_eq!(array(&of(name)["comparisons"]).len(), measured, "{name}");
    }
    let reason = text(&of("c1-64K-direct")["failed"][0]["reason"]);
    assert!(reason.contains("the server does not offer direct transfers"), "{reason}");
    assert!(stdout(&output).contains("c1-64K-direct not measured: "), "{}", stdout(&output));
    assert!(folder.read("out.html").contains("the server does not offer direct transfers"));
}

#[test]
fn what_a_server_refuses_is_named_and_counts_as_wrong() {
    let (runtime, folder) = (Runtime::new().unwrap(), Folder::new("evidence-oom"));
    let mock = runtime.block_on(MockServer::start());
    mock.on("SET").error("OOM command not allowed when used memory > 'maxmemory'.");
    let output = run(mock.url(), mock.tcp_url(), &folder, "--cells c1-3B");
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let failed = array(&read(&folder)["cells"][0]["failed"]).to_vec();
    assert_eq!(
        failed.iter().map(|one| text(&one["test"])).collect::<HashSet<_>>(),
        HashSet::from(["SET", "GET"])
    );
    assert!(failed.iter().all(|one| text(&one["reason"]).contains("OOM command not allowed")), "{failed:?}");
}

#[test]
fn an_interrupt_leaves_files_with_the_cells_that_were_measured() {
    let (runtime, folder) = (Runtime::new().unwrap(), Folder::new("evidence-interrupted"));
    let mock = runtime.block_on(MockServer::start());
    let file = folder.file("out.json");
    let (url, tcp) = (patient(mock.url()), patient(mock.tcp_url()));
    let flags = ["-u", &url, "--compare", &tcp, "--evidence", &file, "--rounds", "2"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_valkey-rdma-benchmark"));
    // All cells take far longer than the first.
    let mut child = Child::start(command.args(flags).args(["--duration", "0.5"])).unwrap();
    child.lines("c30-512B GET ", 1, DEADLINE).unwrap();
    child.signal(Signal::INT);
    let status = child.wait(DEADLINE).unwrap();
    assert_eq!(status.code(), Some(130), "{}", child.stderr());
    assert!(child.stderr().contains("cells are missing"), "{}", child.stderr());
    let found = read(&folder);
    let begun = array(&found["cells"]).len();
    assert_eq!((&found["interrupted"], found["cells_chosen"].as_u64()), (&Value::Bool(true), Some(27)));
    assert!((1..27).contains(&begun), "{begun}");
    assert_eq!(
        array(&found["cells"][0]["comparisons"][0]["sides"][0]["rounds"]).len(),
        2,
        "whole rounds only"
    );
    assert!(folder.read("out.html").contains("of 27 cells were begun"));
}

#[test]
fn two_servers_are_not_taken_for_one() {
    let (runtime, folder) = (Runtime::new().unwrap(), Folder::new("evidence-two"));
    let [one, other] = ["run_id:1", "run_id:2"].map(|id| {
        let mock = runtime.block_on(MockServer::start());
        mock.on("INFO").reply(Reply::bulk(id));
        mock
    });
    let output = run(one.url(), other.tcp_url(), &folder, "");
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("lead to different servers"), "{}", stderr(&output));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing was measured");
}

#[test]
fn servers_that_are_not_rdma_beside_tcp_are_refused() {
    let folder = Folder::new("evidence-refused");
    for (url, tcp, reason) in [
        (
            "valkey://127.0.0.1:1",
            "valkey://127.0.0.1:1",
            "this server is reached over tcp: give -u rdma://HOST:PORT",
        ),
        ("rdma://127.0.0.1:1", "emulated://127.0.0.1:1", "give valkey://HOST:PORT"),
    ] {
        let output = run(url, tcp, &folder, "");
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        assert!(stderr(&output).contains(reason), "{}", stderr(&output));
    }
    let file = folder.file("out.json");
    let output = tool(&["-u", "emulated://127.0.0.1:1", "--evidence", &file]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("--compare valkey://HOST:PORT"), "{}", stderr(&output));
}
